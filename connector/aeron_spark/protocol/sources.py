"""Sources of packets (hosts and ports, shared memory, networks of addresses), and a server's refusals of them.

A source has one canonical form, so that filters, limits and look-ups count a host once: an IPv4 address that is mapped
into IPv6 becomes IPv4, every spelling of an IPv6 address becomes the short one, and the zone (``%eth0``) is a separate
field, because it names an interface of this machine.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from aeron_spark.errors import (
    REFUSALS,
    Advice,
    AeronSparkError,
    DataFormatError,
    IdentityError,
    OptionError,
    RefusedError,
    Retry,
    TamperedError,
)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LimitKey = ipaddress.IPv4Address | ipaddress.IPv6Network

IPC_IDENTITY: Final = "aeron:ipc"

IPV6_LIMIT_PREFIX_BITS: Final = 64  # a host with one address of a /64 has all of them

MAX_IDENTITY_CHARACTERS: Final = 100  # the name of an interface has at most 15

_IDENTITY: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[!-Z^-~]+)?)\]|(?P<v4>[0-9.]+)):(?P<port>[0-9]{1,5})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class UdpSource:
    """A host and port. ``address`` has no zone; ``zone`` is empty except for link-local addresses of IPv6."""

    address: IpAddress
    port: int
    zone: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether the source is this machine."""
        return self.address.is_loopback

    @property
    def limit_key(self) -> LimitKey:
        """The key by which limits count the source."""
        return limit_key(self.address)

    def __str__(self) -> str:
        if isinstance(self.address, ipaddress.IPv4Address):
            return f"{self.address}:{self.port}"
        return f"[{self.address}{'%' if self.zone else ''}{self.zone}]:{self.port}"


@dataclass(frozen=True, slots=True)
class IpcSource:
    """Shared memory of this machine. It has no address, so limits and filters by address do not apply."""

    def __str__(self) -> str:
        return IPC_IDENTITY


Source = UdpSource | IpcSource


def parse_source(identity: str) -> Source:
    """Parse the ``sourceIdentity`` of an Aeron image: ``10.0.0.1:4000``, ``[fe80::1%eth0]:4000`` or ``aeron:ipc``.

    Raises DataFormatError for any other text; the server then rejects the image.
    """
    if identity == IPC_IDENTITY:
        return IpcSource()
    match = _IDENTITY.fullmatch(identity) if len(identity) <= MAX_IDENTITY_CHARACTERS else None
    try:
        if match is None:
            raise ValueError("it is not address:port")
        port = int(match["port"])
        if not 0 < port <= 65535:
            raise ValueError("the port is not between 1 and 65535")
        if match["v4"] is not None:
            return UdpSource(ipaddress.IPv4Address(match["v4"]), port)
        address = ipaddress.IPv6Address(match["v6"])
    except ValueError as error:
        raise DataFormatError(
            f"the source {identity[:MAX_IDENTITY_CHARACTERS]!r} of an image is not an address: {error}",
            remedy="Use the media driver of the Aeron release that this package contains.",
        ) from None
    canonical = _canonical(address)
    has_zone = canonical.version == 6 and canonical.is_link_local
    return UdpSource(canonical, port, (address.scope_id or "") if has_zone else "")


def canonical_address(text: str) -> IpAddress:
    """Parse an IP address without a port. Raises ValueError for any other text, also for host names."""
    return _canonical(ipaddress.ip_address(text))


@lru_cache(1024)
def mapped_address(text: str) -> bytes:
    """Return the 16 bytes of an IP address; IPv4 is mapped into IPv6. Raises ValueError for any other text."""
    address = ipaddress.ip_address(text)
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def is_from_address(source: str, address: str) -> bool:
    """Return whether an image from ``source`` (see ``parse_source``) comes from the IP ``address``, from any port.

    Zones are ignored. An empty ``address`` accepts every source.
    """
    if not address:
        return True
    try:
        actual, expected = parse_source(source), canonical_address(address)
    except (DataFormatError, ValueError):
        return False
    return isinstance(actual, UdpSource) and actual.address == expected


def limit_key(address: IpAddress) -> LimitKey:
    """Return the key by which limits count an address: the address for IPv4, its /64 for IPv6."""
    address = _canonical(address)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return ipaddress.IPv6Network(
        (int(address) >> IPV6_LIMIT_PREFIX_BITS << IPV6_LIMIT_PREFIX_BITS, IPV6_LIMIT_PREFIX_BITS)
    )


def _canonical(address: IpAddress) -> IpAddress:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv6Address(int(address))  # without its zone


IPV4_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True, slots=True)
class Network:
    """A filter rule that matches the addresses of a network."""

    cidr: ipaddress.IPv4Network | ipaddress.IPv6Network

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse ``10.0.0.0/8``, ``2001:db8::/32`` or one address. Raises OptionError for any other text."""
        host, slash, prefix = text.partition("/")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise _wrong(
                text, "does not begin with an IP address", "Write a network such as 10.0.0.0/8 or 2001:db8::/32."
            ) from None
        if "%" in host:
            raise _wrong(text, "has a zone, which is not part of an address", "Leave out '%' and the text after it.")
        max_bits = address.max_prefixlen
        if slash and (not re.fullmatch("[0-9]{1,3}", prefix, re.ASCII) or int(prefix) > max_bits):
            raise _wrong(text, f"has the prefix length {prefix!r}", f"For IPv{address.version}, use 0 to {max_bits}.")
        network = ipaddress.ip_network(f"{host}/{prefix or max_bits}", strict=False)
        if network.network_address != address:
            # the text can mean the network or the host, and a wrong guess would accept or refuse the wrong clients
            remedy = f"Write {network} for the network, or {address}/{max_bits} for the host."
            raise _wrong(text, "has bits beyond its prefix length", remedy)
        return cls(_unmapped(network))

    def matches(self, address: IpAddress) -> bool:
        """Return whether the network has ``address``, which is in canonical form."""
        return address.version == self.cidr.version and address in self.cidr

    def __str__(self) -> str:
        return str(self.cidr)


def _unmapped(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return an IPv4 network for one that is mapped into IPv6, because canonical sources are IPv4."""
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(IPV4_MAPPED):
        return ipaddress.IPv4Network(
            (int(network.network_address) & 0xFFFFFFFF, network.prefixlen - IPV4_MAPPED.prefixlen)
        )
    return network


def _wrong(text: str, what: str, remedy: str) -> OptionError:
    return OptionError(f"the rule {text!r} {what}", remedy=remedy)


_UNKNOWN: Final = Advice(Retry.NEVER, "Ask the server's operator.")


@dataclass(frozen=True, slots=True)
class ReachedLimit:
    """The limit for which a server refuses: the option that sets it, and its value.

    ``key_option`` is the option of a key's line or role in the clients file that replaces the server's ``option``, and
    ``is_own`` whether it does so for this key.
    """

    option: str
    value: float
    key_option: str = ""
    is_own: bool = False

    @property
    def setting(self) -> str:
        """The option that sets the limit for this client."""
        return self.key_option if self.is_own else self.option

    @property
    def origin(self) -> str:
        """The options that set the limit, as a phrase for the client."""
        if self.is_own:
            return f"{self.key_option} of your key in the server's clients file"
        server = f"option {self.option} of the server"
        return f"{server}, or {self.key_option} of your key in its clients file" if self.key_option else server


@dataclass(frozen=True, slots=True)
class Refusal:
    """A negative response: ``code`` and ``text`` are sent to the client, and of ``limit`` as much as it may learn.

    ``cause`` is the error that a function of the program raised. It is reported on the server, and not sent.
    """

    code: str
    text: str
    cause: Exception | None = field(default=None, compare=False)
    limit: ReachedLimit | None = field(default=None, compare=False)

    @property
    def advice(self) -> Advice:
        """When the client can try again, and what its user can do."""
        return REFUSALS.get(self.code, _UNKNOWN)

    def at(self, limit: ReachedLimit) -> Refusal:
        """Return this refusal with the limit that was reached."""
        return replace(self, limit=limit)

    @property
    def text_for_unauthenticated(self) -> str:
        """The text for a sender that has not proved its key: it names the option of the limit, without the value."""
        return self.text if self.limit is None else f"{self.text} ({self.limit.origin})"

    @property
    def text_for_client(self) -> str:
        """The text for a client that has proved its key."""
        if self.limit is None:
            return self.text
        return f"{self.text}: {self.limit.value} is the limit ({self.limit.origin})"


def undecided(cause: Exception, text: str = "The server failed before its decision") -> Refusal:
    """Return the refusal of a server that failed with ``cause`` before its decision. The client tries again."""
    return Refusal("server-error", text, cause)


def refusal_of(error: Exception, text: str) -> Refusal:
    """Return the refusal that a RefusedError names, and for any other error the one of ``undecided``."""
    return Refusal(error.reason, error.what) if isinstance(error, RefusedError) else undecided(error, text)


def may_retry(error: AeronSparkError, *, is_awaited: bool, is_authenticated: bool) -> bool:
    """Return whether the client makes another attempt after one that ended with ``error``.

    ``is_awaited``: a thread waits for the connection. It gets an error at once if only another person or program can
    remove the cause. ``is_authenticated``: the server has proved that it sent the refusal. Any host can forge a hint or
    a packet that fails its authentication, so these do not stop the attempts of a client whose connection no thread
    awaits.
    """
    match error:
        case IdentityError():
            return False
        case RefusedError():
            return error.retry is Retry.SOON or not (is_awaited or (is_authenticated and error.retry is Retry.NEVER))
        case TamperedError():
            return not is_awaited
        case _:
            return True
