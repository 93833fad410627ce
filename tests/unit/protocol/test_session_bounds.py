"""The limits of a session in bytes and in time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session, SessionLimits
from tests.unit.protocol.session_pair import LIMITS, attached_pair, next_frame, reattach, transmit_all


def test_row_60_a_full_buffer_is_a_value_until_an_acknowledgement_makes_room() -> None:
    one, other = attached_pair()
    accepted, result = one.push_many(RecordKind.MESSAGE, [bytes(10_000)] * 20, 0.0)
    assert (accepted, result) == (9, Pushed.FULL)
    assert one.push(RecordKind.MESSAGE, bytes(10_000), 0.0) is Pushed.FULL
    assert len(transmit_all(one, other)) == 9
    assert one.push(RecordKind.MESSAGE, bytes(10_000), 0.0) is Pushed.FULL  # sent, but not acknowledged
    transmit_all(other, one)
    assert (one.pending, one.buffered_bytes) == (0, 0)
    assert one.push(RecordKind.MESSAGE, bytes(10_000), 0.0) is Pushed.ACCEPTED


def test_row_58_the_buffer_is_bounded_and_keeps_all_accepted_records() -> None:
    one = Session(replace(LIMITS, buffer_bytes=100 * (1_000 + RECORD_COST), max_record_bytes=1_000), 0.0)
    results = [one.push(RecordKind.MESSAGE, bytes(1_000), 0.0) for _ in range(1_000)]
    assert results == [Pushed.ACCEPTED] * 100 + [Pushed.FULL] * 900
    other = Session(LIMITS, 0.0)
    one.attach(0, 1.0)
    other.attach(0, 1.0)
    assert len(transmit_all(one, other, 1.0)) == 100


@pytest.mark.slow
def test_row_58_the_memory_of_small_messages_is_bounded() -> None:
    limits = SessionLimits(buffer_bytes=2_000_000, max_record_bytes=1_000_000)
    one = Session(limits, 0.0)
    tracemalloc.start()
    try:
        for n in range(100_000):
            one.push(RecordKind.MESSAGE, n.to_bytes(4, "big"), 0.0)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 1.1 * limits.buffer_bytes
    assert one.pending == 2_000_000 // (4 + RECORD_COST)


def test_row_58_without_buffering_no_record_is_accepted_without_a_link() -> None:
    one, other = attached_pair(replace(LIMITS, buffering=False))
    assert one.push(RecordKind.MESSAGE, b"sent, and its frame lost", 0.0) is Pushed.ACCEPTED
    next_frame(one)
    one.detach(1.0)
    other.detach(1.0)
    assert one.push(RecordKind.MESSAGE, b"x", 1.0) is Pushed.NOT_CONNECTED
    assert one.push_many(RecordKind.MESSAGE, [b"x"], 1.0) == (0, Pushed.NOT_CONNECTED)
    reattach(one, other, 2.0)
    assert transmit_all(one, other, 2.0) == [b"sent, and its frame lost"]


def test_row_56_a_session_that_is_not_resumed_is_lost_after_its_retention() -> None:
    one, _ = attached_pair()
    one.check(1e9)  # attached: never
    one.detach(10.0)
    assert one.deadline() == 130.0
    one.check(129.9)
    with pytest.raises(RefusedError, match=r"the session is lost: it had no link for 120 s\. Connect again"):
        one.check(130.0)
    with pytest.raises(RefusedError, match="the session is lost"):
        one.attach(0, 10.0)


@pytest.mark.parametrize("pushed_at", [5.0, 30.0])
def test_messages_that_wait_too_long_lose_the_session_and_the_error_has_their_number(pushed_at: float) -> None:
    one, _ = attached_pair()
    if pushed_at < 10.0:
        one.push(RecordKind.MESSAGE, b"x", pushed_at)
    one.detach(10.0)
    one.push(RecordKind.MESSAGE, b"y", 30.0)
    begin = max(pushed_at, 10.0)  # the age counts only without a link
    assert one.deadline() == begin + 60.0
    one.check(begin + 59.9)
    with pytest.raises(RefusedError, match=r"waited 60 s for a link; it is unknown whether [12] messages"):
        one.push(RecordKind.MESSAGE, b"z", begin + 60.0)
    assert (one.pending, one.waiting, one.buffered_bytes, one.deadline()) == (0, 0, 0, None)


def test_a_message_that_is_refused_without_a_link_does_not_start_the_time_limit() -> None:
    one = Session(replace(LIMITS, buffer_bytes=10_200), 0.0)
    one.attach(0, 0.0)
    one.detach(10.0)
    assert one.push_many(RecordKind.MESSAGE, [], 10.0) == (0, Pushed.ACCEPTED)
    assert one.deadline() == 130.0
    one.push(RecordKind.MESSAGE, bytes(10_000), 20.0)
    assert one.push(RecordKind.MESSAGE, bytes(10_000), 30.0) is Pushed.FULL
    assert one.deadline() == 80.0


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"buffer_bytes": 1_000}, "but one record needs up to"),
        ({"buffer_seconds": 0.0}, "buffer_seconds is 0"),
        ({"retention_seconds": float("inf")}, "retention_seconds is inf"),
        ({"ack_bytes": 0}, "ack_bytes is 0"),
        ({"ack_seconds": -1.0}, "ack_seconds is -1"),
        ({"max_record_bytes": 0}, "max_record_bytes is 0"),
    ],
)
def test_invalid_limits_are_an_error(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SessionLimits(**limits)
