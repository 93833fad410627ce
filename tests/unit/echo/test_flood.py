"""Finding C16: a flood at an Echo server keeps no client out, fills no log, and costs the driver little."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from aeron_spark.echo import channels, echo1, echo2, reports, texts
from aeron_spark.echo.outbox import REFUSALS_A_SECOND, REFUSALS_AT_ONCE, SharedOutbox
from aeron_spark.echo.reports import AT_ONCE, INTERVAL_S, MOST_ADDRESSES, OTHERS, EchoEvent, LimitedReport, Refusal
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import OfferResult

FLOODER = "203.0.113.9"


class Publication:
    """A publication that takes as many messages as it has room for."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self.session_id = 1
        self.max_message_bytes = 8_192

    def offer(self, message: bytes) -> OfferResult | None:
        if not self.room:
            return OfferResult.BACK_PRESSURED
        self.room -= 1
        self.taken.append(message)
        return None

    def close(self) -> None:
        pass


def test_finding_c16_an_admission_goes_before_every_refusal_that_waits() -> None:
    publication = Publication()
    outbox = SharedOutbox(publication, 10.0)
    for image in range(300):
        outbox.refuse(image, b"no", 0.0)
    outbox.admit(b"yes", 0.0)
    publication.room = 2
    assert outbox.flush(1.0) == 2
    assert publication.taken == [b"yes", b"no"]


def test_finding_c16_sessions_are_refused_in_turns() -> None:
    publication = Publication(room=1_000)
    outbox = SharedOutbox(publication, 10.0)
    for number in range(10):
        outbox.refuse(1, b"flood %d" % number, 0.0)
    outbox.refuse(2, b"other", 0.0)
    assert outbox.flush(0.0) == 2
    assert publication.taken == [b"flood 0", b"other"]
    assert outbox.waits_for(1)
    assert not outbox.waits_for(2)
    for _ in range(9):
        outbox.flush(0.0)
    assert publication.taken[2:] == [b"flood %d" % number for number in range(1, 10)]
    assert not outbox.waits_for(1)


def test_finding_c16_refusals_are_no_more_a_second_than_a_client_can_read() -> None:
    publication = Publication(room=10_000)
    outbox = SharedOutbox(publication, 10.0)
    for image in range(1_000):
        outbox.refuse(image, b"no", 0.0)
    assert outbox.flush(0.0) == REFUSALS_AT_ONCE
    assert outbox.flush(0.0) == 0
    assert outbox.flush(0.5) == REFUSALS_A_SECOND / 2
    assert outbox.flush(20.0) == 0  # the others have waited for too long
    assert not any(outbox.waits_for(image) for image in range(1_000))


class Reported:
    """What a server reported, on a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[EchoEvent] = []
        self.limited = LimitedReport(self.events.append, lambda: self.now)

    def refuse(self, source: str = f"{FLOODER}:4000", count: int = 1) -> None:
        for _ in range(count):
            self.limited(Refusal(source, 1, "bad message"))

    @property
    def suppressed(self) -> list[int]:
        return [event.suppressed for event in self.events if isinstance(event, Refusal)]


def test_finding_c16_refusals_of_an_address_are_reported_5_times_and_then_once_in_10_seconds() -> None:
    reported = Reported()
    reported.refuse(count=1_000)
    assert reported.suppressed == [0] * AT_ONCE
    reported.refuse(f"{FLOODER}:4001", count=5)  # the same address
    assert len(reported.events) == AT_ONCE
    reported.now = INTERVAL_S
    reported.refuse(count=100)
    assert reported.suppressed == [0] * AT_ONCE + [1_000]
    assert str(reported.events[-1]) == f"{FLOODER}:4000: refused: bad message (1000 more of this address before it)"
    reported.now = 2 * INTERVAL_S - 0.1
    reported.limited.tick()
    assert len(reported.events) == AT_ONCE + 1
    reported.now = 2 * INTERVAL_S
    reported.limited.tick()  # the flood has ended, and what came of it is told all the same
    assert reported.suppressed[-1] == 98
    reported.limited.tick()
    assert len(reported.events) == AT_ONCE + 2


def test_finding_c16_a_flood_of_one_address_hides_no_refusal_of_another_and_no_other_event() -> None:
    reported = Reported()
    reported.refuse(count=100)
    reported.refuse("198.51.100.1:1")
    reported.limited(reports.ClientJoined("198.51.100.1:1", 1))
    assert [type(event) for event in reported.events[AT_ONCE:]] == [Refusal, reports.ClientJoined]


def test_finding_c16_what_is_withheld_is_told_at_the_end() -> None:
    reported = Reported()
    reported.refuse(count=AT_ONCE + 7)
    reported.limited.close()
    assert reported.suppressed == [0] * AT_ONCE + [6]


def test_finding_c16_addresses_that_are_told_apart_are_bounded() -> None:
    reported = Reported()
    for number in range(3 * MOST_ADDRESSES):
        reported.refuse(f"2001:db8::{number:x}:1")
    assert len(reported.events) == MOST_ADDRESSES + AT_ONCE
    assert len(reported.limited._addresses) == MOST_ADDRESSES + 1
    assert OTHERS in reported.limited._addresses
    reported.limited.close()
    reported.now = 2 * AT_ONCE * INTERVAL_S
    reported.refuse("192.0.2.1:1")
    assert len(reported.limited._addresses) == 1


class Image:
    """An image with messages, of which an endless flood has always one more."""

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


class Listening:
    """A subscription with images that a test puts in."""

    def __init__(self, channel: str = "") -> None:
        self.channel = channel
        self.all: list[Image] = []

    def images(self) -> list[Image]:
        return list(self.all)

    def close(self) -> None:
        pass


class Opened:
    """What a server opens, with fakes for Aeron."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.channels: list[str] = []
        self.registered: list[tuple[str, dict[str, Any]]] = []
        self.listening = Listening()
        self.publication = Publication()

        def listen(client: object, channel: str, stream_id: int, limit: int) -> Listening:
            self.channels.append(channel)
            return self.listening if str(HostPort("192.0.2.1", 9000)) in channel else Listening(channel)

        def talk(client: object, channel: Any, *more: object) -> Publication:
            self.channels.append(channel if isinstance(channel, str) else channel(77))
            return self.publication

        def register(client: object, direction: str, **given: Any) -> Any:
            self.registered.append((direction, given))
            return self.publication  # which can be closed, too

        for module in (echo1, echo2, echo2):
            monkeypatch.setattr(module, "PolledSubscription", listen)
        monkeypatch.setattr(echo2, "talking", talk)
        monkeypatch.setattr(echo2, "BytesPublication", talk)
        monkeypatch.setattr(channels, "register", register)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def a_server(seen: list[EchoEvent], now: list[float]) -> echo2.Server2:
    settings = echo2.Server2Settings(HostPort("192.0.2.1", 9000), 9001, 9010)
    return echo2.Server2(Any, settings, seen.append, clock=lambda: now[0])  # type: ignore[arg-type]


def test_finding_c16_a_newcomer_is_answered_at_once_beside_a_flood_and_the_flood_waits(opened: Opened) -> None:
    seen: list[EchoEvent] = []
    now = [0.0]
    server = a_server(seen, now)
    flood = [Image(number, f"{FLOODER}:{number + 1}", [], flood=True) for number in range(50)]
    opened.listening.all = [*flood]
    for _ in range(100):  # nothing is taken: all that may wait does
        now[0] += 0.001
        server.poll()
    opened.listening.all.append(Image(99, "198.51.100.7:4000", [texts.hello_2(0xABC)]))
    opened.publication.room = 3
    server.poll()
    session_id, verb, *_ = opened.publication.taken[0].split()
    assert (int(session_id), verb) == (1_099, b"CONNECT")
    assert [image.polled for image in flood] == [1] * 50  # Aeron holds back who is refused faster than it may be told
    assert len([event for event in seen if isinstance(event, Refusal)]) == AT_ONCE
    server.close()


def test_finding_c16_the_servers_channels_ask_for_the_guard_and_a_duologue_is_for_its_clients_address(
    opened: Opened,
) -> None:
    seen: list[EchoEvent] = []
    server = a_server(seen, [0.0])
    opened.listening.all = [Image(1, "198.51.100.7:4000", [texts.hello_2(7)])]
    server.poll()
    (place,) = [event for event in seen if isinstance(event, reports.DuologueOpened)]
    server.close()
    echo1.Server1(Any, echo1.Server1Settings(HostPort("192.0.2.1", 9100)), seen.append).close()  # type: ignore[arg-type]
    watched = [channel for channel in opened.channels if f"|guard=true|guard-streams={texts.STREAM_ID}|" in channel]
    # two of all clients, two of the duologue, one of Echo 1.0
    assert (len(opened.channels), len(watched)) == (5, 5)
    # a client joins what all clients hear before it knows a session
    assert all("|guard-joining=true" in channel for channel in watched)
    owners = {(direction, given["port"], given["address"]) for direction, given in opened.registered}
    assert owners == {
        ("received", place.data_port, "198.51.100.7"),
        ("published", place.control_port, "198.51.100.7"),
    }


def test_finding_c16_a_client_reads_past_the_answers_of_a_flood_in_one_look() -> None:
    place = texts.EchoAddress(9010, 9011, 4711)
    client = echo2.Client2(Any, HostPort("192.0.2.1", 9000), 9001, entropy=bytes)  # type: ignore[arg-type]
    listening = Listening()
    others = [texts.refuse(number, texts.BAD_MESSAGE) for number in range(100)]
    listening.all = [Image(1, "192.0.2.1:9001", [*others, texts.connect(4_000, 0, place)])]
    assert client._answer(listening, 4_000) == place  # type: ignore[arg-type]
