"""The state of a connection that survives a change of its link: sequence numbers and unacknowledged records.

Rules:
* Sequenced records are numbered from 0 in each direction. The session keeps each record that :meth:`Session.push`
  accepted until the peer acknowledges it. A new link sends them again, from the first one that the peer has not
  received.
* The receiver accepts the record with the next number, drops records that it has, and rejects a gap. Thus accepted
  records arrive once and in order, or the session is lost.
* Acknowledgements are cumulative and never decrease. An acknowledgement of an unsent record violates the protocol.
* A limit in bytes bounds the kept records: at the limit :meth:`Session.push` returns FULL, and the sender waits. A
  limit in time applies while the session has no link: after it the session is lost. Dropping a single record would
  break the order.
* A lost or closed session keeps its unacknowledged records only for :meth:`Session.take_unconfirmed`. Every other later
  call raises its error.

A session does not lock or read a clock: callers hold a lock during each call, and pass ``now`` in monotonic seconds.
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

BUFFER_BYTES: Final = 16 * 1024 * 1024  # at 50 Mbit/s, twice the data that is sent during a reconnect
BUFFER_SECONDS: Final = 120.0  # same as RETENTION_SECONDS
RETENTION_SECONDS: Final = 120.0  # see liveness.py, which checks it against the other times
ACK_BYTES: Final = 256 * 1024  # 1/64 of the buffer, so a sender with a steady flow never waits for an acknowledgement
ACK_SECONDS: Final = 0.02  # longest wait of a sender with a nearly full buffer, in addition to the round trip
MAX_RECORD_BYTES: Final = 1024 * 1024  # of payload; larger messages are transfers in several records
_PUSHED: Final = frozenset(kind for kind in RECORD_KINDS if is_sequenced(kind))
RECORD_COST: Final = 128  # bytes of memory for each kept record, added to its payload


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The configured limits of a session. ``buffer_bytes`` counts RECORD_COST for each record.

    Without ``buffering`` the session accepts no records while it has no link; it still keeps those accepted before.
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
                raise OptionError(
                    f"the session's {name} is {getattr(self, name)}, expected a finite value above 0",
                    remedy=f"Set {name} to a value above 0.",
                )
        if not 0 <= self.ack_seconds < float("inf"):
            raise OptionError(
                f"the session's ack_seconds is {self.ack_seconds}, expected a finite value of 0 or more",
                remedy="Set ack_seconds to 0 or more.",
            )
        needed = self.max_record_bytes + RECORD_COST
        if self.buffer_bytes < needed:
            raise OptionError(
                f"the session's buffer_bytes is {self.buffer_bytes}, but one record needs up to {needed}",
                remedy="Raise buffer_bytes, or lower max_record_bytes.",
            )


class Pushed(Enum):
    """The result of a push. An accepted record is delivered, unless the session is lost."""

    ACCEPTED = "accepted"
    FULL = "full"  # the next acknowledgement can make room
    NOT_CONNECTED = "not connected"  # the session has no link, and buffering is off


class Session:
    """One end of a session. Starts without a link at ``now``; :meth:`attach` gives it a link."""

    def __init__(self, limits: SessionLimits, now: float) -> None:
        self.limits = limits
        self.received = 0  # number of received records: all of the peer's below this number
        self.acknowledged = 0  # number of our records that the peer has acknowledged
        self.buffered_bytes = 0  # of all kept records, including RECORD_COST for each
        self.active_at = now  # when a frame last carried sequenced records, in either direction
        self._sent: deque[tuple[int, list[OutgoingRecord]]] = deque()  # cost and records of each frame of this link
        self._waiting: deque[OutgoingRecord] = deque()
        self._cursor = 0  # number of the first waiting record
        self._sent_count = 0  # number of records that any link has carried
        self.acks_paused = False  # without acknowledgements the peer's buffer fills, and its sender waits
        self._last_ack = 0  # the last acknowledgement that was sent
        self._attached = False
        self._detached_at = now
        self._buffering_since: float | None = None  # time since which the session keeps records without a link
        self._unacked_bytes = 0  # received since our last frame
        self._unacked_since: float | None = None
        self._end: tuple[type[AeronSparkError], str, str] | None = None  # error, text, remedy
        self._unconfirmed: list[OutgoingRecord] = []  # of a session that has ended

    @property
    def attached(self) -> bool:
        """Whether a link carries the session."""
        return self._attached

    @property
    def pending(self) -> int:
        """Number of accepted records that are not acknowledged."""
        return self._next - self.acknowledged

    @property
    def waiting(self) -> int:
        """Number of accepted records that this link has not carried."""
        return len(self._waiting)

    @property
    def _next(self) -> int:
        return self._cursor + len(self._waiting)

    def push(self, kind: int, payload: Buffer, now: float, flags: int = 0) -> Pushed:
        """Accept one sequenced record, if the buffer has room. Copies ``payload`` unless it is ``bytes``.

        Raises OptionError if the record is larger than a frame, and the session's error after it was lost or closed.
        """
        self._check_push(kind, now)
        data = payload if type(payload) is bytes else bytes(payload)
        length = len(data)
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
        self._waiting.append((kind, flags, data))
        return Pushed.ACCEPTED

    def push_many(self, kind: int, payloads: Sequence[Buffer], now: float, flags: int = 0) -> tuple[int, Pushed]:
        """Accept as many records as fit. Returns their number, and the result for the next, or the last, record.

        Faster than one :meth:`push` for each. Raises the same errors, and then accepts none of the records.
        """
        self._check_push(kind, now)
        copies = [payload if type(payload) is bytes else bytes(payload) for payload in payloads]
        lengths = [*map(len, copies)]
        if copies and max(lengths) > self.limits.max_record_bytes:
            raise _too_large(max(lengths), self.limits.max_record_bytes)
        if not self._attached and not self.limits.buffering:
            return 0, Pushed.NOT_CONNECTED
        ends = [*accumulate(lengths, lambda end, length: end + length + RECORD_COST, initial=self.buffered_bytes)]
        accepted = bisect_right(ends, self.limits.buffer_bytes) - 1
        if accepted and not self._attached and self._buffering_since is None:
            self._buffering_since = now
        self.buffered_bytes = ends[accepted]
        self._waiting.extend([(kind, flags, payload) for payload in copies[:accepted]])
        return accepted, Pushed.ACCEPTED if accepted == len(copies) else Pushed.FULL

    def _check_push(self, kind: int, now: float) -> None:
        if self._end is not None or not self._attached:
            self.check(now)
        if kind not in _PUSHED:
            raise OptionError(f"records of kind {kind} are not sequenced", remedy="Pass them to take as unsequenced.")

    def take(
        self, max_bytes: int, now: float, unsequenced: Iterable[OutgoingRecord] = (), *, is_held: bool = False
    ) -> list[Buffer] | None:
        """Return the next frame's plaintext of at most ``max_bytes``, or None if nothing is due.

        ``unsequenced`` records are first in the frame, and must fit. The records count as sent: the caller must offer
        the frame unchanged until Aeron accepts it, or detach the link. A CLOSE overtakes waiting records, so callers
        should pass it only when none wait. ``is_held``: waiting records stay; only ``unsequenced`` ones and
        acknowledgements are due. Raises UsageError while detached.
        """
        self._check_attached("send")
        first, (unsequenced_bytes, records) = self._cursor, _measure(unsequenced)
        room = max_bytes - FRAME_HEAD.size - unsequenced_bytes
        if room < 0 or len(records) > MAX_RECORDS:
            raise OptionError(
                f"a frame of {max_bytes} bytes has no room for {len(records)} unsequenced records",
                remedy="Send fewer of them at a time.",
            )
        sequenced = [] if is_held else self._pack(room, MAX_RECORDS - len(records), alone=not records)
        if sequenced:
            self.active_at = now
        records += sequenced
        if not records:
            if not self.ack_due(now):
                return None
            records = [(RecordKind.ACK, 0, b"")]
        if not self.acks_paused:
            self._last_ack = self.received
            self._unacked_bytes, self._unacked_since = 0, None
        return encode(self._last_ack, first, records)

    def _pack(self, room: int, max_records: int, *, alone: bool) -> list[OutgoingRecord]:
        """Move as many waiting records as fit to the sent records. ``alone``: the frame has no other records."""
        waiting, payload_bytes = self._waiting, 0
        packed: list[OutgoingRecord] = []
        while waiting and len(packed) < max_records:
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
                f"a record of {len(waiting[0][2])} bytes does not fit into a frame",
                remedy=f"Make frames at least {FRAME_HEAD.size + RECORD_HEAD.size} bytes larger than max_record_bytes.",
            )
        return packed

    def receive(self, frame: Frame, now: float) -> list[Record]:
        """Process a frame of the peer, and return its new records in order.

        Raises DataFormatError, and changes no state, for a gap or an acknowledgement of an unsent record; UsageError
        while detached.
        """
        self._check_attached("receive")
        if frame.first > self.received:
            raise _protocol_error(f"record {self.received} is missing before record {frame.first}")
        if frame.ack > self._sent_count:
            raise _protocol_error(f"it acknowledges {frame.ack} records, but {self._sent_count} were sent")
        self._release(frame.ack)
        if not frame.sequenced:
            return frame.records
        self.active_at = now
        # repeated records need an acknowledgement, too: the sender may not know that they arrived
        self._unacked_bytes += sum([len(payload) for _, _, payload in frame.records]) + RECORD_COST * frame.sequenced
        if self._unacked_since is None:
            self._unacked_since = now
        repeated = min(self.received - frame.first, frame.sequenced)
        self.received = max(self.received, frame.first + frame.sequenced)
        return frame.records if not repeated else _without(frame.records, repeated)

    def ack_due(self, now: float) -> bool:
        """Whether a frame must acknowledge received records now. Every frame carries an acknowledgement."""
        if self._unacked_since is None or self.acks_paused:
            return False
        return self._unacked_bytes >= self.limits.ack_bytes or now >= self._unacked_since + self.limits.ack_seconds

    def _release(self, ack: int) -> None:
        while self.acknowledged < ack:
            if self._sent:
                cost, records = self._sent.popleft()
                remaining = records[ack - self.acknowledged :]
                if remaining:
                    remaining_cost = _cost(remaining)
                    self._sent.appendleft((remaining_cost, remaining))
                    cost -= remaining_cost
                self.acknowledged += len(records) - len(remaining)
            else:
                # an earlier link carried the record, and the peer acknowledges it only now
                cost = _cost((self._waiting.popleft(),))
                self.acknowledged += 1
                self._cursor += 1
            self.buffered_bytes -= cost

    def attach(self, peer_received: int, now: float) -> int:
        """Attach a new link whose peer has all records below ``peer_received``. Returns the number to send again.

        Raises SessionLost, and loses the session, if ``peer_received`` contradicts it, or if a kept record is longer
        than the limit, which the new link may have lowered; UsageError while attached.
        """
        self.check(now)
        if self._attached:
            raise UsageError("the session has a link", remedy="Detach that link first.")
        if not self.acknowledged <= peer_received <= self._sent_count:
            raise self.lose(
                f"the peer claims {peer_received} received records, but {self.acknowledged} were acknowledged and"
                f" {self._sent_count} sent"
            )
        self._release(peer_received)
        self.check_length(max((len(payload) for _, _, payload in self._waiting), default=0))
        self._attached = True
        self._buffering_since = None
        return self._sent_count - self.acknowledged

    def check_length(self, length: int) -> None:
        """Raise SessionLost, and lose the session, if an accepted record of this length is longer than the limit."""
        if length > self.limits.max_record_bytes:
            raise self.lose(
                f"a record of {length} bytes waits for the peer, whose new link takes records of "
                f"{self.limits.max_record_bytes} bytes"
            )

    def detach(self, now: float) -> None:
        """Detach the link. The records that it carried unacknowledged wait to be sent again. Idempotent."""
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
        """Return when :meth:`check` would lose the session, or while attached, when an acknowledgement is due."""
        if self._end is not None:
            return None
        if self._attached:
            return None if self._unacked_since is None else self._unacked_since + self.limits.ack_seconds
        retained_until = self._detached_at + self.limits.retention_seconds
        if self._buffering_since is None:
            return retained_until
        return min(retained_until, self._buffering_since + self.limits.buffer_seconds)

    def check(self, now: float) -> None:
        """Raise the session's error if it is lost or closed. Loses a session that was detached for too long."""
        if self._end is not None:
            raise self._error()
        if self._attached:
            return
        if self._buffering_since is not None and now >= self._buffering_since + self.limits.buffer_seconds:
            raise self.lose(f"messages waited {self.limits.buffer_seconds:g} s for a link")
        if now >= self._detached_at + self.limits.retention_seconds:
            raise self.lose(f"it had no link for {self.limits.retention_seconds:g} s")

    def lose(self, reason: str) -> AeronSparkError:
        """End the session as lost, for example because the peer does not know it. Returns the error of later calls."""
        pending = self.pending
        unknown = f"; it is unknown whether {pending} messages arrived" if pending else ""
        return self._finish(
            SessionLost, f"the session is lost: {reason}{unknown}", "Connect again, and repeat important messages."
        )

    def close(self) -> None:
        """End the session, and drop its unacknowledged records."""
        self._finish(EndedError, "the session is closed", "Connect again.")

    def take_unconfirmed(self) -> list[OutgoingRecord]:
        """Return the records that were unacknowledged when the session ended, in order, and forget them.

        The peer may have received some of the first ones.
        """
        taken, self._unconfirmed = self._unconfirmed, []
        return taken

    def _finish(self, error_class: type[AeronSparkError], text: str, remedy: str) -> AeronSparkError:
        if self._end is None:
            self._end = error_class, text, remedy
            self._attached = False
            self._unconfirmed = [*(record for _, records in self._sent for record in records), *self._waiting]
            self._sent.clear()
            self._waiting.clear()
            self.buffered_bytes = 0
            self._cursor = self.acknowledged
            self._buffering_since = self._unacked_since = None
        return self._error()

    def _error(self) -> AeronSparkError:
        # a new object each time, because an exception that is raised repeatedly collects every traceback
        error_class, text, remedy = self._end or (UsageError, "the session has not ended", "")
        return error_class(text, remedy=remedy)

    def _check_attached(self, action: str) -> None:
        if self._end is not None:
            raise self._error()
        if not self._attached:
            raise UsageError(f"a session without a link cannot {action}", remedy="Attach a link.")


def closed_error() -> EndedError:
    """Return the error of a connection that this endpoint has closed."""
    return EndedError("the connection is closed", remedy="Connect again.")


def _measure(records: Iterable[OutgoingRecord]) -> tuple[int, list[OutgoingRecord]]:
    listed = list(records)
    sequenced = [kind for kind, _, _ in listed if is_sequenced(kind)]
    if sequenced:
        raise OptionError(f"records of kind {sequenced[0]} are sequenced", remedy="Push them.")
    return sum(RECORD_HEAD.size + len(payload) for _, _, payload in listed), listed


def _cost(records: Iterable[OutgoingRecord]) -> int:
    return sum(len(payload) + RECORD_COST for _, _, payload in records)


def _without(records: list[Record], repeated: int) -> list[Record]:
    """Return ``records`` without the first ``repeated`` sequenced ones."""
    numbers = [number for number, record in enumerate(records) if is_sequenced(record[0])]
    dropped = set(islice(numbers, repeated))
    return [record for number, record in enumerate(records) if number not in dropped]


def _too_large(length: int, limit: int) -> OptionError:
    return OptionError(
        f"a record has {length} bytes, and the limit of a frame is {limit}", remedy="Send it as a transfer."
    )


def _protocol_error(reason: str) -> DataFormatError:
    return DataFormatError(
        f"a frame violates the endpoint protocol: {reason}", remedy="Use the same release of aeron-spark at both ends."
    )
