"""Tests of readers' leases: the lowest live position counts, until its lease expires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.streams.reader_leases import MAX_LEASE_S, ReaderLeases


def test_the_lowest_live_position_counts() -> None:
    leases = ReaderLeases()
    leases.renew("one", {0: 100, 1: 5}, 10, now=0)
    leases.renew("two", {0: 50}, 5, now=0)
    assert [leases.lowest_position(0, now) for now in (0, 4.9, 5, 9.9, 10)] == [50, 50, 100, 100, None]
    assert (leases.lowest_position(1, 0), leases.lowest_position(2, 0)) == (5, None)


def test_a_lease_is_replaced_and_ended() -> None:
    leases = ReaderLeases()
    leases.renew("one", {0: 100}, 10, now=0)
    leases.renew("one", {0: 200}, 10, now=8)
    assert (leases.lowest_position(0, 12), set(leases.live(12))) == (200, {("", "one")})
    leases.renew("one", {}, 10, now=8)
    leases.renew("two", {0: 1}, 10, now=0)
    leases.renew("two", {0: 1}, 0, now=0)
    leases.renew("three", {0: 1}, 10, now=0)
    leases.renew("three", {0: 1}, 0, now=0)
    leases.renew("three", {0: 1}, 0, now=0)
    assert len(leases) == 0


def test_the_operator_ends_the_leases_of_a_reader() -> None:
    leases = ReaderLeases()
    for owner in ("alice", "bob"):
        leases.renew("one", {0: 100}, 10, now=0, owner=owner)
    leases.renew("two", {0: 200}, 10, now=0)
    leases.release("one", now=0)
    assert set(leases.live(0)) == {("", "two")}
    for reader in ("one", "unknown"):
        with pytest.raises(OptionError, match=f"no reader '{reader}' has a lease"):
            leases.release(reader, now=0)
    with pytest.raises(OptionError):
        leases.release("two", now=11)


def test_expired_leases_are_removed_before_a_lease_is_refused() -> None:
    leases = ReaderLeases(max_leases=2)
    leases.renew("one", {0: 1}, 1, now=0)
    leases.renew("two", {0: 2}, 9, now=0)
    leases.renew("two", {0: 3}, 9, now=0)
    with pytest.raises(RefusedError, match="2 readers of all clients have leases"):
        leases.renew("three", {0: 3}, 9, now=0)
    leases.renew("three", {0: 4}, 9, now=1)
    assert leases.expire(20) == ["two", "three"]


def test_a_key_has_its_own_leases_and_leaves_room_for_others() -> None:
    leases = ReaderLeases(max_leases=5, max_per_owner=2)
    leases.renew("one", {0: 1}, 9, now=0, owner="alice")
    leases.renew("one", {0: 7}, 9, now=0, owner="mallory")
    assert set(leases.live(0)) == {("alice", "one"), ("mallory", "one")}  # hides no other key's lease from metrics
    leases.renew("one", {}, 0, now=0, owner="mallory")  # ends no other key's lease
    assert leases.lowest_position(0, 0) == 1
    for reader in ("two", "three"):
        leases.renew(reader, {0: 7}, 9, now=0, owner="mallory")
    with pytest.raises(RefusedError, match="2 readers of your key have leases"):
        leases.renew("four", {0: 7}, 9, now=0, owner="mallory")
    leases.renew("two", {0: 8}, 9, now=0, owner="mallory")
    leases.renew("two", {0: 8}, 9, now=0, owner="alice")
    leases.renew("own", {0: 8}, 9, now=0)
    leases.end_of_owner("mallory")
    assert len(leases) == 3
    leases.renew("four", {0: 7}, 9, now=0, owner="mallory")


def test_a_thousand_readers_of_one_key_have_leases() -> None:
    leases = ReaderLeases()
    for reader in range(1_000):
        leases.renew(str(reader), {0: 1}, 9, now=0, owner="alice")
    with pytest.raises(RefusedError, match="1000 readers of your key have leases"):
        leases.renew("one more", {0: 1}, 9, now=0, owner="alice")
    leases.renew("one", {0: 1}, 9, now=0, owner="bob")


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e300, MAX_LEASE_S + 1])
def test_a_lease_of_an_invalid_time_is_refused(seconds: float) -> None:
    with pytest.raises(OptionError, match="a lease of"):
        ReaderLeases().renew("one", {0: 1}, seconds, now=0)


renewals = st.tuples(
    st.sampled_from("abc"), st.dictionaries(st.integers(0, 1), st.integers(0, 99)), st.integers(0, 9), st.integers(0, 4)
)


@given(st.lists(renewals, max_size=20))
def test_leases_agree_with_a_list_of_all_of_them(steps: list[tuple[str, dict[int, int], int, int]]) -> None:
    leases, now = ReaderLeases(), 0
    model: dict[str, tuple[dict[int, int], int]] = {}
    for reader, positions, seconds, passed in steps:
        now += passed
        leases.renew(reader, positions, seconds, now)
        model[reader] = (positions, now + seconds)
        for at in (0, 1):
            held = [given[at] for given, until in model.values() if until > now and at in given]
            assert leases.lowest_position(at, now) == (min(held) if held else None)
    leases.expire(now)
    assert len(leases) == sum(until > now and bool(given) for given, until in model.values())


def test_the_readers_whose_rows_a_new_start_deletes_are_named() -> None:
    leases = ReaderLeases()
    leases.renew("slow", {0: 100, 1: 900}, 10, now=0)
    leases.renew("fast", {0: 300}, 10, now=0)
    leases.renew("ended", {0: 100}, 1, now=0)
    assert leases.overridden({0: 200}, now=5) == ["slow"]
    assert leases.overridden({0: 100, 1: 900}, now=5) == []
    assert leases.overridden({1: 901}, now=5) == ["slow"]
