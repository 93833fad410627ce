"""Parses ``host:port`` of Aeron channels into one canonical spelling, without name resolution."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

UNKNOWN_HOST: Final = "the host name"  # begins the text of :func:`unknown_host`

CACHE_SIZE: Final = 1024  # a handshake parses the same few texts a dozen times

_ENDPOINT = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})", re.ASCII)
_NAMED = re.compile(r"(\{[^{}/]+\})(?::[0-9]{1,5})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address and a port; two spellings of one address (``[0::1]``, ``LOCALHOST``) are equal."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Parse ``host:port`` or ``[ipv6]:port``. Raises ValueError with a phrase such as "has the port 70000"."""
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise ValueError("is not host:port, or [address]:port for IPv6")
        port = int(match["port"])
        if port > 65535:
            raise ValueError(f"has the port {port}, above 65535")
        if match["v6"] is None:
            return cls(canonical_host(match["host"]), port)
        address = ip_of(match["v6"])
        if address is None or ":" not in match["v6"]:
            raise ValueError("has no IPv6 address in its brackets")
        return cls(str(address), port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(CACHE_SIZE)
def canonical_host(text: str) -> str:
    """Return the canonical spelling of an address or a host name.

    ``localhost`` becomes 127.0.0.1 (RFC 6761, and Aeron's resolution on Java). IPv4 mapped into IPv6 becomes IPv4, as
    in Java. Raises ValueError for a text that is neither an address nor a name.
    """
    address = ip_of(text)
    if address is not None:
        return str(address)
    name = text.lower().rstrip(".")
    if name == "localhost":
        return "127.0.0.1"
    if re.fullmatch(r"[0-9.]+", name):
        # Java and other drivers read addresses such as 127.1 and 010.0.0.1 differently.
        raise ValueError("has an IPv4 address that is not four numbers of 0 to 255 without leading zeros")
    if _NAME.fullmatch(name) is None:
        raise ValueError("has a host that is neither an address nor a name")
    return name


def canonical_interface(text: str) -> str | None:
    """Return the canonical ``interface=address[:port][/prefix]`` or ``{name}[:port]``, or None for the wildcard.

    With a prefix the result is the network that Aeron searches: ``10.0.0.7/8`` and ``10.1.2.3/8`` are the same. The
    port is that of the sender's socket and does not identify a stream. Raises ValueError with a phrase.
    """
    named = _NAMED.fullmatch(text)
    if named is not None:
        return named[1]
    address, _, prefix = text.partition("/")
    if address.startswith("["):
        address = address[1:].partition("]")[0]
    elif address.count(":") > 1:
        raise ValueError("has an IPv6 address without brackets")
    else:
        address = address.partition(":")[0]
    host = canonical_host(address)
    found = ip_of(host)
    if found is not None and found.is_unspecified:
        return None
    if not prefix:
        return host
    if found is None:
        return f"{host}/{_prefix(prefix, 128)}"
    bits = _prefix(prefix, found.max_prefixlen)
    if bits == found.max_prefixlen:
        return host
    return str(ipaddress.ip_network(f"{host.partition('%')[0]}/{bits}", strict=False))


def _prefix(text: str, max_length: int) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text, re.ASCII) or int(text) > max_length:
        raise ValueError(f"has the prefix length {text!r}, expected 0 to {max_length}")
    return int(text)


@lru_cache(CACHE_SIZE)
def ip_of(host: str) -> IpAddress | None:
    """Return the IP address of the text ``host``, or None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def unknown_host(host: str) -> str:
    """Return the text about a host name without an address."""
    return f"{UNKNOWN_HOST} {host!r} cannot be resolved to an address"
