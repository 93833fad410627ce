"""Hostile HELLOs as raw frames from many addresses: ``python -m tests.aeron.secure.flood PORT HELLO COUNT SEED``.

HELLO is a HELLO that was valid once, in hexadecimal.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from aeron_spark.protocol import handshake_packets
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID
from tests.aeron.guard.frames import FrameSender, data, frame_senders, setup

ADDRESSES: Final = 40
BATCH_SESSIONS: Final = 20  # that start together
IMAGE_WAIT_S: Final = 0.05  # for the images of a batch to become available


class RawSessions:
    """Sends handshakes as raw frames from many addresses: a SETUP, then packets as data."""

    def __init__(self, senders: list[FrameSender], rng: random.Random) -> None:
        self.senders = senders
        self.rng = rng
        self.sent = 0

    def send(self, sessions: list[list[bytes]]) -> None:
        for at in range(0, len(sessions), BATCH_SESSIONS):
            started = []
            for packets in sessions[at : at + BATCH_SESSIONS]:
                sender, session = self.rng.choice(self.senders), self.rng.randrange(1, 2**31)
                sender.send(setup(session, HANDSHAKE_STREAM_ID, mtu=1184))
                started.append((sender, session, packets))
            time.sleep(IMAGE_WAIT_S)
            for sender, session, packets in started:
                offset = 0
                for packet in packets:
                    frame = data(session, HANDSHAKE_STREAM_ID, packet, offset=offset)
                    sender.send(frame)
                    offset += len(frame)
                    self.sent += 1


def hostile(hello: bytes, count: int, rng: random.Random) -> list[list[bytes]]:
    """Return HELLOs without a cookie, replayed, truncated, with flipped bits, of other versions, and random bytes."""
    flips = _flips(hello)
    kinds: list[Callable[[], bytes]] = [
        lambda: handshake_packets.encode(
            handshake_packets.HelloPacket(rng.randbytes(len(_key(hello))), rng.randbytes(32))
        ),
        lambda: hello,
        lambda: hello[: rng.randrange(len(hello))],
        lambda: next(flips),
        lambda: hello[:2] + bytes([rng.randrange(2, 256)]) + hello[3:],
        lambda: rng.randbytes(rng.randrange(1, 1152)),
    ]
    return [[kinds[(number + word) % len(kinds)]() for word in range(2)] for number in range(count // 2)]


def _flips(hello: bytes) -> Iterator[bytes]:
    number = 0
    while True:
        bit = number % (8 * len(hello))
        changed = bytearray(hello)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
        number += 1


def _key(hello: bytes) -> bytes:
    decoded = handshake_packets.decode(hello)
    assert isinstance(decoded, handshake_packets.HelloPacket)
    return decoded.connect_key


def main(port: int, hello: bytes, count: int, seed: int) -> None:
    """Send ``count`` hostile packets."""
    rng = random.Random(seed)
    with frame_senders(ADDRESSES, port) as senders:
        raw_sessions = RawSessions(senders, rng)
        raw_sessions.send(hostile(hello, count, rng))
        assert raw_sessions.sent == count


if __name__ == "__main__":
    main(int(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
