"""The Echo 1.0 server and client, with each other and with clients that tests control message by message."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.publications import BytesPublication, PolledSubscription
from aeron_spark.echo import conversation, texts
from aeron_spark.echo.conversation import converse, run_steps
from aeron_spark.echo.echo1 import Client1, Server1, Server1Settings
from aeron_spark.errors import ConnectError, WaitTimeout
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.manual_peers import (
    MAX_MESSAGE_BYTES,
    Events,
    open_sender,
    receive,
    receives_nothing,
    send,
    serving,
    wait_until,
)
from tests.ending import LONG_TIMEOUT_S, call_in_time

STEP_TIMEOUT_S = 1.5  # instead of 10, to make these tests faster
ANY_PORT = HostPort("127.0.0.1", 0)


@contextlib.contextmanager
def running_server(server_aeron: AeronClient, listen: HostPort, **limits: int) -> Iterator[Events]:
    events = Events()
    with serving(Server1(server_aeron, Server1Settings(listen, **limits), events, step_timeout_s=STEP_TIMEOUT_S)):
        yield events


@contextlib.contextmanager
def manual_client(
    client_aeron: AeronClient, listen: HostPort, port: int
) -> Iterator[tuple[PolledSubscription, BytesPublication]]:
    """Yield the channels of a client that a test controls message by message."""
    subscription = PolledSubscription(
        client_aeron, texts.receive_channel(HostPort("127.0.0.1", port)), texts.STREAM_ID, MAX_MESSAGE_BYTES
    )
    publication = open_sender(client_aeron, listen)
    try:
        wait_until(lambda: publication.connected, "the server")
        yield subscription, publication
    finally:
        publication.close()
        subscription.close()


def send_and_receive(client_aeron: AeronClient, listen: HostPort, *payloads: bytes) -> list[str]:
    """Send payloads with a client, and return the echoes that it reported."""
    client, events = Client1(client_aeron, listen, ANY_PORT), Events()
    try:
        assert run_steps(converse(client, payloads, 0.0, events), lambda: False) == len(payloads)
    finally:
        client.close()
    assert len(events.of(conversation.ClientConnected)) == 1
    return [echo.text for echo in events.of(conversation.EchoReceived)]


def test_row_82_every_message_after_hello_is_echoed(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, listen) as events:
        assert send_and_receive(client_aeron, listen, b"1", b"2", b"HELLO 3", b"4", b"5") == [
            "1",
            "2",
            "HELLO 3",
            "4",
            "5",
        ]
        (ended,) = wait_until(lambda: events.of(conversation.ClientEnded), "the client's end")
        assert (ended.echoes, ended.reason) == (5, "its client left")
        with manual_client(client_aeron, listen, listen.port + 10) as (subscription, publication):
            send(publication, texts.encode_hello_1(listen.port + 10), b"one")
            assert receive(subscription) == [b"one"]


def test_row_83_messages_before_hello_are_refused(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    port = listen.port + 10
    with (
        running_server(server_aeron, listen) as events,
        manual_client(client_aeron, listen, port) as (subscription, publication),
    ):
        send(publication, b"FOO", b"HELLO", b"HELLO -1", b"hello 1", b"\xff", b"HELLO %d" % port, b"x")
        assert receive(subscription) == [b"x"]
        assert receives_nothing(subscription, 0.3)
        assert len(events.of(conversation.EchoRefused)) == 5
        assert len(events.of(conversation.ClientIntroduced)) == 1


def test_row_83_a_hello_with_an_invalid_port_is_refused(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    bad = [b"0", b"65536", b"70000", b"9999999999", b"1" * 5_000]
    with running_server(server_aeron, listen) as events:
        with manual_client(client_aeron, listen, listen.port + 10) as (_, publication):
            send(publication, *(b"HELLO " + port for port in bad))
            wait_until(lambda: len(events.of(conversation.EchoRefused)) == len(bad), "refusals")
        reasons = [refused.reason for refused in events.of(conversation.EchoRefused)]
        assert reasons[:4] == [f"port is {port.decode()}, expected 1 to 65535" for port in bad[:4]]
        assert reasons[4].endswith("... is not a HELLO")
        assert send_and_receive(client_aeron, listen, b"alive") == ["alive"]


def test_row_84_text_that_is_not_ascii_is_echoed_unchanged(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, listen):
        assert send_and_receive(client_aeron, listen, "é€".encode(), "日本語".encode(), b"", b"y" * 8_192)[:2] == [
            "é€",
            "日本語",
        ]


def test_row_84_a_message_that_is_too_long_is_refused_and_the_next_is_echoed(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    port = listen.port + 10
    with (
        running_server(server_aeron, listen) as events,
        manual_client(client_aeron, listen, port) as (subscription, publication),
    ):
        send(publication, b"HELLO %d" % port, b"z" * 8_193, b"after")
        assert receive(subscription) == [b"after"]
        (refused,) = events.of(conversation.EchoRefused)
        assert refused.reason == "a message of more than 8192 bytes"


def test_a_server_removes_a_client_that_does_not_receive_its_replies(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    with running_server(server_aeron, listen, clients=1) as events:
        with manual_client(client_aeron, listen, listen.port + 10) as (_, publication):
            send(publication, b"HELLO %d" % (listen.port + 11), b"unread")
            (ended,) = wait_until(lambda: events.of(conversation.ClientEnded), "the end of the client")
            assert ended.reason == "its client does not receive the replies"
            wait_until(lambda: not publication.connected, "the server to reject the client")
        assert send_and_receive(client_aeron, listen, b"next") == ["next"]


def test_a_full_server_refuses_a_client_and_still_echoes_to_others(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    port = listen.port + 10
    with (
        running_server(server_aeron, listen, clients=1) as events,
        manual_client(client_aeron, listen, port) as (subscription, publication),
    ):
        send(publication, b"HELLO %d" % port)
        wait_until(lambda: bool(subscription.images()), "the server's publication")
        other = Client1(client_aeron, listen, ANY_PORT, step_timeout_s=STEP_TIMEOUT_S)
        try:
            with pytest.raises(WaitTimeout, match="step 'the server's publication back to this client'"):
                run_steps(other.connect(), lambda: False)
        finally:
            other.close()
        assert [one.reason for one in events.of(conversation.EchoRefused)] == ["Server is full"]
        send(publication, b"mine")
        assert receive(subscription) == [b"mine"]


def test_the_error_of_a_client_without_a_server_names_the_step(client_aeron: AeronClient, listen: HostPort) -> None:
    client = Client1(client_aeron, listen, ANY_PORT, step_timeout_s=STEP_TIMEOUT_S)
    start = time.monotonic()
    try:
        with pytest.raises(WaitTimeout, match=r"step 'publication' was not done within 1.5 s"):
            run_steps(client.connect(), lambda: False)
    finally:
        client.close()
    assert time.monotonic() - start > STEP_TIMEOUT_S - 0.1


def test_a_client_notices_that_its_server_has_closed(
    server_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    client, events = Client1(client_aeron, listen, ANY_PORT), Events()
    # The client pauses until the end of the test, unless it notices that the server has closed.
    steps = converse(client, [b"one", b"two"], LONG_TIMEOUT_S, events)
    try:
        with running_server(server_aeron, listen):
            run_steps(steps, lambda: bool(events.of(conversation.EchoReceived)))
        with pytest.raises(ConnectError, match=f"the server at {listen} closed its publication"):
            call_in_time(lambda: run_steps(steps, lambda: False), "a client whose server has closed")
    finally:
        client.close()
