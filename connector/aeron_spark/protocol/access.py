"""The stores of an endpoint's keys, the verification of a server's key, and a server's filters of clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aeron_spark.errors import IdentityError, OptionError, ServerKeyChanged
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.keypair import KeyPair, fingerprint, public_text
from aeron_spark.protocol.sources import IpAddress, Network, Refusal, undecided


@dataclass(frozen=True, slots=True, order=True)
class ServerName:
    """The name of a server at a client: canonical host and data port, or ``ipc:DIRECTORY`` and 0 for shared memory.

    ``aeron_spark.keys.key_files`` makes the canonical form.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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

    def grants(self) -> Mapping[bytes, Grant]:
        """Return the grants of all authorised keys."""


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


class ServerKeyVerifier:
    """Compares the key that a server shows with the key that the client expects. For one thread.

    With ``pinned``, only that key is accepted. Otherwise ``first_use`` and ``validate`` are as for
    :func:`verify_server_key`.
    """

    def __init__(
        self, server: ServerName, *, pinned: bytes | None = None, first_use: bool = True, validate: bool = True
    ) -> None:
        self.known: bytes | None = None  # from the key store, which the client asks before each handshake
        self.key = b""  # the last key that was accepted; empty before
        self.trust = ServerTrust()  # the result for that key
        self._server = server
        self._pinned = pinned
        self._first_use = first_use
        self._validate = validate

    def verify(self, key: bytes) -> None:
        """Accept the key that the server shows, or raise IdentityError."""
        if self._pinned is None:
            self.trust = verify_server_key(
                self._server, self.known, key, first_use=self._first_use, validate=self._validate
            )
        elif self._pinned == key:
            self.trust = ServerTrust()
        else:
            raise pinned_key_differs(self._server, self._pinned, key)
        self.key = key


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


NOT_PERMITTED: Final = Refusal("not-permitted", "Connection was not permitted!")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client before the decision on it: canonical address (None over IPC), tag, and the public key it has proved."""

    address: IpAddress | None
    tag: str
    key: bytes


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
