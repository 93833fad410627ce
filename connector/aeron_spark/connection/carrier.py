"""What carries a connection: its session over one duologue after another, sent and received.

``lock`` guards what is pure (session, calls, objects, streams, pings) and is never held while Aeron or a listener runs;
``_sending`` is held by whoever seals and offers. Who pushes also sends, so that no thread has to be woken for it; what
Aeron does not take at once, the agent offers again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from aeron_spark.connection.link import OFFER_TIMEOUT_S, LinkEnds
from aeron_spark.errors import AeronSparkError, EndedError, RefusedError, WaitTimeout
from aeron_spark.protocol.frames import Buffer, OutgoingRecord, Record, RecordKind, decode
from aeron_spark.protocol.liveness import Liveness
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session
from aeron_spark.transport.api import OfferResult

NUMBER_BYTES: Final = 8
AWAY_POLL: Final = 0.05  # seconds between two looks of a sender whose peer is away
ROOM_POLL: Final = 0.002  # seconds between two looks of a sender whose peer is slow: an acknowledgement wakes it
UNSEQUENCED_MOST: Final = 4_096  # that wait to be sent; more pongs than that are of no use to anybody
UNSEQUENCED_A_FRAME: Final = 128  # they must fit the smallest frame, 8 KiB
KEEP_SESSION: Final = 1  # first byte of CLOSE
CLOSE_ALL: Final = 0


class Carrier:
    """One end. Thread-safe; ``attend`` asks the agent to call :meth:`flush` until nothing is blocked."""

    def __init__(self, session: Session, label: Callable[[], str], request_flush: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.session = session
        self.link: LinkEnds | None = None
        self.ended: AeronSparkError | None = None
        self._refusing: AeronSparkError | None = None
        self._label = label
        self._request_flush = request_flush
        self._sending = threading.Lock()
        self._unsequenced: deque[OutgoingRecord] = deque()
        self._owed: deque[tuple[int, bytes]] = deque()  # answers there was no room for: no reason to stop reading
        self._owed_bytes = 0

    @property
    def attached(self) -> bool:
        """Whether a duologue carries the session."""
        return self.session.attached

    @property
    def last_result(self) -> OfferResult | None:
        """Why Aeron did not take the last frame that was offered; None if it did."""
        link = self.link
        return None if link is None else link.last_result

    def push(self, kind: int, payload: bytes, end: float) -> None:
        """Push a sequenced record, waiting for room until ``end`` (monotonic seconds), and send what there is."""
        while True:
            with self.lock:
                self.check()
                pushed = self.session.push(kind, payload, time.monotonic())
            self.flush(OFFER_TIMEOUT_S)
            if pushed is Pushed.ACCEPTED:
                return
            self._wait_for_room(end)

    def push_many(self, kind: int, payloads: Sequence[Buffer], end: float) -> None:
        """Push records of one kind, many to a frame."""
        done = 0
        while done < len(payloads):
            with self.lock:
                self.check()
                accepted, pushed = self.session.push_many(kind, payloads[done:], time.monotonic())
            done += accepted
            self.flush(OFFER_TIMEOUT_S)
            if pushed is not Pushed.ACCEPTED:
                self._wait_for_room(end)

    def answer(self, kind: int, payload: bytes) -> None:
        """Push without waiting: what finds no room is owed, and goes out as soon as there is some."""
        with self.lock:
            if self.ended is not None:
                return
            self._owed.append((kind, payload))
            self._owed_bytes += len(payload) + RECORD_COST
            self._pay()
        self.flush()

    def say(self, kind: int, payload: bytes = b"") -> None:
        """Send an unsequenced record; it is lost with its duologue."""
        with self.lock:
            if len(self._unsequenced) < UNSEQUENCED_MOST or kind == RecordKind.CLOSE:
                self._unsequenced.append((kind, 0, payload))
        self.flush()

    def flush(self, patience: float = 0.0) -> None:
        """Send what there is, unless somebody does already: then it sends this, too.

        ``patience`` is how many seconds a frame may wait for room here; none on the agent, which others need.
        """
        while self._sending.acquire(blocking=False):
            try:
                more = self._send_one(patience)
            finally:
                self._sending.release()
            if not more and not self._more_came():
                return

    @property
    def quiet(self) -> bool:
        """Whether Aeron has taken everything that can be sent now."""
        link = self.link
        if link is None:
            return True
        return not (link.blocked or self._unsequenced or self._sending.locked())

    def hold_up(self, held_up: bool) -> None:
        """Acknowledge nothing more, or go on. What the peer acknowledges is read all the same: senders need it."""
        with self.lock:
            self.session.held_up = held_up
        if not held_up:
            self.flush()

    def limit(self, max_record_bytes: int) -> None:
        """The peer takes no longer records than these."""
        with self.lock:
            limits = self.session.limits
            if max_record_bytes < limits.max_record_bytes:
                self.session.limits = replace(limits, max_record_bytes=max_record_bytes)

    def attach(self, link: LinkEnds, peer_received: int, now: float) -> int:
        """Let this duologue carry the session: how many records are sent again. Raises SessionLost if they differ."""
        with self.changed:
            self.session.detach(now)
            self._refusing = None
            again = self.session.attach(peer_received, now)
            self.link = link
            self._unsequenced.clear()
            self._pay()
            self.changed.notify_all()
        return again

    def close_link(self, link: LinkEnds) -> None:
        """Close a way out, once nobody offers on it; offers do not wait for long."""
        with self._sending:
            link.close()

    def detach(self, now: float) -> LinkEnds | None:
        """The duologue is gone; return it."""
        with self.changed:
            link, self.link = self.link, None
            self.session.detach(now)
            self.changed.notify_all()
        return link

    def arrived(self, link: LinkEnds, payload: memoryview, now: float) -> list[Record]:
        """Open one frame of the current duologue: its new records, in order.

        Raises TamperedError or DataFormatError, and changes nothing, for one that the peer cannot have sent.
        """
        frame = decode(link.opening.open(payload))
        with self.changed:
            before = self.session.acknowledged
            records = self.session.receive(frame, now)
            if self.session.acknowledged != before:
                self._pay()
                self.changed.notify_all()
            due = self.session.ack_due(now)
        if due or self._owed:
            self.flush()
        return records

    def tick(self, now: float) -> Liveness | None:
        """Look after the time: acknowledgements, keep-alive, expiry. None while no duologue is there.

        Raises the session's error once it has waited for too long.
        """
        link = self.link
        with self.lock:
            if self._owed_bytes > self.session.limits.buffer_bytes:
                raise RefusedError(
                    f"{self._label()} asks, and does not take the answers", remedy="Read what arrives, or ask less"
                )
            if link is None:
                self.session.check(now)
                return None
            due = self.session.ack_due(now)
        if link.keep_alive.due(now):
            link.keep_alive.sent(now)
            self.say(RecordKind.ACK)
        elif due or link.blocked:
            self.flush()
        return link.expiry.observe(link.connected, now)

    def drain(self, end: float) -> bool:
        """Wait until the peer has everything, or ``end``; whether it has."""
        with self.changed:
            while self.attached and (self.session.pending or self._owed):
                remaining = end - time.monotonic()
                if remaining <= 0:
                    return False
                self.changed.wait(min(remaining, ROOM_POLL))
            return not self.session.pending

    def refuse(self, error: AeronSparkError | None) -> None:
        """Accept nothing more to send, and raise ``error`` instead, until a link is there again; None: accept again.

        What was accepted before is kept for the session.
        """
        with self.changed:
            self._refusing = error
            self.changed.notify_all()

    def end(self, error: AeronSparkError) -> None:
        """It is over for good; whoever waits hears ``error``."""
        with self.changed:
            if self.ended is None:
                self.ended = error
                self.session.close()
            self._owed.clear()
            self._owed_bytes = 0
            self._unsequenced.clear()
            self.changed.notify_all()

    def check(self) -> None:
        """Raise if it is over, or refuses what is to be sent."""
        error = self.ended or self._refusing
        if error is not None:
            # made anew each time: one that is raised again and again collects every traceback
            raise error.with_what(error.what)

    def _pay(self) -> None:
        while self._owed:
            kind, payload = self._owed[0]
            try:
                pushed = self.session.push(kind, payload, time.monotonic())
            except AeronSparkError:  # the session is lost, and the agent is about to say so
                return
            if pushed is not Pushed.ACCEPTED:
                return
            self._owed.popleft()
            self._owed_bytes -= len(payload) + RECORD_COST

    def _wait_for_room(self, end: float) -> None:
        with self.changed:
            self.check()
            remaining = end - time.monotonic()
            if remaining > 0:
                self.changed.wait(min(remaining, ROOM_POLL if self.attached else AWAY_POLL))
                return
        last = self.last_result
        state = "is slower than this sender" if self.attached else "is away"
        raise WaitTimeout(
            f"{self._label()} took no more messages in time: the peer {state}"
            f"{f' ({last.sentence})' if last is not None else ''}",
            remedy="Send later or less, or give it more time",
        )

    def _send_one(self, patience: float) -> bool:
        """Send one frame; whether there may be another that would be taken."""
        link, now = self.link, time.monotonic()
        if link is None:
            return False
        if not link.retry(now, patience):
            self._request_flush()
            return False
        with self.lock:
            if self.link is not link or not self.session.attached:
                return False
            waiting = self._unsequenced
            unsequenced = [waiting.popleft() for _ in range(min(len(waiting), UNSEQUENCED_A_FRAME))]
            plaintext = self.session.take(link.room, now, unsequenced)
        if plaintext is None:
            return False
        if not link.send(plaintext, now, patience):
            self._request_flush()
            return False
        return True

    def _more_came(self) -> bool:
        """Whether somebody left something to send while we held the sending."""
        with self.lock:
            link = self.link
            return (
                link is not None
                and not link.blocked
                and self.session.attached
                and bool(self.session.waiting or self._unsequenced)
            )


def closed_here() -> EndedError:
    """The error of a connection that its own side closed."""
    return EndedError("the connection is closed", remedy="Connect again")
