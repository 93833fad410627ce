"""Sends the records of a connection's machine over the connection's current link.

The state lock guards the machine; no thread has it while Aeron or a listener runs. The thread that encrypts and offers
has the send lock. A thread that pushes a record also sends it, so that no other thread must wake. The event loop
repeats offers that Aeron did not take. Order of the locks: send lock, then state lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from aeron_spark.connection.links import OFFER_TIMEOUT_S, Link
from aeron_spark.errors import AeronSparkError, ConnectError, WaitTimeout
from aeron_spark.protocol.connection_machine import ConnectionMachine
from aeron_spark.protocol.frames import Buffer, OutgoingRecord
from aeron_spark.protocol.session import Pushed
from aeron_spark.transport.api import OfferResult
from aeron_spark.waiting import fail, resolve

DISCONNECTED_POLL_S: Final = 0.05  # between two checks of a sender without a link
ROOM_POLL_S: Final = 0.002  # between two checks of a sender without room; an acknowledgement ends the wait


class FrameSender:
    """The sending half of a connection. Thread-safe.

    ``state_lock`` guards ``machine``. ``room`` is notified when the machine may accept more records. ``request_flush``
    has the event loop call :meth:`flush`, and does not block.
    """

    def __init__(
        self, machine: ConnectionMachine, state_lock: threading.RLock, label: Callable[[], str],
        request_flush: Callable[[], None],
    ) -> None:  # fmt: skip
        self.room = threading.Condition(state_lock)
        self.link: Link | None = None
        self.is_held = False
        """Whether sequenced records wait although the link could take them. Others, and acknowledgements, are sent."""
        self._machine = machine
        self._state_lock = state_lock
        self._send_lock = threading.Lock()
        self._label = label
        self._request_flush = request_flush
        self._begun: dict[
            Future[None], tuple[int, bytes]
        ] = {}  # records of ``begin_push`` that wait for room, in order

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
        return not (self.is_blocked or self._machine.has_unsequenced or self._send_lock.locked())

    def push(self, kind: int, payload: bytes, end: float) -> None:
        """Push a sequenced record and send it, waiting for room until ``end`` (monotonic seconds).

        Raises WaitTimeout with the result that Aeron gave last, ConnectError without buffering while no link is
        connected, and as ``ConnectionMachine.push``.
        """
        while True:
            with self._state_lock:
                pushed = self._machine.push(kind, payload, time.monotonic())
            self.flush(OFFER_TIMEOUT_S)
            if pushed is Pushed.ACCEPTED:
                return
            self._wait_for_room(end, pushed)

    def push_many(self, kind: int, payloads: Sequence[Buffer], end: float) -> None:
        """Push records of one kind, many to a frame. Waits and raises as :meth:`push`."""
        done = 0
        while done < len(payloads):
            with self._state_lock:
                accepted, pushed = self._machine.push_many(kind, payloads[done:], time.monotonic())
            done += accepted
            self.flush(OFFER_TIMEOUT_S)
            if pushed is not Pushed.ACCEPTED:
                self._wait_for_room(end, pushed)

    def begin_push(self, kind: int, payload: bytes) -> Future[None]:
        """Push a sequenced record as soon as there is room, and send it; return at once with a future of that.

        The records of these calls are pushed in their order. The future fails with the errors of :meth:`push` but
        WaitTimeout: the caller may :meth:`withdraw` the record instead.
        """
        accepted: Future[None] = Future()
        with self._state_lock:
            self._begun[accepted] = (kind, payload)
        self.push_begun()
        self.flush()
        return accepted

    def withdraw(self, accepted: Future[None]) -> bool:
        """Drop the record of a ``begin_push`` if it was not pushed yet; return whether it was dropped."""
        with self._state_lock:
            return self._begun.pop(accepted, None) is not None

    def push_begun(self) -> bool:
        """Push the records of ``begin_push`` for which there is room, and end their futures; return whether any was.

        The callbacks of the futures run on this thread, without a lock.
        """
        if not self._begun:  # read without the lock: who adds a record calls this afterwards
            return False
        ended: list[tuple[Future[None], AeronSparkError | None]] = []
        with self._state_lock:
            while self._begun:
                accepted, (kind, payload) = next(iter(self._begun.items()))
                error: AeronSparkError | None = None
                try:
                    pushed = self._machine.push(kind, payload, time.monotonic())
                except AeronSparkError as raised:
                    error = raised
                else:
                    if pushed is Pushed.FULL:
                        break
                    error = None if pushed is Pushed.ACCEPTED else self._not_connected_error()
                del self._begun[accepted]
                ended.append((accepted, error))
        for accepted, error in ended:
            if error is None:
                resolve(accepted, None)
            else:
                fail(accepted, error)
        return bool(ended)

    def no_room_error(self) -> WaitTimeout:
        """Return the error of a sender whose record was not accepted in time."""
        last = self.last_result
        cause = "the peer is slower than this sender" if self._machine.attached else "the peer is not connected"
        return WaitTimeout(
            f"{self._label()} did not accept a message before the timeout: {cause}"
            f"{f' ({last.sentence})' if last is not None else ''}",
            remedy="Send later or less, or increase the timeout.",
        )

    def reply(self, kind: int, payload: bytes) -> None:
        """Send a sequenced record without waiting. Without room, the event loop sends it later."""
        with self._state_lock:
            self._machine.reply(kind, payload, time.monotonic())
        self.flush()

    def push_unsequenced(self, kind: int, payload: bytes = b"") -> None:
        """Send a record that is lost with its link."""
        with self._state_lock:
            self._machine.push_unsequenced(kind, payload)
        self.flush()

    def flush(self, timeout_s: float = 0.0) -> None:
        """Send all records that can be sent. If another thread is sending, that thread sends them.

        Each frame waits up to ``timeout_s`` for room. Use 0 on the event loop.
        """
        while self._send_lock.acquire(blocking=False):
            link = self.link
            try:
                if link is not None:
                    self._send_frame(link, timeout_s)
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

        Raises SessionLost if the states of the two ends do not match.
        """
        with self.room:
            self._machine.limit_record(link.max_record_bytes)
            self._machine.attach(peer_received, now)
            self.link = link
            self.room.notify_all()
        self.push_begun()

    def detach(self, now: float) -> None:
        """Stop sending over the link, which its owner closes. Repeated calls do nothing."""
        with self.room:
            self.link = None
            self._machine.detach(now)
            self.room.notify_all()
        self.push_begun()

    def close_link(self, link: Link) -> None:
        """Close a link's publication when no thread offers on it; offers do not wait for long."""
        with self._send_lock:
            link.close()

    def refuse(self, error: AeronSparkError | None) -> None:
        """Raise ``error`` in threads that send, until a link is attached; None: accept again."""
        with self.room:
            self._machine.refuse(error)
            self.room.notify_all()
        self.push_begun()

    def close(self, error: AeronSparkError) -> list[OutgoingRecord]:
        """End the connection for good: threads that wait for room raise ``error``.

        Returns the records that the peer has not acknowledged.
        """
        with self.room:
            unconfirmed = self._machine.close(error)
            self.room.notify_all()
        self.push_begun()
        return unconfirmed

    def drain(self, end: float) -> bool:
        """Wait until the peer has received all records, or until ``end`` (monotonic seconds); return whether it has."""
        machine = self._machine
        with self.room:
            while machine.attached and machine.unacknowledged:
                remaining = end - time.monotonic()
                if remaining <= 0:
                    return False
                self.room.wait(min(remaining, ROOM_POLL_S))
            return not machine.session.pending

    def _wait_for_room(self, end: float, pushed: Pushed) -> None:
        machine = self._machine
        if pushed is Pushed.NOT_CONNECTED:
            raise self._not_connected_error()
        with self.room:
            machine.check()
            remaining = end - time.monotonic()
            if remaining > 0:
                self.room.wait(min(remaining, ROOM_POLL_S if machine.attached else DISCONNECTED_POLL_S))
                return
        raise self.no_room_error()

    def _not_connected_error(self) -> ConnectError:
        return ConnectError(
            f"{self._label()} is not connected, and option 'buffering' is off",
            remedy="Send again when it has reconnected (on_reconnect), or use buffering=true.",
        )

    def _send_frame(self, link: Link, timeout_s: float) -> None:
        now = time.monotonic()
        if not link.retry(now, timeout_s):
            self._request_flush()
            return
        with self._state_lock:
            plaintext = self._machine.take(link.room, now, is_held=self.is_held) if self.link is link else None
        if plaintext is not None and not link.send(plaintext, now, timeout_s):
            self._request_flush()

    def _has_more(self, used: Link | None) -> bool:
        """Whether more can be sent after a frame on the link ``used``: other threads push records and attach links."""
        with self._state_lock:
            link = self.link
            if link is None or link is not used:
                return link is not None
            machine = self._machine
            return not link.is_blocked and (machine.has_unsequenced if self.is_held else machine.has_waiting)
