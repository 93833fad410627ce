"""Finds out whether one grant of a key allows everything that another one allows, such as an older one of that key.

The comparison of patterns is cautious: a pattern that may have lost a name counts as not covered.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from aeron_spark.protocol.grants import Grant, matches

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
