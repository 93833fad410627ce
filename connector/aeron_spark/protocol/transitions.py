"""The transition tables of the handshakes, and how a handshake takes a step.

* A machine is one literal table: (state, event) -> row. A row names the handler, and the states that may follow.
* A handler returns the next state and the actions; it does not set the state. If it raises, the state does not change.
* If a row is missing, nothing changes. An event from the network is then ignored, and the result says so: any host can
  send anything. An event that only the program causes (``PROGRAM_EVENTS``) raises UsageError.
* Actions are data, and the endpoint executes them in order. This module does no I/O.
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
    """``handler(machine, argument, now)`` returns the next state, one of ``to``, and the actions."""

    to: tuple[S, ...]
    handler: Callable[[M, Any, float], tuple[S, tuple[A, ...]]]
    meaning: str


def step(
    table: Mapping[tuple[S, E], Row[M, S, A]], machine: M, state: S, event: E, argument: object, now: float
) -> tuple[S, tuple[A, ...]] | None:
    """Take one step; return None if the table has no row. Raises UsageError if a handler leaves its row."""
    row = table.get((state, event))
    if row is None:
        return None
    after, actions = row.handler(machine, argument, now)
    if after not in row.to:
        raise internal_error(f"the handshake's table does not allow {after.name} after {state.name} and {event.name}")
    return after, actions


def internal_error(what: str) -> UsageError:
    """Return the error for a step that a correct machine never takes."""
    return UsageError(what, remedy="This is an error in aeron-spark. Please report it.")


def unexpected_event(endpoint: str, state: Enum, event: Enum) -> UsageError:
    """Return the error for an event that the program causes in a wrong state."""
    return UsageError(
        f"the {endpoint}'s handshake does not expect {event.name} in state {state.name}",
        remedy="Follow docs/endpoint-protocol.md.",
    )


def assert_never(value: NoReturn) -> NoReturn:
    """Raise AssertionError: a ``match`` has no case for ``value``. A type checker proves that no call is reached.

    Python 3.11 has ``typing.assert_never`` for this.
    """
    raise AssertionError(f"unexpected {value!r}")
