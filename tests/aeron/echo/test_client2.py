"""An Echo 2.0 client against a server that says what it likes, or against none."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator

import pytest

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.polled_images import BytesPublication, PolledSubscription
from aeron_spark.echo import channels, reports, texts
from aeron_spark.echo.conversation import conversation, drive
from aeron_spark.echo.echo2 import Client2, Server2, Server2Settings
from aeron_spark.errors import AeronSparkError, ConnectError, DataFormatError, RefusedError, WaitTimeout
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.wires import LARGEST, FakeServer, Seen, own_driver, say, serving, until
from tests.ending import FOR_EVER, ends

STEP = 1.0  # seconds that these tests give a step, instead of 10
PATIENCE = 60.0  # seconds, for as many drivers on a machine that does other things
DUOLOGUE = texts.EchoAddress(0, 0, 4711)

Steps = Generator[None, None, object]


@pytest.fixture
def fake(here: Client, listen: HostPort) -> Iterator[FakeServer]:
    server = FakeServer(here, listen, listen.port + 1)
    yield server
    server.close()


@contextlib.contextmanager
def asking(there: Client, listen: HostPort, step_seconds: float = STEP) -> Iterator[Client2]:
    client = Client2(there, listen, listen.port + 1, step_seconds=step_seconds)
    try:
        yield client
    finally:
        client.close()


def both(steps: Steps, server: Callable[[], object]) -> object:
    """Drive a client while ``server`` is called between its looks; return its value."""
    calls = iter(lambda: server() or True, None)
    return drive(steps, lambda: not next(calls))


def answering(fake: FakeServer, answer: Callable[[int, int], bytes]) -> Callable[[], None]:
    """A server that answers each HELLO, and forgets it."""

    def poll() -> None:
        found = fake.hello()
        if found is not None:
            image, message = found
            key = texts.read_hello_2(message)
            assert key is not None
            say(fake.talking, answer(image.session_id, key))

    return poll


def test_row_86_two_clients_have_two_keys(fake: FakeServer, there: Client, listen: HostPort) -> None:
    heard = []
    for _ in range(2):
        with asking(there, listen) as client:
            steps = client.connecting()

            def poll() -> None:
                found = fake.hello()
                heard.extend([found[1]] if found else [])

            with pytest.raises(WaitTimeout, match="CONNECT response"):
                both(steps, poll)
    assert all(re.fullmatch(rb"HELLO [0-9A-F]{1,8}", message) for message in heard)
    assert len(set(heard)) == 2


def test_row_94_an_error_in_the_duologue_ends_the_client(fake: FakeServer, there: Client, listen: HostPort) -> None:
    data, control = listen.port + 10, listen.port + 11
    place = texts.EchoAddress(data, control, 4711)
    talking = BytesPublication(fake.client, channels.fanning_out(HostPort(listen.host, control), 4711), texts.STREAM_ID)
    hearing = PolledSubscription(
        fake.client, channels.receiving(HostPort(listen.host, data), 4711), texts.STREAM_ID, LARGEST
    )
    welcome = answering(fake, lambda session_id, key: texts.connect(session_id, key, place))

    def poll() -> None:
        welcome()
        for image in hearing.images():
            for message in image.poll(1):
                assert message is not None
                say(talking, b"ERROR you are too loud" if message == b"ECHO loud" else message)

    seen = Seen()
    try:
        with asking(there, listen) as client, pytest.raises(RefusedError, match="you are too loud"):
            both(conversation(client, [b"soft", b"loud"], 0.0, seen), poll)
        assert [echo.text for echo in seen.of(reports.EchoReceived)] == ["soft"]
    finally:
        hearing.close()
        talking.close()


def test_row_94_an_error_while_the_client_pauses_ends_it(here: Client, there: Client, listen: HostPort) -> None:
    seen = Seen()
    server = Server2(here, Server2Settings(listen, listen.port + 1, listen.port + 10), lambda event: None)
    with asking(there, listen) as client:
        steps = conversation(client, [b"one", b"two"], FOR_EVER, seen)  # it pauses until then, unless it notices
        with serving(server):
            drive(steps, lambda: bool(seen.of(reports.EchoReceived)))
        with pytest.raises(ConnectError, match="was closed"):
            ends(lambda: drive(steps, lambda: False), "a conversation whose server has gone")


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (lambda session, key: texts.refuse(session, "server full"), RefusedError, "refuses: server full"),
        (lambda session, key: texts.refuse(session, "I do not like you"), RefusedError, "I do not like you"),
        (lambda session, key: b"%d CONNECT 1 2" % session, DataFormatError, "which is not Echo 2.0"),
        (lambda session, key: b"%d CONNECT 1 99999 AB" % session, DataFormatError, "which is not Echo 2.0"),
        (lambda session, key: b"%d CONNECT 1 2 %X" % (session, key), DataFormatError, "which is not Echo 2.0"),
        (lambda session, key: b"%d NOPE" % session, WaitTimeout, "CONNECT response"),
        (lambda session, key: b"\xff" * 20_000, WaitTimeout, "CONNECT response"),
    ],
)
def test_what_a_server_answers_is_told(
    fake: FakeServer,
    there: Client,
    listen: HostPort,
    answer: Callable[[int, int], bytes],
    error: type[AeronSparkError],
    says: str,
) -> None:
    with asking(there, listen) as client, pytest.raises(error, match=says):
        both(client.connecting(), answering(fake, lambda session, key: answer(session, key)[: 8 << 10]))


def test_row_96_what_is_said_to_others_is_ignored(fake: FakeServer, there: Client, listen: HostPort) -> None:
    place = texts.EchoAddress(listen.port + 10, listen.port + 11, 4711)
    said = []

    def other(session_id: int, key: int) -> bytes:
        said.append(texts.connect(session_id ^ 1, key, place))
        return said[-1]

    late = pytest.raises(WaitTimeout, match=r"step 'CONNECT response' was not done within 1 s")
    with asking(there, listen) as client, late:
        both(client.connecting(), answering(fake, other))
    assert len(said) == 1


def test_row_96_each_step_is_named_when_its_time_is_over(fake: FakeServer, there: Client, listen: HostPort) -> None:
    place = texts.EchoAddress(listen.port + 10, listen.port + 11, 4711)
    with asking(there, listen) as client, pytest.raises(WaitTimeout, match="step 'duologue subscription'"):
        both(client.connecting(), answering(fake, lambda session, key: texts.connect(session, key, place)))
    control = HostPort(listen.host, place.control_port)
    talking = BytesPublication(fake.client, channels.fanning_out(control, place.session_id), texts.STREAM_ID)
    try:
        with asking(there, listen) as client, pytest.raises(WaitTimeout, match="step 'duologue publication'"):
            both(client.connecting(), answering(fake, lambda session, key: texts.connect(session, key, place)))
    finally:
        talking.close()
    fake.listening.close()
    with asking(there, listen) as client, pytest.raises(WaitTimeout, match="step 'initial publication'"):
        drive(client.connecting(), lambda: False)


def test_row_96_a_dead_port_is_given_ten_seconds(there: Client, listen: HostPort) -> None:
    client = Client2(there, listen, listen.port + 1)  # the time that users get
    began = time.monotonic()
    try:
        with pytest.raises(WaitTimeout, match=r"step 'initial subscription' was not done within 10 s"):
            drive(client.connecting(), lambda: False)
    finally:
        client.close()
    assert 9.0 < time.monotonic() - began < 20.0


# forty drivers and clients that look each millisecond take all of two cores, and what runs beside them fails
@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.soak)])
def test_row_97_clients_on_drivers_of_their_own_have_sessions_of_their_own(
    here: Client, listen: HostPort, run_name: str, count: int
) -> None:
    settings = Server2Settings(listen, listen.port + 1, listen.port + 10, clients=count, per_address=0)
    seen, joined = Seen(), Seen()
    with contextlib.ExitStack() as open_, serving(Server2(here, settings, seen, step_seconds=PATIENCE)):
        clients = []
        for _ in range(count):
            driver = open_.enter_context(own_driver(run_name))
            client = Client2(driver, listen, listen.port + 1, step_seconds=PATIENCE)
            open_.callback(client.close)
            clients.append(conversation(client, [b"me"], 0.0, joined))
        waiting, done = list(clients), object()

        def all_done() -> bool:
            for steps in list(waiting):
                if next(steps, done) is done:
                    waiting.remove(steps)
            return not waiting

        until(all_done, "all clients to be echoed", 2 * PATIENCE)
    assert len(joined.of(reports.EchoReceived)) == count
    sessions = {event.session_id for event in joined.of(reports.ClientConnected)}
    assert len(sessions) == count
    assert {event.session_id for event in seen.of(reports.DuologueOpened)} == sessions
