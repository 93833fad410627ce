"""Replies that wait: in order, bounded, and for a time only."""

from __future__ import annotations

from aeron_spark.echo.outbox import MOST, Outbox
from aeron_spark.transport.api import OfferResult


class Taker:
    """A publication that takes as many messages as it is told to."""

    def __init__(self) -> None:
        self.room = 0
        self.taken: list[bytes] = []

    def offer(self, message: bytes) -> OfferResult | None:
        if not self.room:
            return OfferResult.BACK_PRESSURED
        self.room -= 1
        self.taken.append(message)
        return None


def test_what_waits_is_sent_in_order_when_there_is_room() -> None:
    taker = Taker()
    outbox = Outbox(taker, 10.0)
    for message in (b"1", b"2", b"3"):
        outbox.put(message, 0.0)
    assert (outbox.flush(0.0), outbox.empty) == (0, False)
    taker.room = 2
    assert (outbox.flush(1.0), outbox.empty) == (2, False)
    taker.room = 9
    assert (outbox.flush(9.9), outbox.empty, outbox.sent) == (1, True, 3)
    assert taker.taken == [b"1", b"2", b"3"]


def test_what_waited_for_too_long_is_not_sent() -> None:
    taker = Taker()
    outbox = Outbox(taker, 10.0)
    outbox.put(b"old", 0.0)
    outbox.put(b"new", 5.0)
    assert not outbox.overdue(9.9)
    assert outbox.overdue(10.0)
    taker.room = 9
    assert outbox.flush(10.0) == 0
    outbox.forget_overdue(10.0)
    assert outbox.flush(10.0) == 1
    assert taker.taken == [b"new"]
    outbox.forget_overdue(99.0)
    assert not outbox.overdue(99.0)


def test_a_flood_loses_its_oldest() -> None:
    taker = Taker()
    outbox = Outbox(taker, 10.0)
    for number in range(MOST + 3):
        outbox.put(b"%d" % number, 0.0)
    taker.room = 2 * MOST
    assert outbox.flush(0.0) == MOST
    assert taker.taken[0] == b"3"
