"""Sources of packets, known servers, grants of authorised keys, and filters of clients.

A source has one canonical form, so that filters, limits and look-ups count a host once: an IPv4 address that is mapped
into IPv6 becomes IPv4, every spelling of an IPv6 address becomes the short one, and the zone (``%eth0``) is a separate
field, because it names an interface of this machine.
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
            f"the source {identity[:MAX_IDENTITY_CHARACTERS]!r} of an image is not an address: {error}"
        ) from None
    canonical = _canonical(address)
    has_zone = canonical.version == 6 and canonical.is_link_local
    return UdpSource(canonical, port, (address.scope_id or "") if has_zone else "")


def canonical_address(text: str) -> IpAddress:
    """Parse an IP address without a port. Raises ValueError for any other text, also for host names."""
    return _canonical(ipaddress.ip_address(text))


def is_from_address(source: str, address: str) -> bool:
    """Return whether an image from ``source`` (see ``parse_source``) comes from the IP ``address``, from any port.

    Zones are ignored. An empty ``address`` accepts every source.
    """
    if not address:
        return True
    try:
        found, wanted = parse_source(source), canonical_address(address)
    except (DataFormatError, ValueError):
        return False
    return isinstance(found, UdpSource) and found.address == wanted


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


StreamAction = Literal["read", "write", "manage"]

STREAM_ACTIONS: Final[frozenset[str]] = frozenset(get_args(StreamAction))

UNKNOWN_KEY: Final = Refusal("key", "This server does not know your key")

TAG_NOT_ALLOWED: Final = Refusal("tag", "Your key is not allowed to use this tag")


@dataclass(frozen=True, slots=True, order=True)
class ServerName:
    """The name of a server at a client: canonical host and data port, or ``ipc:DIRECTORY`` and 0 for shared memory.

    ``aeron_spark.keys.known_servers`` makes the canonical form.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Grant:
    """The actions that an authorised key may use; by default all. Names may have ``*``, ``?`` and ``[...]``."""

    streams: tuple[tuple[str, frozenset[str]], ...] | None = None  # (name, actions); None: all streams, all actions
    calls: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    comment: str = field(default="", compare=False)

    def may_use(self, stream: str, action: StreamAction) -> bool:
        """Return whether the client may use the action on the stream of this name."""
        return self.streams is None or any(
            action in actions and fnmatchcase(stream, name) for name, actions in self.streams
        )

    def may_call(self, method: str) -> bool:
        """Return whether the client may call ``object.method``."""
        return _matches(method, self.calls)

    def may_have_tag(self, tag: str) -> bool:
        """Return whether the client may have this tag."""
        return _matches(tag, self.tags)


class PeerStore(Protocol):
    """The keys that one endpoint stores. Thread-safe; every method raises SetupError if the store cannot be used."""

    def identity(self) -> KeyPair:
        """Return the endpoint's own key pair."""

    def server_key(self, server: ServerName) -> bytes | None:
        """Return the stored key of ``server``; None for an unknown server."""

    def servers(self) -> Mapping[ServerName, bytes]:
        """Return the keys of all known servers."""

    def trust(self, server: ServerName, key: bytes, comment: str = "") -> None:
        """Store ``key`` for ``server``. Raises ServerKeyChanged, and changes nothing, if another key is stored."""

    def forget(self, server: ServerName) -> bool:
        """Delete the key of ``server``; return False for an unknown server."""

    def grant(self, client: bytes) -> Grant | None:
        """Return the grant of a client's public key; None if the key is not authorised."""


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """The result for an accepted server key. ``remember``: store the key once the handshake has completed."""

    remember: bool = False
    remote_key_changed: bool = False


def verify_server_key(
    server: ServerName, known: bytes | None, shown: bytes, *, first_use: bool = True, validate: bool = True
) -> ServerTrust:
    """Compare the key that a server shows with the stored key ``known``.

    ``first_use``: accept, and remember, the key of an unknown server. Without ``validate`` every key is accepted; a
    changed key is flagged and not stored. Raises ServerKeyChanged, or IdentityError for an unknown server.
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
            remedy=f"Compare it with the server's own, then run: aeron-spark keys trust {server} {public_text(shown)}",
        )
    return ServerTrust()


def server_key_changed(server: ServerName, known: bytes, shown: bytes) -> ServerKeyChanged:
    """Return the error for a server that shows another key than the stored one."""
    return ServerKeyChanged(
        f"the server {server} is known by the key {fingerprint(known)} and shows {fingerprint(shown)}: "
        "its key was replaced, or another program answers in its place",
        remedy=f"Ask the server's operator. If the key was replaced, run: aeron-spark keys forget {server}",
    )


def pinned_key_differs(server: ServerName, wanted: bytes, shown: bytes) -> ServerKeyChanged:
    """Return the error for a server that shows another key than the option 'serverKey'."""
    return ServerKeyChanged(
        f"option 'serverKey' names the key {fingerprint(wanted)} for the server {server}, and the server shows "
        f"{fingerprint(shown)}: the option is wrong, or another program answers in the server's place",
        remedy="Compare the key with the one that 'aeron-spark keys show --server' prints on the server, then correct "
        "option 'serverKey' (server_key=, --server-key)",
    )


def check_client(grant: Grant | None, tag: str, *, required: bool) -> Refusal | None:
    """Return the refusal of a client, by its grant; None accepts it. ``required``: refuse keys without a grant."""
    if grant is None:
        return UNKNOWN_KEY if required else None
    return None if grant.may_have_tag(tag) else TAG_NOT_ALLOWED


def _matches(name: str, patterns: tuple[str, ...] | None) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


NOT_PERMITTED: Final = Refusal("not-permitted", "Connection was not permitted!")

IPV4_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client before the decision on it: canonical address (None over IPC), tag, and the public key it has proved."""

    address: IpAddress | None
    tag: str
    key: bytes


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


Rule = Network | Callable[[Candidate], bool]


class Filters:
    """The filter rules of one server, in the order in which they are evaluated."""

    def __init__(self, allow: Sequence[Rule] = (), deny: Sequence[Rule] = ()) -> None:
        for rule in (*allow, *deny):
            if inspect.iscoroutinefunction(rule):
                raise OptionError(f"the filter {_name(rule)} is asynchronous", remedy="Use a plain function.")
        self._allow = tuple(allow)
        self._deny = tuple(deny)

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Return the refusal of ``candidate``; None accepts it."""
        try:
            denied = any(_is_true(rule, candidate) for rule in _applicable(self._deny, candidate))
            allowing = _applicable(self._allow, candidate)
            allowed = not allowing or (not denied and any(_is_true(rule, candidate) for rule in allowing))
        except Exception as error:  # a rule may raise any error, and must not accept a client by that
            return undecided(error)
        return None if allowed and not denied else NOT_PERMITTED


def _applicable(rules: Sequence[Rule], candidate: Candidate) -> list[Rule]:
    return [rule for rule in rules if candidate.address is not None or not isinstance(rule, Network)]


def _is_true(rule: Rule, candidate: Candidate) -> bool:
    if isinstance(rule, Network):
        return candidate.address is not None and rule.matches(candidate.address)
    result: object = rule(candidate)
    if result is True or result is False:
        return result
    # other true values, such as a match object, are probably mistakes
    raise OptionError(f"the filter {_name(rule)} returned a {type(result).__name__}", remedy="Return True or False.")


def _name(rule: object) -> str:
    return repr(getattr(rule, "__qualname__", rule))


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
