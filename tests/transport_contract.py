"""The contract of all transports of the secure endpoint: Aeron's and the one within a process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeoutError
from typing import Final, Protocol

import pytest

from aeron_spark.errors import OptionError, TransportError, UsageError
from aeron_spark.transport.api import (
    HANDSHAKE_MAX_BYTES,
    MAX_MESSAGE_BYTES,
    ChannelPair,
    ChannelSettings,
    ClientTransport,
    ImageAvailable,
    ImageUnavailable,
    Inbox,
    LinkIds,
    MessageArrived,
    OfferResult,
    Publication,
    PublicationRejected,
    ServerAddress,
    ServerTransport,
    TransportEvent,
)
from aeron_spark.waiting import Deadline

TIMEOUT_S: Final = 30.0
SETTINGS: Final = ChannelSettings()


class World(Protocol):
    """A transport, and an unused address."""

    address: ServerAddress
    silence: float  # seconds after which a test concludes that no event arrives

    def server_transport(self) -> ServerTransport:
        """Return the transport of a server."""

    def client_transport(self) -> ClientTransport:
        """Return the transport of another client with a separate address."""


class Reading:
    """Polls an inbox and stores its events and messages, with payloads as bytes."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.events: list[TransportEvent] = []
        self.messages: list[tuple[int, bytes]] = []

    def poll(self, timeout: float = 0.01) -> None:
        """Poll once and store the events."""
        for event in self.inbox.poll(timeout):
            if isinstance(event, MessageArrived):
                self.messages.append((event.token, bytes(event.payload)))
            else:
                self.events.append(event)

    def of(self, token: int) -> list[bytes]:
        """Return the messages of one subscription."""
        return [message for at, message in self.messages if at == token]

    def available(self, token: int) -> list[ImageAvailable]:
        """Return the images that became available to a subscription."""
        return [event for event in self.events if isinstance(event, ImageAvailable) and event.token == token]

    def unavailable(self, token: int) -> list[ImageUnavailable]:
        """Return the images that became unavailable to a subscription."""
        return [event for event in self.events if isinstance(event, ImageUnavailable) and event.token == token]


def until(condition: Callable[[], object], *readings: Reading, awaited: str = "the condition") -> None:
    """Poll all inboxes until the condition is true."""
    deadline = Deadline(TIMEOUT_S, awaited)
    while not condition():
        for reading in readings:
            reading.poll(0.002)
        deadline.idle()


def send(publication: Publication, *parts: bytes, reading: tuple[Reading, ...] = ()) -> None:
    """Offer a message until the publication accepts it."""
    until(lambda: publication.offer(*parts) is None, *reading, awaited="room for the message")


class Open:
    """A server and a client with an open link."""

    def __init__(self, world: World, ids: LinkIds | None = None, channel_settings: ChannelSettings = SETTINGS) -> None:
        self.server_transport, self.client_transport = world.server_transport(), world.client_transport()
        self.server, self.client = Reading(self.server_transport.inbox), Reading(self.client_transport.inbox)
        self.handshake = self.server_transport.listen(world.address, SETTINGS)
        self.open_path = self.client_transport.open_path()
        until(lambda: self.server.available(self.handshake), self.server, self.client, awaited="the path's image")
        self.image = self.server.available(self.handshake)[0]
        self.ids = ids or some_ids()
        self.at_server = self.server_transport.open_link(self.image.image, self.ids, channel_settings)
        until(
            lambda: self.server_transport.inbox.ready(self.at_server.token) and self.at_server.publication.ready,
            self.server,
        )
        self.at_client = self.client_transport.open_link(self.ids, channel_settings)
        both = (self.at_server.publication, self.at_client.publication)
        until(
            lambda: all(one.connected for one in both) and self.client.available(self.at_client.token),
            self.server,
            self.client,
            awaited="the link",
        )

    def close(self) -> None:
        """Close both transports."""
        self.client_transport.close()
        self.server_transport.close()


def some_ids() -> LinkIds:
    """Return ids that no other test uses."""
    return LinkIds(*(random.SystemRandom().randrange(1, 2**31 - 1) for _ in range(4)))


class TransportContract:
    """The tests; a module with a fixture ``world`` inherits them."""

    def test_a_poll_ends_when_a_publication_is_connected(self, world: World) -> None:
        listening, dialing = world.server_transport(), world.client_transport()
        try:
            listening.listen(world.address, SETTINGS)
            start = time.monotonic()
            publication = dialing.open_path().publication
            while not publication.connected:
                dialing.inbox.poll(TIMEOUT_S)
            assert time.monotonic() - start < TIMEOUT_S
        finally:
            dialing.close()
            listening.close()

    def test_no_two_inboxes_have_the_same_token(self, world: World) -> None:
        """Regression: an endpoint that had lost its driver closed subscriptions of its next inbox."""
        first, second = world.client_transport(), world.client_transport()
        try:
            assert first.open_path().token != second.open_path().token
        finally:
            first.close()
            second.close()

    def test_an_image_has_its_senders_address_and_a_packet_arrives_completely(self, world: World) -> None:
        listening, dialing = world.server_transport(), world.client_transport()
        server = Reading(listening.inbox)
        token = listening.listen(world.address, SETTINGS)
        pair = dialing.open_path()
        hello = bytes(range(256)) * 4 + b"tail"
        send(pair.publication, hello[:100], hello[100:], reading=(server,))
        until(lambda: server.of(token), server)
        (image,) = server.available(token)
        assert server.of(token) == [hello]
        assert image.session_id == pair.publication.session_id
        assert image.source == (pair.publication.local_address or "aeron:ipc")
        dialing.close()
        listening.close()

    def test_a_rejected_client_gets_the_reason_and_can_start_another_handshake(self, world: World) -> None:
        listening, dialing = world.server_transport(), world.client_transport()
        server, client = Reading(listening.inbox), Reading(dialing.inbox)
        token = listening.listen(world.address, SETTINGS)
        pair = dialing.open_path()
        until(lambda: server.available(token), server, client)
        listening.inbox.reject(server.available(token)[0].image, "aeron-spark/1 RETRY cookie")
        until(lambda: client.events, server, client)
        assert client.events == [
            PublicationRejected(pair.token, pair.publication.session_id, "aeron-spark/1 RETRY cookie")
        ]
        again = dialing.reopen_path(pair)
        assert again.token == pair.token
        assert again.publication.session_id != pair.publication.session_id
        send(again.publication, b"once more", reading=(server, client))
        until(lambda: server.of(token) == [b"once more"], server)
        assert not pair.publication.closed
        dialing.close()
        listening.close()

    def test_a_long_reason_is_truncated_and_an_unknown_image_is_ignored(self, world: World) -> None:
        listening, dialing = world.server_transport(), world.client_transport()
        server, client = Reading(listening.inbox), Reading(dialing.inbox)
        token = listening.listen(world.address, SETTINGS)
        dialing.open_path()
        until(lambda: server.available(token), server, client)
        listening.inbox.reject(987_654_321, "unknown")
        listening.inbox.reject(server.available(token)[0].image, "e\u00e9" * 700)
        until(lambda: client.events, server, client)
        (event,) = client.events
        assert isinstance(event, PublicationRejected)
        assert event.reason == "e?" * 500
        dialing.close()
        listening.close()

    def test_a_response_reaches_only_its_client(self, world: World) -> None:
        listening = world.server_transport()
        dialings = [world.client_transport(), world.client_transport()]
        server, readings = Reading(listening.inbox), [Reading(one.inbox) for one in dialings]
        token = listening.listen(world.address, SETTINGS)
        pairs = [one.open_path() for one in dialings]
        until(lambda: len(server.available(token)) == 2, server, *readings)
        by_session = {image.session_id: image.image for image in server.available(token)}
        for pair, text in zip(pairs, (b"for the first", b"for the second"), strict=True):
            send(listening.respond(by_session[pair.publication.session_id]), text, reading=(server, *readings))
        until(lambda: all(reading.messages for reading in readings), server, *readings)
        assert [reading.messages for reading in readings] == [
            [(pairs[0].token, b"for the first")],
            [(pairs[1].token, b"for the second")],
        ]
        for one in dialings:
            one.close()
        listening.close()

    def test_a_response_to_an_unavailable_sender_is_refused(self, world: World) -> None:
        listening, dialing = world.server_transport(), world.client_transport()
        server = Reading(listening.inbox)
        token = listening.listen(world.address, SETTINGS)
        dialing.open_path()
        until(lambda: server.available(token), server)
        image = server.available(token)[0].image
        dialing.close()
        until(lambda: server.unavailable(token), server, awaited="the image to leave")
        with pytest.raises(TransportError, match="is not available any more"):
            listening.respond(image)
        listening.close()

    def test_packets_that_are_too_long_for_a_handshake_are_dropped_unread(self, world: World) -> None:
        listening, dialing = world.server_transport(), world.client_transport()
        server = Reading(listening.inbox)
        token = listening.listen(world.address, SETTINGS)
        pair = dialing.open_path()
        send(pair.publication, bytes(HANDSHAKE_MAX_BYTES + 1), reading=(server,))
        send(pair.publication, bytes(8_000), reading=(server,))
        send(pair.publication, b"x" * HANDSHAKE_MAX_BYTES, reading=(server,))
        until(lambda: server.of(token), server)
        assert server.of(token) == [b"x" * HANDSHAKE_MAX_BYTES]
        assert listening.inbox.dropped == 2
        dialing.close()
        listening.close()

    def test_a_link_carries_messages_of_all_sizes_in_both_directions_in_order(self, world: World) -> None:
        opened = Open(world)
        limit = min(opened.at_client.publication.max_message, MAX_MESSAGE_BYTES)  # of both ends
        sizes = [0, 1, 31, 32, 1151, 1152, 1153, 5_000, 65_536, limit - 1, limit]
        for pair, reading, token in (
            (opened.at_client, opened.server, opened.at_server.token),
            (opened.at_server, opened.client, opened.at_client.token),
        ):
            values = [random.Random(size).randbytes(size) for size in sizes]
            for value in values:
                send(pair.publication, value[:16], value[16:], reading=(reading,))
            until(lambda r=reading, t=token: len(r.of(t)) == len(sizes), reading)
            assert reading.of(token) == values
        opened.close()

    def test_a_message_above_the_channels_maximum_is_refused_before_it_is_sent(self, world: World) -> None:
        opened = Open(world)
        with pytest.raises(UsageError, match="bytes, expected at most"):
            opened.at_client.publication.offer(bytes(opened.at_client.publication.max_message + 1))
        opened.close()

    def test_a_paused_subscription_causes_back_pressure_and_loses_no_message(self, world: World) -> None:
        opened = Open(world)
        opened.server_transport.inbox.pause(opened.at_server.token)
        sent = 0
        deadline = Deadline(TIMEOUT_S, "back-pressure")
        while (result := opened.at_client.publication.offer(sent.to_bytes(4, "big"), bytes(4_000))) is None:
            sent += 1
            opened.server.poll(0)
            deadline.progress()
        assert result in {OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION}
        assert sent < 1_000
        assert opened.server.of(opened.at_server.token) == []
        opened.server_transport.inbox.resume(opened.at_server.token)
        until(lambda: len(opened.server.of(opened.at_server.token)) == sent, opened.server)
        assert [int.from_bytes(one[:4], "big") for one in opened.server.of(opened.at_server.token)] == [*range(sent)]
        opened.close()

    def test_another_thread_ends_the_wait_of_an_offer(self, world: World) -> None:
        opened = Open(world)
        opened.server_transport.inbox.pause(opened.at_server.token)
        publication = opened.at_client.publication
        while publication.offer(bytes(4_000), timeout_s=0.05) is None:
            opened.server.poll(0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(publication.offer, bytes(4_000), timeout_s=3600.0)
            with pytest.raises(FuturesTimeoutError):
                waiting.result(0.1)
            publication.stop_waiting()
            assert waiting.result(TIMEOUT_S) is not None
        assert publication.offer(bytes(4_000), timeout_s=3600.0) is not None
        opened.close()

    def test_a_paused_client_does_not_delay_other_clients(self, world: World) -> None:
        opened = Open(world)
        other = world.client_transport()
        open_path = other.open_path()
        until(lambda: len(opened.server.available(opened.handshake)) == 2, opened.server)
        opened.server_transport.inbox.pause(opened.at_server.token)
        while opened.at_client.publication.offer(bytes(4_000)) is None:
            pass
        send(open_path.publication, b"no delay", reading=(opened.server,))
        until(lambda: opened.server.of(opened.handshake) == [b"no delay"], opened.server)
        other.close()
        opened.close()

    def test_the_image_of_a_closed_publication_becomes_unavailable(self, world: World) -> None:
        opened = Open(world)
        send(opened.at_client.publication, b"last message", reading=(opened.server,))
        opened.at_client.publication.close()
        until(lambda: opened.server.unavailable(opened.at_server.token), opened.server, awaited="the image to leave")
        assert opened.server.of(opened.at_server.token) == [b"last message"]
        assert opened.at_client.publication.offer(b"more") is OfferResult.CLOSED
        opened.at_client.publication.close()
        opened.close()

    def test_row_15_a_publication_with_an_unassigned_session_id_is_never_received(self, world: World) -> None:
        opened = Open(world)
        wrong = opened.client_transport.open_link(
            LinkIds(opened.ids.session_in + 1, opened.ids.stream_in, opened.ids.session_out + 1, opened.ids.stream_out),
            SETTINGS,
        )
        deadline = Deadline(world.silence, "a connection, which must not come")
        while deadline.remaining() > 0:
            assert not wrong.publication.connected
            opened.server.poll(0.01)
            opened.client.poll(0.01)
        assert opened.client.available(wrong.token) == []
        assert len(opened.server.available(opened.at_server.token)) == 1
        opened.close()

    def test_a_closed_subscription_delivers_no_events(self, world: World) -> None:
        opened = Open(world)
        send(opened.at_client.publication, b"too late", reading=())
        opened.server_transport.inbox.close_subscription(opened.at_server.token)
        opened.server_transport.inbox.close_subscription(opened.at_server.token)
        before = len(opened.server.events)
        until(lambda: not opened.at_client.publication.connected, opened.server, awaited="the client to notice")
        assert opened.server.of(opened.at_server.token) == []
        assert [
            one for one in opened.server.events[before:] if getattr(one, "token", 0) == opened.at_server.token
        ] == []
        opened.close()

    def test_wake_ends_a_poll(self, world: World) -> None:
        listening = world.server_transport()
        listening.inbox.wake()
        assert listening.inbox.poll(TIMEOUT_S) == []
        listening.close()
        assert listening.inbox.closed

    @pytest.mark.parametrize(("data", "control"), [(2000, 2000), (0, 1), (70_000, 1), (1, 0), (1, 65_536), (-1, 5)])
    def test_row_20_invalid_ports_are_refused(self, world: World, data: int, control: int) -> None:
        listening = world.server_transport()
        with pytest.raises(OptionError, match="port"):
            listening.listen(ServerAddress("udp", "127.0.0.1", data, control), SETTINGS)
        listening.close()


__all__ = ["ChannelPair", "Open", "Reading", "TransportContract", "World", "send", "some_ids", "until"]
