"""Who the other side is, what it was when we last met, and what it may do.

The stores themselves are in ``aeron_spark.keys``; what is decided on what they hold, is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, Protocol, get_args

from aeron_spark.endpoint.keypair import KeyPair, fingerprint, public_text
from aeron_spark.endpoint.refusal import Refusal
from aeron_spark.errors import IdentityError, ServerKeyChanged

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

    def may_be_tagged(self, tag: str) -> bool:
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


def judge_server(
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


def judge_client(grant: Grant | None, tag: str, *, required: bool) -> Refusal | None:
    """Say why a client that proved its key may not come in; ``required``: only authorised ones may."""
    if grant is None:
        return UNKNOWN_KEY if required else None
    return None if grant.may_be_tagged(tag) else TAG_NOT_ALLOWED


def _matches(name: str, patterns: tuple[str, ...] | None) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)
