"""Which replays of short ranges are started together, and what becomes of those that are not read."""

from __future__ import annotations

from functools import partial

from aeron_spark.aeron.recording import REPLAYS_AT_ONCE, SHORT_BYTES, ReplaysAhead, Span


def spans(count: int, archive: str = "embedded") -> list[Span]:
    return [Span(archive, number, 0, 640) for number in range(count)]


def test_the_next_short_spans_of_the_archive_follow() -> None:
    first, other, long = Span("a", 0, 0, 64), Span("b", 0, 0, 64), Span("a", 1, 0, SHORT_BYTES + 32)
    last = Span("a", 2, 0, SHORT_BYTES)
    ahead = ReplaysAhead([first, other, long, last])
    assert ahead.following(first) == [last]
    assert ahead.following(long) == []
    assert ahead.following(Span("a", 0, 32, 64)) == []  # a read that continues at another position


def test_a_limited_number_is_started_at_once_and_none_twice() -> None:
    wanted = spans(20)
    ahead = ReplaysAhead(wanted)
    assert ahead.following(wanted[0]) == wanted[1:REPLAYS_AT_ONCE]
    ahead.add(wanted[5], "connection", 7, lambda: None)
    assert wanted[5] not in ahead.following(wanted[4])


def test_a_replay_is_taken_once_and_only_at_its_connection() -> None:
    (one, two), stopped = spans(2), list[int]()
    ahead = ReplaysAhead([one, two])
    for number, span in enumerate((one, two)):
        ahead.add(span, "connection", number, partial(stopped.append, number))
    assert ahead.take(one, "connection") == 0
    assert ahead.take(one, "connection") is None
    assert ahead.take(two, "a connection after a restart") is None
    assert stopped == []


def test_close_stops_the_replays_that_were_not_read() -> None:
    wanted, stopped = spans(3), list[int]()
    ahead = ReplaysAhead(wanted)
    for number, span in enumerate(wanted):
        ahead.add(span, "connection", number, partial(stopped.append, number))
    ahead.take(wanted[1], "connection")
    ahead.close()
    ahead.close()
    assert sorted(stopped) == [0, 2]
