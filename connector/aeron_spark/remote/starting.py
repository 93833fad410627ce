"""Where a reader begins, or ends: earliest, latest, positions, a time; as the position of each partition, in bytes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.content import at_message
from aeron_spark.log.epochs import NoEpochWarning
from aeron_spark.remote.directory import time_of
from aeron_spark.remote.endpoint_log import EndpointLog
from aeron_spark.remote.positions import Positions, check_epochs

Where = str | datetime | Mapping[int, int] | Mapping[str, int] | Mapping[str, Any]

READERS: Final = "reader"  # who diverged, in an error
EDGES: Final = ("earliest", "latest")
EXAMPLE: Final = (
    "Give 'earliest', 'latest', a time such as '-10min' or '2026-03-01T09:30:00Z', or a reader's positions."
)


def resolve(
    log: EndpointLog, states: Sequence[RecordingState], where: Where, chosen: Sequence[int], *, now_ns: int, what: str
) -> Positions:
    """Return the position of each partition of ``chosen``, with its epoch; ``what`` names the argument in errors.

    Positions that name no partition leave it at its beginning; those without an epoch are taken with NoEpochWarning.
    Raises OptionError for what is no place in the stream, DataLossError for a position before what retention has left,
    and with the reason "diverged" for positions of a history that the stream does not have.
    """
    found = Positions()
    for at, position in _positions(log, states, where, chosen, now_ns=now_ns, what=what).items():
        found.move(states[at], position)
    return found


def _positions(
    log: EndpointLog, states: Sequence[RecordingState], where: Where, chosen: Sequence[int], *, now_ns: int, what: str
) -> dict[int, int]:
    if isinstance(where, str) and where.startswith("{"):
        where = Positions.from_json(where)
    if isinstance(where, Mapping):
        named = _named(where, states, what)
        _check_history(named, states, log.name, what)
        return {
            at: _checked(log, states[at], named[at], what) if at in named else states[at].start for at in chosen
        }  # fmt: skip
    if isinstance(where, str) and where.lower() in EDGES:
        return {at: states[at].start if where.lower() == "earliest" else states[at].end for at in chosen}
    if not isinstance(where, str | datetime):
        raise OptionError(f"{what} cannot be {where!r}", remedy=EXAMPLE)
    try:
        time_ns = time_of(where, now_ns)
    except OptionError:
        raise OptionError(f"{what} cannot be {where!r}", remedy=EXAMPLE) from None
    return {at: log.position_at(states[at], time_ns, None) for at in chosen}


def _named(where: Mapping[Any, Any], states: Sequence[RecordingState], what: str) -> Positions:
    named = Positions.of(where)
    for partition, position in named.items():
        if not 0 <= partition < len(states):
            raise OptionError(
                f"{what} names partition {partition}, and the stream has {len(states)}, numbered from 0",
                remedy="Correct it.",
            )
        if isinstance(position, bool) or not isinstance(position, int):
            raise OptionError(f"{what}: {position!r} is no position of partition {partition}", remedy=EXAMPLE)
    return named


def _check_history(named: Positions, states: Sequence[RecordingState], stream: str, what: str) -> None:
    unstamped = [at for at, position in named.items() if at not in named.epochs and position > 0]
    if unstamped:
        warnings.warn(
            f"{what}: the positions of partitions {unstamped} of stream {stream!r} have no epochs, so that a restored "
            "store cannot be noticed this time. Keep reader.positions.to_json()",
            NoEpochWarning,
            stacklevel=5,
        )
    check_epochs(named, dict(enumerate(states)), stream, READERS if what == "start" else f"reader's {what}")


def _checked(log: EndpointLog, state: RecordingState, position: int, what: str) -> int:
    if position < state.start:
        raise DataLossError(
            f"{what}: position {position} of partition {state.key} was purged; what there is begins at {state.start}",
            remedy="Begin at 'earliest', and keep more (the stream's retention).",
        )
    if position > state.end:
        raise OptionError(
            f"{what}: position {position} of partition {state.key} is beyond its end, {state.end}",
            remedy="The stream was made anew, or the position is another one's; give a position within it.",
        )
    there = at_message(log, state, position)
    if there != position:
        raise OptionError(
            f"{what}: position {position} of partition {state.key} is inside a message",
            remedy=f"The next message begins at {there}.",
        )
    return position
