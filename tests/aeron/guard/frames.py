"""Frames of Aeron's protocol, made byte by byte, and sockets that send them from many loopback addresses."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

PAD, DATA, NAK, SM, ERR, SETUP, RTTM = range(7)
BEGIN_END: Final = 0xC0
END_OF_STREAM: Final = 0x20
SEND_SETUP: Final = 0x80
KIB: Final = 1024


def header(length: int, kind: int, flags: int = 0, version: int = 0) -> bytes:
    """Return the first eight bytes of a frame."""
    return struct.pack("<iBBH", length, version, flags, kind)


def setup(
    session: int, stream: int, *, term_length: int = 64 * KIB, mtu: int = 1408, term: int = 7, offset: int = 0
) -> bytes:
    """Return a SETUP frame, which announces a publication."""
    return header(40, SETUP) + struct.pack("<8i", offset, session, stream, term, term, term_length, mtu, 0)


def data(
    session: int, stream: int, value: bytes = b"", *, offset: int = 0, term: int = 7, flags: int = BEGIN_END
) -> bytes:
    """Return a message in one frame, padded to the alignment, as a publication sends it."""
    frame = header(32 + len(value), DATA, flags) + struct.pack("<4iq", offset, session, stream, term, 0) + value
    return frame + bytes(-len(frame) % 32)


def heartbeat(session: int, stream: int, *, offset: int = 0, term: int = 7, flags: int = BEGIN_END) -> bytes:
    """Return a heartbeat; with the flag END_OF_STREAM it ends the publication."""
    return header(0, DATA, flags) + struct.pack("<4iq", offset, session, stream, term, 0)


def status_message(
    session: int, stream: int, receiver: int, *, term: int, offset: int = 0, window: int = 64 * KIB, flags: int = 0
) -> bytes:
    """Return a status message, which has a receiver's position and window."""
    return header(36, SM, flags) + struct.pack("<5iq", session, stream, term, offset, window, receiver)


class FrameSender:
    """A UDP socket on a separate address; :func:`frame_senders` closes it."""

    def __init__(self, address: str, target: tuple[str, int]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 0))
        self.socket.setblocking(False)
        self.target = target
        self.sent = 0

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def send(self, *frames: bytes) -> None:
        """Send each frame as a datagram, slowly enough for a receive buffer of the default size."""
        for count, frame in enumerate(frames, 1):
            self.sent += self.socket.sendto(frame, self.target)
            if count % 64 == 0:
                time.sleep(0.005)

    def received(self, seconds: float = 0.0) -> list[bytes]:
        """Return the datagrams that arrive within ``seconds``."""
        found: list[bytes] = []
        end = time.monotonic() + seconds
        while True:
            try:
                found.append(self.socket.recv(65536))
            except BlockingIOError:
                if time.monotonic() >= end:
                    return found
                time.sleep(0.01)


@contextmanager
def frame_senders(count: int, port: int, first: int = 2) -> Iterator[list[FrameSender]]:
    """Open sockets on 127.0.0.``first`` and the following addresses, which send to ``port`` of 127.0.0.1."""
    with ExitStack() as stack:
        opened = []
        for index in range(count):
            one = FrameSender(f"127.0.{(first + index) // 250}.{(first + index) % 250 + 1}", ("127.0.0.1", port))
            stack.callback(one.socket.close)
            opened.append(one)
        yield opened
