"""Chooses the packet size of bulk links: the largest MTU that the network carries, without fragments of IP.

Linux knows the MTU of the way to a host: that of its own network device, or less after a router has said so. Nothing
says what a host on the way drops silently. Thus a size is only used after a full packet has arrived; one that did not
is remembered for a while, and a smaller one takes its place.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aeron_spark.process import ProcessLock
from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.transport.channel import FRAME_ALIGNMENT

MAX_PACKET_BYTES: Final = 16_384  # larger ones saved no processor time over loopback

SMALLER_SIZES: Final = (8_192, 1_408, MTU_BYTES)  # of networks with jumbo frames, of Ethernet, and of most tunnels

RETRY_LOST_S: Final = 600.0  # RFC 8899, too, tries a larger size again after ten minutes

IPV4_HEADER_BYTES: Final = 28  # of IP and UDP

IPV6_HEADER_BYTES: Final = 48

FRAME_HEADER_BYTES: Final = 32  # of Aeron


def packet_bytes(network_mtu: int, *, is_ipv6: bool) -> int:
    """Return the Aeron MTU of the largest packet that fits the MTU of a network, both in bytes.

    It is a multiple of 32 from ``MTU_BYTES``, which handshakes need anyway, to ``MAX_PACKET_BYTES``.
    """
    room = network_mtu - (IPV6_HEADER_BYTES if is_ipv6 else IPV4_HEADER_BYTES)
    return max(MTU_BYTES, min(MAX_PACKET_BYTES, room - room % FRAME_ALIGNMENT))


def open_bytes(mtu_bytes: int) -> int:
    """Return the length of the message that fills one packet of this Aeron MTU."""
    return mtu_bytes - FRAME_HEADER_BYTES


def whole_packets(longest_message: int, packet_payload: int) -> int:
    """Return the longest message in bytes that fills its packets: an almost empty one costs as much as a full one.

    If the terms are too short for a full packet, it is ``longest_message``.
    """
    return longest_message - longest_message % packet_payload or longest_message


@dataclass(frozen=True, slots=True)
class NetworkPath:
    """The way of packets from an address of this machine to a host, and the Aeron MTU that fits it, in bytes."""

    source: str
    target: str
    mtu_bytes: int


class PacketSizes:
    """The sizes that did not pass each network path, for all clients of the process. Thread-safe.

    ``now`` is in monotonic seconds.
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._lost: dict[tuple[str, str], tuple[int, float]] = {}  # the smallest lost size, and when it may be retried

    def choose(self, path: NetworkPath, now: float) -> int:
        """Return the Aeron MTU to try next."""
        with self._lock:
            lost, retry_at = self._lost.get((path.source, path.target), (0, 0.0))
        if path.mtu_bytes < lost or now >= retry_at:
            return path.mtu_bytes
        return next((size for size in SMALLER_SIZES if size < lost), MTU_BYTES)

    def add_lost(self, path: NetworkPath, size: int, now: float) -> None:
        """Remember that packets of ``size`` bytes did not arrive."""
        with self._lock:
            key = (path.source, path.target)
            lost, retry_at = self._lost.get(key, (size, 0.0))
            self._lost[key] = (min(lost, size) if now < retry_at else size, now + RETRY_LOST_S)


# of <linux/in.h> and <linux/in6.h>: the known MTU of the way of a connected socket's packets
IP_MTU: Final = 14

IPV6_MTU: Final = 24

ANY_PORT: Final = 9  # a UDP socket that connects sends nothing

NO_DISCOVERY: Final = Path("/proc/sys/net/ipv4/ip_no_pmtu_disc")

WITHOUT_DISCOVERY: Final = ("1", "2")  # values with which routers may cut the packets of a UDP socket into fragments

DEVICES: Final = Path("/sys/class/net")

IS_UP: Final = 1  # IFF_UP of <linux/if.h>


def network_path(host: str) -> NetworkPath | None:
    """Return the network path to a host, by its address or name; None if no way to it is known.

    A name may need a request to a name server. If it has several addresses, the media driver chooses one of them, so
    the result is the path with the smallest packets. Its target is an address.
    """
    try:
        found = socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    paths = [_path_of(family, address) for family, _, _, _, address in found]
    return min((path for path in paths if path is not None), key=lambda path: path.mtu_bytes, default=None)


def _path_of(family: int, address: tuple[Any, ...]) -> NetworkPath | None:
    is_ipv6 = family == socket.AF_INET6
    level, option = (socket.IPPROTO_IPV6, IPV6_MTU) if is_ipv6 else (socket.IPPROTO_IP, IP_MTU)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as unused:
            unused.connect(address)
            mtu = unused.getsockopt(level, option)
            source = str(unused.getsockname()[0])
    except OSError:
        return None
    target = str(address[0])
    is_cut = not is_ipv6 and not ipaddress.ip_address(target).is_loopback and may_be_fragmented()
    return NetworkPath(source, target, MTU_BYTES if is_cut else packet_bytes(mtu, is_ipv6=is_ipv6))


def device_mtus() -> dict[str, int]:
    """Return the MTU of each network device of this machine that is up, in bytes."""
    found = {}
    for device in DEVICES.glob("*"):
        try:
            if int((device / "flags").read_text(), 16) & IS_UP:
                found[device.name] = int((device / "mtu").read_text())
        except (OSError, ValueError):  # it was just removed
            continue
    return found


def may_be_fragmented() -> bool:
    """Whether Linux lets routers cut the IPv4 packets of this machine's UDP sockets into fragments."""
    try:
        return NO_DISCOVERY.read_text().strip() in WITHOUT_DISCOVERY
    except OSError:
        return True
