"""Ids: in range, in one hand at a time, at rest afterwards; against a model of sets."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.ids import (
    EXHAUSTED,
    FIRST_SESSION_ID,
    FIRST_STREAM_ID,
    HANDSHAKE_STREAM_ID,
    LARGEST_ID,
    LAST_SESSION_ID,
    IdAllocator,
    below,
    session_ids,
    stream_ids,
)
from aeron_spark.protocol.refusals import Refusal


def taken(answer: int | Refusal) -> int:
    assert isinstance(answer, int), answer
    return answer


@pytest.mark.parametrize(
    ("make", "first", "last"),
    [(session_ids, FIRST_SESSION_ID, LAST_SESSION_ID), (stream_ids, FIRST_STREAM_ID, LARGEST_ID)],
)
def test_row_13_ids_lie_in_their_range_are_never_zero_and_unique(
    make: type[IdAllocator], first: int, last: int, rng: random.Random
) -> None:
    ids = make(rng.randbytes)  # type: ignore[call-arg, arg-type]
    mine = [taken(ids.take(0.0)) for _ in range(5000)]
    assert len(set(mine)) == 5000
    assert 0 < first <= min(mine) < max(mine) <= last
    assert max(mine) - min(mine) > (last - first) * 0.9, "not spread over the range"
    assert (ids.in_use, ids.held()) == (5000, tuple(sorted(mine)))
    for one in mine:
        ids.release(one, 1.0)
    assert (ids.in_use, ids.held()) == (0, ())


def test_row_14_exhaustion_is_an_answer_and_leaks_nothing(rng: random.Random) -> None:
    ids = IdAllocator(1, 4, rng.randbytes, rest=0)
    assert {taken(ids.take(0.0)) for _ in range(4)} == {1, 2, 3, 4}
    for _ in range(10):
        assert ids.take(0.0) == EXHAUSTED
        assert (EXHAUSTED.code, ids.in_use) == ("ids", 4)
    ids.release(3, 0.0)
    assert ids.take(0.0) == 3


def test_an_id_rests_before_it_is_anybody_elses(rng: random.Random) -> None:
    ids = IdAllocator(7, 7, rng.randbytes, rest=10.0)
    assert ids.take(100.0) == 7
    ids.release(7, 105.0)
    assert ids.take(114.9) == EXHAUSTED
    assert ids.take(50.0) == EXHAUSTED, "a clock that was set back wakes nobody"
    assert ids.take(115.0) == 7


def test_an_id_of_others_is_never_given_out(rng: random.Random) -> None:
    assert FIRST_STREAM_ID < HANDSHAKE_STREAM_ID < LARGEST_ID
    near = IdAllocator(HANDSHAKE_STREAM_ID - 1, HANDSHAKE_STREAM_ID + 1, rng.randbytes, excluding={HANDSHAKE_STREAM_ID})
    assert {taken(near.take(0.0)) for _ in range(2)} == {HANDSHAKE_STREAM_ID - 1, HANDSHAKE_STREAM_ID + 1}
    assert near.take(0.0) == EXHAUSTED
    ids = stream_ids(lambda count: (HANDSHAKE_STREAM_ID - FIRST_STREAM_ID).to_bytes(count, "big"))
    assert taken(ids.take(0.0)) == HANDSHAKE_STREAM_ID + 1, "drawn again and again, and passed over"


def test_an_id_rests_as_long_when_the_clock_is_set_back_meanwhile(rng: random.Random) -> None:
    ids = IdAllocator(7, 7, rng.randbytes, rest=10.0)
    assert ids.take(100.0) == 7
    ids.release(7, 50.0)
    assert ids.take(109.9) == EXHAUSTED
    assert ids.take(110.0) == 7


@pytest.mark.parametrize("wrong", [0, 5, -1])
def test_what_nobody_has_cannot_be_given_back(wrong: int, rng: random.Random) -> None:
    ids = IdAllocator(1, 4, rng.randbytes)
    with pytest.raises(UsageError, match=f"id {wrong} "):
        ids.release(wrong, 0.0)


@pytest.mark.parametrize("rest", [0.0, 30.0])
def test_a_second_release_is_found(rest: float, rng: random.Random) -> None:
    ids = IdAllocator(1, 4, rng.randbytes, rest=rest)
    one = taken(ids.take(0.0))
    ids.release(one, 0.0)
    with pytest.raises(UsageError, match="nobody has it"):
        ids.release(one, 0.0)
    assert ids.in_use == 0


def test_the_last_free_id_of_many_is_found(rng: random.Random) -> None:
    ids = IdAllocator(1, 65535, rng.randbytes, rest=0)
    mine = {taken(ids.take(0.0)) for _ in range(65535)}
    assert mine == set(range(1, 65536))
    ids.release(40_000, 0.0)
    assert ids.take(0.0) == 40_000


@pytest.mark.parametrize(("first", "last"), [(0, 4), (-4, 4), (5, 4), (1, LARGEST_ID + 1)])
def test_a_range_that_is_none_is_refused(first: int, last: int, rng: random.Random) -> None:
    with pytest.raises(OptionError, match="Use a range"):
        IdAllocator(first, last, rng.randbytes)


@pytest.mark.parametrize("rest", [-1.0, float("nan"), float("inf")])
def test_a_rest_that_is_none_is_refused(rest: float, rng: random.Random) -> None:
    with pytest.raises(OptionError, match="rest"):
        IdAllocator(1, 4, rng.randbytes, rest=rest)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 255, 256, 257])
def test_a_draw_is_as_likely_as_any_other(size: int, rng: random.Random) -> None:
    draws = [below(size, rng.randbytes) for _ in range(200 * size)]
    assert set(draws) == set(range(size))
    assert max(draws.count(one) for one in set(draws)) < 300
    assert min(draws.count(one) for one in set(draws)) > 120


class IdsAndTheirModel(RuleBasedStateMachine):
    """Sets of what is held, and since when what rests."""

    @initialize(
        size=st.integers(1, 12), rest=st.integers(0, 3), excluding=st.sets(st.integers(0, 30)), seed=st.integers()
    )
    def begin(self, size: int, rest: int, excluding: set[int], seed: int) -> None:
        self.range = set(range(10, 10 + size)) - excluding
        self.ids = IdAllocator(10, 9 + size, random.Random(seed).randbytes, excluding=excluding, rest=float(rest))
        self.rest = rest
        self.now = 0
        self.held: set[int] = set()
        self.released: dict[int, int] = {}

    def free(self) -> set[int]:
        resting = {one for one, at in self.released.items() if self.now < at + self.rest}
        return self.range - self.held - resting

    @rule()
    def take(self) -> None:
        free = self.free()
        answer = self.ids.take(float(self.now))
        if not free:
            assert answer == EXHAUSTED
            return
        assert answer in free
        self.held.add(taken(answer))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.held)))
        self.ids.release(one, float(self.now))
        self.held.remove(one)
        self.released[one] = self.now

    @rule(one=st.integers(0, 30))
    def release_what_nobody_has(self, one: int) -> None:
        if one not in self.held:
            with pytest.raises(UsageError):
                self.ids.release(one, float(self.now))

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def held_agrees(self) -> None:
        if hasattr(self, "ids"):
            assert self.ids.held() == tuple(sorted(self.held))
            assert self.ids.in_use == len(self.held)


TestIdsAgainstTheirModel = IdsAndTheirModel.TestCase
