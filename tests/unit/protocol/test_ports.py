"""Ports of a range: several or none, in one hand at a time; against a model of a queue."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.ids import NO_PORTS, PortAllocator
from aeron_spark.protocol.refusals import Refusal


def taken(answer: tuple[int, ...] | Refusal) -> tuple[int, ...]:
    assert isinstance(answer, tuple), answer
    return answer


def test_eight_of_eight_in_an_order_of_chance_and_then_none(rng: random.Random) -> None:
    ports = PortAllocator(9000, 8, rng.randbytes)
    mine = [taken(ports.take(2)) for _ in range(4)]
    assert sorted(port for pair in mine for port in pair) == list(range(9000, 9008))
    orders = {PortAllocator(9000, 8, rng.randbytes).take(8) for _ in range(20)}
    assert len(orders) == 20, "the order is drawn anew"
    assert ports.take(1) == NO_PORTS
    assert (NO_PORTS.code, ports.in_use, ports.held()) == ("ids", 8, tuple(range(9000, 9008)))


def test_too_many_takes_none(rng: random.Random) -> None:
    ports = PortAllocator(9000, 3, rng.randbytes)
    first = taken(ports.take(2))
    assert ports.take(2) == NO_PORTS
    assert ports.held() == tuple(sorted(first))
    (last,) = taken(ports.take(1))
    assert {*first, last} == {9000, 9001, 9002}


def test_a_port_given_back_twice_is_never_in_two_hands(rng: random.Random) -> None:
    ports = PortAllocator(9000, 4, rng.randbytes)
    pair = taken(ports.take(2))
    ports.release(pair)
    with pytest.raises(UsageError, match="nobody has all"):
        ports.release(pair)
    assert len({*taken(ports.take(2)), *taken(ports.take(2))}) == 4


def test_of_ports_that_are_not_all_held_none_is_given_back(rng: random.Random) -> None:
    ports = PortAllocator(9000, 4, rng.randbytes)
    first, second = taken(ports.take(2))
    for wrong in ((first, 8999), (first, first), (second, first, 9999)):
        with pytest.raises(UsageError):
            ports.release(wrong)
        assert ports.in_use == 2


def test_the_port_given_back_longest_ago_is_next(rng: random.Random) -> None:
    ports = PortAllocator(9000, 3, rng.randbytes)
    a, b, c = taken(ports.take(3))
    for port in (b, c, a):
        ports.release([port])
    assert ports.take(3) == (b, c, a)


@pytest.mark.parametrize(
    ("base", "count", "says"),
    [
        (0, 1, "Base port 0"),
        (-1, 1, "Base port -1"),
        (65536, 1, "Base port 65536"),
        (65535, 2, "Uppermost port 65536.*base port of 65534 at most"),
        (9000, 0, "0 ports are no range"),
        (9000, -2, "-2 ports are no range"),
    ],
)
def test_a_range_that_is_none_is_refused(base: int, count: int, says: str, rng: random.Random) -> None:
    assert PortAllocator(65535, 1, rng.randbytes).take(1) == (65535,)
    with pytest.raises(OptionError, match=says):
        PortAllocator(base, count, rng.randbytes)


def test_nothing_cannot_be_taken(rng: random.Random) -> None:
    with pytest.raises(OptionError, match="Take 1 at least"):
        PortAllocator(9000, 2, rng.randbytes).take(0)


class PortsAndTheirModel(RuleBasedStateMachine):
    """The free ports as a list in the order in which they are due."""

    @initialize(count=st.integers(1, 9), seed=st.integers())
    def begin(self, count: int, seed: int) -> None:
        self.ports = PortAllocator(40_000, count, random.Random(seed).randbytes)
        order = PortAllocator(40_000, count, random.Random(seed).randbytes).take(count)
        self.free = list(taken(order))
        self.groups: list[tuple[int, ...]] = []

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        answer = self.ports.take(count)
        if count > len(self.free):
            assert answer == NO_PORTS
            return
        assert answer == tuple(self.free[:count])
        del self.free[:count]
        self.groups.append(taken(answer))

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        group = self.groups.pop(data.draw(st.integers(0, len(self.groups) - 1)))
        self.ports.release(group)
        self.free.extend(group)
        with pytest.raises(UsageError):
            self.ports.release(group)

    @invariant()
    def held_agrees(self) -> None:
        if hasattr(self, "ports"):
            assert self.ports.held() == tuple(sorted(port for group in self.groups for port in group))
            assert self.ports.in_use + len(self.free) == len({*self.ports.held(), *self.free})


TestPortsAgainstTheirModel = PortsAndTheirModel.TestCase
