"""Limits and permits, also against a model that only counts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import OptionError
from aeron_spark.protocol.access import IpcSource, LimitKey, Source, parse_source
from aeron_spark.protocol.limits import (
    ADDRESS_LIMIT,
    FULL,
    PENDING,
    PENDING_FOR_ADDRESS,
    RATE,
    Admission,
    HandshakeRate,
    Limits,
    Permit,
)
from aeron_spark.protocol.refusals import Refusal

NONE = Limits(0, 0, 0, 0, 0.0)


def at(host: str) -> Source:
    return parse_source(f"[{host}]:1" if ":" in host else f"{host}:1")


def let_in(answer: Permit | Refusal) -> Permit:
    assert isinstance(answer, Permit), answer
    return answer


def test_row_30_zero_is_no_limit() -> None:
    admission = Admission(NONE)
    permits = [let_in(admission.connect(at("127.0.0.9"))) for _ in range(500)]
    permits += [let_in(admission.begin_handshake(at("127.0.0.9"), 0.0)) for _ in range(500)]
    assert (admission.connections, admission.pending) == (500, 500)
    for permit in permits:
        permit.release()
    assert (admission.connections, admission.pending, admission.addresses) == (0, 0, 0)


def test_row_31_a_connection_beyond_the_limit_is_refused_as_full() -> None:
    admission = Admission(Limits(connections=2))
    let_in(admission.connect(at("10.0.0.1")))
    second = let_in(admission.connect(at("10.0.0.2")))
    assert admission.connect(at("10.0.0.3")) == FULL == Refusal("full", "Server is full")
    second.release()
    let_in(admission.connect(at("10.0.0.3")))


def test_row_32_refusals_do_not_change_the_count_of_an_address() -> None:
    admission = Admission(Limits(connections_per_address=2))
    held = [let_in(admission.connect(at("10.0.0.1"))) for _ in range(2)]
    for _ in range(10):  # dorkbox Network accepts every second attempt
        assert admission.connect(at("10.0.0.1")) == ADDRESS_LIMIT
        assert Refusal("address-limit", "Too many connections for IP address") == ADDRESS_LIMIT
    let_in(admission.connect(at("10.0.0.2"))).release()
    held.pop().release()
    let_in(admission.connect(at("10.0.0.1")))
    assert admission.connect(at("10.0.0.1")) == ADDRESS_LIMIT


def test_row_32_a_permit_is_released_on_every_path_and_once() -> None:
    admission = Admission(Limits(connections_per_address=1))
    with pytest.raises(ZeroDivisionError), let_in(admission.connect(at("10.0.0.1"))):
        _ = 1 / 0
    with let_in(admission.connect(at("10.0.0.1"))) as permit:
        permit.release()
        other = let_in(admission.connect(at("10.0.0.1")))
    permit.release()
    assert not permit.is_taken
    assert admission.connections == 1, "the second release of one permit took another's place"
    other.release()
    assert (admission.connections, admission.addresses) == (0, 0)


def test_a_permit_can_outlive_its_with_block() -> None:
    admission = Admission(NONE)
    with ExitStack() as stack:
        stack.enter_context(let_in(admission.connect(at("10.0.0.1"))))
        moved = stack.pop_all()
    assert admission.connections == 1
    moved.close()
    assert admission.connections == 0


def test_row_33_pending_handshakes_are_limited_in_total_and_by_address() -> None:
    admission = Admission(Limits(pending=3, pending_per_address=2, handshakes_per_second=0))
    for _ in range(2):
        let_in(admission.begin_handshake(at("10.0.0.1"), 0.0))
    for _ in range(50):
        assert admission.begin_handshake(at("10.0.0.1"), 0.0) == PENDING_FOR_ADDRESS
    third = let_in(admission.begin_handshake(at("10.0.0.2"), 0.0))
    assert admission.begin_handshake(at("10.0.0.3"), 0.0) == PENDING
    assert (PENDING.code, PENDING_FOR_ADDRESS.code, admission.pending) == ("pending", "pending", 3)
    third.release()
    let_in(admission.begin_handshake(at("10.0.0.3"), 0.0))


def test_row_34_addresses_of_one_64_share_a_limit() -> None:
    admission = Admission(Limits(connections_per_address=1))
    let_in(admission.connect(at("2001:db8::1")))
    assert admission.connect(at("2001:db8::2")) == ADDRESS_LIMIT
    let_in(admission.connect(at("2001:db8:0:1::1")))


def test_ipv4_mapped_into_ipv6_counts_as_ipv4() -> None:
    admission = Admission(Limits(connections_per_address=1))
    let_in(admission.connect(at("10.0.0.1")))
    assert admission.connect(at("::ffff:10.0.0.1")) == ADDRESS_LIMIT


def test_totals_apply_to_shared_memory_and_limits_by_address_do_not() -> None:
    admission = Admission(Limits(3, 1, 2, 1, handshakes_per_second=0.001, handshake_burst=1))
    for _ in range(3):
        let_in(admission.connect(IpcSource()))
    assert admission.connect(IpcSource()) == FULL
    for _ in range(2):
        let_in(admission.begin_handshake(IpcSource(), 0.0))
    assert admission.begin_handshake(IpcSource(), 0.0) == PENDING
    assert admission.addresses == 0


def test_loopback_counts_unless_exempted_and_in_the_total_even_then() -> None:
    strict = Limits(2, 1, 0, 1, handshakes_per_second=0.001, handshake_burst=1)
    admission = Admission(strict)
    let_in(admission.connect(at("127.0.0.1")))
    assert admission.connect(at("127.0.0.1")) == ADDRESS_LIMIT
    exempting = Admission(Limits(2, 1, 0, 1, handshakes_per_second=0.001, handshake_burst=1, exempt_loopback=True))
    for host in ("127.0.0.1", "::1"):
        let_in(exempting.connect(at(host)))
        let_in(exempting.begin_handshake(at("127.0.0.1"), 0.0))
    assert exempting.connect(at("127.0.0.1")) == FULL
    let_in(exempting.begin_handshake(at("10.0.0.1"), 0.0))
    assert exempting.begin_handshake(at("10.0.0.1"), 0.0) == PENDING_FOR_ADDRESS


def test_an_address_gets_a_burst_and_then_its_rate() -> None:
    admission = Admission(Limits(0, 0, 0, 0, handshakes_per_second=2.0, handshake_burst=3))
    for _ in range(3):
        let_in(admission.begin_handshake(at("10.0.0.1"), 100.0)).release()
    for _ in range(5):
        assert admission.begin_handshake(at("10.0.0.1"), 100.25) == RATE
    assert (RATE.code, admission.pending) == ("rate", 0)
    let_in(admission.begin_handshake(at("10.0.0.2"), 100.25))
    let_in(admission.begin_handshake(at("10.0.0.1"), 100.5))
    assert admission.begin_handshake(at("10.0.0.1"), 100.5) == RATE


def test_a_refusal_for_another_reason_takes_no_token() -> None:
    admission = Admission(Limits(0, 0, pending=1, handshakes_per_second=0.001, handshake_burst=2))
    first = let_in(admission.begin_handshake(at("10.0.0.1"), 0.0))
    for _ in range(5):
        assert admission.begin_handshake(at("10.0.0.1"), 0.0) == PENDING
    first.release()
    let_in(admission.begin_handshake(at("10.0.0.1"), 0.0))


def key(number: int) -> LimitKey:
    return ip_address(0x0A000000 + number)  # type: ignore[return-value]


def test_full_buckets_are_deleted_and_their_number_is_limited() -> None:
    rate = HandshakeRate(per_second=1.0, burst=2, max_buckets=10)
    for number in range(1000):
        assert rate.take(key(number), 0.0)
        assert len(rate) <= 10
    assert rate.take(key(999), 0.0)
    assert not rate.take(key(999), 0.0)
    assert rate.take(key(5000), 100.0)
    assert len(rate) == 1, "all the others were full again"


def test_a_clock_that_is_set_back_gives_no_tokens() -> None:
    rate = HandshakeRate(per_second=1.0, burst=1, max_buckets=10)
    assert rate.take(key(1), 100.0)
    assert not rate.take(key(1), 50.0)
    assert not rate.take(key(1), 100.5)
    assert rate.take(key(2), 50.0)
    assert not rate.take(key(2), 100.9), "the 50 seconds that passed twice count once"
    assert rate.take(key(1), 101.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections": -1},
        {"connections_per_address": -1},
        {"pending": -1},
        {"pending_per_address": -1},
        {"handshakes_per_second": -0.1},
        {"handshakes_per_second": float("inf")},
        {"handshakes_per_second": float("nan")},
        {"handshake_burst": 0},
        {"buckets": 0},
    ],
)
def test_a_limit_below_zero_is_refused(wrong: dict[str, int]) -> None:
    assert Limits(handshake_burst=1, buckets=1).connections
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Limits(**wrong)


@dataclass
class ModelPermit:
    """A permit in the model: its source, and whether it counts."""

    permit: Permit
    source: Source
    counts: bool = True


SOURCES: list[Source] = [
    at(host) for host in ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "2001:db8::1", "2001:db8::2", "127.0.0.1")
]
SOURCES.append(IpcSource())


class AdmissionAndItsModel(RuleBasedStateMachine):
    """Lists of the clients, counted for each result."""

    @initialize(
        numbers=st.tuples(*[st.integers(0, 3)] * 4), exempt=st.booleans(), burst=st.integers(1, 3), rate=st.booleans()
    )
    def begin(self, numbers: tuple[int, int, int, int], exempt: bool, burst: int, rate: bool) -> None:
        self.limits = Limits(*numbers, 1.0 if rate else 0.0, burst, 100, exempt)
        self.admission = Admission(self.limits)
        self.connections: list[ModelPermit] = []
        self.pending: list[ModelPermit] = []
        self.now = 0.0
        self.tokens: dict[LimitKey, float] = {}

    def key_of(self, source: Source) -> LimitKey | None:
        if isinstance(source, IpcSource) or (self.limits.exempt_loopback and source.is_loopback):
            return None
        return source.limit_key

    def room(self, held: list[ModelPermit], source: Source, most: int, most_per_address: int) -> bool:
        counted = [one for one in held if one.counts]
        whose = self.key_of(source)
        same = [one for one in counted if self.key_of(one.source) == whose]
        return (not most or len(counted) < most) and (
            whose is None or not most_per_address or len(same) < most_per_address
        )

    @rule(source=st.sampled_from(SOURCES))
    def connect(self, source: Source) -> None:
        room = self.room(self.connections, source, self.limits.connections, self.limits.connections_per_address)
        answer = self.admission.connect(source)
        assert isinstance(answer, Permit) == room
        if isinstance(answer, Permit):
            self.connections.append(ModelPermit(answer, source))
        else:
            assert answer in (FULL, ADDRESS_LIMIT)

    @rule(source=st.sampled_from(SOURCES))
    def begin_handshake(self, source: Source) -> None:
        room = self.room(self.pending, source, self.limits.pending, self.limits.pending_per_address)
        whose = self.key_of(source)
        metered = whose is not None and self.limits.handshakes_per_second > 0
        tokens = self.tokens.get(whose, float(self.limits.handshake_burst)) if whose is not None else 0.0
        answer = self.admission.begin_handshake(source, self.now)
        assert isinstance(answer, Permit) == (room and (not metered or tokens >= 1))
        if not isinstance(answer, Permit):
            assert answer == RATE if room else answer in (PENDING, PENDING_FOR_ADDRESS)
            return
        self.pending.append(ModelPermit(answer, source))
        if metered:
            assert whose is not None
            self.tokens[whose] = tokens - 1

    @precondition(lambda self: self.connections or self.pending)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.connections + self.pending))
        held.permit.release()  # perhaps again
        held.counts = False

    @rule(quarters=st.integers(0, 8))
    def wait(self, quarters: int) -> None:
        self.now += quarters / 4
        full = float(self.limits.handshake_burst)
        self.tokens = {whose: min(full, left + quarters / 4) for whose, left in self.tokens.items()}

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "admission"):
            return
        groups = [[one for one in held if one.counts] for held in (self.connections, self.pending)]
        assert (self.admission.connections, self.admission.pending) == tuple(map(len, groups))
        entries = sum(len({self.key_of(one.source) for one in group} - {None}) for group in groups)
        assert self.admission.addresses == entries


TestAdmissionAgainstItsModel = AdmissionAndItsModel.TestCase
