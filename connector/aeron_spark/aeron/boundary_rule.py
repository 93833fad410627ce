"""Finds the position at which a range of a recording may end, by walks over frame headers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aeron_spark.transport.channel_parameters import FRAME_ALIGNMENT

NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WalkRange:
    """The recorded range ``[start, end)`` of a walk, and its limits: the highest boundary, and the most rows.

    ``start`` is the begin of a message or of a term, and ``end`` the end of a frame, as each recorded position is.
    ``at_least_one``: take the first message or group even if it alone exceeds the limits.
    """

    start: int
    end: int
    limit: int
    max_rows: int = NO_LIMIT
    at_least_one: bool = False

    @property
    def stop(self) -> int:
        """The position at which the walk stops reading; it can be inside a frame if it is before ``end``."""
        return self.end if self.at_least_one else self.limit


@dataclass(frozen=True, slots=True)
class Walked:
    """The result of a walk: the last boundary within the limits, and the rows before it.

    ``open`` is the begin of the message or group that is not complete at the end of the walk.
    """

    boundary: int | None
    rows: int
    open: int | None


Walk = Callable[[WalkRange], Walked]


def find_end(
    walk: Walk, term_length: int, *, start: int, limit: int, end: int, max_rows: int | None
) -> tuple[int, int]:
    """Return a position at which a range from ``start`` may end, and its number of rows if they were counted (else 0).

    See :class:`aeron_spark.log.api.Boundaries` for the guarantees. Walks at most one term or, with ``max_rows``, the
    range. A damaged part of the recording counts as padding: it ends where reading continues, see ``after_damage``.
    """
    aligned = limit - limit % FRAME_ALIGNMENT
    if max_rows is None:
        found = _last_term_boundary(walk, term_length, start, aligned, end)
        if found > start:
            return found, 0
    rows = NO_LIMIT if max_rows is None else max_rows
    walked = walk(WalkRange(start, end, aligned, rows, at_least_one=True))
    return (start, 0) if walked.boundary is None else (walked.boundary, walked.rows)


def after_damage(position: int, term_length: int, end: int) -> int:
    """Return where reading continues after a damaged frame at ``position``: the next term, or ``end`` before it.

    Nothing else shows where the next frame begins. ``end`` is a recorded position, or the end of a range.
    """
    return min(position - position % term_length + term_length, end)


def _last_term_boundary(walk: Walk, term_length: int, start: int, limit: int, end: int) -> int:
    """Return the last boundary up to ``limit`` in the term of ``limit``, or ``start``.

    A term begins at a message boundary. A group of chunks may span terms; its chunks have the position of its start.
    """
    term = limit - 1 if limit % term_length == 0 else limit
    term -= term % term_length
    if term <= start:
        return start
    walked = walk(WalkRange(term, end, limit))
    return max(start, next(one for one in (walked.boundary, walked.open, term) if one is not None))
