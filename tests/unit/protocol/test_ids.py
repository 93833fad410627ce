"""Ids are in their range, allocated once at a time, and not reused too early; compared with a model of sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

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
    draw_below,
    stream_ids,
)
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.sources import Refusal


def allocated(result: int | Refusal) -> int:
    assert isinstance(result, int), result
    return result


@pytest.mark.parametrize(
    ("make", "first", "last"),
    [
        (partial(IdAllocator, FIRST_SESSION_ID, LAST_SESSION_ID), FIRST_SESSION_ID, LAST_SESSION_ID),
        (stream_ids, FIRST_STREAM_ID, LARGEST_ID),
    ],
)
def test_row_13_ids_are_unique_within_their_range_and_never_zero(
    make: Callable[[Entropy], IdAllocator], first: int, last: int, rng: random.Random
) -> None:
    ids = make(rng.randbytes)
    mine = [allocated(ids.take(0.0)) for _ in range(5000)]
    assert len(set(mine)) == 5000
    assert 0 < first <= min(mine) < max(mine) <= last
    assert max(mine) - min(mine) > (last - first) * 0.9, "not spread over the range"
    assert (ids.in_use, ids.allocated()) == (5000, tuple(sorted(mine)))
    for one in mine:
        ids.release(one, 1.0)
    assert (ids.in_use, ids.allocated()) == (0, ())


def test_row_14_exhausted_ids_are_a_refusal_and_leak_nothing(rng: random.Random) -> None:
    ids = IdAllocator(1, 4, rng.randbytes, reuse_delay_s=0)
    assert {allocated(ids.take(0.0)) for _ in range(4)} == {1, 2, 3, 4}
    for _ in range(10):
        assert ids.take(0.0) == EXHAUSTED
        assert (EXHAUSTED.code, ids.in_use) == ("ids", 4)
    ids.release(3, 0.0)
    assert ids.take(0.0) == 3


def test_a_released_id_is_reused_only_after_its_reuse_delay(rng: random.Random) -> None:
    ids = IdAllocator(7, 7, rng.randbytes, reuse_delay_s=10.0)
    assert ids.take(100.0) == 7
    ids.release(7, 105.0)
    assert ids.take(114.9) == EXHAUSTED
    assert ids.take(50.0) == EXHAUSTED, "a clock that goes back does not end the delay"
    assert ids.take(115.0) == 7


def test_an_excluded_id_is_never_allocated(rng: random.Random) -> None:
    assert FIRST_STREAM_ID < HANDSHAKE_STREAM_ID < LARGEST_ID
    ids = IdAllocator(HANDSHAKE_STREAM_ID - 1, HANDSHAKE_STREAM_ID + 1, rng.randbytes, excluding={HANDSHAKE_STREAM_ID})
    assert {allocated(ids.take(0.0)) for _ in range(2)} == {HANDSHAKE_STREAM_ID - 1, HANDSHAKE_STREAM_ID + 1}
    assert ids.take(0.0) == EXHAUSTED
    all_ids = stream_ids(lambda count: (HANDSHAKE_STREAM_ID - FIRST_STREAM_ID).to_bytes(count, "big"))
    assert allocated(all_ids.take(0.0)) == HANDSHAKE_STREAM_ID + 1, "each draw gives the excluded id"


def test_the_reuse_delay_is_as_long_if_the_clock_goes_back(rng: random.Random) -> None:
    ids = IdAllocator(7, 7, rng.randbytes, reuse_delay_s=10.0)
    assert ids.take(100.0) == 7
    ids.release(7, 50.0)
    assert ids.take(109.9) == EXHAUSTED
    assert ids.take(110.0) == 7


@pytest.mark.parametrize("wrong", [0, 5, -1])
def test_an_id_that_is_not_allocated_cannot_be_released(wrong: int, rng: random.Random) -> None:
    ids = IdAllocator(1, 4, rng.randbytes)
    with pytest.raises(UsageError, match=f"id {wrong} "):
        ids.release(wrong, 0.0)


@pytest.mark.parametrize("reuse_delay_s", [0.0, 30.0])
def test_a_second_release_is_an_error(reuse_delay_s: float, rng: random.Random) -> None:
    ids = IdAllocator(1, 4, rng.randbytes, reuse_delay_s=reuse_delay_s)
    one = allocated(ids.take(0.0))
    ids.release(one, 0.0)
    with pytest.raises(UsageError, match="is not allocated"):
        ids.release(one, 0.0)
    assert ids.in_use == 0


@pytest.mark.slow
def test_the_last_free_id_of_many_is_found(rng: random.Random) -> None:
    ids = IdAllocator(1, 65535, rng.randbytes, reuse_delay_s=0)
    mine = {allocated(ids.take(0.0)) for _ in range(65535)}
    assert mine == set(range(1, 65536))
    ids.release(40_000, 0.0)
    assert ids.take(0.0) == 40_000


@pytest.mark.parametrize(("first", "last"), [(0, 4), (-4, 4), (5, 4), (1, LARGEST_ID + 1)])
def test_an_invalid_range_of_ids_is_an_error(first: int, last: int, rng: random.Random) -> None:
    with pytest.raises(OptionError, match="Use a range"):
        IdAllocator(first, last, rng.randbytes)


@pytest.mark.parametrize("reuse_delay_s", [-1.0, float("nan"), float("inf")])
def test_an_invalid_reuse_delay_is_an_error(reuse_delay_s: float, rng: random.Random) -> None:
    with pytest.raises(OptionError, match="invalid reuse delay"):
        IdAllocator(1, 4, rng.randbytes, reuse_delay_s=reuse_delay_s)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 255, 256, 257])
def test_draws_are_uniformly_distributed(size: int, rng: random.Random) -> None:
    draws = [draw_below(size, rng.randbytes) for _ in range(200 * size)]
    assert set(draws) == set(range(size))
    assert max(draws.count(one) for one in set(draws)) < 300
    assert min(draws.count(one) for one in set(draws)) > 120


class IdsAndModel(RuleBasedStateMachine):
    """A set of the allocated ids, and the release times of the others."""

    @initialize(
        size=st.integers(1, 12),
        reuse_delay_s=st.integers(0, 3),
        excluding=st.sets(st.integers(0, 30)),
        seed=st.integers(),
    )
    def begin(self, size: int, reuse_delay_s: int, excluding: set[int], seed: int) -> None:
        self.range = set(range(10, 10 + size)) - excluding
        self.ids = IdAllocator(
            10, 9 + size, random.Random(seed).randbytes, excluding=excluding, reuse_delay_s=float(reuse_delay_s)
        )
        self.reuse_delay_s = reuse_delay_s
        self.now = 0
        self.allocated: set[int] = set()
        self.released: dict[int, int] = {}

    def free(self) -> set[int]:
        delayed = {number for number, at in self.released.items() if self.now < at + self.reuse_delay_s}
        return self.range - self.allocated - delayed

    @rule()
    def take(self) -> None:
        free = self.free()
        result = self.ids.take(float(self.now))
        if not free:
            assert result == EXHAUSTED
            return
        assert result in free
        self.allocated.add(allocated(result))

    @precondition(lambda self: self.allocated)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.allocated)))
        self.ids.release(one, float(self.now))
        self.allocated.remove(one)
        self.released[one] = self.now

    @rule(one=st.integers(0, 30))
    def release_an_id_that_is_not_allocated(self, one: int) -> None:
        if one not in self.allocated:
            with pytest.raises(UsageError):
                self.ids.release(one, float(self.now))

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def allocated_ids_equal_the_model(self) -> None:
        if hasattr(self, "ids"):
            assert self.ids.allocated() == tuple(sorted(self.allocated))
            assert self.ids.in_use == len(self.allocated)


TestIdsAgainstModel = pytest.mark.slow(IdsAndModel.TestCase)
