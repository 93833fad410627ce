"""What both acts play on: where to say something, a folder, and how to start what has to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from rich.console import Console

from demo.stopping import Stopping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """``flights`` are to be sent over ``seconds``. What is started here ends after Spark, the last one first."""

    flights: pa.Table
    seconds: float
    console: Console
    stopping: Stopping
    stack: ExitStack
    place: Path

    def say(self, what: object) -> None:
        """Tell whoever looks on."""
        self.console.print(what)

    def start(self, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Make something and enter it; a signal to stop waits until it is known how to end it."""
        with self.stopping.held():
            return self.stack.enter_context(make())
