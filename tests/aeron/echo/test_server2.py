"""An Echo 2.0 server against hand-made clients on a driver of their own."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import Client
from aeron_spark.echo import reports
from aeron_spark.echo.conversation import conversation, drive
from aeron_spark.echo.echo2 import Client2, Server2, Server2Settings
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.wires import Hand, Seen, come, never, nothing_comes, own_driver, say, serving, until

STEP = 1.5  # seconds that these tests give a client, instead of 10
FOREIGN = "127.0.0.7"


class Place:
    """A running server, and hands that are closed with it."""

    def __init__(self, server: Server2, seen: Seen, client: Client) -> None:
        self.server = server
        self.seen = seen
        self.client = client
        self.hands: list[Hand] = []

    def hand(self, source: str | None = None, client: Client | None = None) -> Hand:
        settings = self.server.settings
        hand = Hand(client or self.client, settings.listen, settings.control_port, source=source)
        self.hands.append(hand)
        return hand

    def gone(self) -> None:
        """Wait until nothing is held for anybody."""
        until(lambda: self.server.duologues == 0 and self.server.held == 0, "everything to be given back")


@contextlib.contextmanager
def place(
    here: Client, there: Client, listen: HostPort, *, step_seconds: float = STEP, **limits: int
) -> Iterator[Place]:
    seen = Seen()
    settings = Server2Settings(listen, listen.port + 1, listen.port + 10, **limits)
    server = Server2(here, settings, seen, step_seconds=step_seconds)
    with serving(server):
        running = Place(server, seen, there)
        try:
            yield running
        finally:
            for hand in running.hands:
                hand.close()


def test_row_85_a_client_is_introduced_and_echoed(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        seen = Seen()
        client = Client2(there, listen, listen.port + 1)
        payloads = [b"one", b"", "zwölf €".encode(), bytes(range(256)), b"two\r\nlines\x00"]
        try:
            assert drive(conversation(client, payloads, 0.0, seen), lambda: False) == len(payloads)
        finally:
            client.close()
        assert len(seen.of(reports.ClientConnected)) == 1
        assert [echo.text for echo in seen.of(reports.EchoReceived)][:3] == ["one", "", "zwölf €"]
        running.gone()
    (ended,) = running.seen.of(reports.ClientEnded)
    assert (ended.echoes, ended.reason) == (5, "its client left")


def test_row_86_the_answer_has_the_reference_s_grammar(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        for key in (0xDEADBEEF, 0, 0xFFFFFFFF):
            hand = running.hand()
            found = re.fullmatch(rb"CONNECT ([0-9]+) ([0-9]+) ([0-9A-F]{1,8})", hand.ask(f"HELLO {key:X}"))
            assert found is not None
            assert 1 <= int(found[3], 16) ^ key <= 2147483646
            assert int(found[1]) != int(found[2])
            assert {int(found[1]), int(found[2])} <= set(range(listen.port + 10, listen.port + 26))


def test_row_87_every_bad_hello_is_answered(here: Client, there: Client, listen: HostPort) -> None:
    bad = ["HELLO", "HELLO xyz", "HELLO abcdef", "HELLO 12 ", "HELLO 123456789", "HELLO 1\n", "", "x" * 20_000, "ä"]
    with place(here, there, listen) as running:
        hand = running.hand()
        for text in bad:
            assert hand.ask(text) == b"ERROR bad message", text[:20]
        assert running.server.held == 0
        assert hand.ask("HELLO 12345678").startswith(b"CONNECT ")


def test_row_88_a_full_server_says_so(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen, clients=2, per_address=9) as running:
        hands = [running.hand() for _ in range(3)]
        answers = [hand.ask("HELLO 1") for hand in hands]
        assert [answer.split()[0] for answer in answers] == [b"CONNECT", b"CONNECT", b"ERROR"]
        assert answers[2] == b"ERROR server full"


def test_row_88_an_address_has_its_limit_and_others_their_own(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen, clients=9) as running:
        answers = [running.hand().ask("HELLO 1") for _ in range(4)]
        assert answers[3] == b"ERROR too many connections for IP address"
        assert all(answer.startswith(b"CONNECT ") for answer in answers[:3])
        assert running.hand(FOREIGN).ask("HELLO 1").startswith(b"CONNECT ")
        assert running.server.duologues == 4  # a refusal changes no count
        assert running.hand().ask("HELLO 1") == b"ERROR too many connections for IP address"


def test_row_89_a_duologue_nobody_came_to_is_given_back(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen, clients=3) as running:
        began = time.monotonic()
        for _ in range(3):
            running.hand().place()
        running.gone()
        assert time.monotonic() - began >= STEP
        for _ in range(3):
            assert running.hand().ask("HELLO 1").startswith(b"CONNECT ")
    assert [end.reason for end in running.seen.of(reports.ClientEnded)][:3] == ["its client never came"] * 3


def test_row_90_a_second_hello_orphans_nothing(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        hand = running.hand()
        first = hand.place(1)
        listening, talking = hand.join(first)
        second = hand.place(2)
        assert {first.data_port, first.control_port}.isdisjoint({second.data_port, second.control_port})
        say(talking, b"ECHO still here")
        assert come(listening) == [b"ECHO still here"]
        until(lambda: running.server.duologues == 1, "the second to expire")
        talking.close()
        listening.close()
        running.gone()


def test_row_91_only_the_owner_may_use_a_duologue(here: Client, there: Client, listen: HostPort, run_name: str) -> None:
    with own_driver(run_name) as elsewhere, place(here, there, listen, step_seconds=20.0) as running:
        hand = running.hand()
        wanted = hand.place()
        thief = running.hand(client=elsewhere)
        listening, talking = thief.try_to_join(wanted, source=FOREIGN)
        until(lambda: running.seen.of(reports.Refusal), "the foreign address to be noticed")
        until(lambda: not talking.connected, "the foreign publication to be refused")
        talking.offer(b"ECHO mine now")
        assert nothing_comes(listening, 1.0)
        assert not running.seen.of(reports.ClientJoined)
        (refused,) = running.seen.of(reports.Refusal)
        assert refused.source.startswith(FOREIGN)
        assert refused.reason == "this duologue belongs to another address"


def test_row_91_who_owns_a_duologue_is_served(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        hand = running.hand(FOREIGN)
        listening, talking = hand.join(hand.place())
        say(talking, b"ECHO mine")
        assert come(listening) == [b"ECHO mine"]


def test_row_92_a_wrong_session_cannot_join(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen, step_seconds=20.0) as running:
        hand = running.hand()
        wanted = hand.place()
        wrong = type(wanted)(wanted.data_port, wanted.control_port, wanted.session_id ^ 1)
        listening, talking = hand.try_to_join(wrong)
        assert never(lambda: talking.connected, 3.0)
        assert nothing_comes(listening, 0.1)
        assert not running.seen.of(reports.ClientJoined)


def test_row_93_a_bad_verb_ends_the_duologue(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        for bad in (b"NOPE", b"", b"ECHO", b"echo x", b"\xff\xfe"):
            hand = running.hand()
            listening, talking = hand.join(hand.place())
            say(talking, b"ECHO before", bad, b"ECHO after")
            assert come(listening, 2) == [b"ECHO before", b"ERROR bad message"], bad
            until(lambda listening=listening: not listening.images(), "the server to close the duologue")
        running.gone()
        assert hand.ask("HELLO 1").startswith(b"CONNECT ")


def test_row_95_long_echoes_are_given_or_refused(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        for length in (1_100, 8_187, 8_188, 65_536, 0):
            hand = running.hand()
            listening, talking = hand.join(hand.place())
            message = b"ECHO " + b"x" * length
            say(talking, message)
            assert come(listening) == [message if length < 8_188 else b"ERROR bad message"]
            listening.close()
            talking.close()
            running.gone()


def test_row_98_a_stuck_client_does_not_delay_others(here: Client, there: Client, listen: HostPort) -> None:
    with place(here, there, listen) as running:
        stuck, other = running.hand(), running.hand()
        _, silent = stuck.join(stuck.place())  # and never polled
        listening, talking = other.join(other.place())
        served, refused = 0, 0
        while served < 50 or refused < 20:  # its answers wait, and so do its further requests
            refused += sum(silent.offer(b"ECHO " + b"y" * 8_000) is not None for _ in range(20))
            say(talking, b"ECHO quick")
            assert come(listening) == [b"ECHO quick"]
            served += 1
            assert served < 5_000
        until(
            lambda: "its client does not read" in [end.reason for end in running.seen.of(reports.ClientEnded)],
            "its end",
        )
        say(talking, b"ECHO still quick")
        assert come(listening) == [b"ECHO still quick"]


def test_row_99_ipv6_works(here: Client, there: Client, listen: HostPort) -> None:
    if not socket.has_ipv6:
        pytest.fail("this machine has no IPv6, so the row is not shown here")
    with place(here, there, HostPort("::1", listen.port)) as running:
        seen = Seen()
        client = Client2(there, running.server.settings.listen, listen.port + 1)
        try:
            assert drive(conversation(client, [b"six"], 0.0, seen), lambda: False) == 1
        finally:
            client.close()
        assert running.seen.of(reports.DuologueOpened)[0].source.startswith("[0:0:0:0:0:0:0:1]:")
        assert running.server.duologues == 1


def test_a_port_that_another_program_has_is_passed_over(here: Client, there: Client, listen: HostPort) -> None:
    taken = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    try:
        for offset, one in zip((10, 11), taken, strict=True):
            one.bind(("127.0.0.1", listen.port + offset))
        with place(here, there, listen, clients=3, per_address=0) as running:
            answers = [running.hand().ask("HELLO 1").split()[0] for _ in range(3)]
            assert answers.count(b"CONNECT") >= 1
            assert running.server.duologues == answers.count(b"CONNECT")
            running.gone()
    finally:
        for one in taken:
            one.close()
