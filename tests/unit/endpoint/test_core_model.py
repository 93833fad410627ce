"""Random histories of two connections over links that fail: no record is lost, repeated or reordered."""

from __future__ import annotations

import math
import random
import re
from collections import deque
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.sender import Pending
from aeron_spark.errors import AeronSparkError, EndedError, SessionLost, WaitTimeout
from aeron_spark.protocol.frames import RecordKind, decode
from aeron_spark.protocol.session import RECORD_COST, SessionLimits
from tests.unit.endpoint.virtual_core import TIMES, End

LIMITS: Final = SessionLimits(
    buffer_bytes=4_000, buffer_seconds=50.0, retention_seconds=60.0, ack_bytes=600, ack_seconds=0.5,
    max_record_bytes=300,
)  # fmt: skip
FRAME: Final = 16 + 6 + 300
MESSAGES: Final = (RecordKind.MESSAGE, RecordKind.MESSAGE_ACK_WANTED)
REQUESTS: Final = (RecordKind.CALL, RecordKind.OBJECT)
RESULTS: Final = (RecordKind.RETURN, RecordKind.DELIVERED, RecordKind.TRANSFER_DATA, RecordKind.TRANSFER_FINISHED)
ENDS: Final = st.sampled_from([0, 1])

Sent = tuple[int, bytes]  # kind, payload


def cost(records: list[Sent]) -> int:
    return sum(len(payload) + RECORD_COST for _, payload in records)


class ModelEnd:
    """A connection with its accepted records, its arrived records, and the frames in transit to it.

    Its link takes frames only in the steps that say so.
    """

    def __init__(self) -> None:
        self.end = End(LIMITS, attached=False, budget=0)
        self.accepted: list[Sent] = []
        self.deferred: list[Sent] = []
        self.arrived: list[Sent] = []
        self.inbox: deque[bytes] = deque()
        self.received_frames: list[bytes] = []
        self.pings: dict[Pending[float], float] = {}  # start times of the unresolved pings
        self.resolved = 0
        self.sent_at = 0.0  # time of the last frame
        self.heard_at = 0.0  # time of the peer's last frame
        self.asked_at: float | None = None  # without a frame of the peer since then
        self.silent_since: float | None = None
        self.paused = False
        self.acknowledged_limit = 0  # while acknowledgements are paused: the highest number that the peer can have
        self.error: AeronSparkError | None = None  # passed to close

    @property
    def core(self) -> ConnectionCore:
        return self.end.core

    @property
    def open(self) -> bool:
        return self.error is None

    def move_accepted_responses(self) -> None:
        """Move the responses that the session has accepted meanwhile, in their order, to the accepted records."""
        while cost(self.deferred) > self.core.sender.deferred_bytes:
            self.accepted.append(self.deferred.pop(0))

    def sent(self, frames: int) -> list[bytes]:
        """Let the link take frames, and return them."""
        self.end.link.budget = frames
        self.core.sender.flush()
        return self.taken_frames()

    def taken_frames(self) -> list[bytes]:
        """Return the frames that the link has taken, and let it take no others."""
        self.end.link.budget = 0
        frames = [*self.end.link.frames]
        self.end.link.frames.clear()
        assert all(len(frame) <= FRAME for frame in frames)
        return frames

    def close(self, error: AeronSparkError) -> None:
        self.core.end(error)
        assert all(ping.future.exception() is not None for ping in self.pings)
        self.error = error
        self.deferred.clear()
        self.pings.clear()


class TwoConnections(RuleBasedStateMachine):
    """A link delivers frames in order until it is lost. Frames in transit are then lost, or arrive again much later."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = (ModelEnd(), ModelEnd())
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
    @rule(which=ENDS, kind=st.sampled_from([*MESSAGES, *REQUESTS, *RESULTS]),
          sizes=st.lists(st.integers(0, 300), max_size=12), one_by_one=st.booleans())  # fmt: skip
    def push(self, which: int, kind: int, sizes: list[int], one_by_one: bool) -> None:
        end = self.ends[which]
        payloads = [self.payload(kind, size) for size in sizes]
        try:
            for part in [[one] for one in payloads] if one_by_one else [payloads]:
                accepted = end.end.push(kind, *part, now=self.now)
                end.accepted += [(kind, payload) for payload in part[:accepted]]
        except SessionLost as error:
            end.close(error)

    @precondition(are_open)
    @rule(which=ENDS, size=st.integers(0, 300), times=st.integers(1, 12))
    def reply(self, which: int, size: int, times: int) -> None:
        end = self.ends[which]
        for _ in range(times):
            one = (int(RecordKind.RETURN), self.payload(RecordKind.RETURN, size))
            end.core.sender.reply(*one)
            end.deferred.append(one)
            end.move_accepted_responses()

    @precondition(are_open)
    @rule(which=ENDS)
    def ping(self, which: int) -> None:
        end = self.ends[which]
        if end.core.connected:
            end.pings[end.core.begin_ping(TIMES.ping_seconds)] = self.now

    @precondition(are_open)
    @rule(which=ENDS, frames=st.integers(1, 5))
    def send(self, which: int, frames: int) -> None:
        end = self.ends[which]
        sent = end.sent(frames)
        assert not sent or end.core.connected
        is_waiting = end.core.connected and (end.core.session.waiting or end.core.sender.has_unsequenced)
        assert len(sent) == frames or not is_waiting
        self.note_sent(end, sent)

    @precondition(are_open)
    @rule(which=ENDS, frames=st.integers(1, 5))
    def deliver(self, which: int, frames: int) -> None:
        end = self.ends[which]
        for _ in range(min(frames, len(end.inbox)) if end.core.connected else 0):
            data = end.inbox.popleft()
            end.received_frames.append(data)
            self.receive(end, data)

    @precondition(are_open)
    @rule(which=ENDS, index=st.integers(0, 1_000))
    def repeat_an_old_frame(self, which: int, index: int) -> None:
        end = self.ends[which]
        if end.received_frames and end.core.connected:
            before = len(end.arrived)
            self.receive(end, end.received_frames[index % len(end.received_frames)])
            assert len(end.arrived) == before

    def receive(self, end: ModelEnd, data: bytes) -> None:
        frame, session = decode(data), end.core.session
        received, deferred, before = session.received, list(end.deferred), len(end.arrived)
        flush_requests = end.end.flush_requests
        end.end.receive(data, self.now)
        end.heard_at, end.asked_at = self.now, None
        end.move_accepted_responses()
        if deferred != end.deferred or any(kind == RecordKind.PING for kind, _, _ in frame.records):
            assert end.end.flush_requests > flush_requests
        new = session.received - received
        self.repeated += frame.sequenced - new
        self.take_results(end)
        assert len(end.arrived) - before == new

    def take_results(self, end: ModelEnd) -> None:
        """Check the pings that have ended, end those that are late, and add the records that have arrived."""
        for ping in [one for one in end.pings if one.future.done()]:
            end.resolved += 1
            assert ping.result() == self.now - end.pings.pop(ping)
        for ping in [one for one in end.pings if one.remaining_s == 0.0]:
            end.resolved += 1
            assert self.now >= end.pings.pop(ping) + TIMES.ping_seconds
            with pytest.raises(WaitTimeout):
                ping.result()
        for kind, content in end.end.new():
            self.check_order(end, kind, content)
            end.arrived += content if kind == RecordKind.MESSAGE else [(kind, content)]

    def check_order(self, end: ModelEnd, kind: int, payload: Any) -> None:
        """Check that the end of a transfer comes after all messages that were pushed before it."""
        if kind == RecordKind.TRANSFER_FINISHED:
            accepted = self.ends[1 - self.ends.index(end)].accepted
            before = accepted[: accepted.index((kind, payload))]
            assert len(messages(end.arrived)) >= len(messages(before))

    @precondition(are_open)
    @rule(which=ENDS)
    def detach_one_end(self, which: int) -> None:
        self.ends[which].core.detach(self.now)

    @precondition(are_open)
    @rule(stale=st.integers(0, 3))
    def reattach(self, stale: int) -> None:
        """Attach a new link to both ends. One end learns the peer's count as of ``stale`` records ago."""
        for end in self.ends:
            end.core.detach(self.now)
            end.inbox.clear()
        one, other = self.ends
        stale_count = max(one.core.session.acknowledged, other.core.session.received - stale)
        for end, peer_received in ((one, stale_count), (other, one.core.session.received)):
            try:
                end.end.attach(peer_received, self.now, FRAME)
            except SessionLost as error:
                end.close(error)
                continue
            end.move_accepted_responses()
            assert not end.core.sender.has_unsequenced
            assert end.core.session.waiting == len(end.accepted) - peer_received
            end.silent_since, end.sent_at = None, self.now
            end.heard_at, end.asked_at = self.now, None
            end.acknowledged_limit = end.core.session.received

    @precondition(are_open)
    @rule(which=ENDS, paused=st.booleans())
    def pause_acks(self, which: int, paused: bool) -> None:
        end = self.ends[which]
        if paused and not end.paused:
            end.acknowledged_limit = end.core.session.received
        end.paused = paused
        end.core.hold(paused)

    @precondition(are_open)
    @rule(which=ENDS)
    def refuse_temporarily(self, which: int) -> None:
        sender = self.ends[which].core.sender
        sender.refuse(EndedError("not now", remedy="Connect"))
        with pytest.raises(EndedError, match="not now"):
            sender.push(RecordKind.MESSAGE, b"never", self.now)
        sender.refuse(None)

    @rule(seconds=st.sampled_from([0.1, 0.2, 0.6, 0.6, 3.0, 5.0, 16.0, 20.0]), connected=st.booleans())
    def wait(self, seconds: float, connected: bool) -> None:
        for end in self.ends:
            due = end.core.deadline()
            early = due is None or due > self.now
            if end.open and early and end.silent_since is None and cost(end.deferred) <= LIMITS.buffer_bytes:
                asks = end.core.sender.has_unsequenced or end.core.session.ack_due(self.now)
                sent, silent_s = self.ticked(end, connected=True)
                assert silent_s is None
                assert not sent or asks
        self.advance(seconds)
        for end in self.ends:
            self.tick(end, connected)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            end.end.now = self.now

    def ticked(self, end: ModelEnd, *, connected: bool) -> tuple[list[bytes], float | None]:
        """Do what is due, and return the frames that were sent, and how long the link was silent."""
        end.end.link.budget = math.inf
        try:
            silent_s = end.end.tick(self.now, connected=connected)
        finally:
            sent = end.taken_frames()
            self.note_sent(end, sent)
        return sent, silent_s

    def note_sent(self, end: ModelEnd, frames: list[bytes]) -> None:
        if frames:
            end.sent_at = self.now
            self.ends[1 - self.ends.index(end)].inbox += frames

    def tick(self, end: ModelEnd, connected: bool) -> None:
        core, attached = end.core, end.core.connected
        unread = cost(end.deferred) > LIMITS.buffer_bytes
        if attached and end.paused:
            end.heard_at, end.asked_at = self.now, None
        seconds = TIMES.keep_alive_seconds
        is_silent = end.asked_at is not None and self.now >= max(end.asked_at + seconds, end.heard_at + 2 * seconds)
        asks = end.asked_at is None and self.now >= end.heard_at + seconds
        keep_alive = attached and (asks or self.now >= end.sent_at + seconds)
        is_frame_due = attached and (keep_alive or core.session.ack_due(self.now) or core.sender.has_unsequenced)
        silent_since = self.now if end.silent_since is None else end.silent_since
        is_due = core.is_due(self.now)
        try:
            sent, silent_s = self.ticked(end, connected=connected)
        except AeronSparkError as error:
            assert end.open
            assert unread or is_due
            assert unread or not attached
            self.take_results(end)
            end.close(error)
            return
        assert not unread
        if not end.open:
            assert (sent, silent_s) == ([], None)
            return
        self.take_results(end)
        if silent_s is not None or keep_alive:
            assert is_due
        if attached:
            expired = not connected and self.now >= silent_since + TIMES.expiry_seconds
            assert bool(sent) == is_frame_due
            assert silent_s == (TIMES.expiry_seconds if expired else 2 * seconds if is_silent else None)
            end.silent_since = None if connected else silent_since
            end.asked_at = self.now if keep_alive and end.asked_at is None else end.asked_at
            if silent_s is not None:
                core.detach(self.now)

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
            for kinds in (REQUESTS, RESULTS):  # the requests of a frame are begun after its other records
                assert [one for one in arrived if one[0] in kinds] == [one for one in sent if one[0] in kinds]

    @invariant()
    def kept_records_equal_the_model_and_are_bounded(self) -> None:
        for end in self.ends:
            session = end.core.session
            unacknowledged = end.accepted[session.acknowledged :] if end.open else []
            assert session.buffered_bytes == cost(unacknowledged)
            assert session.buffered_bytes <= LIMITS.buffer_bytes
            assert session.pending == len(unacknowledged)
            assert end.core.sender.deferred_bytes == cost(end.deferred)
            assert end.core.unacknowledged_bytes == cost(unacknowledged) + cost(end.deferred)
            assert end.core.usage["pings"] == len(end.pings)

    @invariant()
    def a_paused_end_sends_no_new_acknowledgement(self) -> None:
        for end, peer in (self.ends, self.ends[::-1]):
            if end.paused and end.open and peer.open:
                assert peer.core.session.acknowledged <= end.acknowledged_limit

    @invariant()
    def a_closed_connection_does_nothing(self) -> None:
        for end in self.ends:
            if end.open:
                continue
            core = end.core
            assert not core.session.waiting
            assert core.deadline() is None
            core.sender.reply(RecordKind.RETURN, b"late")
            core.sender.push_unsequenced(RecordKind.PONG, bytes(8))
            assert end.sent(1) == []
            assert core.sender.deferred_bytes == 0
            assert not core.sender.has_unsequenced
            with pytest.raises(AeronSparkError, match=re.escape(str(end.error))):
                core.sender.push(RecordKind.MESSAGE, b"", self.now)
            with pytest.raises(AeronSparkError, match=re.escape(str(end.error))):
                core.begin_ping(1.0)

    def teardown(self) -> None:
        """Over a link without losses, all records arrive and are acknowledged."""
        if not self.are_open():
            return
        for end in self.ends:
            end.paused = False
            end.core.hold(False)
        self.reattach(0)
        for _ in range(40 if self.are_open() else 0):
            self.advance(LIMITS.ack_seconds)
            for which in (0, 1):
                self.send(which, 200)
                self.deliver(1 - which, 200)
        if self.are_open():
            one, other = self.ends
            assert [end.deferred for end in self.ends] == [[], []]
            self.records_arrive_once_and_in_order()
            assert (len(one.arrived), len(other.arrived)) == (len(other.accepted), len(one.accepted))
            assert not any(end.core.unacknowledged_bytes for end in self.ends)


def messages(records: list[Sent]) -> list[Sent]:
    return [record for record in records if record[0] in MESSAGES]


TestTwoConnections = pytest.mark.slow(TwoConnections.TestCase)
TestTwoConnections.settings = settings(stateful_step_count=60)


def run_history(rng: random.Random, steps: int) -> TwoConnections:
    """Run one long history with occasional outages, because hypothesis prefers short ones."""
    world = TwoConnections()
    for _ in range(steps):
        if not world.are_open():
            break
        which, number = rng.randrange(2), rng.randrange(1, 6)
        match rng.choices(range(10), weights=(20, 4, 3, 40, 40, 5, 4, 5, 6, 12))[0]:
            case 0:
                sizes = [rng.randrange(300) for _ in range(number)]
                world.push(which, rng.choice([*MESSAGES, *REQUESTS, *RESULTS]), sizes, one_by_one=rng.random() < 0.5)
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
        world.a_closed_connection_does_nothing()
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
    assert sum(end.resolved for world in worlds for end in world.ends) > 50
