"""What of a connection survives a change of its duologue: sequence numbers, what is unacknowledged, what was received.

Rules:
* Sequenced records are numbered from 0, each way. What :meth:`Session.push` accepted is kept until it is acknowledged,
  and sent again from the first record the peer lacks when a duologue takes the place of another.
* The receiver takes a record with the number it waits for, drops those it has, and refuses a gap. So what was accepted
  arrives once and in order, or the session is lost; there is nothing between.
* An acknowledgement is cumulative and only grows. One of what was never sent breaks the protocol.
* What waits is bounded in bytes, and while no duologue is there in time. The bound in bytes holds up the sender (a
  value); the bound in time loses the session (an error): dropping one message would break the order of the rest.
* A lost or closed session holds nothing, and says so ever after.

Nothing here locks or looks at a clock: callers hold a lock around each call, and ``now`` is seconds that never go back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, islice
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, OptionError, SessionLost, UsageError
from aeron_spark.protocol.frames import (
    FRAME_HEAD,
    MAX_RECORDS,
    RECORD_HEAD,
    RECORD_KINDS,
    Buffer,
    Frame,
    OutgoingRecord,
    Record,
    RecordKind,
    encode,
    is_sequenced,
)

BUFFER_BYTES: Final = 16 * 1024 * 1024  # a second of a gigabit link, twice over what a reconnect takes at 50 Mbit/s
BUFFER_SECONDS: Final = 120.0  # as long as a session is kept
RETENTION_SECONDS: Final = 120.0  # see liveness.py, which checks it against the other times
ACK_BYTES: Final = 256 * 1024  # a 64th of the buffer: its sender never waits for one while data flows
ACK_SECONDS: Final = 0.02  # what a sender with a nearly full buffer waits at most, beside the round trip
MAX_RECORD_BYTES: Final = 1024 * 1024  # payload; larger ones are streams, cut into chunks above
_PUSHED: Final = frozenset(kind for kind in RECORD_KINDS if is_sequenced(kind))
RECORD_COST: Final = 128  # bytes that a kept record takes here beside its payload: else empty ones were free


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What is configured. ``buffer_bytes`` counts each record with its RECORD_COST.

    Without ``buffering`` nothing new is accepted while nobody is connected; what was accepted is kept all the same.
    """

    buffer_bytes: int = BUFFER_BYTES
    buffer_seconds: float = BUFFER_SECONDS
    retention_seconds: float = RETENTION_SECONDS
    ack_bytes: int = ACK_BYTES
    ack_seconds: float = ACK_SECONDS
    max_record_bytes: int = MAX_RECORD_BYTES
    buffering: bool = True

    def __post_init__(self) -> None:
        for name in ("buffer_seconds", "retention_seconds", "ack_bytes", "max_record_bytes"):
            if not 0 < getattr(self, name) < float("inf"):
                raise OptionError(f"the session's {name} is {getattr(self, name)}", remedy="Make it more than 0")
        if not 0 <= self.ack_seconds < float("inf"):
            raise OptionError(f"the session's ack_seconds is {self.ack_seconds}", remedy="Make it 0 or more")
        needed = self.max_record_bytes + RECORD_COST
        if self.buffer_bytes < needed:
            raise OptionError(
                f"the session's buffer_bytes is {self.buffer_bytes}, but one record takes up to {needed}",
                remedy="Raise buffer_bytes, or lower max_record_bytes",
            )


class Pushed(Enum):
    """What became of a record that was pushed. Only an accepted one is delivered, or its session is lost."""

    ACCEPTED = "accepted"
    FULL = "full"  # try again after an acknowledgement
    NOT_CONNECTED = "not connected"  # no duologue, and buffering is off


class Session:
    """One end's state. It begins detached at ``now``; :meth:`attach` joins it to a duologue."""

    def __init__(self, limits: SessionLimits, now: float) -> None:
        self.limits = limits
        self.received = 0  # all of the peer's sequenced records below this number were received
        self.acknowledged = 0  # all of ours below this number are at the peer
        self.buffered_bytes = 0  # what is kept, each record with its RECORD_COST
        self._sent: deque[tuple[int, list[OutgoingRecord]]] = deque()  # cost and records of each frame of this duologue
        self._waiting: deque[OutgoingRecord] = deque()
        self._cursor = 0  # number of the first waiting record
        self._sent_count = 0  # one more than the highest number any duologue carried
        self.acks_paused = False  # nothing more is acknowledged: the peer's buffer fills, and then its sender waits
        self._last_ack = 0  # the last acknowledgement that went out
        self._attached = False
        self._detached_at = now
        self._buffering_since: float | None = None  # since when something is kept without a duologue
        self._unacked_bytes = 0  # received since the last frame of ours
        self._unacked_since: float | None = None
        self._end: tuple[type[AeronSparkError], str, str] | None = None  # error, text, remedy

    @property
    def attached(self) -> bool:
        """Whether a duologue carries the session now."""
        return self._attached

    @property
    def pending(self) -> int:
        """How many accepted records are not acknowledged yet."""
        return self._next - self.acknowledged

    @property
    def waiting(self) -> int:
        """How many accepted records this duologue has not carried yet."""
        return len(self._waiting)

    @property
    def _next(self) -> int:
        return self._cursor + len(self._waiting)

    def push(self, kind: int, payload: Buffer, now: float, flags: int = 0) -> Pushed:
        """Accept one sequenced record, if there is room. Raises OptionError for one that no frame may hold.

        Raises the session's own error once it is lost or closed. Bytes are kept as they are, other buffers are copied.
        """
        self._check_push(kind, now)
        kept = payload if type(payload) is bytes else bytes(payload)
        length = len(kept)
        if length > self.limits.max_record_bytes:
            raise _too_large(length, self.limits.max_record_bytes)
        if not self._attached and not self.limits.buffering:
            return Pushed.NOT_CONNECTED
        needed = self.buffered_bytes + length + RECORD_COST
        if needed > self.limits.buffer_bytes:
            return Pushed.FULL
        if not self._attached and self._buffering_since is None:
            self._buffering_since = now
        self.buffered_bytes = needed
        self._waiting.append((kind, flags, kept))
        return Pushed.ACCEPTED

    def push_many(self, kind: int, payloads: Sequence[Buffer], now: float, flags: int = 0) -> tuple[int, Pushed]:
        """Accept as many of the records as there is room for: how many, and what became of the next, or the last.

        Faster than :meth:`push` for each. The same errors; none of the records is accepted then.
        """
        self._check_push(kind, now)
        kept = [payload if type(payload) is bytes else bytes(payload) for payload in payloads]
        lengths = [*map(len, kept)]
        if kept and max(lengths) > self.limits.max_record_bytes:
            raise _too_large(max(lengths), self.limits.max_record_bytes)
        if not self._attached and not self.limits.buffering:
            return 0, Pushed.NOT_CONNECTED
        ends = [*accumulate(lengths, lambda end, length: end + length + RECORD_COST, initial=self.buffered_bytes)]
        accepted = bisect_right(ends, self.limits.buffer_bytes) - 1
        if accepted and not self._attached and self._buffering_since is None:
            self._buffering_since = now
        self.buffered_bytes = ends[accepted]
        self._waiting.extend([(kind, flags, payload) for payload in kept[:accepted]])
        return accepted, Pushed.ACCEPTED if accepted == len(kept) else Pushed.FULL

    def _check_push(self, kind: int, now: float) -> None:
        if self._end is not None or not self._attached:
            self.check(now)
        if kind not in _PUSHED:
            raise OptionError(f"records of the kind {kind} are not kept", remedy="Hand them to take as unsequenced")

    def take(self, max_bytes: int, now: float, unsequenced: Iterable[OutgoingRecord] = ()) -> list[Buffer] | None:
        """Return the next frame's plaintext of at most ``max_bytes``, or None while there is nothing to say.

        ``unsequenced`` records go first and must fit. What is taken counts as sent: a frame that Aeron did not take
        must be offered again as it is, or its duologue be detached. CLOSE goes out when nothing waits any more, else it
        overtakes. Raises UsageError while detached.
        """
        self._check_attached("sends nothing")
        first, (unsequenced_bytes, records) = self._cursor, _measured(unsequenced)
        room = max_bytes - FRAME_HEAD.size - unsequenced_bytes
        if room < 0 or len(records) > MAX_RECORDS:
            raise OptionError(
                f"a frame of {max_bytes} bytes has no room for {len(records)} records that are not sequenced",
                remedy="Send fewer of them at a time",
            )
        sequenced = self._pack(room, MAX_RECORDS - len(records), alone=not records)
        records += sequenced
        if not records:
            if not self.ack_due(now):
                return None
            records = [(RecordKind.ACK, 0, b"")]
        if not self.acks_paused:
            self._last_ack = self.received
            self._unacked_bytes, self._unacked_since = 0, None
        return encode(self._last_ack, first, records)

    def _pack(self, room: int, most: int, *, alone: bool) -> list[OutgoingRecord]:
        """Move waiting records to the sent ones, as many as fit."""
        waiting, payload_bytes = self._waiting, 0
        packed: list[OutgoingRecord] = []
        while waiting and len(packed) < most:
            length = len(waiting[0][2])
            room -= RECORD_HEAD.size + length
            if room < 0:
                break
            payload_bytes += length
            packed.append(waiting.popleft())
        if packed:
            self._sent.append((payload_bytes + RECORD_COST * len(packed), packed))
            self._cursor += len(packed)
            self._sent_count = max(self._sent_count, self._cursor)
        elif waiting and alone:
            raise OptionError(
                f"a record of {len(waiting[0][2])} bytes does not fit a frame",
                remedy=f"Make frames at least {FRAME_HEAD.size + RECORD_HEAD.size} bytes larger than max_record_bytes",
            )
        return packed

    def receive(self, frame: Frame, now: float) -> list[Record]:
        """Take the peer's frame: what is new in it, in order. Raises DataFormatError, and changes nothing, for a gap.

        Likewise for an acknowledgement of what was never sent; UsageError while detached.
        """
        self._check_attached("receives nothing")
        if frame.first > self.received:
            raise _broken(f"record {self.received} is missing before record {frame.first}")
        if frame.ack > self._sent_count:
            raise _broken(f"it acknowledges {frame.ack} records, of which {self._sent_count} were sent")
        self._release(frame.ack)
        if not frame.sequenced:
            return frame.records
        # repeated ones want an acknowledgement, too: their sender may not know that they arrived
        self._unacked_bytes += sum([len(payload) for _, _, payload in frame.records]) + RECORD_COST * frame.sequenced
        if self._unacked_since is None:
            self._unacked_since = now
        repeated = min(self.received - frame.first, frame.sequenced)
        self.received = max(self.received, frame.first + frame.sequenced)
        return frame.records if not repeated else _without(frame.records, repeated)

    def ack_due(self, now: float) -> bool:
        """Whether what was received must be acknowledged now. Every frame does; without one :meth:`take` makes one."""
        if self._unacked_since is None or self.acks_paused:
            return False
        return self._unacked_bytes >= self.limits.ack_bytes or now >= self._unacked_since + self.limits.ack_seconds

    def _release(self, ack: int) -> None:
        while self.acknowledged < ack:
            if self._sent:
                cost, records = self._sent.popleft()
                rest = records[ack - self.acknowledged :]
                if rest:
                    rest_cost = _cost(rest)
                    self._sent.appendleft((rest_cost, rest))
                    cost -= rest_cost
                self.acknowledged += len(records) - len(rest)
            else:
                # an earlier duologue carried it, and the peer tells only now that it came
                cost = _cost((self._waiting.popleft(),))
                self.acknowledged += 1
                self._cursor += 1
            self.buffered_bytes -= cost

    def attach(self, peer_received: int, now: float) -> int:
        """Join a new duologue whose peer has all records below ``peer_received``: how many are sent again.

        Raises RefusedError, and loses the session, if the two ends do not fit each other; UsageError while attached.
        """
        self.check(now)
        if self._attached:
            raise UsageError("the session has a duologue", remedy="Detach that one first")
        if not self.acknowledged <= peer_received <= self._sent_count:
            raise self.lose(
                f"the peer has {peer_received} records, but {self.acknowledged} were acknowledged and"
                f" {self._sent_count} sent"
            )
        self._attached = True
        self._buffering_since = None
        self._release(peer_received)
        return self._sent_count - self.acknowledged

    def detach(self, now: float) -> None:
        """The duologue is gone: what it carried without an acknowledgement waits to be sent again. Idempotent."""
        if not self._attached or self._end is not None:
            return
        self._attached = False
        self._detached_at = now
        for _, records in reversed(self._sent):
            self._waiting.extendleft(reversed(records))
        self._sent.clear()
        self._cursor = self.acknowledged
        self._buffering_since = now if self._waiting else None
        self._unacked_bytes, self._unacked_since = 0, None

    def deadline(self) -> float | None:
        """When :meth:`check` loses the session if nothing changes; while attached, when an acknowledgement is due."""
        if self._end is not None:
            return None
        if self._attached:
            return None if self._unacked_since is None else self._unacked_since + self.limits.ack_seconds
        kept_until = self._detached_at + self.limits.retention_seconds
        if self._buffering_since is None:
            return kept_until
        return min(kept_until, self._buffering_since + self.limits.buffer_seconds)

    def check(self, now: float) -> None:
        """Raise the session's error if it is lost or closed, or is lost now because it was detached for too long."""
        if self._end is not None:
            raise self._error()
        if self._attached:
            return
        if self._buffering_since is not None and now >= self._buffering_since + self.limits.buffer_seconds:
            raise self.lose(f"messages waited {self.limits.buffer_seconds:g} s for a connection")
        if now >= self._detached_at + self.limits.retention_seconds:
            raise self.lose(f"nobody was connected for {self.limits.retention_seconds:g} s")

    def lose(self, why: str) -> AeronSparkError:
        """Give up the session, such as when the peer does not know it: the error that every call raises from now on."""
        pending = self.pending
        fate = f"; of {pending} messages nobody can say whether they arrived" if pending else ""
        return self._finish(
            SessionLost, f"the session is lost: {why}{fate}", "Connect anew, and send again what must arrive"
        )

    def close(self) -> None:
        """End the session for good; what was not acknowledged is dropped."""
        self._finish(EndedError, "the session is closed", "Connect again")

    def _finish(self, error: type[AeronSparkError], what: str, remedy: str) -> AeronSparkError:
        if self._end is None:
            self._end = error, what, remedy
            self._attached = False
            self._sent.clear()
            self._waiting.clear()
            self.buffered_bytes = 0
            self._cursor = self.acknowledged
            self._buffering_since = self._unacked_since = None
        return self._error()

    def _error(self) -> AeronSparkError:
        # made anew each time: an exception that is raised again and again collects every traceback
        error, what, remedy = self._end or (UsageError, "the session goes on", "")
        return error(what, remedy=remedy)

    def _check_attached(self, consequence: str) -> None:
        if self._end is not None:
            raise self._error()
        if not self._attached:
            raise UsageError(f"the session has no duologue, and {consequence}", remedy="Attach it to one")


def _measured(records: Iterable[OutgoingRecord]) -> tuple[int, list[OutgoingRecord]]:
    listed = list(records)
    wrong = [kind for kind, _, _ in listed if is_sequenced(kind)]
    if wrong:
        raise OptionError(f"records of the kind {wrong[0]} are sequenced", remedy="Push them")
    return sum(RECORD_HEAD.size + len(payload) for _, _, payload in listed), listed


def _cost(records: Iterable[OutgoingRecord]) -> int:
    return sum(len(payload) + RECORD_COST for _, _, payload in records)


def _without(records: list[Record], repeated: int) -> list[Record]:
    """Leave out the first ``repeated`` sequenced records; the others stay as they are."""
    numbers = [number for number, record in enumerate(records) if is_sequenced(record[0])]
    dropped = set(islice(numbers, repeated))
    return [record for number, record in enumerate(records) if number not in dropped]


def _too_large(length: int, largest: int) -> OptionError:
    return OptionError(
        f"a record of {length} bytes is larger than the {largest} of a frame", remedy="Send it as a stream of chunks"
    )


def _broken(why: str) -> DataFormatError:
    return DataFormatError(
        f"a frame breaks the endpoint's protocol: {why}",
        remedy="The other side breaks the protocol: use the same release of aeron-spark at both ends",
    )
