"""Floods of a server's data port: ``python -m tests.aeron.secure.attackers PORT RATE HALF_OPEN ADDRESSES``.

One thread sends RATE SETUPs a second with new Aeron session ids, from 40 addresses. Another one begins HALF_OPEN
handshakes a second, and keeps as many of them pending as the server permits: it returns the cookie of each HELLO, and
then sends only heartbeats, from ADDRESSES addresses. The program prints "flooding" after its first second. It ends when
its standard input is closed, and prints the sent and received bytes.
"""

from __future__ import annotations

import base64
import random
import sys
import threading
import time
from typing import Final

from aeron_spark.protocol.handshake_packets import HelloPacket, encode
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, HANDSHAKE_TERM_BYTES, MTU_BYTES
from tests.aeron.guard.frames import ERR, FrameSender, data, frame_senders, heartbeat, setup

ADDRESSES: Final = 40
FIRST_SETUP_ADDRESS: Final = 2
FIRST_HALF_OPEN_ADDRESS: Final = 42
BATCHES_PER_SECOND: Final = 50
PENDING_PER_ADDRESS: Final = 16
HEARTBEAT_INTERVAL_S: Final = 0.5  # the driver frees a silent image of a handshake after 1 s
PENDING_S: Final = 10.0  # the server ends a handshake whose client does not respond
RETRY: Final = b"RETRY "
HELLO_END: Final = 1152
ERROR_TEXT: Final = 40


class Flood:
    """The floods of one process, and their bytes."""

    def __init__(self, port: int, rate: int, rng: random.Random) -> None:
        self.ended = threading.Event()
        self.sent = self.received = 0
        self._port, self._rate, self._rng = port, rate, rng
        self._keys: dict[FrameSender, bytes] = {}  # the last connect key

    def send_setups(self) -> None:
        """Send SETUPs until the end."""
        with frame_senders(ADDRESSES, self._port, FIRST_SETUP_ADDRESS) as senders:
            due = time.monotonic()
            while not self.ended.is_set():
                for _ in range(self._rate // BATCHES_PER_SECOND):
                    frame = setup(self._session(), HANDSHAKE_STREAM_ID, mtu=MTU_BYTES, term_length=HANDSHAKE_TERM_BYTES)
                    self._send(self._rng.choice(senders), frame)
                for sender in senders:
                    self.received += sum(map(len, sender.received()))
                due += 1 / BATCHES_PER_SECOND
                self.ended.wait(max(0.0, due - time.monotonic()))

    def keep_half_open(self, per_second: int, addresses: int) -> None:
        """Begin handshakes and keep them pending until the end."""
        with frame_senders(addresses, self._port, FIRST_HALF_OPEN_ADDRESS) as senders:
            pending: dict[FrameSender, list[tuple[int, float]]] = {sender: [] for sender in senders}
            beaten = due = time.monotonic()
            while not self.ended.wait(max(0.0, due - time.monotonic())):
                now = time.monotonic()
                due += 1 / per_second
                for sender, sessions in pending.items():
                    sessions[:] = [one for one in sessions if now - one[1] < PENDING_S]
                    sessions += [(session, now) for session in self._return_cookies(sender)]
                if now - beaten >= HEARTBEAT_INTERVAL_S:
                    beaten = now
                    for sender, sessions in pending.items():
                        for session, _ in sessions:
                            self._send(sender, heartbeat(session, HANDSHAKE_STREAM_ID, offset=HELLO_END))
                sender = min(pending, key=lambda one: len(pending[one]))
                if len(pending[sender]) < PENDING_PER_ADDRESS:
                    self._send(sender, data(self._session(), HANDSHAKE_STREAM_ID, self._hello(sender)))

    def _return_cookies(self, sender: FrameSender) -> list[int]:
        """Answer each RETRY with the cookie; return the Aeron session ids of these HELLOs."""
        sessions = []
        for frame in sender.received():
            self.received += len(frame)
            _, is_retry, cookie = frame[ERROR_TEXT:].partition(RETRY)
            if frame[6] == ERR and is_retry:
                sessions.append(self._session())
                hello = self._hello(sender, base64.urlsafe_b64decode(cookie + b"="))
                self._send(sender, data(sessions[-1], HANDSHAKE_STREAM_ID, hello))
        return sessions

    def _hello(self, sender: FrameSender, cookie: bytes = b"") -> bytes:
        """Return a HELLO; without a cookie with a new connect key, else with the last one of this sender."""
        if not cookie:
            self._keys[sender] = self._rng.randbytes(16)
        return encode(HelloPacket(self._keys[sender], b"e" * 32, cookie))

    def _session(self) -> int:
        return self._rng.randrange(1, 2**31)

    def _send(self, sender: FrameSender, frame: bytes) -> None:
        sender.send(frame)
        self.sent += len(frame)


def main(port: int, rate: int, half_open: int, addresses: int) -> None:
    """Flood until standard input is closed."""
    flood = Flood(port, rate, random.Random(port))
    threads = [threading.Thread(target=flood.keep_half_open, args=(half_open, addresses))]
    threads += [threading.Thread(target=flood.send_setups)] if rate else []
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    print("flooding", flush=True)
    sys.stdin.read()
    flood.ended.set()
    for thread in threads:
        thread.join()
    print("ended", flood.sent, flood.received, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
