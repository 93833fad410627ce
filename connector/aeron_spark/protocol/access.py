"""Where a packet came from, in the one form that filters, limits and look-ups see.

One host must not look like several: IPv4 mapped into IPv6 is IPv4, a long spelling of an IPv6 address is the short one,
and the zone (``%eth0``), which is a name of our own interface and no part of the peer, is set apart.
"""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, Protocol, get_args

from aeron_spark.errors import DataFormatError, IdentityError, OptionError, ServerKeyChanged
from aeron_spark.protocol.keypair import KeyPair, fingerprint, public_text
from aeron_spark.protocol.refusals import Refusal, undecided

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


def is_from_address(source: str, owner: str) -> bool:
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


StreamAction = Literal["read", "write", "manage"]

STREAM_ACTIONS: Final[frozenset[str]] = frozenset(get_args(StreamAction))

UNKNOWN_KEY: Final = Refusal("key", "This server does not know your key")

TAG_NOT_ALLOWED: Final = Refusal("tag", "Your key is not allowed to use this tag")


@dataclass(frozen=True, slots=True, order=True)
class ServerName:
    """A server as a client reaches it: canonical host and data port. ``ipc:DIRECTORY`` and 0 over shared memory.

    ``aeron_spark.keys.known_servers`` makes them, in canonical form; two servers of one host differ in their ports.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Grant:
    """What an authorised client may do; the default is everything. Names may have ``*``, ``?`` and ``[...]``."""

    streams: tuple[tuple[str, frozenset[str]], ...] | None = None  # (name, actions); None: all streams, all actions
    calls: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    comment: str = field(default="", compare=False)

    def may_use(self, stream: str, action: StreamAction) -> bool:
        """Whether the client may do this to the stream of this name."""
        return self.streams is None or any(
            action in actions and fnmatchcase(stream, name) for name, actions in self.streams
        )

    def may_call(self, method: str) -> bool:
        """Whether the client may call ``object.method``."""
        return _matches(method, self.calls)

    def may_have_tag(self, tag: str) -> bool:
        """Whether the client may come with this tag."""
        return _matches(tag, self.tags)


class PeerStore(Protocol):
    """What one endpoint remembers. For several threads; all calls raise SetupError where a store cannot be used."""

    def identity(self) -> KeyPair:
        """Return this side's own key pair."""

    def server_key(self, server: ServerName) -> bytes | None:
        """Return the key that ``server`` is known by."""

    def servers(self) -> Mapping[ServerName, bytes]:
        """Return all known servers."""

    def trust(self, server: ServerName, key: bytes, comment: str = "") -> None:
        """Remember ``server`` by ``key``; raise ServerKeyChanged, and change nothing, where it is known by another."""

    def forget(self, server: ServerName) -> bool:
        """Forget ``server``; False, and nothing changed, where it was not known."""

    def grant(self, client: bytes) -> Grant | None:
        """Return what the client of this public key may do; None where it is not among the authorised."""


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """A server that may be talked to. ``remember``: store its key, but only once the handshake has completed."""

    remember: bool = False
    remote_key_changed: bool = False


def verify_server_key(
    server: ServerName, known: bytes | None, shown: bytes, *, first_use: bool = True, validate: bool = True
) -> ServerTrust:
    """Decide on the key a server has shown; ``known`` is the stored one.

    ``first_use``: a server not known yet is trusted. Without ``validate`` everybody is; a changed key is then flagged,
    and never stored. Raises ServerKeyChanged, or IdentityError for a server not known.
    """
    if known == shown:
        return ServerTrust()
    if known is not None:
        if validate:
            raise server_key_changed(server, known, shown)
        return ServerTrust(remote_key_changed=True)
    if first_use:
        return ServerTrust(remember=True)
    if validate:
        raise IdentityError(
            f"the server {server} is not known; it shows the key {fingerprint(shown)}",
            remedy=f"Compare it with the server's own, then: aeron-spark keys trust {server} {public_text(shown)}",
        )
    return ServerTrust()


def server_key_changed(server: ServerName, known: bytes, shown: bytes) -> ServerKeyChanged:
    """Return the error that says what a person should do about it."""
    return ServerKeyChanged(
        f"the server {server} is known by the key {fingerprint(known)} and shows {fingerprint(shown)}: "
        "it was set up anew, or somebody else answers in its place",
        remedy=f"Ask whoever runs it. If its key was changed: aeron-spark keys forget {server}",
    )


def pinned_key_differs(server: ServerName, wanted: bytes, shown: bytes) -> ServerKeyChanged:
    """Return the error for a server that shows another key than option 'serverKey' names."""
    return ServerKeyChanged(
        f"option 'serverKey' names the key {fingerprint(wanted)} for the server {server}, and the server shows "
        f"{fingerprint(shown)}: the option is wrong, or another program answers in the server's place",
        remedy="Compare the key with the one that 'aeron-spark keys show --server' prints on the server, then correct "
        "option 'serverKey' (server_key=, --server-key)",
    )


def check_client(grant: Grant | None, tag: str, *, required: bool) -> Refusal | None:
    """Say why a client that proved its key may not come in; ``required``: only authorised ones may."""
    if grant is None:
        return UNKNOWN_KEY if required else None
    return None if grant.may_have_tag(tag) else TAG_NOT_ALLOWED


def _matches(name: str, patterns: tuple[str, ...] | None) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


NOT_PERMITTED: Final = Refusal("not-permitted", "Connection was not permitted!")

MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who wants to come in: canonical address (None over IPC), tag, and public key, which it has proved to own."""

    address: IpAddress | None
    tag: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Network:
    """A rule of addresses."""

    cidr: ipaddress.IPv4Network | ipaddress.IPv6Network

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse ``10.0.0.0/8``, ``2001:db8::/32`` or one address. Raises OptionError that says what is wrong."""
        host, slash, prefix = text.partition("/")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise _wrong(
                text, "does not begin with an IP address", "Write such as 10.0.0.0/8 or 2001:db8::/32."
            ) from None
        if "%" in host:
            raise _wrong(text, "has a zone, which is no part of an address", "Leave out what stands after '%'.")
        most = address.max_prefixlen
        if slash and (not re.fullmatch("[0-9]{1,3}", prefix, re.ASCII) or int(prefix) > most):
            raise _wrong(text, f"has the prefix length {prefix!r}", f"For IPv{address.version} it is 0 to {most}.")
        network = ipaddress.ip_network(f"{host}/{prefix or most}", strict=False)
        if network.network_address != address:
            # Meant is the network or the host, and one of them would be a hole.
            remedy = f"Write {network} for the network, {address}/{most} for the host."
            raise _wrong(text, "has bits beyond its prefix length", remedy)
        return cls(_unmapped(network))

    def matches(self, address: IpAddress) -> bool:
        """Whether ``address``, in canonical form, lies in it."""
        return address.version == self.cidr.version and address in self.cidr

    def __str__(self) -> str:
        return str(self.cidr)


Rule = Network | Callable[[Candidate], bool]


class Filters:
    """The rules of one server, in the order in which they are asked."""

    def __init__(self, allow: Sequence[Rule] = (), deny: Sequence[Rule] = ()) -> None:
        for rule in (*allow, *deny):
            if inspect.iscoroutinefunction(rule):
                raise OptionError(f"the filter {_name(rule)} is asynchronous", remedy="Filters are plain functions.")
        self._allow = tuple(allow)
        self._deny = tuple(deny)

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Say why ``candidate`` may not come in; None where it may."""
        try:
            denied = any(_is_true(rule, candidate) for rule in _applicable(self._deny, candidate))
            allowing = _applicable(self._allow, candidate)
            allowed = not allowing or (not denied and any(_is_true(rule, candidate) for rule in allowing))
        except Exception as error:  # the user's own code: whatever it raises must not let anybody in
            return undecided(error)
        return None if allowed and not denied else NOT_PERMITTED


def _applicable(rules: Sequence[Rule], candidate: Candidate) -> list[Rule]:
    return [rule for rule in rules if candidate.address is not None or not isinstance(rule, Network)]


def _is_true(rule: Rule, candidate: Candidate) -> bool:
    if isinstance(rule, Network):
        return candidate.address is not None and rule.matches(candidate.address)
    answer: object = rule(candidate)
    if answer is True or answer is False:
        return answer
    # a match object or a text would be true, too
    raise OptionError(f"the filter {_name(rule)} returned a {type(answer).__name__}", remedy="Return True or False.")


def _name(rule: object) -> str:
    return repr(getattr(rule, "__qualname__", rule))


def _unmapped(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Sources are canonical, so a rule for IPv4 mapped into IPv6 would match nobody."""
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        return ipaddress.IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - MAPPED.prefixlen))
    return network


def _wrong(text: str, what: str, remedy: str) -> OptionError:
    return OptionError(f"the rule {text!r} {what}", remedy=remedy)
