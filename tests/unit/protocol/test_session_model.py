"""Any history of two sessions: what was accepted arrives exactly once and in order, or the session is reported lost."""

from __future__ import annotations

import random
from collections import deque

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
    """A session, what was accepted there, what arrived there, and the frames on their way to it."""

    def __init__(self) -> None:
        self.session = Session(LIMITS, 0.0)
        self.accepted: list[tuple[int, int, bytes]] = []
        self.arrived: list[tuple[int, int, bytes]] = []
        self.inbox: deque[bytes] = deque()
        self.seen: list[bytes] = []
        self.lost = False


class TwoSessions(RuleBasedStateMachine):
    """A duologue brings frames in order until it is cut; then what is on its way is gone, or comes again much later."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = (End(), End())
        self.count = 0
        self.repeated = 0  # records that arrived though they were there, and were dropped
        self.reconnect(0)

    def both(self) -> bool:
        return not any(end.lost for end in self.ends)

    def must_be_lost(self, end: End, error: AeronSparkError) -> None:
        """The one allowed way not to deliver: the session says that it is lost, and goes on saying so."""
        assert isinstance(error, RefusedError)
        assert "the session is lost" in str(error)
        end.lost = True

    @precondition(both)
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
            self.must_be_lost(end, error)

    @precondition(both)
    @rule(which=ENDS, frames=st.integers(1, 5), ping=st.booleans())
    def send(self, which: int, frames: int, ping: bool) -> None:
        end, peer = self.ends[which], self.ends[1 - which]
        for _ in range(frames if end.session.attached else 0):
            buffers = end.session.take(FRAME, self.now, [(RecordKind.PING, 0, bytes(8))] if ping else [])
            if buffers is not None:
                peer.inbox.append(b"".join(buffers))

    @precondition(both)
    @rule(which=ENDS, frames=st.integers(1, 5))
    def deliver(self, which: int, frames: int) -> None:
        end = self.ends[which]
        for _ in range(min(frames, len(end.inbox)) if end.session.attached else 0):
            data = end.inbox.popleft()
            end.seen.append(data)
            self.take_in(end, data)

    @precondition(both)
    @rule(which=ENDS, index=st.integers(0, 1_000))
    def deliver_an_old_frame_again(self, which: int, index: int) -> None:
        end = self.ends[which]
        if end.seen and end.session.attached:
            before = len(end.arrived)
            self.take_in(end, end.seen[index % len(end.seen)])
            assert len(end.arrived) == before

    def take_in(self, end: End, data: bytes) -> None:
        frame = decode(data)
        new = end.session.receive(frame, self.now)
        self.repeated += len(frame.records) - len(new)
        end.arrived += [(kind, flags, bytes(payload)) for kind, flags, payload in new if kind < 64]

    @rule(which=ENDS)
    def detach_one_end(self, which: int) -> None:
        self.ends[which].session.detach(self.now)

    @precondition(both)
    @rule(stale=st.integers(0, 3))
    def reconnect(self, stale: int) -> None:
        """Both ends get a new duologue; one was told what the other had ``stale`` records ago."""
        for end in self.ends:
            end.session.detach(self.now)
            end.inbox.clear()
        one, other = self.ends
        there = max(one.session.acknowledged, other.session.received - stale)
        for end, peer_received in ((one, there), (other, one.session.received)):
            try:
                end.session.attach(peer_received, self.now)
            except AeronSparkError as error:
                self.must_be_lost(end, error)

    @rule(seconds=st.sampled_from([0.1, 0.2, 0.6, 0.6, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            try:
                end.session.check(self.now)
            except AeronSparkError as error:
                self.must_be_lost(end, error)

    @invariant()
    def once_and_in_order(self) -> None:
        one, other = self.ends
        assert other.arrived == one.accepted[: len(other.arrived)]
        assert one.arrived == other.accepted[: len(one.arrived)]

    @invariant()
    def bounded_and_accounted_for(self) -> None:
        for end in self.ends:
            kept = [] if end.lost else end.accepted[end.session.acknowledged :]
            assert end.session.buffered_bytes == sum(len(payload) + RECORD_COST for _, _, payload in kept)
            assert end.session.buffered_bytes <= LIMITS.buffer_bytes
            assert end.session.pending == len(kept)

    def teardown(self) -> None:
        """Whatever happened: once there is a duologue that holds, all arrives and all is acknowledged."""
        if not self.both():
            return
        self.reconnect(0)
        if not self.both():
            return
        for _ in range(3):
            self.now += LIMITS.ack_seconds
            for which in (0, 1):
                self.send(which, 200, False)
                self.deliver(1 - which, 200)
        one, other = self.ends
        assert (one.arrived, other.arrived) == (other.accepted, one.accepted)
        assert (one.session.pending, other.session.pending) == (0, 0)


TestTwoSessions = TwoSessions.TestCase
TestTwoSessions.settings = settings(stateful_step_count=60)


def walk(chance: random.Random, steps: int) -> TwoSessions:
    """One long history, with outages now and then; hypothesis prefers short ones."""
    world = TwoSessions()
    for _ in range(steps):
        if not world.both():
            break
        which, number = chance.randrange(2), chance.randrange(1, 6)
        match chance.choices(range(7), weights=(30, 30, 30, 5, 4, 8, 12))[0]:
            case 0:
                sizes = [chance.randrange(300) for _ in range(number)]
                world.push(which, sizes, kind=chance.choice([1, 2, 5]), one_by_one=chance.random() < 0.5)
            case 1:
                world.send(which, number, ping=chance.random() < 0.2)
            case 2:
                world.deliver(which, number)
            case 3:
                world.deliver_an_old_frame_again(which, chance.randrange(1_000))
            case 4:
                world.detach_one_end(which)
            case 5:
                world.reconnect(stale=chance.choice([0, 0, 1, 3]))
            case 6:
                world.wait(chance.choice([0.1] * 9 + [25.0]))
        world.once_and_in_order()
        world.bounded_and_accounted_for()
    world.teardown()
    return world


def test_row_57_long_histories_lose_nothing_and_bring_nothing_twice(rng: random.Random) -> None:
    worlds = [walk(rng, 400) for _ in range(40)]
    whole = [world for world in worlds if world.both()]
    # the test is worth something only if all of this happened
    assert len(whole) >= 5
    assert len(whole) < len(worlds)
    assert sum(world.repeated for world in worlds) > 100
    assert sum(len(end.arrived) for world in whole for end in world.ends) > 1_000
