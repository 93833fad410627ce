"""One connection's protocol without I/O: what is sent and received, over one link after another, until it is closed.

Frames and the time go in, plaintext of frames and effects come out. A :class:`Session` numbers, keeps and repeats the
sequenced records; beside it are the records that a link may lose, replies that wait for room, pings, keep-alive and the
expiry of the link. Nothing here locks, waits or reads a clock: the connection's state lock guards each call, and
``now`` is seconds that never go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, EndedError, RefusedError
from aeron_spark.protocol.frames import Buffer, Frame, OutgoingRecord, Record, RecordKind
from aeron_spark.protocol.liveness import Expiry, KeepAlive, Liveness, Pings, Times
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session, SessionLimits
from aeron_spark.protocol.transfers import decode_failed

NUMBER_BYTES: Final = 8  # of a ping, and of a message whose delivery is acknowledged
MAX_UNSEQUENCED: Final = 4_096  # records that wait to be sent; a peer that sends more pings than that reads no pongs
MAX_UNSEQUENCED_PER_FRAME: Final = 128  # they must fit the smallest frame, 8 KiB
KEEP_SESSION: Final = 1  # first byte of CLOSE
CLOSE_ALL: Final = 0

# numbers: each record is compared with them
_MESSAGES: Final = frozenset((int(RecordKind.MESSAGE), int(RecordKind.MESSAGE_ACK_WANTED)))
_NO_RECORDS: Final[tuple[OutgoingRecord, ...]] = ()


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these messages to the listeners, after everything before them."""

    messages: Sequence[Record]


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """The peer calls a method, or asks for an object: ``kind`` is CALL or OBJECT."""

    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class TakeResponse:
    """The peer responds to a call."""

    payload: memoryview


@dataclass(frozen=True, slots=True)
class ConfirmDelivery:
    """The peer's listeners had the message of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class TakeTransferRecord:
    """A record of a transfer of the peer came."""

    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class ResolvePing:
    """A ping has ended: its round trip in seconds, or None where no pong came in time."""

    number: int
    round_trip: float | None


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The peer has closed the connection, and keeps the session or not."""

    keep_session: bool


@dataclass(frozen=True, slots=True)
class Report:
    """An error for the error listeners: of one record, or of a transfer that is no longer being sent."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class SendFrame:
    """A frame is due, although no caller has pushed anything."""


@dataclass(frozen=True, slots=True)
class LinkExpired:
    """The link was silent for longer than its expiry."""


@dataclass(frozen=True, slots=True)
class EndConnection:
    """The connection cannot go on; the caller closes it with this error."""

    error: AeronSparkError


Effect = (
    Deliver | TakeRequest | TakeResponse | ConfirmDelivery | TakeTransferRecord | ResolvePing | PeerClosed | Report
    | SendFrame | LinkExpired | EndConnection
)  # fmt: skip
Effects = tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """The consequences of one frame.

    ``effects`` keep the order of its records. ``frame_due``: a frame can or must be sent now. ``made_room``: the peer
    acknowledged records, so that senders that wait may push again.
    """

    effects: Effects
    frame_due: bool
    made_room: bool


class ConnectionMachine:
    """One end of a connection. It begins detached at ``now``.

    After :meth:`close` it keeps nothing, takes nothing and says nothing; what sends then raises the error of the close.
    """

    def __init__(self, limits: SessionLimits, times: Times, now: float) -> None:
        self.session = Session(limits, now)
        self.error: AeronSparkError | None = None  # of the close
        self._times = times
        self._refusing: AeronSparkError | None = None
        self._unsequenced: deque[OutgoingRecord] = deque()
        self._deferred: deque[tuple[int, bytes]] = deque()
        self._deferred_bytes = 0  # each with its RECORD_COST
        self._next_transfer = 1
        self._transfers: dict[int, str | None] = {}  # that are being sent, with the reason of the peer's refusal
        self._pings = Pings(times.ping_seconds)
        self._keep_alive = KeepAlive(times.keep_alive_seconds, now)  # of the link, as is the next
        self._expiry = Expiry(times.setup_seconds, times.expiry_seconds, now)

    @property
    def attached(self) -> bool:
        """Whether a link carries the session."""
        return self.session.attached

    @property
    def has_waiting(self) -> bool:
        """Whether :meth:`take` has records to send now."""
        return self.session.attached and bool(self.session.waiting or self._unsequenced)

    @property
    def has_unsequenced(self) -> bool:
        """Whether records wait that are lost with the link."""
        return bool(self._unsequenced)

    @property
    def unacknowledged(self) -> bool:
        """Whether the peer may lack records or replies."""
        return bool(self.session.pending or self._deferred)

    @property
    def deferred_bytes(self) -> int:
        """Bytes of the replies that wait for room, each with its RECORD_COST."""
        return self._deferred_bytes

    @property
    def pings(self) -> int:
        """How many pings wait for their pong."""
        return self._pings.pending

    def check(self) -> None:
        """Raise why nothing can be sent: the connection is closed, or refuses for now."""
        error = self.error or self._refusing
        if error is not None:
            # a new one each time: an error that is raised again and again collects every traceback
            raise error.with_what(error.what)

    def push(self, kind: int, payload: Buffer, now: float) -> Pushed:
        """Accept a sequenced record, if there is room. Raises as :meth:`check` and ``Session.push``."""
        if self.error is not None or self._refusing is not None:
            self.check()
        return self.session.push(kind, payload, now)

    def push_many(self, kind: int, payloads: Sequence[Buffer], now: float) -> tuple[int, Pushed]:
        """Accept as many records as there is room for: how many, and what became of the next, or the last."""
        if self.error is not None or self._refusing is not None:
            self.check()
        return self.session.push_many(kind, payloads, now)

    def push_unsequenced(self, kind: int, payload: bytes = b"") -> None:
        """Have a record sent once; it is lost with its link. Too many are dropped, but for CLOSE."""
        if self.error is None and (len(self._unsequenced) < MAX_UNSEQUENCED or kind == RecordKind.CLOSE):
            self._unsequenced.append((kind, 0, payload))

    def reply(self, kind: int, payload: bytes, now: float) -> None:
        """Accept a sequenced record without a bound here; one without room is deferred, and no reason to stop reading.

        :meth:`tick` ends the connection of a peer that leaves more than ``buffer_bytes`` of them unread.
        """
        if self.error is not None:
            return
        self._deferred.append((kind, payload))
        self._deferred_bytes += len(payload) + RECORD_COST
        self._push_deferred(now)

    def start_ping(self, seconds: float, now: float) -> int | None:
        """Have a ping sent, and return its number; None while too many wait. It ends as a :class:`ResolvePing`.

        Raises as :meth:`check`, OptionError for a time that is not above 0.
        """
        self.check()
        number = self._pings.start(now, seconds)
        if number is not None:
            self.push_unsequenced(RecordKind.PING, number.to_bytes(NUMBER_BYTES, "big"))
        return number

    def begin_transfer(self) -> int:
        """Return the number of a transfer that is going to be sent. Call :meth:`end_transfer` in any case."""
        number = self._next_transfer
        self._next_transfer += 1
        self._transfers[number] = None
        return number

    def check_transfer(self, number: int) -> None:
        """Raise RefusedError if the peer has refused the transfer."""
        refusal = self._transfers.get(number)
        if refusal is not None:
            raise _refused_transfer(refusal)

    def end_transfer(self, number: int) -> None:
        """Note that a transfer is sent no longer; a refusal that comes later is reported."""
        self._transfers.pop(number, None)

    def take(self, room: int, now: float) -> list[Buffer] | None:
        """Return the plaintext of the next frame, of at most ``room`` bytes, or None while none is to be sent.

        What is taken counts as sent: offer the frame until it is taken, or detach. Raises OptionError where ``room`` is
        too small for the next record.
        """
        session, waiting = self.session, self._unsequenced
        if not session.attached:
            return None
        unsequenced: Sequence[OutgoingRecord] = _NO_RECORDS
        if waiting:
            unsequenced = [waiting.popleft() for _ in range(min(len(waiting), MAX_UNSEQUENCED_PER_FRAME))]
        plaintext = session.take(room, now, unsequenced)
        if plaintext is not None:
            self._keep_alive.sent(now)
        return plaintext

    def receive(self, frame: Frame, now: float) -> Received:
        """Take a frame of the peer. Raises DataFormatError, and changes nothing, for one that it cannot have sent.

        Raises UsageError while detached, and the session's error once that has ended.
        """
        session = self.session
        before = session.acknowledged
        records = session.receive(frame, now)
        made_room = session.acknowledged != before
        frame_due = bool(made_room and self._deferred)
        if frame_due:
            self._push_deferred(now)
        if records and {kind for kind, _, _ in records} <= _MESSAGES:
            effects: Effects = (Deliver(records),)
        else:
            effects = tuple(self._sorted(records, now))
        return Received(effects, frame_due or bool(self._unsequenced) or session.ack_due(now), made_room)

    def attach(self, peer_received: int, now: float) -> int:
        """Let a new link carry the session; the peer has all records below ``peer_received``.

        Return how many records are sent again. Raises SessionLost where the two ends do not fit each other.
        """
        self.session.detach(now)
        self._refusing = None
        repeated = self.session.attach(peer_received, now)
        self._unsequenced.clear()
        self._keep_alive = KeepAlive(self._times.keep_alive_seconds, now)
        self._expiry = Expiry(self._times.setup_seconds, self._times.expiry_seconds, now)
        self._expiry.observe(True, now)
        self._push_deferred(now)
        return repeated

    def detach(self, now: float) -> None:
        """Note that the link is gone: its unacknowledged records wait for the next one. Again, it does nothing."""
        self.session.detach(now)

    def pause_acks(self, paused: bool) -> None:
        """Acknowledge nothing more, or again. Frames are received all the same: their senders need it."""
        self.session.acks_paused = paused

    def limit_record(self, max_record_bytes: int) -> None:
        """Note that the link takes no longer records than these."""
        limits = self.session.limits
        if max_record_bytes < limits.max_record_bytes:
            self.session.limits = replace(limits, max_record_bytes=max_record_bytes)

    def refuse(self, error: AeronSparkError | None) -> None:
        """Raise ``error`` where something is pushed, until a link is attached; None: accept again.

        What was accepted before is kept for the session.
        """
        self._refusing = error

    def close(self, error: AeronSparkError) -> None:
        """End the connection for good. The first error counts."""
        if self.error is None:
            self.error = error
            self.session.close()
        self._deferred.clear()
        self._deferred_bytes = 0
        self._unsequenced.clear()
        self._pings.cancel()

    def tick(self, link_connected: bool, now: float) -> Effects:
        """Say what the time brings: pings without a pong, frames that are due, the end of the link or of the session.

        ``link_connected``: whether the transport says that both ways of the link are there.
        """
        if self.error is not None:
            return ()
        effects: list[Effect] = [ResolvePing(number, None) for number in self._pings.expire(now)]
        limit = self.session.limits.buffer_bytes
        if self._deferred_bytes > limit:
            what = f"the peer does not read its responses: {self._deferred_bytes} bytes wait, limit {limit}"
            effects.append(EndConnection(RefusedError(what, remedy="Have the peer read what arrives, or call less.")))
            return tuple(effects)
        if not self.session.attached:
            try:
                self.session.check(now)
            except AeronSparkError as error:
                effects.append(EndConnection(error))
            return tuple(effects)
        if self._keep_alive.due(now):
            self._keep_alive.sent(now)
            self.push_unsequenced(RecordKind.ACK)
            effects.append(SendFrame())
        elif self.session.ack_due(now):
            effects.append(SendFrame())
        if self._expiry.observe(link_connected, now) is Liveness.EXPIRED:
            effects.append(LinkExpired())
        return tuple(effects)

    def deadline(self) -> float | None:
        """When :meth:`tick` has something to say next if nothing changes; None: never. It may be earlier."""
        if self.error is not None:
            return None
        session = self.session
        dues = [self._pings.deadline(), None if session.attached and session.acks_paused else session.deadline()]
        if session.attached:
            dues += [self._keep_alive.deadline(), self._expiry.deadline()]
        return min((due for due in dues if due is not None), default=None)

    def _sorted(self, records: Sequence[Record], now: float) -> list[Effect]:
        """Return the effects of the records; only a transfer's end divides messages, which come together otherwise."""
        effects: list[Effect] = []
        messages: list[Record] = []
        for record in records:
            kind, _, payload = record
            if kind in _MESSAGES:
                messages.append(record)
                continue
            if messages and kind == RecordKind.TRANSFER_FINISHED:
                effects.append(Deliver(messages))
                messages = []
            effect = self._effect_of(kind, payload, now)
            if effect is not None:
                effects.append(effect)
        if messages:
            effects.append(Deliver(messages))
        return effects

    def _effect_of(self, kind: int, payload: memoryview, now: float) -> Effect | None:
        match kind:
            case RecordKind.CALL | RecordKind.OBJECT:
                return TakeRequest(kind, payload)
            case RecordKind.RETURN:
                return TakeResponse(payload)
            case RecordKind.DELIVERED:
                return ConfirmDelivery(_number(payload))
            case RecordKind.TRANSFER_START | RecordKind.TRANSFER_DATA | RecordKind.TRANSFER_FINISHED:
                return TakeTransferRecord(kind, payload)
            case RecordKind.TRANSFER_FAILED:
                return self._transfer_failed(payload)
            case RecordKind.PING:
                self.push_unsequenced(RecordKind.PONG, bytes(payload[:NUMBER_BYTES]))
            case RecordKind.PONG:
                number = _number(payload)
                round_trip = self._pings.pong(number, now)
                return None if round_trip is None else ResolvePing(number, round_trip)
            case RecordKind.CLOSE:
                return PeerClosed(bytes(payload[:1]) == bytes([KEEP_SESSION]))
        return None

    def _transfer_failed(self, payload: memoryview) -> Effect | None:
        try:
            failed = decode_failed(payload)
        except DataFormatError as error:
            return Report(error)
        if not failed.by_receiver:
            return TakeTransferRecord(RecordKind.TRANSFER_FAILED, payload)
        if failed.transfer_id not in self._transfers:
            return Report(_refused_transfer(failed.text))
        self._transfers[failed.transfer_id] = failed.text
        return None

    def _push_deferred(self, now: float) -> None:
        while self._deferred:
            kind, payload = self._deferred[0]
            try:
                pushed = self.session.push(kind, payload, now)
            except AeronSparkError:  # the session is lost, and the next tick says so
                return
            if pushed is not Pushed.ACCEPTED:
                return
            self._deferred.popleft()
            self._deferred_bytes -= len(payload) + RECORD_COST


def _number(payload: memoryview) -> int:
    return int.from_bytes(payload[:NUMBER_BYTES], "big")


def _refused_transfer(text: str) -> RefusedError:
    return RefusedError(f"the peer refused the stream: {text}", remedy="Send less, or in parts")


def closed_error() -> EndedError:
    """Return the error of a connection that its own side closed."""
    return EndedError("the connection is closed", remedy="Connect again")
