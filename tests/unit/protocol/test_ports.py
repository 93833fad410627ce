"""Ports are allocated several at a time or not at all, once at a time; compared with a model of a queue."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.ids import NO_PORTS, PortAllocator
from aeron_spark.protocol.sources import Refusal


def allocated(result: tuple[int, ...] | Refusal) -> tuple[int, ...]:
    assert isinstance(result, tuple), result
    return result


def test_all_ports_are_allocated_in_a_random_order_and_then_none(rng: random.Random) -> None:
    ports = PortAllocator(9000, 8, rng.randbytes)
    mine = [allocated(ports.take(2)) for _ in range(4)]
    assert sorted(port for pair in mine for port in pair) == list(range(9000, 9008))
    orders = {PortAllocator(9000, 8, rng.randbytes).take(8) for _ in range(20)}
    assert len(orders) == 20, "each allocator has its own random order"
    assert ports.take(1) == NO_PORTS
    assert (NO_PORTS.code, ports.in_use, ports.allocated()) == ("ids", 8, tuple(range(9000, 9008)))


def test_a_request_for_more_ports_than_are_free_allocates_none(rng: random.Random) -> None:
    ports = PortAllocator(9000, 3, rng.randbytes)
    first = allocated(ports.take(2))
    assert ports.take(2) == NO_PORTS
    assert ports.allocated() == tuple(sorted(first))
    (last,) = allocated(ports.take(1))
    assert {*first, last} == {9000, 9001, 9002}


def test_a_second_release_is_an_error_and_does_not_duplicate_a_port(rng: random.Random) -> None:
    ports = PortAllocator(9000, 4, rng.randbytes)
    pair = allocated(ports.take(2))
    ports.release(pair)
    with pytest.raises(UsageError, match="not all of the ports"):
        ports.release(pair)
    assert len({*allocated(ports.take(2)), *allocated(ports.take(2))}) == 4


def test_a_release_with_one_invalid_port_releases_none(rng: random.Random) -> None:
    ports = PortAllocator(9000, 4, rng.randbytes)
    first, second = allocated(ports.take(2))
    for wrong in ((first, 8999), (first, first), (second, first, 9999)):
        with pytest.raises(UsageError):
            ports.release(wrong)
        assert ports.in_use == 2


def test_the_port_that_was_released_first_is_allocated_next(rng: random.Random) -> None:
    ports = PortAllocator(9000, 3, rng.randbytes)
    a, b, c = allocated(ports.take(3))
    for port in (b, c, a):
        ports.release([port])
    assert ports.take(3) == (b, c, a)


@pytest.mark.parametrize(
    ("base", "count", "message"),
    [
        (0, 1, "invalid base port 0"),
        (-1, 1, "invalid base port -1"),
        (65536, 1, "invalid base port 65536"),
        (65535, 2, "would be 65536.*base port of at most 65534"),
        (9000, 0, "invalid number of ports 0"),
        (9000, -2, "invalid number of ports -2"),
    ],
)
def test_an_invalid_range_of_ports_is_an_error(base: int, count: int, message: str, rng: random.Random) -> None:
    assert PortAllocator(65535, 1, rng.randbytes).take(1) == (65535,)
    with pytest.raises(OptionError, match=message):
        PortAllocator(base, count, rng.randbytes)


def test_an_allocation_of_no_ports_is_an_error(rng: random.Random) -> None:
    with pytest.raises(OptionError, match="invalid number of ports to allocate: 0"):
        PortAllocator(9000, 2, rng.randbytes).take(0)


class PortsAndModel(RuleBasedStateMachine):
    """The free ports as a list, the next one first."""

    @initialize(count=st.integers(1, 9), seed=st.integers())
    def begin(self, count: int, seed: int) -> None:
        self.ports = PortAllocator(40_000, count, random.Random(seed).randbytes)
        order = PortAllocator(40_000, count, random.Random(seed).randbytes).take(count)
        self.free = list(allocated(order))
        self.groups: list[tuple[int, ...]] = []

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        result = self.ports.take(count)
        if count > len(self.free):
            assert result == NO_PORTS
            return
        assert result == tuple(self.free[:count])
        del self.free[:count]
        self.groups.append(allocated(result))

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        group = self.groups.pop(data.draw(st.integers(0, len(self.groups) - 1)))
        self.ports.release(group)
        self.free.extend(group)
        with pytest.raises(UsageError):
            self.ports.release(group)

    @invariant()
    def allocated_ports_equal_the_model(self) -> None:
        if hasattr(self, "ports"):
            assert self.ports.allocated() == tuple(sorted(port for group in self.groups for port in group))
            assert self.ports.in_use + len(self.free) == len({*self.ports.allocated(), *self.free})


TestPortsAgainstModel = pytest.mark.slow(PortsAndModel.TestCase)
