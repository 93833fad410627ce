"""Echo 1.0: its server and its client, with each other and with hand-made ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.polled_images import BytesPublication, PolledSubscription
from aeron_spark.echo import channels, reports, texts
from aeron_spark.echo.conversation import conversation, drive
from aeron_spark.echo.echo1 import Client1, Server1, Server1Settings
from aeron_spark.errors import ConnectError, WaitTimeout
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.wires import LARGEST, Seen, come, nothing_comes, say, sender, serving, until
from tests.ending import FOR_EVER, ends

STEP = 1.5  # seconds that these tests give a step, instead of 10
ANYWHERE = HostPort("127.0.0.1", 0)


@contextlib.contextmanager
def served(here: Client, listen: HostPort, **limits: int) -> Iterator[Seen]:
    seen = Seen()
    with serving(Server1(here, Server1Settings(listen, **limits), seen, step_seconds=STEP)):
        yield seen


@contextlib.contextmanager
def by_hand(there: Client, listen: HostPort, port: int) -> Iterator[tuple[PolledSubscription, BytesPublication]]:
    """A client line by line."""
    listening = PolledSubscription(there, channels.receiving(HostPort("127.0.0.1", port)), texts.STREAM_ID, LARGEST)
    talking = sender(there, listen)
    try:
        until(lambda: talking.connected, "the server")
        yield listening, talking
    finally:
        talking.close()
        listening.close()


def ask(there: Client, listen: HostPort, *payloads: bytes) -> list[str]:
    """Have payloads echoed by a client, and return what it reported."""
    client, seen = Client1(there, listen, ANYWHERE), Seen()
    try:
        assert drive(conversation(client, payloads, 0.0, seen), lambda: False) == len(payloads)
    finally:
        client.close()
    assert len(seen.of(reports.ClientConnected)) == 1
    return [echo.text for echo in seen.of(reports.EchoReceived)]


def test_row_82_everything_but_hello_is_echoed(here: Client, there: Client, listen: HostPort) -> None:
    with served(here, listen) as seen:
        assert ask(there, listen, b"1", b"2", b"HELLO 3", b"4", b"5") == ["1", "2", "HELLO 3", "4", "5"]
        (ended,) = until(lambda: seen.of(reports.ClientEnded), "the client's end")
        assert (ended.echoes, ended.reason) == (5, "its client left")
        with by_hand(there, listen, listen.port + 10) as (listening, talking):
            say(talking, texts.hello_1(listen.port + 10), b"one")
            assert come(listening) == [b"one"]


def test_row_83_what_is_no_hello_changes_nothing(here: Client, there: Client, listen: HostPort) -> None:
    port = listen.port + 10
    with served(here, listen) as seen, by_hand(there, listen, port) as (listening, talking):
        say(talking, b"FOO", b"HELLO", b"HELLO -1", b"hello 1", b"\xff", b"HELLO %d" % port, b"x")
        assert come(listening) == [b"x"]
        assert nothing_comes(listening, 0.3)
        assert len(seen.of(reports.Refusal)) == 5
        assert len(seen.of(reports.ClientIntroduced)) == 1


def test_row_83_a_port_that_is_none_is_refused(here: Client, there: Client, listen: HostPort) -> None:
    bad = [b"0", b"65536", b"70000", b"9999999999", b"1" * 5_000]
    with served(here, listen) as seen:
        with by_hand(there, listen, listen.port + 10) as (_, talking):
            say(talking, *(b"HELLO " + port for port in bad))
            until(lambda: len(seen.of(reports.Refusal)) == len(bad), "refusals")
        reasons = [refused.reason for refused in seen.of(reports.Refusal)]
        assert reasons[:4] == [f"port {port.decode()} is none of 1 to 65535" for port in bad[:4]]
        assert reasons[4].endswith("... is no HELLO")
        assert ask(there, listen, b"alive") == ["alive"]


def test_row_84_what_is_not_ascii_comes_back_whole(here: Client, there: Client, listen: HostPort) -> None:
    with served(here, listen):
        assert ask(there, listen, "é€".encode(), "日本語".encode(), b"", b"y" * 8_192)[:2] == ["é€", "日本語"]


def test_row_84_what_is_too_long_is_told_and_the_rest_echoed(here: Client, there: Client, listen: HostPort) -> None:
    port = listen.port + 10
    with served(here, listen) as seen, by_hand(there, listen, port) as (listening, talking):
        say(talking, b"HELLO %d" % port, b"z" * 8_193, b"after")
        assert come(listening) == [b"after"]
        (refused,) = seen.of(reports.Refusal)
        assert refused.reason == "a message of more than 8192 bytes"


def test_a_server_gives_up_a_port_where_nobody_listens(here: Client, there: Client, listen: HostPort) -> None:
    with served(here, listen, clients=1) as seen:
        with by_hand(there, listen, listen.port + 10) as (_, talking):
            say(talking, b"HELLO %d" % (listen.port + 11), b"to nobody")
            (ended,) = until(lambda: seen.of(reports.ClientEnded), "the server to give up")
            assert ended.reason == "its client does not take the replies"
            until(lambda: not talking.connected, "the client to be told")
        assert ask(there, listen, b"next") == ["next"]


def test_a_full_server_answers_those_it_has(here: Client, there: Client, listen: HostPort) -> None:
    port = listen.port + 10
    with served(here, listen, clients=1) as seen, by_hand(there, listen, port) as (listening, talking):
        say(talking, b"HELLO %d" % port)
        until(lambda: bool(listening.images()), "the server's publication")
        other = Client1(there, listen, ANYWHERE, step_seconds=STEP)
        try:
            with pytest.raises(WaitTimeout, match="step 'the server's publication back to this client'"):
                drive(other.connecting(), lambda: False)
        finally:
            other.close()
        assert [one.reason for one in seen.of(reports.Refusal)] == ["Server is full"]
        say(talking, b"mine")
        assert come(listening) == [b"mine"]


def test_a_client_names_the_step_where_no_server_is(there: Client, listen: HostPort) -> None:
    client = Client1(there, listen, ANYWHERE, step_seconds=STEP)
    began = time.monotonic()
    try:
        with pytest.raises(WaitTimeout, match=r"step 'publication' was not done within 1.5 s"):
            drive(client.connecting(), lambda: False)
    finally:
        client.close()
    assert time.monotonic() - began > STEP - 0.1


def test_a_client_notices_that_its_server_has_gone(here: Client, there: Client, listen: HostPort) -> None:
    client, seen = Client1(there, listen, ANYWHERE), Seen()
    steps = conversation(client, [b"one", b"two"], FOR_EVER, seen)  # it pauses until then, unless it notices
    try:
        with served(here, listen):
            drive(steps, lambda: bool(seen.of(reports.EchoReceived)))
        with pytest.raises(ConnectError, match=f"the server at {listen} has gone"):
            ends(lambda: drive(steps, lambda: False), "a conversation whose server has gone")
    finally:
        client.close()
