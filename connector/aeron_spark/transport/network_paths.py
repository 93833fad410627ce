"""Asks Linux for the largest packet that passes to a host."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any, Final

from aeron_spark.transport.api import MTU_BYTES
from aeron_spark.transport.packet_sizes import NetworkPath, packet_bytes

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
