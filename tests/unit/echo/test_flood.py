"""A flood of messages to an Echo server delays no client, and causes few reports."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from aeron_spark.aeron.guard import SessionOwner
from aeron_spark.echo import conversation, echo1, echo2, texts
from aeron_spark.echo.conversation import (
    INTERVAL_S,
    MAX_ADDRESSES,
    OTHERS,
    REFUSAL_BURST,
    REFUSALS_PER_S,
    REPORT_BURST,
    EchoEvent,
    EchoRefused,
    LimitedReport,
    SharedOutbox,
)
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import OfferResult

FLOODER = "203.0.113.9"


class Publication:
    """A publication that accepts ``room`` messages."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.accepted: list[bytes] = []
        self.session_id = 1
        self.max_message_bytes = 8_192

    def offer(self, message: bytes) -> OfferResult | None:
        if not self.room:
            return OfferResult.BACK_PRESSURED
        self.room -= 1
        self.accepted.append(message)
        return None

    def close(self) -> None:
        pass


def test_an_admission_is_sent_before_all_waiting_refusals() -> None:
    publication = Publication()
    outbox = SharedOutbox(publication.offer, 10.0)
    for image in range(300):
        outbox.refuse(image, b"no", 0.0)
    outbox.admit(b"yes", 0.0)
    publication.room = 2
    assert outbox.flush(1.0) == 2
    assert publication.accepted == [b"yes", b"no"]


def test_refusals_of_sessions_take_turns() -> None:
    publication = Publication(room=1_000)
    outbox = SharedOutbox(publication.offer, 10.0)
    for number in range(10):
        outbox.refuse(1, b"flood %d" % number, 0.0)
    outbox.refuse(2, b"other", 0.0)
    assert outbox.flush(0.0) == 2
    assert publication.accepted == [b"flood 0", b"other"]
    assert outbox.has_refusal(1)
    assert not outbox.has_refusal(2)
    for _ in range(9):
        outbox.flush(0.0)
    assert publication.accepted[2:] == [b"flood %d" % number for number in range(1, 10)]
    assert not outbox.has_refusal(1)


def test_the_rate_of_refusals_is_limited() -> None:
    publication = Publication(room=10_000)
    outbox = SharedOutbox(publication.offer, 10.0)
    for image in range(1_000):
        outbox.refuse(image, b"no", 0.0)
    assert outbox.flush(0.0) == REFUSAL_BURST
    assert outbox.flush(0.0) == 0
    assert outbox.flush(0.5) == REFUSALS_PER_S / 2
    assert outbox.flush(20.0) == 0  # the others have waited too long
    assert not any(outbox.has_refusal(image) for image in range(1_000))


class Reported:
    """A limited report with its events and a fake clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[EchoEvent] = []
        self.limited = LimitedReport(self.events.append, lambda: self.now)

    def refuse(self, source: str = f"{FLOODER}:4000", count: int = 1) -> None:
        for _ in range(count):
            self.limited(EchoRefused(source, 1, "bad message"))

    @property
    def suppressed(self) -> list[int]:
        return [event.suppressed for event in self.events if isinstance(event, EchoRefused)]


def test_refusals_of_an_address_are_reported_5_times_and_then_once_in_10_seconds() -> None:
    reported = Reported()
    reported.refuse(count=1_000)
    assert reported.suppressed == [0] * REPORT_BURST
    reported.refuse(f"{FLOODER}:4001", count=5)  # the same address
    assert len(reported.events) == REPORT_BURST
    reported.now = INTERVAL_S
    reported.refuse(count=100)
    assert reported.suppressed == [0] * REPORT_BURST + [1_000]
    assert (
        str(reported.events[-1])
        == f"{FLOODER}:4000: refused: bad message (1000 earlier refusals of this address were not reported)"
    )
    reported.now = 2 * INTERVAL_S - 0.1
    reported.limited.tick()
    assert len(reported.events) == REPORT_BURST + 1
    reported.now = 2 * INTERVAL_S
    reported.limited.tick()  # the flood has ended; its withheld refusals are reported
    assert reported.suppressed[-1] == 98
    reported.limited.tick()
    assert len(reported.events) == REPORT_BURST + 2


def test_a_flood_from_one_address_withholds_only_its_own_refusals() -> None:
    reported = Reported()
    reported.refuse(count=100)
    reported.refuse("198.51.100.1:1")
    reported.limited(conversation.ClientJoined("198.51.100.1:1", 1))
    assert [type(event) for event in reported.events[REPORT_BURST:]] == [EchoRefused, conversation.ClientJoined]


def test_withheld_refusals_are_reported_at_the_end() -> None:
    reported = Reported()
    reported.refuse(count=REPORT_BURST + 7)
    reported.limited.close()
    assert reported.suppressed == [0] * REPORT_BURST + [6]


def test_the_number_of_addresses_with_their_own_limit_is_limited() -> None:
    reported = Reported()
    for number in range(3 * MAX_ADDRESSES):
        reported.refuse(f"2001:db8::{number:x}:1")
    assert len(reported.events) == MAX_ADDRESSES + REPORT_BURST
    assert len(reported.limited._addresses) == MAX_ADDRESSES + 1
    assert OTHERS in reported.limited._addresses
    reported.limited.close()
    reported.now = 2 * REPORT_BURST * INTERVAL_S
    reported.refuse("192.0.2.1:1")
    assert len(reported.limited._addresses) == 1


class Image:
    """An image with messages; with ``flood`` it has further ones without end."""

    def __init__(self, number: int, source: str, messages: list[bytes], *, flood: bool = False) -> None:
        self.id = number
        self.session_id = 1_000 + number
        self.source = source
        self.polled = 0
        self._messages = deque(messages)
        self._flood = flood

    def poll(self, fragments: int) -> list[bytes]:
        self.polled += 1
        if self._flood:
            return [b"flood"] * fragments
        return [self._messages.popleft() for _ in range(min(fragments, len(self._messages)))]


class FakeSubscription:
    """A subscription with the images that a test adds."""

    def __init__(self, channel: str = "") -> None:
        self.channel = channel
        self.added: list[Image] = []

    def images(self) -> list[Image]:
        return list(self.added)

    def close(self) -> None:
        pass


class FakeAeron:
    """Fakes of Aeron, and the channels and owners that a server opens with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.channels: list[str] = []
        self.registered: list[SessionOwner] = []
        self.subscription = FakeSubscription()
        self.publication = Publication()

        def open_subscription(client: object, channel: str, stream_id: int, limit: int) -> FakeSubscription:
            self.channels.append(channel)
            return self.subscription if str(HostPort("192.0.2.1", 9000)) in channel else FakeSubscription(channel)

        def open_publication(client: object, channel: Any, *arguments: object) -> Publication:
            self.channels.append(channel if isinstance(channel, str) else channel(77))
            return self.publication

        def register(client: object, owner: SessionOwner, **options: Any) -> Any:
            self.registered.append(owner)
            return self.publication  # which can be closed, too

        for module in (echo1, echo2):
            monkeypatch.setattr(module, "PolledSubscription", open_subscription)
        monkeypatch.setattr(echo2, "open_publication", open_publication)
        monkeypatch.setattr(echo2, "BytesPublication", open_publication)
        monkeypatch.setattr(texts, "register", register)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeAeron:
    return FakeAeron(monkeypatch)


def make_server(seen: list[EchoEvent], now: list[float]) -> echo2.Server2:
    settings = echo2.Server2Settings(HostPort("192.0.2.1", 9000), 9001, 9010)
    return echo2.Server2(Any, settings, seen.append, clock=lambda: now[0])


def test_a_new_client_gets_its_response_during_a_flood(fakes: FakeAeron) -> None:
    seen: list[EchoEvent] = []
    now = [0.0]
    server = make_server(seen, now)
    flood = [Image(number, f"{FLOODER}:{number + 1}", [], flood=True) for number in range(50)]
    fakes.subscription.added = [*flood]
    for _ in range(100):  # the publication accepts nothing: refusals wait
        now[0] += 0.001
        server.poll()
    fakes.subscription.added.append(Image(99, "198.51.100.7:4000", [texts.encode_hello_2(0xABC)]))
    fakes.publication.room = 3
    server.poll()
    session_id, verb, *_ = fakes.publication.accepted[0].split()
    assert (int(session_id), verb) == (1_099, b"CONNECT")
    assert [image.polled for image in flood] == [1] * 50  # sessions with a waiting refusal are not polled
    assert len([event for event in seen if isinstance(event, EchoRefused)]) == REPORT_BURST
    server.close()


def test_the_servers_channels_have_guard_rules_and_a_duologue_has_an_owner(fakes: FakeAeron) -> None:
    seen: list[EchoEvent] = []
    server = make_server(seen, [0.0])
    fakes.subscription.added = [Image(1, "198.51.100.7:4000", [texts.encode_hello_2(7)])]
    server.poll()
    (duologue,) = [event for event in seen if isinstance(event, conversation.DuologueOpened)]
    server.close()
    echo1.Server1(Any, echo1.Server1Settings(HostPort("192.0.2.1", 9100)), seen.append).close()
    guarded = [channel for channel in fakes.channels if f"|guard=true|guard-streams={texts.STREAM_ID}|" in channel]
    # two channels of all clients, two of the duologue, one of Echo 1.0
    assert (len(fakes.channels), len(guarded)) == (5, 5)
    # a client joins the channel of all clients before it knows a session id
    assert all("|guard-joining=true" in channel for channel in guarded)
    owners = {(owner.direction, owner.port, owner.address) for owner in fakes.registered}
    assert owners == {
        ("received", duologue.data_port, "198.51.100.7"),
        ("published", duologue.control_port, "198.51.100.7"),
    }


def test_a_client_reads_past_the_responses_to_a_flood_in_one_poll() -> None:
    duologue = texts.EchoAddress(9010, 9011, 4711)
    client = echo2.Client2(Any, HostPort("192.0.2.1", 9000), 9001, entropy=bytes)
    subscription = FakeSubscription()
    others = [texts.encode_refusal(number, texts.BAD_MESSAGE) for number in range(100)]
    subscription.added = [Image(1, "192.0.2.1:9001", [*others, texts.encode_connect(4_000, 0, duologue)])]
    assert client._poll_response(subscription, 4_000) == duologue
