"""The Echo 2.0 client with a fake server, and without a server."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.publications import BytesPublication, PolledSubscription
from aeron_spark.echo import conversation, texts
from aeron_spark.echo.conversation import converse, run_steps
from aeron_spark.echo.echo2 import Client2, Server2, Server2Settings
from aeron_spark.errors import AeronSparkError, ConnectError, DataFormatError, RefusedError, WaitTimeout
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.manual_peers import MAX_MESSAGE_BYTES, Events, FakeServer, own_driver, send, serving, wait_until
from tests.ending import LONG_TIMEOUT_S, call_in_time

STEP_TIMEOUT_S = 1.0  # instead of 10, to make these tests faster
TIMEOUT_S = 60.0  # of a step, with many media drivers on a busy machine

Steps = Generator[None, None, object]


@pytest.fixture
def fake_server(server_aeron: AeronClient, listen: HostPort) -> Iterator[FakeServer]:
    server = FakeServer(server_aeron, listen, listen.port + 1)
    yield server
    server.close()


@contextlib.contextmanager
def echo_client(
    client_aeron: AeronClient, listen: HostPort, step_timeout_s: float = STEP_TIMEOUT_S
) -> Iterator[Client2]:
    client = Client2(client_aeron, listen, listen.port + 1, step_timeout_s=step_timeout_s)
    try:
        yield client
    finally:
        client.close()


def run_with_server(steps: Steps, server: Callable[[], object]) -> object:
    """Run a client's steps, and call ``server`` after each. Return the client's result."""
    calls = iter(lambda: server() or True, None)
    return run_steps(steps, lambda: not next(calls))


def responding_server(fake_server: FakeServer, response: Callable[[int, int], bytes]) -> Callable[[], None]:
    """Return a function that makes the fake server respond to a HELLO, without opening a duologue."""

    def poll() -> None:
        found = fake_server.hello()
        if found is not None:
            image, message = found
            key = texts.decode_hello_2(message)
            assert key is not None
            send(fake_server.publication, response(image.session_id, key))

    return poll


def test_row_86_two_clients_send_different_keys(
    fake_server: FakeServer, client_aeron: AeronClient, listen: HostPort
) -> None:
    hellos = []
    for _ in range(2):
        with echo_client(client_aeron, listen) as client:
            steps = client.connect()

            def poll() -> None:
                found = fake_server.hello()
                hellos.extend([found[1]] if found else [])

            with pytest.raises(WaitTimeout, match="CONNECT response"):
                run_with_server(steps, poll)
    assert all(re.fullmatch(rb"HELLO [0-9A-F]{1,8}", message) for message in hellos)
    assert len(set(hellos)) == 2


def test_row_94_an_error_of_the_server_in_the_duologue_ends_the_client(
    fake_server: FakeServer, client_aeron: AeronClient, listen: HostPort
) -> None:
    data, control = listen.port + 10, listen.port + 11
    duologue = texts.EchoAddress(data, control, 4711)
    publication = BytesPublication(
        fake_server.client, texts.fan_out_channel(HostPort(listen.host, control), 4711), texts.STREAM_ID
    )
    subscription = PolledSubscription(
        fake_server.client, texts.receive_channel(HostPort(listen.host, data), 4711), texts.STREAM_ID, MAX_MESSAGE_BYTES
    )
    respond = responding_server(fake_server, lambda session_id, key: texts.encode_connect(session_id, key, duologue))

    def poll() -> None:
        respond()
        for image in subscription.images():
            for message in image.poll(1):
                assert message is not None
                send(publication, b"ERROR you are too loud" if message == b"ECHO loud" else message)

    events = Events()
    try:
        with echo_client(client_aeron, listen) as client, pytest.raises(RefusedError, match="you are too loud"):
            run_with_server(converse(client, [b"soft", b"loud"], 0.0, events), poll)
        assert [echo.text for echo in events.of(conversation.EchoReceived)] == ["soft"]
    finally:
        subscription.close()
        publication.close()


def test_row_94_a_closed_duologue_ends_a_client_that_pauses(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    events = Events()
    server = Server2(server_aeron, Server2Settings(listen, listen.port + 1, listen.port + 10), lambda event: None)
    with echo_client(client_aeron, listen) as client:
        # The client pauses until the end of the test, unless it notices that the duologue is closed.
        steps = converse(client, [b"one", b"two"], LONG_TIMEOUT_S, events)
        with serving(server):
            run_steps(steps, lambda: bool(events.of(conversation.EchoReceived)))
        with pytest.raises(ConnectError, match="was closed"):
            call_in_time(lambda: run_steps(steps, lambda: False), "a client whose server has closed")


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        (
            lambda session, key: texts.encode_refusal(session, "server full"),
            RefusedError,
            "refused the connection: server full",
        ),
        (lambda session, key: texts.encode_refusal(session, "I do not like you"), RefusedError, "I do not like you"),
        (lambda session, key: b"%d CONNECT 1 2" % session, DataFormatError, "which is not Echo 2.0"),
        (lambda session, key: b"%d CONNECT 1 99999 AB" % session, DataFormatError, "which is not Echo 2.0"),
        (lambda session, key: b"%d CONNECT 1 2 %X" % (session, key), DataFormatError, "which is not Echo 2.0"),
        (lambda session, key: b"%d NOPE" % session, WaitTimeout, "CONNECT response"),
        (lambda session, key: b"\xff" * 20_000, WaitTimeout, "CONNECT response"),
    ],
)
def test_the_error_of_a_client_names_the_refusal_or_the_invalid_response(
    fake_server: FakeServer,
    client_aeron: AeronClient,
    listen: HostPort,
    response: Callable[[int, int], bytes],
    error: type[AeronSparkError],
    message: str,
) -> None:
    with echo_client(client_aeron, listen) as client, pytest.raises(error, match=message):
        run_with_server(
            client.connect(), responding_server(fake_server, lambda session, key: response(session, key)[: 8 << 10])
        )


def test_row_96_a_response_to_another_client_is_ignored(
    fake_server: FakeServer, client_aeron: AeronClient, listen: HostPort
) -> None:
    duologue = texts.EchoAddress(listen.port + 10, listen.port + 11, 4711)
    sent = []

    def other(session_id: int, key: int) -> bytes:
        sent.append(texts.encode_connect(session_id ^ 1, key, duologue))
        return sent[-1]

    timeout = pytest.raises(WaitTimeout, match=r"step 'CONNECT response' was not done within 1 s")
    with echo_client(client_aeron, listen) as client, timeout:
        run_with_server(client.connect(), responding_server(fake_server, other))
    assert len(sent) == 1


def test_row_96_the_error_of_a_timeout_names_the_step(
    fake_server: FakeServer, client_aeron: AeronClient, listen: HostPort
) -> None:
    duologue = texts.EchoAddress(listen.port + 10, listen.port + 11, 4711)
    with echo_client(client_aeron, listen) as client, pytest.raises(WaitTimeout, match="step 'duologue subscription'"):
        run_with_server(
            client.connect(),
            responding_server(fake_server, lambda session, key: texts.encode_connect(session, key, duologue)),
        )
    control = HostPort(listen.host, duologue.control_port)
    publication = BytesPublication(
        fake_server.client, texts.fan_out_channel(control, duologue.session_id), texts.STREAM_ID
    )
    try:
        with (
            echo_client(client_aeron, listen) as client,
            pytest.raises(WaitTimeout, match="step 'duologue publication'"),
        ):
            run_with_server(
                client.connect(),
                responding_server(fake_server, lambda session, key: texts.encode_connect(session, key, duologue)),
            )
    finally:
        publication.close()
    fake_server.subscription.close()
    with echo_client(client_aeron, listen) as client, pytest.raises(WaitTimeout, match="step 'initial publication'"):
        run_steps(client.connect(), lambda: False)


def test_row_96_the_default_timeout_is_ten_seconds(client_aeron: AeronClient, listen: HostPort) -> None:
    client = Client2(client_aeron, listen, listen.port + 1)  # with the default timeout
    start = time.monotonic()
    try:
        with pytest.raises(WaitTimeout, match=r"step 'initial subscription' was not done within 10 s"):
            run_steps(client.connect(), lambda: False)
    finally:
        client.close()
    assert 9.0 < time.monotonic() - start < 20.0


# 40 drivers and clients that poll each millisecond occupy two cores, so that tests at the same time fail.
@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.soak)])
def test_row_97_clients_on_different_drivers_get_different_sessions(
    server_aeron: AeronClient, listen: HostPort, run_name: str, count: int
) -> None:
    settings = Server2Settings(listen, listen.port + 1, listen.port + 10, clients=count, per_address=0)
    events, client_events = Events(), Events()
    with contextlib.ExitStack() as opened, serving(Server2(server_aeron, settings, events, step_timeout_s=TIMEOUT_S)):
        clients = []
        for _ in range(count):
            driver = opened.enter_context(own_driver(run_name))
            client = Client2(driver, listen, listen.port + 1, step_timeout_s=TIMEOUT_S)
            opened.callback(client.close)
            clients.append(converse(client, [b"me"], 0.0, client_events))
        waiting, done = list(clients), object()

        def all_done() -> bool:
            for steps in list(waiting):
                if next(steps, done) is done:
                    waiting.remove(steps)
            return not waiting

        wait_until(all_done, "all clients to be echoed", 2 * TIMEOUT_S)
    assert len(client_events.of(conversation.EchoReceived)) == count
    sessions = {event.session_id for event in client_events.of(conversation.ClientConnected)}
    assert len(sessions) == count
    assert {event.session_id for event in events.of(conversation.DuologueOpened)} == sessions
