"""The sending half of a connection: the records that wait, and the frames that carry them over the current link.

The state lock guards the records; no thread has it while Aeron or a listener runs. The thread that encrypts and offers
has the send lock. A thread that pushes a record also sends it, so that no other thread must wake. The event loop
repeats offers that Aeron did not take. Order of the locks: send lock, then state lock.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar, cast

from aeron_spark.endpoint.links import OFFER_TIMEOUT_S, Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.errors import AeronSparkError, ConnectError, WaitTimeout
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD, Buffer, OutgoingRecord, RecordKind, encode_number
from aeron_spark.protocol.liveness import KeepAlive, Times
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session
from aeron_spark.transport.api import OfferResult
from aeron_spark.waiting import fail, resolve

DRAIN_POLL_S: Final = 0.002  # between two checks whether all is acknowledged; an acknowledgement ends the wait
MAX_UNSEQUENCED: Final = 4_096  # waiting records; a peer that sends more pings does not read the pongs
MAX_UNSEQUENCED_PER_FRAME: Final = 128  # records; more wait for the next frame
CONFIRMS: Final = "to confirm that its listeners have returned"
CONFIRM_REMEDY: Final = "Increase the timeout. The message may still be delivered."

T = TypeVar("T")

_NO_RECORDS: Final[tuple[OutgoingRecord, ...]] = ()


class Pending(Generic[T]):
    """A wait for the peer: for room, for a confirmation, for a pong, or for the response to a request.

    ``future`` ends with what arrives, from which ``decode`` makes the result; by default it is the result. ``seconds``
    bound the wait, from now; None: until the connection ends. The error of a longer wait says ``what`` it waited for,
    and has the ``remedy``. If the record still waits for room then, it is not sent, and the error says so. ``forget``
    removes the wait from the table in which the peer's response finds it; that response removes it too.

    A thread calls :meth:`result`. An event loop waits for ``future`` itself, for ``remaining_s``, then calls
    :meth:`take`, and :meth:`cancel` in each case.
    """

    __slots__ = ("_decode", "_end", "_forget", "_sender", "future", "remedy", "seconds", "what")

    def __init__(
        self,
        sender: Sender,
        future: Future[Any],
        seconds: float | None,
        what: str,
        remedy: str = "",
        decode: Callable[[Any], T] | None = None,
        forget: Callable[[], object] | None = None,
    ) -> None:
        self.future: Final = future
        self.seconds: Final = seconds
        self.what: Final = what
        self.remedy: Final = remedy
        self._sender: Final = sender
        self._decode: Final = decode
        self._forget: Final = forget
        self._end: Final = None if seconds is None else sender.clock() + seconds

    @property
    def remaining_s(self) -> float | None:
        """The seconds that remain of the wait, at least 0; None: it has no deadline."""
        return None if self._end is None else max(0.0, self._end - self._sender.clock())

    def result(self) -> T:
        """Wait, and return the result, or raise the error. Not for the event loop of the endpoint."""
        try:
            try:
                found = self._sender.loop.wait(self.future, self.remaining_s, self.what)
            except WaitTimeout:
                return self.take()  # raises it, unless the future has ended meanwhile
        except BaseException:
            self.cancel()
            raise
        return cast(T, found) if self._decode is None else self._decode(found)

    def take(self) -> T:
        """Return the result, or raise the error, after the wait: also WaitTimeout if the future is not done."""
        if not self.future.done():
            if self._sender.withdraw(self.future):
                raise self._sender.no_room_error()
            if not self.future.done():
                raise WaitTimeout(f"waited {self.seconds:.3g} s for {self.what}", remedy=self.remedy)
        found = self.future.result()
        return cast(T, found) if self._decode is None else self._decode(found)

    def cancel(self) -> None:
        """Wait no more: a record that still waits for room is not sent. No effect on a wait that has ended."""
        if self._forget is not None:
            self._forget()
        if not self.future.done():
            self._sender.withdraw(self.future)
            self.future.cancel()


class Sender:
    """The sending half of a connection. Thread-safe.

    ``session`` numbers, keeps and repeats the sequenced records. ``state_lock`` guards it, and the records that wait.
    ``progress`` is notified when the peer has acknowledged records, and when the link changes.
    """

    def __init__(
        self, session: Session, times: Times, state_lock: threading.RLock, label: Callable[[], str], loop: Loop
    ) -> None:
        self.progress = loop.condition(state_lock)
        self.link: Link | None = None
        self.error: AeronSparkError | None = None
        """The error of :meth:`close`."""
        self.is_held = False
        """Whether sequenced records wait although the link could take them. Others, and acknowledgements, are sent."""
        self.deferred_bytes = 0
        """Bytes of the deferred responses, including RECORD_COST for each."""
        self.keep_alive = KeepAlive(times.keep_alive_seconds, loop.clock())  # of the link
        self.session = session
        self._times = times
        self.state_lock = state_lock
        self._send_lock = threading.Lock()
        self._label = label
        self.loop = loop
        self.clock = loop.clock
        """Returns monotonic seconds."""
        self._refusal: AeronSparkError | None = None
        self._unsequenced: deque[OutgoingRecord] = deque()
        self._deferred: deque[tuple[int, bytes]] = deque()
        # records of ``begin_push`` that wait for room, in order, and whether their futures wait for that alone
        self._begun: dict[Future[Any], tuple[int, Buffer, bool]] = {}
        self._numbers = itertools.count(1)
        self._unconfirmed: dict[int, Future[None]] = {}  # by the number of the message

    @property
    def last_result(self) -> OfferResult | None:
        """Why Aeron did not take the last frame that was offered; None if it did."""
        link = self.link
        return None if link is None else link.last_result

    @property
    def is_blocked(self) -> bool:
        """Whether a frame waits for Aeron to take it."""
        link = self.link
        return link is not None and link.is_blocked

    @property
    def is_idle(self) -> bool:
        """Whether Aeron has taken all frames but those that are kept for a resume."""
        if self.link is None:
            return True
        return not (self.is_blocked or self._unsequenced or self._send_lock.locked())

    @property
    def has_unsequenced(self) -> bool:
        """Whether records wait that are lost with the link."""
        return bool(self._unsequenced)

    @property
    def awaits_confirmations(self) -> int:
        """Number of messages whose delivery the peer has not confirmed yet."""
        return len(self._unconfirmed)

    @property
    def refuses_records(self) -> bool:
        """Whether :meth:`push` raises the error that ended the connection, or that stopped the client."""
        return self.error is not None or self._refusal is not None

    def check(self) -> None:
        """Raise the error of :meth:`close` or :meth:`refuse`, if records are not accepted."""
        error = self.error or self._refusal
        if error is not None:
            # a copy, because an exception that is raised repeatedly collects every traceback
            raise error.with_what(error.what)

    # Sequenced records.

    def push(self, kind: int, payload: Buffer, end: float) -> None:
        """Push a sequenced record and send it, waiting for room until ``end`` (monotonic seconds).

        Raises WaitTimeout with the result that Aeron gave last, ConnectError without buffering while no link is
        connected, and as :meth:`check` and ``Session.push``.
        """
        waits = self.begin_push(kind, payload, None, OFFER_TIMEOUT_S)
        if waits is not None:
            self.wait_for_room(waits, end - self.clock()).result()

    def push_many(self, kind: int, payloads: Sequence[Buffer], end: float) -> None:
        """Push records of one kind, many to a frame. Waits and raises as :meth:`push`."""
        done = 0
        while done < len(payloads):
            with self.state_lock:
                self.check()
                accepted = 0 if self._begun else self.session.push_many(kind, payloads[done:], self.clock())[0]
            done += accepted
            self.flush(OFFER_TIMEOUT_S)
            if done < len(payloads):
                self.push(kind, payloads[done], end)
                done += 1

    def begin_push(
        self, kind: int, payload: Buffer, future: Future[Any] | None = None, offer_s: float = 0.0
    ) -> Future[Any] | None:
        """Push a sequenced record and send it. Without room it waits, in the order of these calls.

        Returns None if it was accepted at once. A record that waits has ``future``, which fails with the errors of
        :meth:`push` except WaitTimeout; by default a new one, which ends when the record is accepted. The caller may
        :meth:`withdraw` it. Each frame waits up to ``offer_s`` for Aeron to take it.
        """
        with self.state_lock:
            if self.error is not None or self._refusal is not None:
                self.check()
            pushed = Pushed.FULL if self._begun else self.session.push(kind, payload, self.clock())
            if pushed is not Pushed.ACCEPTED:
                waits: Future[Any] = Future() if future is None else future
                if pushed is Pushed.FULL:
                    self._begun[waits] = (kind, payload, future is None)
        self.flush(offer_s)
        if pushed is Pushed.ACCEPTED:
            return None
        if pushed is Pushed.NOT_CONNECTED:
            raise self._not_connected_error()
        return waits

    def wait_for_room(self, future: Future[Any], seconds: float) -> Pending[None]:
        """Return the wait for room of a record of :meth:`begin_push`, ``seconds`` from now at most."""
        return Pending(self, future, seconds, f"room for a message to {self._label()}")

    def withdraw(self, future: Future[Any]) -> bool:
        """Drop the record of a ``begin_push`` if it was not pushed yet; return whether it was dropped."""
        with self.state_lock:
            return self._begun.pop(future, None) is not None

    def push_begun(self) -> bool:
        """Push the records of ``begin_push`` for which there is room; return whether one has ended its wait."""
        if not self._begun:  # read without the lock: a record that is added meanwhile was refused for want of room
            return False
        has_ended = False
        with self.state_lock:  # also while futures end: a record that was not withdrawn has a future that is done
            while self._begun:
                future, (kind, payload, is_for_room) = next(iter(self._begun.items()))
                error: AeronSparkError | None = None
                try:
                    self.check()
                    pushed = self.session.push(kind, payload, self.clock())
                except AeronSparkError as raised:
                    error = raised
                else:
                    if pushed is Pushed.FULL:
                        break
                    error = None if pushed is Pushed.ACCEPTED else self._not_connected_error()
                del self._begun[future]
                has_ended = True
                if error is not None:
                    fail(future, error)
                elif is_for_room:
                    resolve(future, None)
        return has_ended

    def reply(self, kind: int, payload: bytes) -> None:
        """Send a sequenced record without waiting. Without room it is deferred, and the event loop sends it later.

        The endpoint ends a connection for which more than ``buffer_bytes`` are deferred.
        """
        with self.state_lock:
            if self.error is None:
                self._deferred.append((kind, payload))
                self.deferred_bytes += len(payload) + RECORD_COST
                self._push_deferred(self.clock())
        self.flush()

    def make_room(self, now: float) -> bool:
        """Note that the peer has acknowledged records; return whether deferred responses waited for that.

        The caller has the state lock, and calls :meth:`push_begun` and :meth:`flush` without it afterwards.
        """
        self.progress.notify_all()
        had_deferred = bool(self._deferred)
        self._push_deferred(now)
        return had_deferred

    def drain(self, end: float) -> bool:
        """Wait until the peer has received all records, or until ``end`` (monotonic seconds); return whether it has."""
        session = self.session
        with self.progress:
            while session.attached and (session.pending or self._deferred):
                remaining = end - self.clock()
                if remaining <= 0:
                    return False
                self.progress.wait(min(remaining, DRAIN_POLL_S))
            return not session.pending

    # Messages whose sender waits until the peer's listeners have returned.

    def begin_confirmed(self, message: bytes, seconds: float, *, offer_s: float = 0.0) -> Pending[None]:
        """Send an encoded message as :meth:`begin_push` does; return the wait for its confirmation."""
        confirmed: Future[None] = Future()
        with self.state_lock:
            number = next(self._numbers)
            self._unconfirmed[number] = confirmed
        what = f"{self._label()} {CONFIRMS}"
        pending: Pending[None] = Pending(
            self, confirmed, seconds, what, CONFIRM_REMEDY, forget=lambda: self._unconfirmed.pop(number, None)
        )
        try:
            record = encode_number(number) + message
            self.begin_push(RecordKind.MESSAGE_ACK_WANTED, record, confirmed, offer_s)
        except BaseException:
            pending.cancel()
            raise
        return pending

    def confirm(self, number: int, error: AeronSparkError | None = None) -> bool:
        """End the wait for the peer's listeners of a message, or fail it with the error for which the peer refused it.

        Returns whether a thread or a program waited for it.
        """
        with self.state_lock:
            confirmed = self._unconfirmed.pop(number, None)
        if confirmed is None:
            return False
        return resolve(confirmed, None) if error is None else fail(confirmed, error)

    # Frames and links.

    def push_unsequenced(self, kind: int, payload: bytes = b"") -> None:
        """Send a record that is lost with its link."""
        self.queue_unsequenced(kind, payload)
        self.flush()

    def queue_unsequenced(self, kind: int, payload: bytes) -> None:
        """Put a record that is lost with its link into the next frame.

        Drops it if MAX_UNSEQUENCED wait, unless it is a CLOSE.
        """
        with self.state_lock:
            if self.error is None and (len(self._unsequenced) < MAX_UNSEQUENCED or kind == RecordKind.CLOSE):
                self._unsequenced.append((kind, 0, payload))

    def flush(self, timeout_s: float = 0.0) -> None:
        """Send all records that can be sent. If another thread is sending, that thread sends them.

        Each frame waits up to ``timeout_s`` for room. Use 0 on the event loop.
        """
        while self._send_lock.acquire(blocking=False):
            link = self.link
            try:
                if link is not None and not self._send_frame(link, timeout_s):
                    self.loop.request_flush(self.flush)
            finally:
                self._send_lock.release()
            if not self._has_more(link):
                return

    def hold(self, is_held: bool) -> None:
        """Let sequenced records wait for now; or send them again."""
        self.is_held = is_held
        if not is_held:
            self.flush()

    def attach(self, link: Link, peer_received: int, now: float) -> None:
        """Let this link carry the session; the peer has received all records below ``peer_received``.

        Records of the link before that the peer has not received are sent again; unsequenced ones are lost. Raises
        SessionLost if the states of the two ends do not match, or if a record is too long for the new link.
        """
        session = self.session
        with self.progress:
            if link.max_record_bytes < session.limits.max_record_bytes:  # a later link never raises the limit
                session.limits = replace(session.limits, max_record_bytes=link.max_record_bytes)
            session.detach(now)
            self._refusal = None
            session.attach(peer_received, now)
            session.check_length(max((len(payload) for _, payload in self._deferred), default=0))
            self._unsequenced.clear()
            self.keep_alive = KeepAlive(self._times.keep_alive_seconds, now)
            self._push_deferred(now)
            self.link = link
            self.progress.notify_all()
        self.push_begun()

    def detach(self, now: float) -> None:
        """Stop sending over the link, which its owner closes. Unacknowledged records wait for the next one.

        Repeated calls do nothing.
        """
        with self.progress:
            self.link = None
            self.session.detach(now)
            self.progress.notify_all()
        self.push_begun()

    def close_link(self, link: Link) -> None:
        """Close a link's publication when no thread offers on it; offers do not wait for long."""
        with self._send_lock:
            link.close()

    def refuse(self, error: AeronSparkError | None) -> None:
        """Raise ``error`` in threads that send, until a link is attached; None: accept again.

        The records that were accepted before stay.
        """
        with self.progress:
            self._refusal = error
            self.progress.notify_all()
        self.push_begun()

    def close(self, error: AeronSparkError) -> list[OutgoingRecord]:
        """End the connection for good: threads that wait for room or a confirmation raise ``error``.

        Returns the records that the peer has not acknowledged, in order. Only the first call sets the error and returns
        records.
        """
        with self.progress:
            if self.error is None:
                self.error = error
                self.session.close()
            self._deferred.clear()
            self.deferred_bytes = 0
            self._unsequenced.clear()
            unconfirmed, self._unconfirmed = self._unconfirmed, {}
            unacknowledged = self.session.take_unconfirmed()
            self.progress.notify_all()
        self.push_begun()
        for confirmed in unconfirmed.values():
            fail(confirmed, error)
        return unacknowledged

    def no_room_error(self) -> WaitTimeout:
        """Return the error of a sender whose record was not accepted in time."""
        last = self.last_result
        cause = "the peer is slower than this sender" if self.session.attached else "the peer is not connected"
        return WaitTimeout(
            f"{self._label()} did not accept a message before the timeout: {cause}"
            f"{f' ({last.sentence})' if last is not None else ''}",
            remedy="Send later or less, or increase the timeout.",
        )

    def _not_connected_error(self) -> ConnectError:
        return ConnectError(
            f"{self._label()} is not connected, and option 'buffering' is off",
            remedy="Send again when it has reconnected (on_reconnect), or use buffering=true.",
        )

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
            self.deferred_bytes -= len(payload) + RECORD_COST

    def _send_frame(self, link: Link, timeout_s: float) -> bool:
        """Send a frame with the records that wait; return False if Aeron took it not, or not the one before."""
        now, session = self.clock(), self.session
        if not link.retry(now, timeout_s):
            return False
        with self.state_lock:
            if self.link is not link or not session.attached:
                return True
            room = link.room
            unsequenced = self._take_unsequenced(room) if self._unsequenced else _NO_RECORDS
            plaintext = session.take(room, now, unsequenced, is_held=self.is_held)
            if plaintext is None:
                return True
            self.keep_alive.sent(now)
        return link.send(plaintext, now, timeout_s)

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

    def _has_more(self, used: Link | None) -> bool:
        """Whether more can be sent after a frame on the link ``used``: other threads push records and attach links."""
        with self.state_lock:
            link = self.link
            if link is None or link is not used:
                return link is not None
            return not link.is_blocked and bool(self._unsequenced or (self.session.waiting and not self.is_held))
