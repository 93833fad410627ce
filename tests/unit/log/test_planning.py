"""Batches end at message boundaries within the limits, share them fairly, and always make progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.log.api import RecordingState
from aeron_spark.log.losses import check_recordings
from aeron_spark.log.offsets import Finished, Offset, advance, begin
from aeron_spark.log.planning import Plan, backlogs, cap, due, plan_end, share
from tests.unit.log.fake_log import FakeLog

PRINT = "00000000"


def state(key: str, start: int, end: int, *, active: bool = True) -> RecordingState:
    return RecordingState(key, PRINT, start, end, active, 65536)


def planned(
    log: FakeLog, offset: Offset, *, max_bytes: int | None = None, max_rows: int | None = None
) -> tuple[Plan, Offset]:
    """Plan one batch as a query does."""
    states = log.states()
    positions = check_recordings(offset, states, fail_on_data_loss=True).positions
    wanted = backlogs(offset, positions, states)
    plan = plan_end(positions, states, wanted, log, max_bytes=max_bytes, max_rows=max_rows, turn=offset.turn)
    end = advance(offset, {**positions, **plan.positions}, states, finished=plan.finished, turn=plan.turn)
    return plan, end


def batches(log: FakeLog, *, max_bytes: int | None = None, max_rows: int | None = None) -> list[dict[str, int]]:
    """Plan batches until no position moves; return the number of messages of each batch, by recording."""
    offset = Offset({}, {})
    found: list[dict[str, int]] = []
    while True:
        _, end = planned(log, offset, max_bytes=max_bytes, max_rows=max_rows)
        if end is offset:
            return found
        begun, ends = begin(offset, end).positions(), end.positions()
        counts = {key: log.count_between(key, begun.get(key, 0), ends[key])[0] for key in ends}
        found.append({key: count for key, count in counts.items() if count})
        offset = end


# share: max-min fairness


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [
        ({}, 5, {}),
        ({"a": 10}, 4, {"a": 4}),
        ({"a": 10, "b": 10}, 100, {"a": 10, "b": 10}),
        ({"a": 10, "b": 10}, 5, {"a": 3, "b": 2}),
        ({"a": 1, "b": 100, "c": 100}, 31, {"a": 1, "b": 15, "c": 15}),
        ({"a": 100, "b": 100, "c": 1}, 32, {"a": 16, "b": 15, "c": 1}),
        ({"a": 0, "b": 9}, 4, {"a": 0, "b": 4}),
        ({"a": 9, "b": 9, "c": 9}, 2, {"a": 1, "b": 1, "c": 0}),
        ({"b": 9, "c": 9, "a": 9}, 1, {"b": 1, "c": 0, "a": 0}),
        ({"a": 9}, 0, {"a": 0}),
        ({"a": 9}, -5, {"a": 0}),
    ],
)
def test_share_divides_a_limit_into_fair_shares(wanted: dict[str, int], limit: int, expected: dict[str, int]) -> None:
    assert share(wanted, limit) == expected


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 1000)), st.integers(0, 4000))
def test_shares_are_fair_and_use_the_whole_limit(wanted: dict[str, int], limit: int) -> None:
    shares = share(wanted, limit)
    assert shares.keys() == wanted.keys()
    assert sum(shares.values()) == min(limit, sum(wanted.values()))
    unsatisfied = [shares[key] for key in wanted if shares[key] < wanted[key]]
    for key, amount in wanted.items():
        assert 0 <= shares[key] <= amount
        if unsatisfied:
            # no share exceeds the smallest unsatisfied one by more than one
            assert shares[key] <= min(unsatisfied) + 1
        if amount and limit >= sum(1 for one in wanted.values() if one):
            assert shares[key] >= 1


# plan_end: exact batches


def test_fifteen_messages_are_three_batches_of_at_most_five_rows() -> None:
    assert batches(FakeLog({"a/1": [(64, 1)] * 15}), max_rows=5) == [{"a/1": 5}] * 3


def test_fifteen_messages_are_three_batches_of_at_most_the_bytes_of_five() -> None:
    assert batches(FakeLog({"a/1": [(64, 1)] * 15}), max_bytes=5 * 64) == [{"a/1": 5}] * 3
    assert batches(FakeLog({"a/1": [(64, 1)] * 15}), max_bytes=6 * 64 - 1) == [{"a/1": 5}] * 3


def test_a_batch_keeps_both_limits() -> None:
    log = FakeLog({"a/1": [(64, 1)] * 4 + [(32, 3)] * 4})
    assert batches(log, max_bytes=128, max_rows=4) == [{"a/1": 2}, {"a/1": 2}, *[{"a/1": 1}] * 4]


def test_without_limits_one_batch_has_all_complete_messages() -> None:
    log = FakeLog({"a/1": [(64, 1)] * 15, "a/2": [(32, 1)] * 3, "a/3": []}, tails={"a/2": 96, "a/3": 32})
    assert batches(log) == [{"a/1": 15, "a/2": 3}]
    assert log.boundary_calls.count("a/1") == 1


@pytest.mark.parametrize("limits", [{"max_bytes": 200}, {"max_rows": 9}, {"max_bytes": 1000, "max_rows": 9}])
def test_a_message_larger_than_the_limit_is_a_batch_alone(limits: dict[str, int]) -> None:
    log = FakeLog({"a/1": [(64, 1), (960, 10), (64, 1)], "a/2": [(64, 1)]})
    found = batches(log, **limits)
    assert {"a/1": 1} in found
    assert sum(sum(one.values()) for one in found) == 4
    assert all(one == {"a/1": 1} or len(one) + sum(one.values()) <= 4 for one in found)


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_rows": 0}, {"max_bytes": -1, "max_rows": -1}])
def test_a_limit_below_one_message_gives_batches_of_one_message(limits: dict[str, int]) -> None:
    assert batches(FakeLog({"a/1": [(64, 1)] * 3}), **limits) == [{"a/1": 1}] * 3


def test_shares_are_fair_over_uneven_recordings() -> None:
    log = FakeLog({"a/1": [(64, 1)] * 2, "a/2": [(64, 1)] * 100, "a/3": [(64, 1)] * 100})
    assert batches(log, max_bytes=64 * 22)[0] == {"a/1": 2, "a/2": 10, "a/3": 10}
    assert batches(log, max_rows=22)[0] == {"a/1": 2, "a/2": 10, "a/3": 10}


def test_the_unused_rest_of_a_share_is_given_to_other_recordings() -> None:
    # Each share is 500 bytes. The first recording has messages of 300 bytes, so the second can use 200 more.
    log = FakeLog({"a/1": [(300, 1)] * 9, "a/2": [(100, 1)] * 90})
    assert batches(log, max_bytes=1000)[0] == {"a/1": 1, "a/2": 7}


def test_large_messages_do_not_starve_beside_many_small_ones() -> None:
    """A fair share of 500 bytes is too small for a message of 800, so the recording needs its turn."""
    log = FakeLog({"a/1": [(100, 1)] * 100, "a/2": [(800, 1)] * 4, "a/3": [(5000, 1)] * 2})
    found = batches(log, max_bytes=1000)
    for key in ("a/1", "a/2", "a/3"):
        served = [number for number, one in enumerate(found) if key in one]
        gaps = [later - earlier for earlier, later in zip([-1, *served], served, strict=False)]
        assert max(gaps) <= 3, key


def test_with_a_limit_of_fewer_rows_than_recordings_the_recordings_take_turns() -> None:
    log = FakeLog({f"a/{number}": [(64, 1)] * 2 for number in range(5)})
    found = batches(log, max_rows=1)
    assert [list(one) for one in found] == [[f"a/{number}"] for number in (0, 1, 2, 3, 4)] * 2


def test_an_unfinished_message_does_not_delay_other_recordings() -> None:
    log = FakeLog({"a/1": [], "a/2": [(64, 1)] * 3}, tails={"a/1": 4096})
    assert batches(log, max_bytes=64) == [{"a/2": 1}] * 3


def test_a_plan_names_the_finished_recordings() -> None:
    log = FakeLog({"a/1": [(64, 1)], "a/2": [(64, 1)], "a/3": [], "a/4": [(64, 2)]}, tails={"a/2": 32, "a/3": 32})
    log.stopped = frozenset({"a/2", "a/3", "a/4"})
    plan, end = planned(log, Offset({}, {}))
    assert plan.finished == {"a/2", "a/3", "a/4"}
    assert plan.turn is None
    assert end.recordings == {"a/1": 64}
    assert end.done == {"a/2": Finished(64, 32, PRINT), "a/3": Finished(0, 32, PRINT), "a/4": Finished(64, 0, PRINT)}
    assert backlogs(end, end.positions(), log.states()) == {}


@pytest.mark.parametrize(
    "limits", [{"max_rows": 5}, {"max_bytes": 320}, {"max_bytes": 350}, {"max_bytes": 400, "max_rows": 5}]
)
def test_a_limited_recording_is_searched_once_per_batch(limits: dict[str, int]) -> None:
    log = FakeLog({"a/1": [(64, 1)] * 15})
    assert batches(log, **limits) == [{"a/1": 5}] * 3
    assert len(log.boundary_calls) == 3


def test_for_a_message_larger_than_the_limit_no_other_recording_is_searched() -> None:
    log = FakeLog({"a/1": [(960, 10)], "a/2": [(64, 1)]})
    assert planned(log, Offset({}, {}), max_rows=9)[0].positions == {"a/1": 960, "a/2": 0}
    assert planned(log, Offset({}, {}), max_bytes=900)[0].positions == {"a/1": 960, "a/2": 0}
    assert log.boundary_calls == ["a/1", "a/1"]


def test_without_a_backlog_no_recording_is_searched() -> None:
    log = FakeLog({"a/1": [(64, 1)]})
    assert plan_end({"a/1": 0}, log.states(), [], log) == Plan({}, frozenset(), None)
    assert log.boundary_calls == []


MESSAGES = st.lists(st.tuples(st.integers(1, 40).map(lambda frames: frames * 32), st.integers(1, 12)), max_size=12)
LOGS = st.builds(
    FakeLog,
    st.dictionaries(st.sampled_from([f"a/{number}" for number in range(6)]), MESSAGES, min_size=1),
    st.dictionaries(st.sampled_from([f"a/{number}" for number in range(6)]), st.integers(1, 99).map(lambda n: n * 32)),
    st.frozensets(st.sampled_from([f"a/{number}" for number in range(6)])),
)
LIMITS = st.fixed_dictionaries(
    {"max_bytes": st.none() | st.integers(1, 4000), "max_rows": st.none() | st.integers(1, 40)}
)


@given(LOGS, LIMITS)
def test_batches_have_every_message_once_within_the_limits_and_no_recording_starves(
    log: FakeLog, limits: dict[str, int | None]
) -> None:
    offset, waiting = Offset({}, {}), dict.fromkeys(log.messages, 0)
    read = dict.fromkeys(log.messages, 0)
    while True:
        plan, end = planned(log, offset, **limits)
        if end is offset:
            break
        begun, ends = begin(offset, end).positions(), end.positions()
        counts_by_key = {key: log.count_between(key, begun.get(key, 0), ends[key]) for key in ends}
        messages, size, rows = (sum(one[part] for one in counts_by_key.values()) for part in range(3))
        assert messages > 0
        if messages > 1:
            assert limits["max_bytes"] is None or size <= limits["max_bytes"]
            assert limits["max_rows"] is None or rows <= limits["max_rows"]
        for key, (count, _, _) in counts_by_key.items():
            read[key] += count
            waiting[key] = 0 if count or read[key] == len(log.messages[key]) else waiting[key] + 1
            assert waiting[key] < len(log.messages)
        assert (plan.turn is None) or plan.turn in counts_by_key
        offset = end
    assert read == {key: len(sizes) for key, sizes in log.messages.items()}


@given(LOGS, LIMITS)
def test_a_repeated_plan_is_the_same_plan(log: FakeLog, limits: dict[str, int | None]) -> None:
    assert planned(log, Offset({}, {}), **limits) == planned(log, Offset({}, {}), **limits)


# backlogs, cap, due


def test_a_backlog_is_the_number_of_bytes_that_are_not_read_yet() -> None:
    offset = Offset({"a/1": 64}, {"a/1": PRINT}, {"a/2": Finished(64, 32, PRINT), "a/3": Finished(64, 32, PRINT)})
    states = [state("a/1", 0, 160), state("a/2", 0, 96), state("a/3", 0, 128), state("a/4", 0, 0)]
    assert backlogs(offset, {"a/1": 64, "a/2": 64, "a/3": 64, "a/4": 0}, states) == {"a/1": 96, "a/3": 64}


def test_a_tail_that_was_truncated_and_extended_is_a_backlog_again() -> None:
    offset = Offset({}, {}, {"a/2": Finished(64, 320, PRINT)})
    assert backlogs(offset, {"a/2": 64}, [state("a/2", 0, 128)]) == {"a/2": 64}


def test_available_now_reads_no_messages_that_were_recorded_later() -> None:
    states = [state("a/1", 0, 128, active=False), state("a/2", 0, 64, active=False), state("a/3", 0, 32)]
    capped = cap([*states, state("a/4", 96, 128)], {"a/1": 96, "a/2": 64, "a/4": 32})
    assert capped == [state("a/1", 0, 96), state("a/2", 0, 64, active=False), state("a/4", 96, 96)]


@pytest.mark.parametrize(
    ("backlog", "minimum", "now", "expected"),
    [
        (0, None, 0, True),
        (99, 100, 0, False),
        (100, 100, 0, True),
        (99, 100, 1059, False),
        (99, 100, 1060, True),
        (0, 100, 9999, False),
    ],
)
def test_a_batch_is_due_with_enough_bytes_or_after_the_maximum_delay(
    backlog: int, minimum: int | None, now: int, expected: bool
) -> None:
    assert due(backlog, min_bytes=minimum, max_delay_ns=60, since_ns=1000, now_ns=now) is expected
