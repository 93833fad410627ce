"""What every transport of the secure endpoint must do, whether it is Aeron or stands in for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
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

PATIENCE: Final = 30.0
WISHES: Final = ChannelSettings()


class World(Protocol):
    """A transport, and a place in it that is free."""

    place: ServerAddress
    silence: float  # seconds in which what is to come has come; nothing that comes later is heard of

    def listening(self) -> ServerTransport:
        """A server's side."""

    def dialing(self) -> ClientTransport:
        """Another client's side, from an address of its own."""


class Reading:
    """Polls an inbox and keeps what came, payloads as bytes."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.events: list[TransportEvent] = []
        self.messages: list[tuple[int, bytes]] = []

    def poll(self, timeout: float = 0.01) -> None:
        """Take what has come."""
        for event in self.inbox.poll(timeout):
            if isinstance(event, MessageArrived):
                self.messages.append((event.token, bytes(event.payload)))
            else:
                self.events.append(event)

    def of(self, token: int) -> list[bytes]:
        """The messages of one way in."""
        return [message for at, message in self.messages if at == token]

    def joined(self, token: int) -> list[ImageAvailable]:
        """The images that joined a way in."""
        return [event for event in self.events if isinstance(event, ImageAvailable) and event.token == token]

    def left(self, token: int) -> list[ImageUnavailable]:
        """The images that left a way in."""
        return [event for event in self.events if isinstance(event, ImageUnavailable) and event.token == token]


def until(condition: Callable[[], object], *readings: Reading, what: str = "it") -> None:
    """Poll all until the condition holds."""
    deadline = Deadline(PATIENCE, what)
    while not condition():
        for reading in readings:
            reading.poll(0.002)
        deadline.idle()


def send(publication: Publication, *parts: bytes, reading: tuple[Reading, ...] = ()) -> None:
    """Offer until it is taken."""
    until(lambda: publication.offer(*parts) is None, *reading, what="the message to be taken")


class Open:
    """A server and a client between which a duologue is open."""

    def __init__(self, world: World, ids: LinkIds | None = None, channel_settings: ChannelSettings = WISHES) -> None:
        self.listening, self.dialing = world.listening(), world.dialing()
        self.server, self.client = Reading(self.listening.inbox), Reading(self.dialing.inbox)
        self.handshake = self.listening.listen(world.place, WISHES)
        self.open_path = self.dialing.open_path()
        until(lambda: self.server.joined(self.handshake), self.server, self.client, what="the stranger")
        self.image = self.server.joined(self.handshake)[0]
        self.ids = ids or some_ids()
        self.at_server = self.listening.open_link(self.image.image, self.ids, channel_settings)
        until(
            lambda: self.listening.inbox.ready(self.at_server.token) and self.at_server.publication.ready, self.server
        )
        self.at_client = self.dialing.open_link(self.ids, channel_settings)
        both = (self.at_server.publication, self.at_client.publication)
        until(lambda: all(one.connected for one in both), self.server, self.client, what="the duologue")

    def close(self) -> None:
        """Close both sides."""
        self.dialing.close()
        self.listening.close()


def some_ids() -> LinkIds:
    """Ids that nothing else in the test run has."""
    return LinkIds(*(random.SystemRandom().randrange(1, 2**31 - 1) for _ in range(4)))


class TransportContract:
    """The tests; a module with a fixture ``world`` inherits them."""

    def test_a_poll_ends_when_a_way_out_is_connected(self, world: World) -> None:
        listening, dialing = world.listening(), world.dialing()
        try:
            listening.listen(world.place, WISHES)
            begun = time.monotonic()
            publication = dialing.open_path().publication
            while not publication.connected:
                dialing.inbox.poll(PATIENCE)
            assert time.monotonic() - begun < PATIENCE
        finally:
            dialing.close()
            listening.close()

    def test_a_stranger_is_seen_with_its_address_and_its_packet_arrives_whole(self, world: World) -> None:
        listening, dialing = world.listening(), world.dialing()
        server = Reading(listening.inbox)
        token = listening.listen(world.place, WISHES)
        pair = dialing.open_path()
        hello = bytes(range(256)) * 4 + b"tail"
        send(pair.publication, hello[:100], hello[100:], reading=(server,))
        until(lambda: server.of(token), server)
        (image,) = server.joined(token)
        assert server.of(token) == [hello]
        assert image.session_id == pair.publication.session_id
        assert image.source == (pair.publication.local_address or "aeron:ipc")
        dialing.close()
        listening.close()

    def test_a_rejected_client_is_told_why_and_may_knock_again(self, world: World) -> None:
        listening, dialing = world.listening(), world.dialing()
        server, client = Reading(listening.inbox), Reading(dialing.inbox)
        token = listening.listen(world.place, WISHES)
        pair = dialing.open_path()
        until(lambda: server.joined(token), server, client)
        listening.inbox.reject(server.joined(token)[0].image, "aeron-spark/1 RETRY cookie")
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

    def test_a_reason_is_cut_at_what_may_be_sent_and_an_unknown_image_is_ignored(self, world: World) -> None:
        listening, dialing = world.listening(), world.dialing()
        server, client = Reading(listening.inbox), Reading(dialing.inbox)
        token = listening.listen(world.place, WISHES)
        dialing.open_path()
        until(lambda: server.joined(token), server, client)
        listening.inbox.reject(987_654_321, "nobody")
        listening.inbox.reject(server.joined(token)[0].image, "e\u00e9" * 700)
        until(lambda: client.events, server, client)
        (told,) = client.events
        assert isinstance(told, PublicationRejected)
        assert told.reason == "e?" * 500
        dialing.close()
        listening.close()

    def test_an_answer_reaches_the_client_it_is_for_and_no_other(self, world: World) -> None:
        listening = world.listening()
        dialings = [world.dialing(), world.dialing()]
        server, readings = Reading(listening.inbox), [Reading(one.inbox) for one in dialings]
        token = listening.listen(world.place, WISHES)
        pairs = [one.open_path() for one in dialings]
        until(lambda: len(server.joined(token)) == 2, server, *readings)
        by_session = {image.session_id: image.image for image in server.joined(token)}
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

    def test_an_answer_to_somebody_who_left_is_refused(self, world: World) -> None:
        listening, dialing = world.listening(), world.dialing()
        server = Reading(listening.inbox)
        token = listening.listen(world.place, WISHES)
        dialing.open_path()
        until(lambda: server.joined(token), server)
        image = server.joined(token)[0].image
        dialing.close()
        until(lambda: server.left(token), server, what="the image to leave")
        with pytest.raises(TransportError, match="has gone"):
            listening.respond(image)
        listening.close()

    def test_packets_too_long_for_a_handshake_are_dropped_unread(self, world: World) -> None:
        listening, dialing = world.listening(), world.dialing()
        server = Reading(listening.inbox)
        token = listening.listen(world.place, WISHES)
        pair = dialing.open_path()
        send(pair.publication, bytes(HANDSHAKE_MAX_BYTES + 1), reading=(server,))
        send(pair.publication, bytes(8_000), reading=(server,))
        send(pair.publication, b"x" * HANDSHAKE_MAX_BYTES, reading=(server,))
        until(lambda: server.of(token), server)
        assert server.of(token) == [b"x" * HANDSHAKE_MAX_BYTES]
        assert listening.inbox.dropped == 2
        dialing.close()
        listening.close()

    def test_a_duologue_carries_messages_of_every_size_both_ways_in_order(self, world: World) -> None:
        opened = Open(world)
        most = min(
            opened.at_client.publication.max_message, MAX_MESSAGE_BYTES
        )  # the longest that is taken at the other end
        sizes = [0, 1, 31, 32, 1151, 1152, 1153, 5_000, 65_536, most - 1, most]
        for pair, reading, token in (
            (opened.at_client, opened.server, opened.at_server.token),
            (opened.at_server, opened.client, opened.at_client.token),
        ):
            values = [random.Random(size).randbytes(size) for size in sizes]
            for value in values:
                send(pair.publication, value[:16], value[16:], reading=(reading,))
            until(lambda r=reading, t=token: len(r.of(t)) == len(sizes), reading)  # type: ignore[misc]
            assert reading.of(token) == values
        opened.close()

    def test_a_message_longer_than_the_channel_takes_is_refused_before_it_is_sent(self, world: World) -> None:
        opened = Open(world)
        with pytest.raises(UsageError, match="longer than"):
            opened.at_client.publication.offer(bytes(opened.at_client.publication.max_message + 1))
        opened.close()

    def test_a_paused_way_in_holds_its_sender_up_and_loses_nothing(self, world: World) -> None:
        opened = Open(world)
        opened.listening.inbox.pause(opened.at_server.token)
        taken = 0
        deadline = Deadline(PATIENCE, "back-pressure")
        while (result := opened.at_client.publication.offer(taken.to_bytes(4, "big"), bytes(4_000))) is None:
            taken += 1
            opened.server.poll(0)
            deadline.progress()
        assert result in {OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION}
        assert taken < 1_000
        assert opened.server.of(opened.at_server.token) == []
        opened.listening.inbox.resume(opened.at_server.token)
        until(lambda: len(opened.server.of(opened.at_server.token)) == taken, opened.server)
        assert [int.from_bytes(one[:4], "big") for one in opened.server.of(opened.at_server.token)] == [*range(taken)]
        opened.close()

    def test_a_paused_client_delays_no_other(self, world: World) -> None:
        opened = Open(world)
        other = world.dialing()
        open_path = other.open_path()
        until(lambda: len(opened.server.joined(opened.handshake)) == 2, opened.server)
        opened.listening.inbox.pause(opened.at_server.token)
        while opened.at_client.publication.offer(bytes(4_000)) is None:
            pass
        send(open_path.publication, b"not held up", reading=(opened.server,))
        until(lambda: opened.server.of(opened.handshake) == [b"not held up"], opened.server)
        other.close()
        opened.close()

    def test_who_closes_is_seen_to_leave(self, world: World) -> None:
        opened = Open(world)
        send(opened.at_client.publication, b"last words", reading=(opened.server,))
        opened.at_client.publication.close()
        until(lambda: opened.server.left(opened.at_server.token), opened.server, what="the image to leave")
        assert opened.server.of(opened.at_server.token) == [b"last words"]
        assert opened.at_client.publication.offer(b"more") is OfferResult.CLOSED
        opened.at_client.publication.close()
        opened.close()

    def test_row_15_another_session_id_than_the_assigned_one_is_never_heard(self, world: World) -> None:
        opened = Open(world)
        wrong = opened.dialing.open_link(
            LinkIds(opened.ids.session_in + 1, opened.ids.stream_in, opened.ids.session_out + 1, opened.ids.stream_out),
            WISHES,
        )
        deadline = Deadline(world.silence, "a time in which nothing connects")
        while deadline.remaining() > 0:
            assert not wrong.publication.connected
            opened.server.poll(0.01)
            opened.client.poll(0.01)
        assert opened.client.joined(wrong.token) == []
        assert len(opened.server.joined(opened.at_server.token)) == 1
        opened.close()

    def test_nothing_comes_of_a_way_in_that_was_closed(self, world: World) -> None:
        opened = Open(world)
        send(opened.at_client.publication, b"too late", reading=())
        opened.listening.inbox.close_subscription(opened.at_server.token)
        opened.listening.inbox.close_subscription(opened.at_server.token)
        before = len(opened.server.events)
        until(lambda: not opened.at_client.publication.connected, opened.server, what="the client to notice")
        assert opened.server.of(opened.at_server.token) == []
        assert [
            one for one in opened.server.events[before:] if getattr(one, "token", 0) == opened.at_server.token
        ] == []
        opened.close()

    def test_a_poll_is_ended_by_waking_it(self, world: World) -> None:
        listening = world.listening()
        listening.inbox.wake()
        assert listening.inbox.poll(PATIENCE) == []
        listening.close()
        assert listening.inbox.closed

    @pytest.mark.parametrize(("data", "control"), [(2000, 2000), (0, 1), (70_000, 1), (1, 0), (1, 65_536), (-1, 5)])
    def test_row_20_ports_that_cannot_work_are_refused(self, world: World, data: int, control: int) -> None:
        listening = world.listening()
        with pytest.raises(OptionError, match="port"):
            listening.listen(ServerAddress("udp", "127.0.0.1", data, control), WISHES)
        listening.close()


__all__ = ["ChannelPair", "Open", "Reading", "TransportContract", "World", "send", "some_ids", "until"]
