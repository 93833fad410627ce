"""Limits of connections and handshakes, and their permits; also compared with a simple model."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aeron_spark.errors import OptionError
from aeron_spark.protocol.limits import (
    ADDRESS_LIMIT,
    FULL,
    PENDING,
    PENDING_FOR_ADDRESS,
    RATE,
    Admission,
    HandshakeRate,
    KnownAddresses,
    Limits,
    Permit,
)
from aeron_spark.protocol.sources import IpcSource, LimitKey, ReachedLimit, Refusal, Source, parse_source

NO_LIMITS = Limits(0, 0, 0, 0, 0.0)


def source_at(host: str) -> Source:
    return parse_source(f"[{host}]:1" if ":" in host else f"{host}:1")


def require_permit(result: Permit | Refusal) -> Permit:
    """Return the permit; fail if the result is a refusal."""
    assert isinstance(result, Permit), result
    return result


def test_row_30_zero_is_no_limit() -> None:
    admission = Admission(lambda: NO_LIMITS)
    permits = [require_permit(admission.connect(source_at("127.0.0.9"), 0.0)) for _ in range(500)]
    permits += [require_permit(admission.begin_handshake(source_at("127.0.0.9"), 0.0)) for _ in range(500)]
    assert (admission.connections, admission.pending) == (500, 500)
    for permit in permits:
        permit.release()
    assert (admission.connections, admission.pending, admission.addresses) == (0, 0, 0)


def test_row_31_a_connection_beyond_the_limit_is_refused_as_full() -> None:
    admission = Admission(lambda: Limits(connections=2))
    require_permit(admission.connect(source_at("10.0.0.1"), 0.0))
    second = require_permit(admission.connect(source_at("10.0.0.2"), 0.0))
    assert admission.connect(source_at("10.0.0.3"), 0.0) == FULL == Refusal("full", "Server is full")
    second.release()
    require_permit(admission.connect(source_at("10.0.0.3"), 0.0))


def test_row_32_refusals_do_not_change_the_count_of_an_address() -> None:
    admission = Admission(lambda: Limits(connections_per_address=2))
    permits = [require_permit(admission.connect(source_at("10.0.0.1"), 0.0)) for _ in range(2)]
    for _ in range(10):  # dorkbox Network accepts every second attempt
        assert admission.connect(source_at("10.0.0.1"), 0.0) == ADDRESS_LIMIT
        assert Refusal("address-limit", "Too many connections for IP address") == ADDRESS_LIMIT
    require_permit(admission.connect(source_at("10.0.0.2"), 0.0)).release()
    permits.pop().release()
    require_permit(admission.connect(source_at("10.0.0.1"), 0.0))
    assert admission.connect(source_at("10.0.0.1"), 0.0) == ADDRESS_LIMIT


def test_row_32_a_permit_is_released_exactly_once_also_after_an_exception() -> None:
    admission = Admission(lambda: Limits(connections_per_address=1))
    with pytest.raises(ZeroDivisionError), require_permit(admission.connect(source_at("10.0.0.1"), 0.0)):
        _ = 1 / 0
    with require_permit(admission.connect(source_at("10.0.0.1"), 0.0)) as permit:
        permit.release()
        other = require_permit(admission.connect(source_at("10.0.0.1"), 0.0))
    permit.release()
    assert not permit.is_taken
    assert admission.connections == 1, "the second release of one permit took another's place"
    other.release()
    assert (admission.connections, admission.addresses) == (0, 0)


def test_a_permit_can_outlive_its_with_block() -> None:
    admission = Admission(lambda: NO_LIMITS)
    with ExitStack() as stack:
        stack.enter_context(require_permit(admission.connect(source_at("10.0.0.1"), 0.0)))
        moved = stack.pop_all()
    assert admission.connections == 1
    moved.close()
    assert admission.connections == 0


def test_row_33_pending_handshakes_are_limited_in_total_and_for_each_address() -> None:
    admission = Admission(lambda: Limits(pending=3, pending_per_address=2, handshakes_per_second=0))
    for number in (1, 2, 3):
        require_permit(admission.connect(source_at(f"10.0.0.{number}"), 0.0)).release()
    for _ in range(2):
        require_permit(admission.begin_handshake(source_at("10.0.0.1"), 0.0))
    for _ in range(50):
        assert admission.begin_handshake(source_at("10.0.0.1"), 0.0) == PENDING_FOR_ADDRESS
    third = require_permit(admission.begin_handshake(source_at("10.0.0.2"), 0.0))
    assert admission.begin_handshake(source_at("10.0.0.3"), 0.0) == PENDING
    assert (PENDING.code, PENDING_FOR_ADDRESS.code, admission.pending) == ("pending", "pending", 3)
    third.release()
    require_permit(admission.begin_handshake(source_at("10.0.0.3"), 0.0))


def test_half_of_the_pending_handshakes_is_kept_for_addresses_that_had_a_connection() -> None:
    limits = Limits(pending=256, pending_per_address=0, handshakes_per_second=0)
    admission = Admission(lambda: limits)
    require_permit(admission.connect(source_at("192.0.2.1"), 0.0)).release()
    unknown = [require_permit(admission.begin_handshake(source_at("10.0.0.1"), 0.0)) for _ in range(128)]
    assert admission.begin_handshake(source_at("10.0.0.2"), 0.0) == PENDING
    known = [require_permit(admission.begin_handshake(source_at("192.0.2.1"), 86_400.0)) for _ in range(128)]
    assert admission.begin_handshake(source_at("192.0.2.1"), 86_400.0) == PENDING
    for permit in known:
        permit.release()
    assert admission.begin_handshake(source_at("192.0.2.1"), 86_401.0) == PENDING  # a day after its connection
    unknown.pop().release()
    require_permit(admission.begin_handshake(source_at("192.0.2.1"), 86_401.0))


@pytest.mark.parametrize("attackers", [1, 16, 40, 100])
def test_a_flood_from_many_addresses_leaves_room_for_the_next_address(attackers: int) -> None:
    admission = Admission(lambda: Limits(handshakes_per_second=0))
    taken = [0] * attackers
    for _ in range(20):
        for number in range(attackers):
            source = source_at(f"10.0.0.{number + 1}")
            taken[number] += isinstance(admission.begin_handshake(source, 0.0), Permit)
    print(f"{attackers} addresses have {admission.pending} pending handshakes, {min(taken)} to {max(taken)} each")
    assert max(taken) <= 16
    assert attackers > 1 or taken == [16]  # alone, an address has its whole limit
    for _ in range(300):
        require_permit(admission.begin_handshake(source_at("192.0.2.1"), 0.0)).release()


def test_the_number_of_known_addresses_is_limited_and_the_oldest_is_forgotten_first() -> None:
    known = KnownAddresses(seconds=10.0, max_addresses=3)
    for number in range(5):
        known.add(ipv4_key(number), float(number))
    assert [known.contains(ipv4_key(number), 5.0) for number in range(5)] == [False, False, True, True, True]
    known.add(ipv4_key(2), 5.0)
    known.add(ipv4_key(5), 6.0)
    assert [known.contains(ipv4_key(number), 6.0) for number in (2, 3, 4, 5)] == [True, False, True, True]
    known.add(ipv4_key(6), 14.5)
    assert len(known) == 3  # the address of the time 4 was forgotten with its time
    assert known.contains(ipv4_key(2), 15.0)
    assert not known.contains(ipv4_key(2), 15.1)


def test_row_34_ipv6_addresses_with_the_same_64_bit_prefix_share_a_limit() -> None:
    admission = Admission(lambda: Limits(connections_per_address=1))
    require_permit(admission.connect(source_at("2001:db8::1"), 0.0))
    assert admission.connect(source_at("2001:db8::2"), 0.0) == ADDRESS_LIMIT
    require_permit(admission.connect(source_at("2001:db8:0:1::1"), 0.0))


def test_an_ipv4_address_mapped_into_ipv6_counts_as_ipv4() -> None:
    admission = Admission(lambda: Limits(connections_per_address=1))
    require_permit(admission.connect(source_at("10.0.0.1"), 0.0))
    assert admission.connect(source_at("::ffff:10.0.0.1"), 0.0) == ADDRESS_LIMIT


def test_ipc_connections_count_in_the_totals_but_not_by_address() -> None:
    admission = Admission(lambda: Limits(3, 1, 2, 1, handshakes_per_second=0.001, handshake_burst=1))
    for _ in range(3):
        require_permit(admission.connect(IpcSource(), 0.0))
    assert admission.connect(IpcSource(), 0.0) == FULL
    for _ in range(2):
        require_permit(admission.begin_handshake(IpcSource(), 0.0))
    assert admission.begin_handshake(IpcSource(), 0.0) == PENDING
    assert admission.addresses == 0


def test_an_exempted_loopback_address_counts_only_in_the_total() -> None:
    strict = Limits(2, 1, 0, 1, handshakes_per_second=0.001, handshake_burst=1)
    admission = Admission(lambda: strict)
    require_permit(admission.connect(source_at("127.0.0.1"), 0.0))
    assert admission.connect(source_at("127.0.0.1"), 0.0) == ADDRESS_LIMIT
    exempting = Admission(
        lambda: Limits(2, 1, 0, 1, handshakes_per_second=0.001, handshake_burst=1, exempt_loopback=True)
    )
    for host in ("127.0.0.1", "::1"):
        require_permit(exempting.connect(source_at(host), 0.0))
        require_permit(exempting.begin_handshake(source_at("127.0.0.1"), 0.0))
    assert exempting.connect(source_at("127.0.0.1"), 0.0) == FULL
    require_permit(exempting.begin_handshake(source_at("10.0.0.1"), 0.0))
    assert exempting.begin_handshake(source_at("10.0.0.1"), 0.0) == PENDING_FOR_ADDRESS


def test_an_address_may_start_a_burst_of_handshakes_and_then_its_rate() -> None:
    admission = Admission(lambda: Limits(0, 0, 0, 0, handshakes_per_second=2.0, handshake_burst=3))
    for _ in range(3):
        require_permit(admission.begin_handshake(source_at("10.0.0.1"), 100.0)).release()
    for _ in range(5):
        assert admission.begin_handshake(source_at("10.0.0.1"), 100.25) == RATE
    assert (RATE.code, admission.pending) == ("rate", 0)
    require_permit(admission.begin_handshake(source_at("10.0.0.2"), 100.25))
    require_permit(admission.begin_handshake(source_at("10.0.0.1"), 100.5))
    assert admission.begin_handshake(source_at("10.0.0.1"), 100.5) == RATE


def test_a_refusal_for_another_reason_does_not_count_for_the_rate() -> None:
    admission = Admission(lambda: Limits(0, 0, pending=1, handshakes_per_second=0.001, handshake_burst=2))
    first = require_permit(admission.begin_handshake(source_at("10.0.0.1"), 0.0))
    for _ in range(5):
        assert admission.begin_handshake(source_at("10.0.0.1"), 0.0) == PENDING
    first.release()
    require_permit(admission.begin_handshake(source_at("10.0.0.1"), 0.0))


def ipv4_key(number: int) -> LimitKey:
    return ip_address(0x0A000000 + number)  # type: ignore[return-value]


def test_full_buckets_are_deleted_and_their_number_is_limited() -> None:
    rate = HandshakeRate(lambda: Limits(handshakes_per_second=1.0, handshake_burst=2, buckets=10))
    for number in range(1000):
        assert rate.take(ipv4_key(number), 0.0)
        assert len(rate) <= 10
    assert rate.take(ipv4_key(999), 0.0)
    assert not rate.take(ipv4_key(999), 0.0)
    assert rate.take(ipv4_key(5000), 100.0)
    assert len(rate) == 1, "all the others were full again"


def test_a_clock_that_is_set_back_gives_no_tokens() -> None:
    rate = HandshakeRate(lambda: Limits(handshakes_per_second=1.0, handshake_burst=1, buckets=10))
    assert rate.take(ipv4_key(1), 100.0)
    assert not rate.take(ipv4_key(1), 50.0)
    assert not rate.take(ipv4_key(1), 100.5)
    assert rate.take(ipv4_key(2), 50.0)
    assert not rate.take(ipv4_key(2), 100.9), "the 50 seconds that passed twice count once"
    assert rate.take(ipv4_key(1), 101.0)


@pytest.mark.parametrize(
    "invalid",
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
def test_an_invalid_limit_is_refused(invalid: dict[str, int]) -> None:
    assert Limits(handshake_burst=1, buckets=1).connections
    with pytest.raises(OptionError, match=next(iter(invalid))):
        Limits(**invalid)


@dataclass
class ModelPermit:
    """A permit in the model: its source, whether that was known, and whether the permit counts."""

    permit: Permit
    source: Source
    was_known: bool = True
    counts: bool = True


SOURCES: list[Source] = [
    source_at(host) for host in ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "2001:db8::1", "2001:db8::2", "127.0.0.1")
]
SOURCES.append(IpcSource())


class AdmissionAndItsModel(RuleBasedStateMachine):
    """Compares ``Admission`` with lists of permits, which the model counts for each expected result."""

    @initialize(
        numbers=st.tuples(*[st.integers(0, 3)] * 4), exempt=st.booleans(), burst=st.integers(1, 3), rate=st.booleans()
    )
    def begin(self, numbers: tuple[int, int, int, int], exempt: bool, burst: int, rate: bool) -> None:
        self.limits = Limits(*numbers, 1.0 if rate else 0.0, burst, 100, exempt)
        self.admission = Admission(lambda: self.limits)
        self.connections: list[ModelPermit] = []
        self.pending: list[ModelPermit] = []
        self.now = 0.0
        self.tokens: dict[LimitKey, float] = {}
        self.known: set[LimitKey | None] = {None}

    def key_of(self, source: Source) -> LimitKey | None:
        if isinstance(source, IpcSource) or (self.limits.exempt_loopback and source.is_loopback):
            return None
        return source.limit_key

    def has_room(self, permits: list[ModelPermit], source: Source, limit: int, limit_per_address: int) -> bool:
        counted = [one for one in permits if one.counts]
        key = self.key_of(source)
        of_same_key = [one for one in counted if self.key_of(one.source) == key]
        return (not limit or len(counted) < limit) and (
            key is None or not limit_per_address or len(of_same_key) < limit_per_address
        )

    def has_room_for_handshake(self, source: Source) -> bool:
        limit, limit_per_address, key = self.limits.pending, self.limits.pending_per_address, self.key_of(source)
        counted = [one for one in self.pending if one.counts]
        others = sum(self.key_of(one.source) != key for one in counted)
        own = len(counted) - others
        if limit and key not in self.known:
            limit -= limit // 2
            unknown = [one for one in counted if not one.was_known]
            if len(counted) >= self.limits.pending or len(unknown) >= limit:
                return False
            others = len(unknown) - own
        elif limit and len(counted) >= limit:
            return False
        if limit and limit_per_address:
            limit_per_address = max(1, int(limit_per_address * (limit - others) / limit))
        return key is None or not limit_per_address or own < limit_per_address

    @rule(source=st.sampled_from(SOURCES))
    def connect(self, source: Source) -> None:
        has_room = self.has_room(self.connections, source, self.limits.connections, self.limits.connections_per_address)
        result = self.admission.connect(source, self.now)
        assert isinstance(result, Permit) == has_room
        if isinstance(result, Permit):
            self.connections.append(ModelPermit(result, source))
            self.known.add(self.key_of(source))
        else:
            assert result in (FULL, ADDRESS_LIMIT)

    @rule(source=st.sampled_from(SOURCES))
    def begin_handshake(self, source: Source) -> None:
        has_room = self.has_room_for_handshake(source)
        key = self.key_of(source)
        is_rate_limited = key is not None and self.limits.handshakes_per_second > 0
        tokens = self.tokens.get(key, float(self.limits.handshake_burst)) if key is not None else 0.0
        result = self.admission.begin_handshake(source, self.now)
        assert isinstance(result, Permit) == (has_room and (not is_rate_limited or tokens >= 1))
        if not isinstance(result, Permit):
            assert result == RATE if has_room else result in (PENDING, PENDING_FOR_ADDRESS)
            return
        self.pending.append(ModelPermit(result, source, was_known=key in self.known))
        if is_rate_limited:
            assert key is not None
            self.tokens[key] = tokens - 1

    @precondition(lambda self: self.connections or self.pending)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        permit = data.draw(st.sampled_from(self.connections + self.pending))
        permit.permit.release()  # perhaps for the second time
        permit.counts = False

    @rule(quarters=st.integers(0, 8))
    def wait(self, quarters: int) -> None:
        self.now += quarters / 4
        full = float(self.limits.handshake_burst)
        self.tokens = {key: min(full, left + quarters / 4) for key, left in self.tokens.items()}

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "admission"):
            return
        counted_permits = [[one for one in permits if one.counts] for permits in (self.connections, self.pending)]
        assert (self.admission.connections, self.admission.pending) == tuple(map(len, counted_permits))
        addresses = sum(len({self.key_of(one.source) for one in counted} - {None}) for counted in counted_permits)
        assert self.admission.addresses == addresses


TestAdmissionAgainstItsModel = pytest.mark.slow(AdmissionAndItsModel.TestCase)


def test_a_refusal_names_the_option_of_its_limit_and_only_a_client_that_proved_its_key_gets_the_value() -> None:
    limits = Limits(1, 1, 2, 1, handshakes_per_second=0.5, handshake_burst=2)
    admission = Admission(lambda: limits)
    require_permit(admission.connect(source_at("10.0.0.1"), 0.0))
    require_permit(admission.begin_handshake(source_at("10.0.0.1"), 0.0))
    refusals = [
        admission.connect(source_at("10.0.0.1"), 0.0),
        admission.begin_handshake(source_at("10.0.0.1"), 0.0),
    ]
    found = [one.limit for one in refusals if isinstance(one, Refusal)]
    assert found == [ReachedLimit("maxConnections", 1), ReachedLimit("maxPendingPerAddress", 1)]
    pending = refusals[1]
    assert isinstance(pending, Refusal)
    assert pending.text_for_unauthenticated == (
        "Too many handshakes are pending for IP address (option maxPendingPerAddress of the server)"
    )
    assert pending.text_for_client.endswith(": 1 is the limit (option maxPendingPerAddress of the server)")
    assert (FULL.text_for_unauthenticated, FULL.text_for_client) == ("Server is full", "Server is full")
