"""Random histories of two connection machines over links that fail: no record is lost, repeated or reordered."""

from __future__ import annotations

import random
import re
from collections import deque
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aeron_spark.errors import AeronSparkError, EndedError, SessionLost
from aeron_spark.protocol.connection_machine import (
    ConfirmDelivery,
    ConnectionMachine,
    Deliver,
    Effects,
    EndConnection,
    LinkExpired,
    ResolvePing,
    SendFrame,
    TakeRequest,
    TakeResponse,
    TakeTransferRecord,
)
from aeron_spark.protocol.frames import RecordKind, decode
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.session import RECORD_COST, Pushed, SessionLimits

LIMITS: Final = SessionLimits(
    buffer_bytes=4_000, buffer_seconds=50.0, retention_seconds=60.0, ack_bytes=600, ack_seconds=0.5,
    max_record_bytes=300,
)  # fmt: skip
TIMES: Final = Times(
    expiry_seconds=4.0, linger_seconds=0.0, keep_alive_seconds=15.0, ping_seconds=3.0, retention_seconds=60.0
)
FRAME: Final = 16 + 6 + 300
MESSAGES: Final = (RecordKind.MESSAGE, RecordKind.MESSAGE_ACK_WANTED)
OTHERS: Final = (
    RecordKind.CALL,
    RecordKind.RETURN,
    RecordKind.OBJECT,
    RecordKind.DELIVERED,
    RecordKind.TRANSFER_DATA,
    RecordKind.TRANSFER_FINISHED,
)
ENDS: Final = st.sampled_from([0, 1])

Sent = tuple[int, bytes]  # kind, payload


def cost(records: list[Sent]) -> int:
    return sum(len(payload) + RECORD_COST for _, payload in records)


class End:
    """A machine with its accepted records, its arrived records, and the frames in transit to it."""

    def __init__(self) -> None:
        self.machine = ConnectionMachine(LIMITS, TIMES, 0.0)
        self.accepted: list[Sent] = []
        self.deferred: list[Sent] = []
        self.arrived: list[Sent] = []
        self.inbox: deque[bytes] = deque()
        self.received_frames: list[bytes] = []
        self.pings: dict[int, float] = {}  # start times of the unresolved pings
        self.resolved: set[int] = set()
        self.sent_at = 0.0  # time of the last frame
        self.heard_at = 0.0  # time of the peer's last frame
        self.asked_at: float | None = None  # without a frame of the peer since then
        self.silent_since: float | None = None
        self.paused = False
        self.acknowledged_limit = 0  # while acknowledgements are paused: the highest number that the peer can have
        self.error: AeronSparkError | None = None  # passed to close

    @property
    def open(self) -> bool:
        return self.error is None

    def move_accepted_responses(self) -> None:
        """Move the responses that the machine has accepted meanwhile, in their order, to the accepted records."""
        while cost(self.deferred) > self.machine.deferred_bytes:
            self.accepted.append(self.deferred.pop(0))

    def close(self, error: AeronSparkError) -> None:
        self.machine.close(error)
        self.error = error
        self.deferred.clear()
        self.pings.clear()


class TwoMachines(RuleBasedStateMachine):
    """A link delivers frames in order until it is lost. Frames in transit are then lost, or arrive again much later."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = (End(), End())
        self.count = 0
        self.repeated = 0  # number of repeated records that were dropped
        self.reattach(0)

    def are_open(self) -> bool:
        return all(end.open for end in self.ends)

    def payload(self, kind: int, size: int) -> bytes:
        """Return a unique payload."""
        self.count += 1
        number = self.count.to_bytes(8, "big")
        return number if kind == RecordKind.DELIVERED else number + bytes(max(0, size - 8))

    @precondition(are_open)
    @rule(which=ENDS, kind=st.sampled_from([*MESSAGES, *OTHERS]), sizes=st.lists(st.integers(0, 300), max_size=12),
          one_by_one=st.booleans())  # fmt: skip
    def push(self, which: int, kind: int, sizes: list[int], one_by_one: bool) -> None:
        end = self.ends[which]
        payloads = [self.payload(kind, size) for size in sizes]
        try:
            if one_by_one:
                for payload in payloads:
                    if end.machine.push(kind, payload, self.now) is Pushed.ACCEPTED:
                        end.accepted.append((kind, payload))
            else:
                accepted, _ = end.machine.push_many(kind, payloads, self.now)
                end.accepted += [(kind, payload) for payload in payloads[:accepted]]
        except SessionLost as error:
            end.close(error)

    @precondition(are_open)
    @rule(which=ENDS, size=st.integers(0, 300), times=st.integers(1, 12))
    def reply(self, which: int, size: int, times: int) -> None:
        end = self.ends[which]
        for _ in range(times):
            one = (int(RecordKind.RETURN), self.payload(RecordKind.RETURN, size))
            end.machine.reply(*one, self.now)
            end.deferred.append(one)
            end.move_accepted_responses()

    @precondition(are_open)
    @rule(which=ENDS)
    def ping(self, which: int) -> None:
        end = self.ends[which]
        number = end.machine.start_ping(TIMES.ping_seconds, self.now)
        assert number is not None
        assert number not in end.pings
        assert number not in end.resolved
        end.pings[number] = self.now

    @precondition(are_open)
    @rule(which=ENDS, frames=st.integers(1, 5))
    def send(self, which: int, frames: int) -> None:
        end, peer = self.ends[which], self.ends[1 - which]
        for _ in range(frames):
            plaintext = end.machine.take(FRAME, self.now)
            if plaintext is None:
                assert not end.machine.has_waiting
                return
            assert end.machine.attached
            end.sent_at = self.now
            frame = b"".join(plaintext)
            assert len(frame) <= FRAME
            peer.inbox.append(frame)

    @precondition(are_open)
    @rule(which=ENDS, frames=st.integers(1, 5))
    def deliver(self, which: int, frames: int) -> None:
        end = self.ends[which]
        for _ in range(min(frames, len(end.inbox)) if end.machine.attached else 0):
            data = end.inbox.popleft()
            end.received_frames.append(data)
            self.receive(end, data)

    @precondition(are_open)
    @rule(which=ENDS, index=st.integers(0, 1_000))
    def repeat_an_old_frame(self, which: int, index: int) -> None:
        end = self.ends[which]
        if end.received_frames and end.machine.attached:
            before = len(end.arrived)
            self.receive(end, end.received_frames[index % len(end.received_frames)])
            assert len(end.arrived) == before

    def receive(self, end: End, data: bytes) -> None:
        frame = decode(data)
        acknowledged, received = end.machine.session.acknowledged, end.machine.session.received
        deferred = list(end.deferred)
        result = end.machine.receive(frame, self.now)
        end.heard_at, end.asked_at = self.now, None
        end.move_accepted_responses()
        assert result.made_room == (end.machine.session.acknowledged > acknowledged)
        if deferred != end.deferred or any(kind == RecordKind.PING for kind, _, _ in frame.records):
            assert result.frame_due
        new = end.machine.session.received - received
        self.repeated += frame.sequenced - new
        before = len(end.arrived)
        self.apply(end, result.effects)
        assert len(end.arrived) - before == new

    def apply(self, end: End, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Deliver():
                    end.arrived += [(kind, bytes(payload)) for kind, _, payload in effect.messages]
                case TakeRequest() | TakeTransferRecord():
                    self.check_order(end, effect.kind, bytes(effect.payload))
                    end.arrived.append((effect.kind, bytes(effect.payload)))
                case TakeResponse():
                    end.arrived.append((int(RecordKind.RETURN), bytes(effect.payload)))
                case ConfirmDelivery():
                    end.arrived.append((int(RecordKind.DELIVERED), effect.number.to_bytes(8, "big")))
                case ResolvePing():
                    started = end.pings.pop(effect.number)  # raises KeyError if the ping was resolved before
                    end.resolved.add(effect.number)
                    late = self.now >= started + TIMES.ping_seconds
                    assert effect.round_trip == (None if late else self.now - started)
                case _:
                    raise AssertionError(f"unexpected effect {effect}")

    def check_order(self, end: End, kind: int, payload: bytes) -> None:
        """Check that the end of a transfer comes after all messages that were pushed before it."""
        if kind == RecordKind.TRANSFER_FINISHED:
            accepted = self.ends[1 - self.ends.index(end)].accepted
            before = accepted[: accepted.index((kind, payload))]
            assert len(messages(end.arrived)) >= len(messages(before))

    @precondition(are_open)
    @rule(which=ENDS)
    def detach_one_end(self, which: int) -> None:
        self.ends[which].machine.detach(self.now)

    @precondition(are_open)
    @rule(stale=st.integers(0, 3))
    def reattach(self, stale: int) -> None:
        """Attach a new link to both ends. One end learns the peer's count as of ``stale`` records ago."""
        for end in self.ends:
            end.machine.detach(self.now)
            end.inbox.clear()
        one, other = self.ends
        stale_count = max(one.machine.session.acknowledged, other.machine.session.received - stale)
        for end, peer_received in ((one, stale_count), (other, one.machine.session.received)):
            try:
                repeated = end.machine.attach(peer_received, self.now)
            except SessionLost as error:
                end.close(error)
                continue
            end.move_accepted_responses()
            assert not end.machine.has_unsequenced
            assert repeated <= len(end.accepted) - peer_received
            end.silent_since, end.sent_at = None, self.now
            end.heard_at, end.asked_at = self.now, None
            end.acknowledged_limit = end.machine.session.received

    @precondition(are_open)
    @rule(which=ENDS, paused=st.booleans())
    def pause_acks(self, which: int, paused: bool) -> None:
        end = self.ends[which]
        if paused and not end.paused:
            end.acknowledged_limit = end.machine.session.received
        end.paused = paused
        end.machine.pause_acks(paused)

    @precondition(are_open)
    @rule(which=ENDS)
    def refuse_temporarily(self, which: int) -> None:
        end = self.ends[which]
        end.machine.refuse(EndedError("not now", remedy="Connect"))
        with pytest.raises(EndedError, match="not now"):
            end.machine.push(RecordKind.MESSAGE, b"never", self.now)
        end.machine.refuse(None)

    @rule(seconds=st.sampled_from([0.1, 0.2, 0.6, 0.6, 3.0, 5.0, 16.0, 20.0]), connected=st.booleans())
    def wait(self, seconds: float, connected: bool) -> None:
        for end in self.ends:
            due = end.machine.deadline()
            early = due is None or due > self.now
            if end.open and early and end.silent_since is None and cost(end.deferred) <= LIMITS.buffer_bytes:
                effects = end.machine.tick(True, self.now)
                assert effects == () or end.machine.session.ack_due(self.now)
        self.now += seconds
        for end in self.ends:
            self.tick(end, connected)

    def tick(self, end: End, connected: bool) -> None:
        machine, attached = end.machine, end.machine.attached
        unread = cost(end.deferred) > LIMITS.buffer_bytes
        if attached and end.paused:
            end.heard_at, end.asked_at = self.now, None
        seconds = TIMES.keep_alive_seconds
        is_silent = end.asked_at is not None and self.now >= max(end.asked_at + seconds, end.heard_at + 2 * seconds)
        asks = end.asked_at is None and self.now >= end.heard_at + seconds
        keep_alive = attached and (asks or self.now >= end.sent_at + seconds)
        ack = attached and machine.session.ack_due(self.now)
        silent_since = self.now if end.silent_since is None else end.silent_since
        due = machine.deadline()
        effects = machine.tick(connected, self.now)
        if not end.open:
            assert effects == ()
            return
        if effects and not (unread or ack):
            assert due is not None
            assert due <= self.now
        self.apply(end, tuple(effect for effect in effects if isinstance(effect, ResolvePing)))
        ends = [effect.error for effect in effects if isinstance(effect, EndConnection)]
        if unread:
            assert len(ends) == 1
        elif attached:
            expired = not connected and self.now >= silent_since + TIMES.expiry_seconds
            assert not ends
            assert (SendFrame() in effects) == (keep_alive or ack)
            assert (LinkExpired(TIMES.expiry_seconds) in effects) == expired
            assert (LinkExpired(2 * seconds) in effects) == (is_silent and not expired)
            end.silent_since = None if connected else silent_since
            end.sent_at = self.now if keep_alive else end.sent_at
            end.asked_at = self.now if keep_alive and end.asked_at is None else end.asked_at
            if expired or is_silent:
                machine.detach(self.now)
        for error in ends:
            end.close(error)

    @precondition(are_open)
    @rule(which=ENDS)
    def close(self, which: int) -> None:
        if self.count > 40:  # most histories should be longer than that
            self.ends[which].close(EndedError("the connection is closed", remedy="Connect again"))

    @invariant()
    def records_arrive_once_and_in_order(self) -> None:
        one, other = self.ends
        for sender, receiver in ((one, other), (other, one)):
            arrived = receiver.arrived
            sent = sender.accepted[: len(arrived)]
            assert messages(arrived) == messages(sent)
            assert others(arrived) == others(sent)

    @invariant()
    def kept_records_equal_the_model_and_are_bounded(self) -> None:
        for end in self.ends:
            session = end.machine.session
            unacknowledged = end.accepted[session.acknowledged :] if end.open else []
            assert session.buffered_bytes == cost(unacknowledged)
            assert session.buffered_bytes <= LIMITS.buffer_bytes
            assert session.pending == len(unacknowledged)
            assert end.machine.deferred_bytes == cost(end.deferred)
            assert end.machine.unacknowledged == bool(unacknowledged or end.deferred)
            assert end.machine.pings == len(end.pings)

    @invariant()
    def a_paused_end_sends_no_new_acknowledgement(self) -> None:
        for end, peer in (self.ends, self.ends[::-1]):
            if end.paused and end.open and peer.open:
                assert peer.machine.session.acknowledged <= end.acknowledged_limit

    @invariant()
    def a_closed_machine_does_nothing(self) -> None:
        for end in self.ends:
            if end.open:
                continue
            machine = end.machine
            assert not machine.has_waiting
            assert machine.take(FRAME, self.now) is None
            assert machine.deadline() is None
            machine.reply(RecordKind.RETURN, b"late", self.now)
            machine.push_unsequenced(RecordKind.PONG, bytes(8))
            assert machine.deferred_bytes == 0
            assert not machine.has_unsequenced
            with pytest.raises(AeronSparkError, match=re.escape(str(end.error))):
                machine.push(RecordKind.MESSAGE, b"", self.now)
            with pytest.raises(AeronSparkError, match=re.escape(str(end.error))):
                machine.start_ping(1.0, self.now)

    def teardown(self) -> None:
        """Over a link without losses, all records arrive and are acknowledged."""
        if not self.are_open():
            return
        for end in self.ends:
            end.paused = False
            end.machine.pause_acks(False)
        self.reattach(0)
        for _ in range(40 if self.are_open() else 0):
            self.now += LIMITS.ack_seconds
            for which in (0, 1):
                self.send(which, 200)
                self.deliver(1 - which, 200)
        if self.are_open():
            one, other = self.ends
            assert [end.deferred for end in self.ends] == [[], []]
            self.records_arrive_once_and_in_order()
            assert (len(one.arrived), len(other.arrived)) == (len(other.accepted), len(one.accepted))
            assert not any(end.machine.unacknowledged for end in self.ends)


def messages(records: list[Sent]) -> list[Sent]:
    return [record for record in records if record[0] in MESSAGES]


def others(records: list[Sent]) -> list[Sent]:
    return [record for record in records if record[0] not in MESSAGES]


TestTwoMachines = pytest.mark.slow(TwoMachines.TestCase)
TestTwoMachines.settings = settings(stateful_step_count=60)


def run_history(rng: random.Random, steps: int) -> TwoMachines:
    """Run one long history with occasional outages, because hypothesis prefers short ones."""
    world = TwoMachines()
    for _ in range(steps):
        if not world.are_open():
            break
        which, number = rng.randrange(2), rng.randrange(1, 6)
        match rng.choices(range(10), weights=(20, 4, 3, 40, 40, 5, 4, 5, 6, 12))[0]:
            case 0:
                sizes = [rng.randrange(300) for _ in range(number)]
                world.push(which, rng.choice([*MESSAGES, *OTHERS]), sizes, one_by_one=rng.random() < 0.5)
            case 1:
                world.reply(which, rng.randrange(300), number)
            case 2:
                world.ping(which)
            case 3:
                world.send(which, number)
            case 4:
                world.deliver(which, number)
            case 5:
                world.repeat_an_old_frame(which, rng.randrange(1_000))
            case 6:
                world.detach_one_end(which)
            case 7:
                world.reattach(stale=rng.choice([0, 0, 1, 3]))
            case 8:
                world.pause_acks(which, paused=rng.random() < 0.4)
            case 9:
                world.wait(rng.choice([0.1] * 9 + [1.0, 5.0, 25.0]), connected=rng.random() < 0.8)
        world.records_arrive_once_and_in_order()
        world.kept_records_equal_the_model_and_are_bounded()
        world.a_paused_end_sends_no_new_acknowledgement()
        world.a_closed_machine_does_nothing()
    world.teardown()
    return world


@pytest.mark.slow
def test_no_record_is_lost_or_repeated_in_long_histories(rng: random.Random) -> None:
    worlds = [run_history(rng, 400) for _ in range(40)]
    unbroken = [world for world in worlds if world.are_open()]
    # the histories must have included all of these events
    assert len(unbroken) >= 5
    assert len(unbroken) < len(worlds)
    assert sum(world.repeated for world in worlds) > 100
    assert sum(len(end.arrived) for world in unbroken for end in world.ends) > 1_000
    assert sum(len(end.resolved) for world in worlds for end in world.ends) > 50
