"""Tests of the account of the memory that connections hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.endpoint.usage import PAUSED_S, MemoryAccount


def account(limit: int = 1_000) -> MemoryAccount[str]:
    return MemoryAccount(lambda: limit, assured=10)


def test_the_largest_holders_pause_above_three_quarters_until_all_hold_less_than_half() -> None:
    memory = account()
    assert memory.review({"a": 700, "b": 49}, 0.0) is None
    assert (memory.paused, memory.is_full) == (frozenset(), False)
    assert memory.review({"a": 700, "b": 50}, 0.0) is None
    assert memory.paused == {"a"}  # the other holds less than half
    assert memory.review({"a": 450, "b": 50}, 0.0) is None
    assert memory.paused == {"a"}
    assert memory.review({"a": 449, "b": 50}, 0.0) is None
    assert memory.paused == frozenset()


def test_several_holders_pause_if_the_others_would_still_hold_half() -> None:
    memory = account()
    memory.review({"a": 300, "b": 290, "c": 280}, 0.0)
    assert memory.paused == {"a", "b"}


def test_paused_holders_that_hold_half_together_continue_in_turn_when_the_others_hold_little() -> None:
    memory = account()
    memory.review({"a": 310, "b": 300, "c": 200}, 0.0)
    assert memory.paused == {"a", "b"}
    assert memory.review({"a": 310, "b": 300}, 0.0) is None
    assert memory.paused == {"a"}
    assert memory.review({"a": 310, "b": 100}, 0.0) is None
    assert memory.paused == frozenset()


def test_at_the_limit_the_largest_holder_ends() -> None:
    memory = account()
    assert memory.review({"a": 500, "b": 499}, 0.0) is None
    assert memory.review({"a": 500, "b": 501}, 0.0) == "b"
    assert memory.is_full
    assert memory.review({"a": 500}, 0.0) is None
    assert not memory.is_full


def test_a_holder_of_the_assured_bytes_is_neither_paused_nor_ended() -> None:
    memory = account()
    small = {str(number): 10 for number in range(100)}
    assert memory.review(small, 0.0) is None
    assert (memory.paused, memory.is_full) == (frozenset(), True)
    assert memory.review({**small, "large": 11}, 0.0) == "large"
    assert memory.paused == {"large"}


def test_limit_0_is_no_limit() -> None:
    memory = account(0)
    assert memory.review({"a": 1 << 60}, 0.0) is None
    assert (memory.paused, memory.is_full, memory.held) == (frozenset(), False, 1 << 60)


def test_a_changed_limit_applies_from_the_next_review_and_limit_0_continues_all_holders() -> None:
    limit = [1_000]
    memory: MemoryAccount[str] = MemoryAccount(lambda: limit[0], assured=10)
    memory.review({"a": 500, "b": 200}, 0.0)
    assert memory.paused == frozenset()
    limit[0] = 800
    assert memory.review({"a": 500, "b": 200}, 0.0) is None
    assert memory.paused == {"a"}
    limit[0] = 600
    assert memory.review({"a": 500, "b": 200}, 0.0) == "a"
    limit[0] = 0
    assert memory.review({"a": 500, "b": 200}, 0.0) is None
    assert (memory.paused, memory.is_full) == (frozenset(), False)


def test_the_largest_holder_ends_if_pausing_does_not_free_memory() -> None:
    memory = account()
    held = {"a": 600, "b": 200}
    assert memory.review(held, 5.0) is None
    assert memory.paused == {"a"}
    assert memory.review(held, 5.0 + PAUSED_S - 0.01) is None
    assert memory.review(held, 5.0 + PAUSED_S) == "a"
    assert memory.review({"b": 200}, 6.0 + PAUSED_S) is None
    assert memory.review(held, 20.0) is None  # another pause begins


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 600)), max_size=10))
def test_unpaused_holders_never_have_three_quarters_beside_the_assured_bytes(steps: list[dict[str, int]]) -> None:
    memory = account()
    for held in steps:
        ended = memory.review(held, 0.0)
        assert memory.paused <= held.keys()
        assert all(held[one] > 10 for one in memory.paused)
        unpaused = [count for one, count in held.items() if one not in memory.paused]
        assert sum(unpaused) < 750 or all(count <= 10 for count in unpaused)
        assert (ended is not None) == (sum(held.values()) >= 1_000 and max(held.values()) > 10)
