"""The common state of both acts: console, folder, and the processes to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from rich.console import Console

from demo.stopping import StopSignals

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """Each act sends ``flights`` over ``seconds``. Everything that is started here ends after Spark, last one first."""

    flights: pa.Table
    seconds: float
    console: Console
    stopping: StopSignals
    stack: ExitStack
    folder: Path

    def print(self, text: object) -> None:
        """Print a line for the user."""
        self.console.print(text)

    def start(self, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Create and enter a context. A signal is deferred until its end is registered."""
        with self.stopping.deferred():
            return self.stack.enter_context(make())
