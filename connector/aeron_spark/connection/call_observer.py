"""A call of the peer that has ended, what its thread has noted of it, and the functions that ran at its error."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.rpc_messages import Target

MAX_STACK_FUNCTIONS: Final = 12


@dataclass(frozen=True, slots=True)
class ServedCall:
    """A call of the peer that has ended.

    ``call`` is its name in the errors and logs of both ends, ``description`` its object and method. ``seconds`` is the
    time since its arrival. ``error`` is None if it returned.
    """

    call: str
    description: str
    target: Target | None
    is_one_way: bool
    seconds: float
    error: BaseException | None


_RUNNING: Final = threading.local()


def note_failure(description: str, error: AeronSparkError) -> None:
    """Let the call that runs on this thread count as failed, although its method returns a response with the error."""
    _RUNNING.failure = (description, error)


def take_noted_failure() -> tuple[str, AeronSparkError] | None:
    """Return what ``note_failure`` noted on this thread since the last call of this function."""
    noted: tuple[str, AeronSparkError] | None = getattr(_RUNNING, "failure", None)
    _RUNNING.failure = None
    return noted


def note_answer(call: str) -> None:
    """Note the name of the call whose response this thread has got."""
    _RUNNING.answered = call


def take_answered_call() -> str:
    """Return what ``note_answer`` noted on this thread since the last call of this function, or ""."""
    answered: str = getattr(_RUNNING, "answered", "")
    _RUNNING.answered = ""
    return answered


def stack_of(error: BaseException) -> str:
    """Return the functions that ran at an error, the innermost first: ``stream.py:88 commit < rpc.py:215 _run``."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_STACK_FUNCTIONS:]
    return " < ".join(f"{one.filename.rpartition('/')[2]}:{one.lineno} {one.name}" for one in reversed(frames))
