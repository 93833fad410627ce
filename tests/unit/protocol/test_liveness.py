"""Expiry, keep-alive and pings, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import OptionError
from aeron_spark.protocol.liveness import Expiry, KeepAlive, Liveness, Pings, Times


def test_a_link_that_was_never_connected_expires_after_its_set_up_time() -> None:
    expiry = Expiry(10.0, 4.0, now=100.0)
    assert [expiry.observe(False, now) for now in (100.0, 104.5, 109.9)] == [Liveness.SETTING_UP] * 3
    assert expiry.deadline() == 110.0
    assert expiry.observe(False, 110.0) is Liveness.EXPIRED


def test_row_52_an_outage_shorter_than_the_expiry_has_no_effect() -> None:
    expiry = Expiry(10.0, 4.0, now=0.0)
    observations = [(1.0, True), (50.0, True), (51.0, False), (54.9, False), (55.0, True), (56.0, False), (59.9, False)]
    states = [expiry.observe(connected, now) for now, connected in observations]
    assert states[:3] == [Liveness.CONNECTED, Liveness.CONNECTED, Liveness.SILENT]
    assert Liveness.EXPIRED not in states
    assert expiry.deadline() == 60.0
    assert expiry.observe(True, 60.0) is Liveness.CONNECTED
    assert expiry.deadline() is None


def test_row_51_a_silent_link_expires_after_its_expiry_and_not_before() -> None:
    expiry = Expiry(10.0, 4.0, now=0.0)
    expiry.observe(True, 1.0)
    expiry.observe(False, 20.0)
    assert expiry.observe(False, 23.999) is Liveness.SILENT
    assert expiry.observe(False, 24.0) is Liveness.EXPIRED


def test_an_expired_link_stays_expired() -> None:
    expiry = Expiry(1.0, 1.0, now=0.0)
    expiry.observe(False, 1.0)
    assert expiry.observe(True, 1.1) is Liveness.EXPIRED
    assert expiry.deadline() is None


def test_a_suspended_process_counts_silence_from_its_next_observation() -> None:
    expiry = Expiry(10.0, 4.0, now=0.0)
    expiry.observe(True, 1.0)
    assert expiry.observe(False, 500.0) is Liveness.SILENT
    assert expiry.deadline() == 504.0


@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.booleans()), max_size=60))
def test_a_link_expires_like_a_simple_model(steps: list[tuple[float, bool]]) -> None:
    expiry, now, limit, expired = Expiry(5.0, 2.0, now=0.0), 0.0, 5.0, False
    for pause, connected in steps:
        now += pause
        if connected:
            limit = float("inf")
        elif limit == float("inf"):
            limit = now + 2.0
        elif now >= limit:
            expired = True
        assert (expiry.observe(connected, now) is Liveness.EXPIRED) == expired
        if expired:
            break


def test_a_frame_is_due_after_an_interval_without_one() -> None:
    alive = KeepAlive(15.0, now=0.0)
    assert not alive.is_due(14.9)
    assert alive.is_due(15.0)
    alive.sent(15.0)
    assert (alive.is_due(29.9), alive.deadline(), alive.is_due(30.0)) == (False, 30.0, True)


def test_row_47_a_hundred_pings_have_a_hundred_round_trips() -> None:
    pings = Pings()
    trips = []
    for n in range(100):
        number = pings.start(now=float(n))
        assert number is not None
        trips.append(pings.pong(number, n + 0.25))
    assert trips == [0.25] * 100
    assert pings.pending == 0


def test_row_48_a_ping_that_was_ended_takes_no_pong() -> None:
    pings = Pings()
    slow, quick = pings.start(0.0), pings.start(0.0)
    assert slow is not None
    assert quick is not None
    for _ in range(2):
        pings.end(quick)
        assert pings.pending == 1
    assert pings.pong(quick, 2.1) is None
    assert pings.pong(slow, 2.1) == 2.1


def test_a_second_pong_and_a_pong_without_a_ping_are_ignored() -> None:
    pings = Pings()
    number = pings.start(0.0)
    assert number is not None
    assert pings.pong(number + 1, 0.1) is None
    assert pings.pong(number, 0.1) == pytest.approx(0.1)
    assert pings.pong(number, 0.2) is None


def test_pending_pings_have_a_limit_and_their_numbers_are_not_reused() -> None:
    pings = Pings(max_pending=3)
    first = [pings.start(0.0) for _ in range(4)]
    assert first[3] is None
    for number in first[:3]:
        assert number is not None
        pings.end(number)
    assert not {pings.start(1.0) for _ in range(3)} & set(first)


@given(st.lists(st.tuples(st.sampled_from(["start", "pong", "end"]), st.integers(0, 30))))
def test_every_ping_ends_exactly_once(steps: list[tuple[str, int]]) -> None:
    pings, begun = Pings(max_pending=5), dict[int, float]()
    for now, (step, which) in enumerate(steps):
        if step == "start":
            started = pings.start(now)
            assert (started is None) == (len(begun) >= 5)
            if started is not None:
                begun[started] = now
        elif step == "pong":
            expected = now - begun.pop(which) if which in begun else None
            assert pings.pong(which, now) == expected
        else:
            pings.end(which)
            begun.pop(which, None)
        assert pings.pending == len(begun)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"retention_seconds": 30.0}, "expected at least 60"),
        ({"retention_seconds": 59.99}, "expected at least 60"),
        ({"retention_seconds": 70.0, "expiry_seconds": 65.0}, "takes 70 s to end"),
        ({"retention_seconds": 5.0, "min_retention_seconds": 0.0, "linger_seconds": 1.0}, "takes 5 s to end"),
        ({"retention_seconds": float("nan")}, "retention_seconds is nan"),
        ({"retention_seconds": float("inf")}, "retention_seconds is inf"),
        ({"expiry_seconds": 0.0}, "expiry_seconds is 0"),
        ({"setup_seconds": -1.0}, "setup_seconds is -1"),
        ({"linger_seconds": -1.0}, "linger_seconds is -1"),
    ],
)
def test_row_56_contradictory_times_are_an_error(times: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Times(**times)


def test_row_56_the_minimum_retention_is_allowed() -> None:
    assert Times(retention_seconds=60.0).retention_seconds == 60.0
    assert Times(retention_seconds=1.0, min_retention_seconds=0.0, expiry_seconds=0.5, linger_seconds=0.1)
