"""Random histories of two sessions: accepted records arrive once and in order, or the session is lost."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.protocol.frames import RecordKind, decode
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session, SessionLimits

LIMITS = SessionLimits(
    buffer_bytes=4_000,
    buffer_seconds=50.0,
    retention_seconds=60.0,
    ack_bytes=600,
    ack_seconds=0.5,
    max_record_bytes=300,
)
FRAME = 16 + 6 + 300
ENDS = st.sampled_from([0, 1])


class End:
    """A session with its accepted records, its arrived records, and the frames in transit to it."""

    def __init__(self) -> None:
        self.session = Session(LIMITS, 0.0)
        self.accepted: list[tuple[int, int, bytes]] = []
        self.arrived: list[tuple[int, int, bytes]] = []
        self.inbox: deque[bytes] = deque()
        self.received_frames: list[bytes] = []
        self.lost = False


class TwoSessions(RuleBasedStateMachine):
    """A link delivers frames in order until it is lost. Frames in transit are then lost, or arrive again much later."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = (End(), End())
        self.count = 0
        self.repeated = 0  # number of repeated records that were dropped
        self.reconnect(0)

    def are_open(self) -> bool:
        return not any(end.lost for end in self.ends)

    def expect_lost(self, end: End, error: AeronSparkError) -> None:
        """Check that the session is lost, which is the only permitted reason not to deliver."""
        assert isinstance(error, RefusedError)
        assert "the session is lost" in str(error)
        end.lost = True

    @precondition(are_open)
    @rule(
        which=ENDS,
        sizes=st.lists(st.integers(0, 300), max_size=12),
        kind=st.sampled_from([1, 2, 5]),
        one_by_one=st.booleans(),
    )
    def push(self, which: int, sizes: list[int], kind: int, one_by_one: bool) -> None:
        end = self.ends[which]
        payloads = []
        for size in sizes:
            self.count += 1
            payloads.append(self.count.to_bytes(4, "big")[: max(size, 4)] + bytes(max(0, size - 4)))
        try:
            if one_by_one:
                for payload in payloads:
                    if end.session.push(kind, payload, self.now, flags=3) is Pushed.ACCEPTED:
                        end.accepted.append((kind, 3, payload))
            else:
                accepted, _ = end.session.push_many(kind, payloads, self.now)
                end.accepted += [(kind, 0, payload) for payload in payloads[:accepted]]
        except AeronSparkError as error:
            self.expect_lost(end, error)

    @precondition(are_open)
    @rule(which=ENDS, frames=st.integers(1, 5), ping=st.booleans())
    def send(self, which: int, frames: int, ping: bool) -> None:
        end, peer = self.ends[which], self.ends[1 - which]
        for _ in range(frames if end.session.attached else 0):
            buffers = end.session.take(FRAME, self.now, [(RecordKind.PING, 0, bytes(8))] if ping else [])
            if buffers is not None:
                peer.inbox.append(b"".join(buffers))

    @precondition(are_open)
    @rule(which=ENDS, frames=st.integers(1, 5))
    def deliver(self, which: int, frames: int) -> None:
        end = self.ends[which]
        for _ in range(min(frames, len(end.inbox)) if end.session.attached else 0):
            data = end.inbox.popleft()
            end.received_frames.append(data)
            self.receive(end, data)

    @precondition(are_open)
    @rule(which=ENDS, index=st.integers(0, 1_000))
    def repeat_an_old_frame(self, which: int, index: int) -> None:
        end = self.ends[which]
        if end.received_frames and end.session.attached:
            before = len(end.arrived)
            self.receive(end, end.received_frames[index % len(end.received_frames)])
            assert len(end.arrived) == before

    def receive(self, end: End, data: bytes) -> None:
        frame = decode(data)
        new = end.session.receive(frame, self.now)
        self.repeated += len(frame.records) - len(new)
        end.arrived += [(kind, flags, bytes(payload)) for kind, flags, payload in new if kind < 64]

    @rule(which=ENDS)
    def detach_one_end(self, which: int) -> None:
        self.ends[which].session.detach(self.now)

    @precondition(are_open)
    @rule(stale=st.integers(0, 3))
    def reconnect(self, stale: int) -> None:
        """Attach a new link to both ends. One end learns the peer's count as of ``stale`` records ago."""
        for end in self.ends:
            end.session.detach(self.now)
            end.inbox.clear()
        one, other = self.ends
        stale_count = max(one.session.acknowledged, other.session.received - stale)
        for end, peer_received in ((one, stale_count), (other, one.session.received)):
            try:
                end.session.attach(peer_received, self.now)
            except AeronSparkError as error:
                self.expect_lost(end, error)

    @rule(seconds=st.sampled_from([0.1, 0.2, 0.6, 0.6, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            try:
                end.session.check(self.now)
            except AeronSparkError as error:
                self.expect_lost(end, error)

    @invariant()
    def records_arrive_once_and_in_order(self) -> None:
        one, other = self.ends
        assert other.arrived == one.accepted[: len(other.arrived)]
        assert one.arrived == other.accepted[: len(one.arrived)]

    @invariant()
    def kept_records_equal_the_model_and_are_bounded(self) -> None:
        for end in self.ends:
            unacknowledged = [] if end.lost else end.accepted[end.session.acknowledged :]
            assert end.session.buffered_bytes == sum(len(payload) + RECORD_COST for _, _, payload in unacknowledged)
            assert end.session.buffered_bytes <= LIMITS.buffer_bytes
            assert end.session.pending == len(unacknowledged)

    def teardown(self) -> None:
        """Over a link without losses, all records arrive and are acknowledged."""
        if not self.are_open():
            return
        self.reconnect(0)
        if not self.are_open():
            return
        for _ in range(3):
            self.now += LIMITS.ack_seconds
            for which in (0, 1):
                self.send(which, 200, False)
                self.deliver(1 - which, 200)
        one, other = self.ends
        assert (one.arrived, other.arrived) == (other.accepted, one.accepted)
        assert (one.session.pending, other.session.pending) == (0, 0)


TestTwoSessions = pytest.mark.slow(TwoSessions.TestCase)
TestTwoSessions.settings = settings(stateful_step_count=60)


def run_history(rng: random.Random, steps: int) -> TwoSessions:
    """Run one long history with occasional outages, because hypothesis prefers short ones."""
    world = TwoSessions()
    for _ in range(steps):
        if not world.are_open():
            break
        which, number = rng.randrange(2), rng.randrange(1, 6)
        match rng.choices(range(7), weights=(30, 30, 30, 5, 4, 8, 12))[0]:
            case 0:
                sizes = [rng.randrange(300) for _ in range(number)]
                world.push(which, sizes, kind=rng.choice([1, 2, 5]), one_by_one=rng.random() < 0.5)
            case 1:
                world.send(which, number, ping=rng.random() < 0.2)
            case 2:
                world.deliver(which, number)
            case 3:
                world.repeat_an_old_frame(which, rng.randrange(1_000))
            case 4:
                world.detach_one_end(which)
            case 5:
                world.reconnect(stale=rng.choice([0, 0, 1, 3]))
            case 6:
                world.wait(rng.choice([0.1] * 9 + [25.0]))
        world.records_arrive_once_and_in_order()
        world.kept_records_equal_the_model_and_are_bounded()
    world.teardown()
    return world


@pytest.mark.slow
def test_row_57_no_record_is_lost_or_repeated_in_long_histories(rng: random.Random) -> None:
    worlds = [run_history(rng, 400) for _ in range(40)]
    unbroken = [world for world in worlds if world.are_open()]
    # the histories must have included all of these events
    assert len(unbroken) >= 5
    assert len(unbroken) < len(worlds)
    assert sum(world.repeated for world in worlds) > 100
    assert sum(len(end.arrived) for world in unbroken for end in world.ends) > 1_000
