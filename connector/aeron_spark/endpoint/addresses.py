"""Where a packet came from, in the one form that filters, limits and look-ups see.

One host must not look like several: IPv4 mapped into IPv6 is IPv4, a long spelling of an IPv6 address is the short one,
and the zone (``%eth0``), which is a name of our own interface and no part of the peer, is set apart.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import DataFormatError

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
LimitKey = ipaddress.IPv4Address | ipaddress.IPv6Network

IPC_IDENTITY: Final = "aeron:ipc"
IPV6_LIMIT_PREFIX: Final = 64  # bits: whoever has one address of a /64 has all of them
LARGEST_IDENTITY: Final = 100  # characters; the longest zone an interface can have is 15

_IDENTITY: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[!-Z^-~]+)?)\]|(?P<v4>[0-9.]+)):(?P<port>[0-9]{1,5})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class UdpSource:
    """A host and its port. ``address`` has no zone; ``zone`` is empty except for link-local addresses of IPv6."""

    address: IpAddress
    port: int
    zone: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine itself."""
        return self.address.is_loopback

    @property
    def limit_key(self) -> LimitKey:
        """What limits count by."""
        return limit_key(self.address)

    def __str__(self) -> str:
        if isinstance(self.address, ipaddress.IPv4Address):
            return f"{self.address}:{self.port}"
        return f"[{self.address}{'%' if self.zone else ''}{self.zone}]:{self.port}"


@dataclass(frozen=True, slots=True)
class IpcSource:
    """Shared memory of this machine: no address, so nothing that goes by address applies."""

    def __str__(self) -> str:
        return IPC_IDENTITY


Source = UdpSource | IpcSource


def parse_source(identity: str) -> Source:
    """Parse the ``sourceIdentity`` of an Aeron image: ``10.0.0.1:4000``, ``[fe80::1%eth0]:4000`` or ``aeron:ipc``.

    Raises DataFormatError for anything else; a source nobody can tell is let in nowhere.
    """
    if identity == IPC_IDENTITY:
        return IpcSource()
    match = _IDENTITY.fullmatch(identity) if len(identity) <= LARGEST_IDENTITY else None
    try:
        if match is None:
            raise ValueError("not address:port")
        port = int(match["port"])
        if not 0 < port <= 65535:
            raise ValueError("no such port")
        if match["v4"] is not None:
            return UdpSource(ipaddress.IPv4Address(match["v4"]), port)
        address = ipaddress.IPv6Address(match["v6"])
    except ValueError as error:
        raise DataFormatError(
            f"the source {identity[:LARGEST_IDENTITY]!r} of an image is no address: {error}"
        ) from None
    plain = _plain(address)
    return UdpSource(plain, port, (address.scope_id or "") if plain.version == 6 and plain.is_link_local else "")


def canonical_address(text: str) -> IpAddress:
    """Parse an IP address, without a port. Raises ValueError for anything else, names among it."""
    return _plain(ipaddress.ip_address(text))


def same_owner(source: str, owner: str) -> bool:
    """Whether an image from ``source`` (see ``parse_source``) comes from the IP address ``owner``, whatever its port.

    The zone of a link-local address does not count, and IPv4 mapped into IPv6 is IPv4. Without an owner ("") every
    source will do.
    """
    if not owner:
        return True
    try:
        found, wanted = parse_source(source), canonical_address(owner)
    except (DataFormatError, ValueError):
        return False
    return isinstance(found, UdpSource) and found.address == wanted


def limit_key(address: IpAddress) -> LimitKey:
    """Return what limits count an address by: itself for IPv4, its /64 for IPv6."""
    address = _plain(address)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return ipaddress.IPv6Network((int(address) >> IPV6_LIMIT_PREFIX << IPV6_LIMIT_PREFIX, IPV6_LIMIT_PREFIX))


def _plain(address: IpAddress) -> IpAddress:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv6Address(int(address))  # without its zone
