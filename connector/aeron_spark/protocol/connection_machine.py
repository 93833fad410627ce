"""The state machine of one connection, without I/O, over successive links until the connection is closed.

Its inputs are decoded frames and the time; its outputs are the plaintext of frames and effects. A :class:`Session`
numbers, keeps and repeats the sequenced records. The machine adds unsequenced records, deferred responses, pings,
keep-alive and the expiry of the link. It does not lock, wait or read a clock: the caller holds the connection's state
lock during each call, and passes ``now`` in monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    EndedError,
    RefusedError,
    decode_error,
    encode_error,
)
from aeron_spark.protocol.frames import (
    FRAME_HEAD,
    RECORD_HEAD,
    Buffer,
    Frame,
    OutgoingRecord,
    Record,
    RecordKind,
)
from aeron_spark.protocol.liveness import (
    FIRST_MEASUREMENT,
    Answers,
    Expiry,
    KeepAlive,
    Liveness,
    Pings,
    RoundTrip,
    Times,
)
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session, SessionLimits
from aeron_spark.protocol.transfers import decode_failed

NUMBER_BYTES: Final = 8  # of a ping, and of a message whose delivery is confirmed
MAX_UNSEQUENCED: Final = 4_096  # waiting records; a peer that sends more pings does not read the pongs
MAX_UNSEQUENCED_PER_FRAME: Final = 128  # records; more wait for the next frame
KEEP_SESSION: Final = 1  # first byte of CLOSE
CLOSE_ALL: Final = 0

# as int: each received record is compared with them
_MESSAGES: Final = frozenset((int(RecordKind.MESSAGE), int(RecordKind.MESSAGE_ACK_WANTED)))
_NO_RECORDS: Final[tuple[OutgoingRecord, ...]] = ()


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver messages to the listeners, after all earlier deliveries have ended."""

    messages: Sequence[Record]


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """Execute a request of the peer. ``kind`` is CALL or OBJECT."""

    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class TakeResponse:
    """End a call with the response of the peer."""

    payload: memoryview


@dataclass(frozen=True, slots=True)
class ConfirmDelivery:
    """Note that the peer has delivered the message with this number to its listeners."""

    number: int


@dataclass(frozen=True, slots=True)
class TakeTransferRecord:
    """Process a record of a transfer that the peer sends."""

    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class MessageRefused:
    """End the wait for the delivery of a message with an error; ``number`` 0 is a message that no thread waits for."""

    number: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class ResolvePing:
    """End a ping. ``round_trip`` is in seconds, or None if no pong arrived in time."""

    number: int
    round_trip: float | None


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """End the connection because the peer has closed it. ``keep_session``: the peer keeps its session.

    ``error`` is the reason that the peer gave, or None.
    """

    keep_session: bool
    error: AeronSparkError | None = None


@dataclass(frozen=True, slots=True)
class TransferRefused:
    """End the request that a transfer carried, because the peer refused it after it was sent; else report ``error``."""

    number: int
    error: RefusedError


@dataclass(frozen=True, slots=True)
class Report:
    """Report an error of one record to the error listeners."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a frame, although no caller has pushed a record."""


@dataclass(frozen=True, slots=True)
class LinkExpired:
    """Close the link: it was silent for ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class EndConnection:
    """Close the connection with this error."""

    error: AeronSparkError


Effect = (
    Deliver | TakeRequest | TakeResponse | ConfirmDelivery | MessageRefused | TakeTransferRecord | TransferRefused
    | ResolvePing | PeerClosed | Report | SendFrame | LinkExpired | EndConnection
)  # fmt: skip
Effects = tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """The consequences of one received frame.

    ``effects`` are in the order of the frame's records. ``frame_due``: a frame can or must be sent now. ``made_room``:
    the peer has acknowledged records, so waiting senders can push again.
    """

    effects: Effects
    frame_due: bool
    made_room: bool


class ConnectionMachine:
    """One end of a connection. Starts without a link at ``now``.

    After :meth:`close` the machine keeps no records and returns no effects; methods that accept records raise the error
    that was passed to ``close``.
    """

    def __init__(self, limits: SessionLimits, times: Times, now: float) -> None:
        self.session = Session(limits, now)
        self.error: AeronSparkError | None = None  # passed to close
        self._times = times
        self._refusal: AeronSparkError | None = None
        self._unsequenced: deque[OutgoingRecord] = deque()
        self._deferred: deque[tuple[int, bytes]] = deque()
        self._deferred_bytes = 0  # including RECORD_COST for each
        self._next_transfer = 1
        self._transfers: dict[int, RefusedError | None] = {}  # outgoing transfers, with the peer's refusal
        self._pings = Pings(times.ping_seconds)
        self._round_trip = RoundTrip(times.keep_alive_seconds, now) if times.measures_round_trip else None
        self._keep_alive = KeepAlive(times.keep_alive_seconds, now)  # of the link, like _expiry
        self._expiry = Expiry(times.setup_seconds, times.expiry_seconds, now)
        self._answers = Answers(times.keep_alive_seconds, now)

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
        """Whether unsequenced records wait; they are lost with the link."""
        return bool(self._unsequenced)

    @property
    def unacknowledged(self) -> bool:
        """Whether records are unacknowledged or responses are deferred."""
        return bool(self.session.pending or self._deferred)

    @property
    def deferred_bytes(self) -> int:
        """Bytes of the deferred responses, including RECORD_COST for each."""
        return self._deferred_bytes

    @property
    def pings(self) -> int:
        """Number of pings that wait for their pongs."""
        return self._pings.pending

    @property
    def ping_deadline(self) -> float | None:
        """When the first of these pings expires, in monotonic seconds; None without a ping."""
        return self._pings.deadline()

    @property
    def round_trip(self) -> float | None:
        """The last measured round trip in seconds; None before the first measurement, or if it is not measured."""
        return None if self._round_trip is None else self._round_trip.seconds

    @property
    def refuses_records(self) -> bool:
        """Whether :meth:`push` raises the error that ended the connection, or that stopped the client."""
        return self.error is not None or self._refusal is not None

    def check(self) -> None:
        """Raise the error of :meth:`close` or :meth:`refuse`, if the machine does not accept records."""
        error = self.error or self._refusal
        if error is not None:
            # a copy, because an exception that is raised repeatedly collects every traceback
            raise error.with_what(error.what)

    def push(self, kind: int, payload: Buffer, now: float) -> Pushed:
        """Accept a sequenced record if the buffer has room. Raises like :meth:`check` and ``Session.push``."""
        if self.refuses_records:
            self.check()
        return self.session.push(kind, payload, now)

    def push_many(self, kind: int, payloads: Sequence[Buffer], now: float) -> tuple[int, Pushed]:
        """Accept as many records as fit. Returns their number, and the result for the next, or the last, record."""
        if self.refuses_records:
            self.check()
        return self.session.push_many(kind, payloads, now)

    def push_unsequenced(self, kind: int, payload: bytes = b"") -> None:
        """Queue a record that is lost with its link. Drops it if MAX_UNSEQUENCED wait, unless it is a CLOSE."""
        if self.error is None and (len(self._unsequenced) < MAX_UNSEQUENCED or kind == RecordKind.CLOSE):
            self._unsequenced.append((kind, 0, payload))

    def reply(self, kind: int, payload: bytes, now: float) -> None:
        """Accept a sequenced record, or defer it while the buffer has no room. The caller can continue to receive.

        :meth:`tick` ends the connection if more than ``buffer_bytes`` are deferred.
        """
        if self.error is not None:
            return
        self._deferred.append((kind, payload))
        self._deferred_bytes += len(payload) + RECORD_COST
        self._push_deferred(now)

    def start_ping(self, seconds: float, now: float) -> int | None:
        """Queue a ping and return its number, or None while too many wait. It ends with a :class:`ResolvePing`.

        ``seconds`` is the longest wait for the pong. Raises like :meth:`check`, and OptionError unless ``seconds`` > 0.
        """
        self.check()
        number = self._pings.start(now, seconds)
        if number is not None:
            self.push_unsequenced(RecordKind.PING, number.to_bytes(NUMBER_BYTES, "big"))
        return number

    def begin_transfer(self) -> int:
        """Return the number of a new outgoing transfer. The caller must call :meth:`end_transfer` in any case."""
        number = self._next_transfer
        self._next_transfer += 1
        self._transfers[number] = None
        return number

    def check_transfer(self, number: int) -> None:
        """Raise RefusedError if the peer has refused the transfer."""
        refusal = self._transfers.get(number)
        if refusal is not None:
            raise refusal

    def end_transfer(self, number: int) -> RefusedError | None:
        """Note that a transfer is no longer being sent; return the peer's refusal. A later one is an effect."""
        return self._transfers.pop(number, None)

    def take(self, room: int, now: float, *, is_held: bool = False) -> list[Buffer] | None:
        """Return the plaintext of the next frame, at most ``room`` bytes, or None if no record waits.

        ``is_held``: sequenced records wait; only unsequenced ones and acknowledgements are sent.
        The records count as sent: the caller must offer the frame until Aeron accepts it, or detach the link. Raises
        OptionError if ``room`` is too small for the next record.
        """
        session = self.session
        if not session.attached:
            return None
        unsequenced = self._take_unsequenced(room) if self._unsequenced else _NO_RECORDS
        plaintext = session.take(room, now, unsequenced, is_held=is_held)
        if plaintext is not None:
            self._keep_alive.sent(now)
        return plaintext

    def _take_unsequenced(self, room: int) -> Sequence[OutgoingRecord]:
        """Remove and return the waiting unsequenced records that fit into a frame: the peer chose its size."""
        waiting, taken = self._unsequenced, list[OutgoingRecord]()
        left = room - FRAME_HEAD.size
        while waiting and len(taken) < MAX_UNSEQUENCED_PER_FRAME:
            kind, flags, payload = waiting[0]
            if not taken and len(payload) > left - RECORD_HEAD.size and kind == RecordKind.CLOSE:
                payload = payload[:1]  # without its error
            left -= RECORD_HEAD.size + len(payload)
            if taken and left < 0:
                break
            waiting.popleft()
            taken.append((kind, flags, payload))
        return taken

    def receive(self, frame: Frame, now: float) -> Received:
        """Process a frame of the peer.

        Raises DataFormatError, and changes no state, if the frame contradicts the session; UsageError while detached;
        the session's error after the session has ended.
        """
        session = self.session
        before = session.acknowledged
        records = session.receive(frame, now)
        self._answers.heard(now)
        made_room = session.acknowledged != before
        frame_due = bool(made_room and self._deferred)
        if frame_due:
            self._push_deferred(now)
        if records and {kind for kind, _, _ in records} <= _MESSAGES:
            effects: Effects = (Deliver(records),)
        else:
            effects = tuple(self._effects_of(records, now))
        return Received(effects, frame_due or bool(self._unsequenced) or session.ack_due(now), made_room)

    def attach(self, peer_received: int, now: float) -> int:
        """Attach a new link. The peer has received all records below ``peer_received``.

        Returns the number of records that are sent again. Raises SessionLost if ``peer_received`` contradicts the
        session.
        """
        self.session.detach(now)
        self._refusal = None
        repeated = self.session.attach(peer_received, now)
        self.session.check_length(max((len(payload) for _, payload in self._deferred), default=0))
        self._unsequenced.clear()
        self._keep_alive = KeepAlive(self._times.keep_alive_seconds, now)
        self._expiry = Expiry(self._times.setup_seconds, self._times.expiry_seconds, now)
        self._expiry.observe(True, now)
        self._answers = Answers(self._times.keep_alive_seconds, now)
        if self._round_trip is not None:
            self._round_trip.attached(now)
        self._push_deferred(now)
        return repeated

    def detach(self, now: float) -> None:
        """Detach the link. Its unacknowledged records wait for the next link. Idempotent."""
        self.session.detach(now)

    def pause_acks(self, paused: bool) -> None:
        """Stop or resume acknowledging. The machine still receives frames, because they acknowledge our records."""
        self.session.acks_paused = paused

    def limit_record(self, max_record_bytes: int) -> None:
        """Lower the limit of a record's payload to ``max_record_bytes`` of the link. Never raises the limit."""
        limits = self.session.limits
        if max_record_bytes < limits.max_record_bytes:
            self.session.limits = replace(limits, max_record_bytes=max_record_bytes)

    def refuse(self, error: AeronSparkError | None) -> None:
        """Raise ``error`` from later pushes until a link is attached; None: accept records again.

        The session keeps the records that it accepted before.
        """
        self._refusal = error

    def close(self, error: AeronSparkError) -> list[OutgoingRecord]:
        """End the connection permanently; return the records that the peer has not acknowledged, in order.

        Only the first call sets the error and returns records.
        """
        if self.error is None:
            self.error = error
            self.session.close()
        self._deferred.clear()
        self._deferred_bytes = 0
        self._unsequenced.clear()
        self._pings.cancel()
        return self.session.take_unconfirmed()

    def tick(self, link_connected: bool, now: float) -> Effects:
        """Return the effects that are due at ``now``: expired pings, a frame, the end of the link or the connection.

        ``link_connected``: whether the publication and the subscription of the link are connected.
        """
        if self.error is not None:
            return ()
        effects: list[Effect] = [ResolvePing(number, None) for number in self._pings.expire(now)]
        limit = self.session.limits.buffer_bytes
        if self._deferred_bytes > limit:
            text = f"the peer does not read its responses: {self._deferred_bytes} bytes wait, limit {limit}"
            effects.append(EndConnection(RefusedError(text, remedy="Make the peer read its responses.")))
            return tuple(effects)
        if not self.session.attached:
            try:
                self.session.check(now)
            except AeronSparkError as error:
                effects.append(EndConnection(error))
            return tuple(effects)
        answers = self._answers
        if self.session.acks_paused:  # this end may not read for now, and so hears nothing
            answers.heard(now)
        are_missing = answers.are_missing(now)
        if self._round_trip is not None and self._round_trip.is_due(now):
            self._ask(self._round_trip.start(now), now)
            effects.append(SendFrame())
        elif self._keep_alive.is_due(now) or answers.is_question_due(now):
            self._ask(FIRST_MEASUREMENT, now)
            effects.append(SendFrame())
        elif self.session.ack_due(now):
            effects.append(SendFrame())
        if self._expiry.observe(link_connected, now) is Liveness.EXPIRED:
            effects.append(LinkExpired(self._times.expiry_seconds))
        elif are_missing:
            effects.append(LinkExpired(answers.limit_seconds))
        return tuple(effects)

    def _ask(self, number: int, now: float) -> None:
        """Queue a ping without a caller; its pong, like every frame, says that the peer lives."""
        self.push_unsequenced(RecordKind.PING, number.to_bytes(NUMBER_BYTES, "big"))
        self._keep_alive.sent(now)
        self._answers.asked(now)

    def deadline(self) -> float | None:
        """Return a time before which :meth:`tick` has no effects unless the state changes; None: never."""
        if self.error is not None:
            return None
        session = self.session
        dues = [self._pings.deadline(), None if session.attached and session.acks_paused else session.deadline()]
        if session.attached:
            dues += [self._keep_alive.deadline(), self._expiry.deadline()]
            dues.append(None if session.acks_paused else self._answers.deadline())
            dues.append(None if self._round_trip is None else self._round_trip.deadline())
        return min((due for due in dues if due is not None), default=None)

    def _effects_of(self, records: Sequence[Record], now: float) -> list[Effect]:
        """Return the effects of the records. Messages are one effect, unless a transfer ends between them."""
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
            case RecordKind.REFUSED:
                return _message_refused(payload)
            case RecordKind.TRANSFER_START | RecordKind.TRANSFER_DATA | RecordKind.TRANSFER_FINISHED:
                return TakeTransferRecord(kind, payload)
            case RecordKind.TRANSFER_FAILED:
                return self._transfer_failed(payload)
            case RecordKind.PING:
                self.push_unsequenced(RecordKind.PONG, bytes(payload[:NUMBER_BYTES]))
            case RecordKind.PONG:
                number = _number(payload)
                if number >= FIRST_MEASUREMENT:
                    if self._round_trip is not None:
                        self._round_trip.pong(number, now)
                    return None
                round_trip = self._pings.pong(number, now)
                return None if round_trip is None else ResolvePing(number, round_trip)
            case RecordKind.CLOSE:
                return _peer_closed(payload)
        return None

    def _transfer_failed(self, payload: memoryview) -> Effect | None:
        try:
            failed = decode_failed(payload)
        except DataFormatError as error:
            return Report(error)
        if not failed.by_receiver:
            return TakeTransferRecord(RecordKind.TRANSFER_FAILED, payload)
        if failed.transfer_id not in self._transfers:
            return TransferRefused(failed.transfer_id, failed.error)
        self._transfers[failed.transfer_id] = failed.error
        return None

    def _push_deferred(self, now: float) -> None:
        while self._deferred:
            kind, payload = self._deferred[0]
            try:
                pushed = self.session.push(kind, payload, now)
            except AeronSparkError:  # the session is lost; the next tick ends the connection
                return
            if pushed is not Pushed.ACCEPTED:
                return
            self._deferred.popleft()
            self._deferred_bytes -= len(payload) + RECORD_COST


def _number(payload: memoryview) -> int:
    return int.from_bytes(payload[:NUMBER_BYTES], "big")


def close_payload(keep_session: bool, error: AeronSparkError | None = None) -> bytes:
    """Return the payload of CLOSE. ``error`` is the reason for the peer."""
    flag = bytes([KEEP_SESSION if keep_session else CLOSE_ALL])
    return flag if error is None else flag + encode_error(error)


def refused_payload(number: int, error: AeronSparkError) -> bytes:
    """Return the payload of REFUSED: the number of a message, 0 if its sender does not wait, and why it is refused."""
    return number.to_bytes(NUMBER_BYTES, "big") + encode_error(error)


def _message_refused(payload: memoryview) -> MessageRefused | Report:
    try:
        return MessageRefused(_number(payload), decode_error(payload[NUMBER_BYTES:]))
    except DataFormatError as error:
        return Report(error)


def _peer_closed(payload: memoryview) -> PeerClosed:
    try:
        error = decode_error(payload[1:]) if len(payload) > 1 else None
    except DataFormatError:  # the connection is closed in any case
        error = None
    return PeerClosed(bytes(payload[:1]) == bytes([KEEP_SESSION]), error)


def closed_error() -> EndedError:
    """Return the error of a connection that this endpoint has closed."""
    return EndedError("the connection is closed", remedy="Connect again.")
