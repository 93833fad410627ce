"""A progress bar on standard error, where that is a terminal and the work is long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LONG: Final = 1.0  # seconds of work before a bar is worth showing

Advance = Callable[[int, int], None]


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Give a function to call with the rows and bytes that were done; ``total`` is in bytes, None where unknown."""
    if not sys.stderr.isatty():
        yield lambda rows, size: None
        return
    with _bar(what, total) as advance:
        yield advance


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total, rows=0)
    began, done, shown = time.monotonic(), 0, False

    def advance(rows: int, size: int) -> None:
        nonlocal done, shown
        done += rows
        bar.update(task, advance=size, rows=done)
        if not shown and time.monotonic() - began > LONG:
            bar.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
