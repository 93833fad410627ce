"""How commands print: tables on a terminal, plain lines to a pipe or file, one JSON object a line for programs."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import click

from aeron_spark.cli.main import INTERRUPTED as INTERRUPTED
from aeron_spark.errors import OptionError

if TYPE_CHECKING:
    from rich.table import Table

# Controls, and marks that change the direction of text: in a cell they would break lines or forge output.
_DIRECTIONS: Final = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))

_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0), *_DIRECTIONS)

_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROLS},
    **{ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"},
}

_ESCAPES_OF_CELLS: Final = {code: text for code, text in _ESCAPES.items() if code != ord("\n")}

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")

aeron_dir_option = click.option(
    "--aeron-dir", metavar="DIR", help="The media driver's directory.  [default: this user's own]"
)


def is_terminal() -> bool:
    """Return whether standard output is a terminal; elsewhere output is plain lines."""
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """Print one object as one line; times without an end become null, because JSON has no infinity."""
    click.echo(json.dumps(_plain(value), sort_keys=True))


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, kind: str | None = None
) -> None:
    """Print a table, or the sentence ``empty``; columns whose name ends in ``#`` are numbers.

    Where standard output is not a terminal, each row is one line of cells with a tab between two, without a title or a
    head, and ``empty`` goes to standard error. ``kind`` is then the first cell of each line, for commands that print
    several tables.
    """
    rows = list(rows)
    if not rows:
        if empty:
            click.echo(empty, err=not is_terminal())
    elif is_terminal():
        from rich.console import Console

        Console(highlight=False, markup=False).print(table(title, columns, rows))
    else:
        print_lines(rows, kind)


def print_lines(rows: Iterable[Sequence[object]], kind: str | None = None) -> None:
    """Print each row as one line of cells with a tab between two; ``kind`` is the first cell of each where given."""
    for row in rows:
        cells = [_plain_cell(cell) for cell in row]
        click.echo("\t".join(cells if kind is None else [kind, *cells]))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, fold: bool = True) -> Table:
    """Return a table; columns whose name ends in ``#`` are numbers. What is too long is folded, or cut to a line."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        number = column.endswith("#")
        made.add_column(
            column.removesuffix("#"),
            justify="right" if number else "left",
            overflow="fold" if fold else "ellipsis",
            no_wrap=not fold,
        )
    for row in rows:
        made.add_row(*(show(cell) for cell in row))
    return made


def show(cell: object) -> str:
    """Return a cell's text for a table."""
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return _text(cell).translate(_ESCAPES_OF_CELLS)


def _plain_cell(cell: object) -> str:
    """Return a cell's text for a line: one line, numbers without separators."""
    return _text(cell).translate(_ESCAPES)


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def moment(seconds: float | None) -> str:
    """Return the cell of a time since the epoch: ISO text in UTC, or ``-`` for None."""
    if seconds is None:
        return "-"
    return iso(seconds)


def iso(seconds: float) -> str:
    """Return a time since the epoch as ISO text in UTC, such as ``2026-03-01T09:30:00.000Z``."""
    found = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return found.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def size(count: int) -> str:
    """Return bytes as a person reads them."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Say warnings of the connector as sentences."""

    def say(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        click.echo(f"aeron-spark: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # all of the connector's are of this kind
        warnings.showwarning = say
        yield


def confirm(question: str, yes: bool, look: str = "") -> None:
    """Ask ``question`` on the terminal, unless ``yes``; end with exit code 1 where the answer is no."""
    needs_terminal(yes, look)
    if not yes:
        click.confirm(question, abort=True, err=True)


def needs_terminal(yes: bool, look: str) -> None:
    """Raise OptionError where a question has to be asked, and standard input is not a terminal.

    ``look`` says how to see first what would be deleted.
    """
    if not yes and not sys.stdin.isatty():
        raise OptionError(
            "confirmation is needed, and standard input is not a terminal", remedy=f"Add --yes. {look}".rstrip()
        )
