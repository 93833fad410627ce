"""The rights of an authorised key: grants, the conditions for its use, its limits, and whether one covers another.

A grant fails closed: an action that no grant names is not allowed. A key without grants can connect and ping.

The comparison of patterns is cautious: a pattern that may have lost a name counts as not covered.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeVar, get_args

from aeron_spark.protocol.sources import IpAddress, Network, Refusal

StreamAction = Literal["read", "write", "create", "manage", "purge"]

MessageDirection = Literal["send", "receive"]

STREAM_ACTIONS: Final[tuple[StreamAction, ...]] = get_args(StreamAction)

MESSAGE_DIRECTIONS: Final[tuple[MessageDirection, ...]] = get_args(MessageDirection)

UNKNOWN_KEY: Final = Refusal("key", "This server does not know your key")

EXPIRED_KEY: Final = Refusal("key", "Your key has expired at this server")

TAG_NOT_ALLOWED: Final = Refusal("tag", "Your key is not allowed to use this tag")

ADDRESS_NOT_ALLOWED: Final = Refusal("not-permitted", "Your key is not allowed from this address")


@dataclass(frozen=True, slots=True)
class StreamGrant:
    """Actions on the streams whose names match one of the patterns (``*``, ``?``, ``[...]``; the whole name)."""

    patterns: tuple[str, ...]
    actions: frozenset[StreamAction]


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one key; None: the server's own limit, and for rates no limit. Rates are per second."""

    connections: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    messages_in: int | None = None
    stage_bytes: int | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of one key.

    ``everything`` allows all actions; conditions and limits apply to it, too. ``writers`` None allows the writer ids
    that no other key has used. Each element of ``tags`` and of ``networks`` is one condition with alternatives: a
    client must meet every condition. ``expires`` is in seconds since 1970. ``name`` identifies the key in logs and
    lists.
    """

    name: str = ""
    everything: bool = False
    streams: tuple[StreamGrant, ...] = ()
    writers: tuple[str, ...] | None = None
    calls: tuple[str, ...] = ()
    messages: frozenset[MessageDirection] = frozenset()
    sends_files: bool = False
    tags: tuple[tuple[str, ...], ...] = ()
    networks: tuple[tuple[Network, ...], ...] = ()
    expires: float | None = None
    limits: KeyLimits = KeyLimits()
    comment: str = field(default="", compare=False)

    def may_use(self, stream: str, action: StreamAction) -> bool:
        """Return whether the client may use the action on the stream of this name."""
        return self.everything or any(
            action in grant.actions and matches(stream, grant.patterns) for grant in self.streams
        )

    def may_see(self, stream: str) -> bool:
        """Return whether the client may use any action on the stream, and so may learn that it exists."""
        return self.everything or any(grant.actions and matches(stream, grant.patterns) for grant in self.streams)

    def may_write_as(self, writer: str) -> bool | None:
        """Return whether the client may use this writer id; None: if no other key has used it."""
        if self.everything:
            return True
        return None if self.writers is None else matches(writer, self.writers)

    def may_call(self, method: str) -> bool:
        """Return whether the client may call ``object.method`` of the program's objects."""
        return self.everything or matches(method, self.calls)

    def may_pass_messages(self, direction: MessageDirection) -> bool:
        """Return whether the client may send messages outside streams, or receive those of other clients."""
        return self.everything or direction in self.messages

    def may_send_files(self) -> bool:
        """Return whether the client may send named files."""
        return self.everything or self.sends_files

    def refusal(self, tag: str, address: IpAddress | None, now: float) -> Refusal | None:
        """Return the refusal of a client that does not meet the conditions; None admits it.

        ``address`` is None for shared memory, to which conditions on addresses do not apply: only this machine's users
        have it. ``now`` is in seconds since 1970.
        """
        if self.expires is not None and now >= self.expires:
            return EXPIRED_KEY
        if not all(matches(tag, patterns) for patterns in self.tags):
            return TAG_NOT_ALLOWED
        if address is not None and not all(
            any(network.matches(address) for network in networks) for networks in self.networks
        ):
            return ADDRESS_NOT_ALLOWED
        return None


EVERYTHING: Final = Grant(everything=True)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether the whole name matches one of the patterns, in the same case."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


C = TypeVar("C", bound=Hashable)


def covers(grant: Grant, other: Grant) -> bool:
    """Return whether ``grant`` allows all that ``other`` does. Limits do not count."""
    return _conditions_cover(grant, other) and (
        grant.everything or (not other.everything and _parts_cover(grant, other))
    )


def _parts_cover(grant: Grant, other: Grant) -> bool:
    streams_cover = all(
        _pattern_covered([one for part in grant.streams if action in part.actions for one in part.patterns], pattern)
        for other_part in other.streams
        for action in other_part.actions
        for pattern in other_part.patterns
    )
    return (
        streams_cover
        and _writers_cover(grant.writers, other.writers)
        and all(_pattern_covered(grant.calls, pattern) for pattern in other.calls)
        and grant.messages >= other.messages
        and (grant.sends_files or not other.sends_files)
    )


def _writers_cover(writers: Sequence[str] | None, other: Sequence[str] | None) -> bool:
    """Return whether these writer ids cover others; None are the ids that no other key has used."""
    if writers is None:
        return not other
    return all(_pattern_covered(writers, pattern) for pattern in (("*",) if other is None else other))


def _pattern_covered(patterns: Sequence[str], pattern: str) -> bool:
    return any(
        one in (pattern, "*") or ("?" not in one and "[" not in one + pattern and matches(pattern, (one,)))
        for one in patterns
    )


def _conditions_cover(grant: Grant, other: Grant) -> bool:
    """Return whether each client that meets the conditions of ``other`` meets those of ``grant``."""
    expires_later = grant.expires is None or (other.expires is not None and grant.expires >= other.expires)
    return expires_later and _implied(grant.tags, other.tags) and _implied(grant.networks, other.networks)


def _implied(conditions: Sequence[Sequence[C]], known: Sequence[Sequence[C]]) -> bool:
    """Return whether who meets all ``known`` conditions meets these; each has alternatives."""
    return all(any(set(one) <= set(condition) for one in known) for condition in conditions)
