"""Reads captured Aeron frames, and injects other frames into the same Aeron stream."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.net.capture import Capture
from tests.net.namespaces import Namespace

ETHERNET: Final = struct.Struct("!12sH")
IPV4, IPV6, UDP = 0x0800, 0x86DD, 17
EXPERIMENTAL: Final = 0x88B5  # EtherType for local experiments
DATAGRAM: Final = struct.Struct("!HHHH")  # ports, length, checksum
FRAME: Final = struct.Struct("<iBBHiiii")  # length, version, flags, type, term offset, session, stream, term
HEADER_BYTES: Final = 32  # of a data frame
ALIGNMENT: Final = 32
DATA: Final = 1


@dataclass(frozen=True)
class CapturedFrame:
    """A captured data frame, the only one in its packet."""

    headers: bytes  # of Ethernet, IP and UDP
    port_from: int
    port_to: int
    session: int
    stream: int
    term: int
    offset: int
    frame: bytes

    @property
    def payload(self) -> bytes:
        """The payload; empty for a heartbeat."""
        return self.frame[HEADER_BYTES:]

    @property
    def padded(self) -> bytes:
        """The frame with its padding, as it is sent."""
        return self.frame.ljust(aligned(len(self.frame)), b"\0")

    @property
    def end(self) -> int:
        """The term offset after the frame."""
        return self.offset + aligned(len(self.frame))

    def at(self, offset: int) -> CapturedFrame:
        """Return the same frame with another term offset."""
        moved = bytearray(self.frame)
        struct.pack_into("<i", moved, 8, offset)
        return replace(self, offset=offset, frame=bytes(moved))

    def packet(self, like: CapturedFrame) -> bytes:
        """Return the frame as a packet with the headers of ``like``, which has the same length, without a checksum."""
        assert len(like.frame) == len(self.frame)
        return like.headers[:-2] + bytes(2) + self.padded


def aligned(length: int) -> int:
    """Return the length of a frame with its padding."""
    return (length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def frames(capture: Capture, *, port_from: int = 0, port_to: int = 0) -> list[CapturedFrame]:
    """Return the captured data frames, without heartbeats, from or to these ports; 0 means any port."""
    found = (one for packet in capture.packets.copy() if (one := _captured_frame(packet)) is not None)
    return [one for one in found if port_from in {0, one.port_from} and port_to in {0, one.port_to}]


def newest(capture: Capture) -> Iterator[CapturedFrame]:
    """Yield the captured data frames, without heartbeats, from the newest to the oldest; later frames are ignored."""
    packets = capture.packets  # the capture only appends
    for at in reversed(range(len(packets))):
        if (one := _captured_frame(packets[at])) is not None:
            yield one


def ether(headers: bytes, mark: bytes) -> bytes:
    """Return a packet between the devices of these headers that only a capture sees."""
    return headers[:12] + EXPERIMENTAL.to_bytes(2, "big") + mark.rjust(46, b"\0")


def inject(namespace: Namespace, device: str, *packets: bytes) -> None:
    """Send complete packets from a device of a namespace, with any source address."""

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as opened:
            opened.bind((device, 0))
            for packet in packets:
                opened.send(packet)

    namespace.run(send)


def _captured_frame(packet: bytes) -> CapturedFrame | None:
    at = _datagram(packet)
    if at is None:
        return None
    port_from, port_to, _, _ = DATAGRAM.unpack_from(packet, at)
    headers, frame = packet[: at + DATAGRAM.size], packet[at + DATAGRAM.size :]
    if len(frame) < HEADER_BYTES:
        return None
    length, _, _, kind, offset, session, stream, term = FRAME.unpack_from(frame)
    if kind != DATA or length <= HEADER_BYTES or aligned(length) != len(frame):
        return None
    return CapturedFrame(headers, port_from, port_to, session, stream, term, offset, frame[:length])


def _datagram(packet: bytes) -> int | None:
    """Return the offset of the UDP header, or None."""
    _, kind = ETHERNET.unpack_from(packet)
    if kind == IPV4 and packet[ETHERNET.size + 9] == UDP:
        return ETHERNET.size + 4 * (packet[ETHERNET.size] & 15)
    if kind == IPV6 and packet[ETHERNET.size + 6] == UDP:
        return ETHERNET.size + 40
    return None
