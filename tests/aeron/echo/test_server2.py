"""The Echo 2.0 server with clients that tests control message by message, on another media driver."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.echo import conversation
from aeron_spark.echo.conversation import converse, run_steps
from aeron_spark.echo.echo2 import Client2, Server2, Server2Settings
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.manual_peers import (
    Events,
    ManualClient,
    own_driver,
    receive,
    receives_nothing,
    send,
    serving,
    stays_false,
    wait_until,
)

STEP_TIMEOUT_S = 1.5  # instead of 10, to make these tests faster
FOREIGN = "127.0.0.7"


class RunningServer:
    """A running server, and its manual clients, which are closed with it."""

    def __init__(self, server: Server2, events: Events, client: AeronClient) -> None:
        self.server = server
        self.events = events
        self.client = client
        self.clients: list[ManualClient] = []

    def manual_client(self, source: str | None = None, client: AeronClient | None = None) -> ManualClient:
        settings = self.server.settings
        manual = ManualClient(client or self.client, settings.listen, settings.control_port, source=source)
        self.clients.append(manual)
        return manual

    def wait_until_idle(self) -> None:
        """Wait until the server has released the resources of all clients."""
        wait_until(
            lambda: self.server.duologues == 0 and self.server.resources_in_use == 0, "everything to be released"
        )


@contextlib.contextmanager
def running_server(
    server_aeron: AeronClient,
    client_aeron: AeronClient,
    listen: HostPort,
    *,
    step_timeout_s: float = STEP_TIMEOUT_S,
    **limits: int,
) -> Iterator[RunningServer]:
    events = Events()
    settings = Server2Settings(listen, listen.port + 1, listen.port + 10, **limits)
    server = Server2(server_aeron, settings, events, step_timeout_s=step_timeout_s)
    with serving(server):
        running = RunningServer(server, events, client_aeron)
        try:
            yield running
        finally:
            for manual in running.clients:
                manual.close()


def test_row_85_a_client_gets_a_duologue_and_echoes(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        events = Events()
        client = Client2(client_aeron, listen, listen.port + 1)
        payloads = [b"one", b"", "zwölf €".encode(), bytes(range(256)), b"two\r\nlines\x00"]
        try:
            assert run_steps(converse(client, payloads, 0.0, events), lambda: False) == len(payloads)
        finally:
            client.close()
        assert len(events.of(conversation.ClientConnected)) == 1
        assert [echo.text for echo in events.of(conversation.EchoReceived)][:3] == ["one", "", "zwölf €"]
        running.wait_until_idle()
    (ended,) = running.events.of(conversation.ClientEnded)
    assert (ended.echoes, ended.reason) == (5, "its client left")


def test_row_86_the_response_has_the_grammar_of_the_reference(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        for key in (0xDEADBEEF, 0, 0xFFFFFFFF):
            manual = running.manual_client()
            found = re.fullmatch(rb"CONNECT ([0-9]+) ([0-9]+) ([0-9A-F]{1,8})", manual.request(f"HELLO {key:X}"))
            assert 1 <= int(found[3], 16) ^ key <= 2147483646
            assert int(found[1]) != int(found[2])
            assert {int(found[1]), int(found[2])} <= set(range(listen.port + 10, listen.port + 26))


def test_row_87_every_wrong_hello_gets_an_error(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    bad = ["HELLO", "HELLO xyz", "HELLO abcdef", "HELLO 12 ", "HELLO 123456789", "HELLO 1\n", "", "x" * 20_000, "ä"]
    with running_server(server_aeron, client_aeron, listen) as running:
        manual = running.manual_client()
        for text in bad:
            assert manual.request(text) == b"ERROR bad message", text[:20]
        assert running.server.resources_in_use == 0
        assert manual.request("HELLO 12345678").startswith(b"CONNECT ")


def test_row_88_a_full_server_sends_an_error(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen, clients=2, per_address=9) as running:
        clients = [running.manual_client() for _ in range(3)]
        responses = [manual.request("HELLO 1") for manual in clients]
        assert [response.split()[0] for response in responses] == [b"CONNECT", b"CONNECT", b"ERROR"]
        assert responses[2] == b"ERROR server full"


def test_row_88_each_address_has_its_own_limit(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen, clients=9) as running:
        responses = [running.manual_client().request("HELLO 1") for _ in range(4)]
        assert responses[3] == b"ERROR too many connections for IP address"
        assert all(response.startswith(b"CONNECT ") for response in responses[:3])
        assert running.manual_client(FOREIGN).request("HELLO 1").startswith(b"CONNECT ")
        assert running.server.duologues == 4  # a refusal does not change the number
        assert running.manual_client().request("HELLO 1") == b"ERROR too many connections for IP address"


def test_row_89_a_duologue_that_its_client_does_not_join_is_released(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen, clients=3) as running:
        start = time.monotonic()
        for _ in range(3):
            running.manual_client().request_duologue()
        running.wait_until_idle()
        assert time.monotonic() - start >= STEP_TIMEOUT_S
        for _ in range(3):
            assert running.manual_client().request("HELLO 1").startswith(b"CONNECT ")
    assert [end.reason for end in running.events.of(conversation.ClientEnded)][:3] == ["its client never came"] * 3


def test_row_90_a_second_hello_does_not_end_the_first_duologue(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        manual = running.manual_client()
        first = manual.request_duologue(1)
        subscription, publication = manual.join(first)
        second = manual.request_duologue(2)
        assert {first.data_port, first.control_port}.isdisjoint({second.data_port, second.control_port})
        send(publication, b"ECHO still here")
        assert receive(subscription) == [b"ECHO still here"]
        wait_until(lambda: running.server.duologues == 1, "the second duologue to expire")
        publication.close()
        subscription.close()
        running.wait_until_idle()


def test_row_91_only_the_owner_may_use_a_duologue(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort, run_name: str
) -> None:
    with (
        own_driver(run_name) as other_driver,
        running_server(server_aeron, client_aeron, listen, step_timeout_s=20.0) as running,
    ):
        manual = running.manual_client()
        duologue = manual.request_duologue()
        intruder = running.manual_client(client=other_driver)
        subscription, publication = intruder.try_to_join(duologue, source=FOREIGN)
        wait_until(lambda: running.events.of(conversation.EchoRefused), "the foreign address to be noticed")
        wait_until(lambda: not publication.connected, "the foreign publication to be refused")
        publication.offer(b"ECHO mine now")
        assert receives_nothing(subscription, 1.0)
        assert not running.events.of(conversation.ClientJoined)
        (refused,) = running.events.of(conversation.EchoRefused)
        assert refused.source.startswith(FOREIGN)
        assert refused.reason == "this duologue belongs to another address"


def test_row_91_a_client_at_another_address_gets_echoes_in_its_duologue(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        manual = running.manual_client(FOREIGN)
        subscription, publication = manual.join(manual.request_duologue())
        send(publication, b"ECHO mine")
        assert receive(subscription) == [b"ECHO mine"]


def test_row_92_a_client_with_a_wrong_aeron_session_id_cannot_join(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen, step_timeout_s=20.0) as running:
        manual = running.manual_client()
        duologue = manual.request_duologue()
        wrong_duologue = type(duologue)(duologue.data_port, duologue.control_port, duologue.session_id ^ 1)
        subscription, publication = manual.try_to_join(wrong_duologue)
        assert stays_false(lambda: publication.connected, 3.0)
        assert receives_nothing(subscription, 0.1)
        assert not running.events.of(conversation.ClientJoined)


def test_row_93_an_invalid_message_ends_the_duologue(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        for bad in (b"NOPE", b"", b"ECHO", b"echo x", b"\xff\xfe"):
            manual = running.manual_client()
            subscription, publication = manual.join(manual.request_duologue())
            send(publication, b"ECHO before", bad, b"ECHO after")
            assert receive(subscription, 2) == [b"ECHO before", b"ERROR bad message"], bad
            wait_until(lambda subscription=subscription: not subscription.images(), "the server to close the duologue")
        running.wait_until_idle()
        assert manual.request("HELLO 1").startswith(b"CONNECT ")


def test_row_95_a_long_message_is_echoed_or_refused(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        for length in (1_100, 8_187, 8_188, 65_536, 0):
            manual = running.manual_client()
            subscription, publication = manual.join(manual.request_duologue())
            message = b"ECHO " + b"x" * length
            send(publication, message)
            assert receive(subscription) == [message if length < 8_188 else b"ERROR bad message"]
            subscription.close()
            publication.close()
            running.wait_until_idle()


def test_row_98_a_client_that_does_not_read_does_not_delay_others(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, client_aeron, listen) as running:
        blocked_client, other = running.manual_client(), running.manual_client()
        _, silent = blocked_client.join(blocked_client.request_duologue())  # never polled
        subscription, publication = other.join(other.request_duologue())
        served, refused = 0, 0
        while served < 50 or refused < 20:  # first its echoes wait, then its requests cannot be sent
            refused += sum(silent.offer(b"ECHO " + b"y" * 8_000) is not None for _ in range(20))
            send(publication, b"ECHO quick")
            assert receive(subscription) == [b"ECHO quick"]
            served += 1
            assert served < 5_000
        wait_until(
            lambda: "its client does not read" in [end.reason for end in running.events.of(conversation.ClientEnded)],
            "the end of the client that does not read",
        )
        send(publication, b"ECHO still quick")
        assert receive(subscription) == [b"ECHO still quick"]


def test_row_99_a_client_gets_echoes_over_ipv6(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    if not socket.has_ipv6:
        pytest.fail("this machine has no IPv6, so the row is not shown here")
    with running_server(server_aeron, client_aeron, HostPort("::1", listen.port)) as running:
        events = Events()
        client = Client2(client_aeron, running.server.settings.listen, listen.port + 1)
        try:
            assert run_steps(converse(client, [b"six"], 0.0, events), lambda: False) == 1
        finally:
            client.close()
        assert running.events.of(conversation.DuologueOpened)[0].source.startswith("[0:0:0:0:0:0:0:1]:")
        assert running.server.duologues == 1


def test_ports_that_another_program_uses_are_skipped(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    used_sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    try:
        for offset, one in zip((10, 11), used_sockets, strict=True):
            one.bind(("127.0.0.1", listen.port + offset))
        with running_server(server_aeron, client_aeron, listen, clients=3, per_address=0) as running:
            responses = [running.manual_client().request("HELLO 1").split()[0] for _ in range(3)]
            assert responses.count(b"CONNECT") >= 1
            assert running.server.duologues == responses.count(b"CONNECT")
            running.wait_until_idle()
    finally:
        for one in used_sockets:
            one.close()
