"""What a handshake's table is made of, and how a step is taken.

* A machine is one literal table: (state, event) -> row. A row says what is done and where that may lead.
* A handler decides, and returns the next state with the actions; it does not set the state. If it raises, the state
  stays.
* Where a row is missing: what comes from outside is ignored and said so, for anybody can send anything; what only our
  own program does (``PROGRAM_EVENTS``) raises UsageError. Either way nothing changes.
* Actions are data. The runtime carries them out, in their order; nothing here does any I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NoReturn, TypeVar

from aeron_spark.errors import UsageError

M = TypeVar("M")
S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Row(Generic[M, S, A]):
    """``handler(machine, given, now)`` gives the next state, one of ``to``, and the actions."""

    to: tuple[S, ...]
    handler: Callable[[M, Any, float], tuple[S, tuple[A, ...]]]
    meaning: str


def step(
    table: Mapping[tuple[S, E], Row[M, S, A]], machine: M, state: S, event: E, given: object, now: float
) -> tuple[S, tuple[A, ...]] | None:
    """Take one step, or give None where the table has no row. Raises UsageError if a handler leaves its row."""
    row = table.get((state, event))
    if row is None:
        return None
    after, actions = row.handler(machine, given, now)
    if after not in row.to:
        raise UsageError(
            f"the handshake's table does not lead from {state.name} by {event.name} to {after.name}",
            remedy="This is a mistake in aeron-spark: please report it",
        )
    return after, actions


def unexpected_event(who: str, state: Enum, event: Enum) -> UsageError:
    """The error for something only our own program does, at the wrong time."""
    return UsageError(
        f"the {who}'s handshake is in {state.name}, where {event.name} has no meaning",
        remedy="Follow docs/endpoint-protocol.md",
    )


def assert_never(value: NoReturn) -> NoReturn:
    """Raise AssertionError: a ``match`` has no case for ``value``. A type checker proves that no call is reached.

    Python 3.11 has ``typing.assert_never`` for this.
    """
    raise AssertionError(f"unexpected {value!r}")
