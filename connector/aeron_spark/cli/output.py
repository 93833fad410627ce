"""Prints results: tables on a terminal, lines with tabs to a pipe or file, JSON with --json, and live views."""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from aeron_spark.errors import OptionError
from aeron_spark.texts import format_time

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from aeron_spark.log.facade import Summary


# Control characters, and marks that change the direction of text: a cell with them could break lines or forge output.
_DIRECTIONS: Final = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))

_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0), *_DIRECTIONS)

_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROLS},
    **{ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"},
}

_TABLE_ESCAPES: Final = {code: text for code, text in _ESCAPES.items() if code != ord("\n")}

CELL_FRAME: Final = 3  # characters of a table around a cell: two spaces and a line

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")

aeron_dir_option = click.option(
    "--aeron-dir",
    metavar="DIR",
    help="Directory of the media driver.  [default: $AERON_SPARK_AERON_DIR, or /dev/shm/aeron-spark-<user>]",
)


def is_terminal() -> bool:
    """Return whether standard output is a terminal: it gets tables, a pipe or file gets plain lines."""
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """Print one object as one line. Infinite numbers become null: JSON has no infinity."""
    click.echo(json.dumps(_plain(value), sort_keys=True))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str,
    kind: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Print a table, or the sentence ``empty`` if ``rows`` is empty; columns whose name ends in ``#`` are numbers.

    If standard output is not a terminal, each row is a line of cells separated by tabs, without title and header, and
    ``empty`` goes to standard error. Commands that print several tables give a ``kind``: the first cell of each line.
    A terminal that is too narrow gets the table without some of the ``optional`` columns, the first ones first, and
    their names.
    """
    rows = list(rows)
    if not rows:
        if empty:
            click.echo(empty, err=not is_terminal())
    elif is_terminal():
        from rich.console import Console

        console = Console(highlight=False, markup=False)
        left_out = _left_out(columns, rows, optional, console.width)
        shown = [number for number, column in enumerate(columns) if column not in left_out]
        console.print(
            make_table(
                title, [columns[number] for number in shown], [[row[number] for number in shown] for row in rows]
            )
        )
        if left_out:
            names = ", ".join(column.removesuffix("#") for column in columns if column in left_out)
            console.print(f"not shown in {console.width} columns: {names} (--json shows all)")
    else:
        print_lines(rows, kind)


def print_summary(summary: Summary, as_json: bool) -> None:
    """Print JSON objects, or tables and sentences, and warnings on standard error."""
    if as_json:
        for one in summary.objects:
            print_json(one)
        return
    for table in summary.tables:
        rows = [tuple(cells.values()) for cells in table.rows]
        print_table(table.title, tuple(table.rows[0]) if rows else (), rows, empty=table.empty, kind=table.kind)
    for line in summary.sentences:
        click.echo(line)
    for line in summary.notes:
        click.echo(line, err=True)


def _left_out(
    columns: Sequence[str], rows: Sequence[Sequence[object]], optional: Sequence[str], width: int
) -> list[str]:
    """Return the first ones of the ``optional`` columns, without which a table has at most ``width`` characters."""
    widths = {
        column: CELL_FRAME + max(len(format_cell(cell)) for cell in (column.removesuffix("#"), *cells))
        for column, *cells in zip(columns, *rows, strict=True)
    }
    for count in range(len(optional)):
        if 1 + sum(one for column, one in widths.items() if column not in optional[:count]) <= width:
            return list(optional[:count])
    return list(optional)


def print_lines(rows: Iterable[Sequence[object]], kind: str | None = None) -> None:
    """Print each row as one line of cells separated by tabs, with ``kind`` as the first cell unless it is None."""
    for row in rows:
        cells = [_plain_cell(cell) for cell in row]
        click.echo("\t".join(cells if kind is None else [kind, *cells]))


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, fold: bool = True) -> Table:
    """Return a table; columns whose name ends in ``#`` are numbers. ``fold``: fold long cells, else cut them off."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        is_number = column.endswith("#")
        table.add_column(
            column.removesuffix("#"),
            justify="right" if is_number else "left",
            overflow="fold" if fold else "ellipsis",
            no_wrap=not fold,
        )
    for row in rows:
        table.add_row(*(format_cell(cell) for cell in row))
    return table


def format_cell(cell: object) -> str:
    """Return the text of a cell in a table; integers have thousands separators."""
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return _text(cell).translate(_TABLE_ESCAPES)


def _plain_cell(cell: object) -> str:
    """Return the text of a cell in a plain line: line breaks are escaped, numbers have no separators."""
    return _text(cell).translate(_ESCAPES)


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def time_cell(seconds: float | None) -> str:
    """Return the cell of a time in seconds since 1970: ISO text in UTC, or ``-`` for None."""
    if seconds is None:
        return "-"
    return format_time(seconds)


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


PROGRESS_DELAY_S: Final = 1.0  # shorter work shows no progress bar

Advance = Callable[[int, int], None]


@contextmanager
def progress(label: str, total_bytes: int | None) -> Iterator[Advance]:
    """Show a progress bar if standard error is a terminal. ``total_bytes`` is None if unknown.

    Yields the function that the caller calls with the rows and bytes of each finished part.
    """
    if not sys.stderr.isatty():
        yield lambda rows, size: None
        return
    with _progress_bar(label, total_bytes) as advance:
        yield advance


@contextmanager
def _progress_bar(label: str, total_bytes: int | None) -> Iterator[Advance]:
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
    task = bar.add_task(label, total=total_bytes, rows=0)
    start, total_rows, is_shown = time.monotonic(), 0, False

    def advance(rows: int, size: int) -> None:
        nonlocal total_rows, is_shown
        total_rows += rows
        bar.update(task, advance=size, rows=total_rows)
        if not is_shown and time.monotonic() - start > PROGRESS_DELAY_S:
            bar.start()
            is_shown = True

    try:
        yield advance
    finally:
        if is_shown:
            bar.stop()


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print the connector's warnings on standard error, each as one sentence without a source line."""

    def print_warning(message: Warning | str, category: type[Warning], *source: object, **line: object) -> None:
        click.echo(f"aeron-spark: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # the class of all warnings of the connector
        warnings.showwarning = print_warning
        yield


class Prompt:
    """Asks the user on the terminal, unless ``yes``, before something is deleted."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes

    def check(self, preview: str) -> None:
        """Raise OptionError if the user has to be asked and standard input is not a terminal.

        ``preview`` is a sentence that names a command or option that shows what would be deleted.
        """
        if not self._yes and not sys.stdin.isatty():
            raise OptionError(
                "confirmation is needed, but standard input is not a terminal", remedy=f"Add --yes. {preview}"
            )

    def ask(self, question: str) -> None:
        """Raise click.Abort (exit code 1) if the user does not say yes."""
        if not self._yes:
            click.confirm(question, abort=True, err=True)


_View = TypeVar("_View")
_Sample = TypeVar("_Sample")


def compare_samples(
    read: Callable[[], _Sample], compare: Callable[[_Sample, _Sample], _View], interval_s: float, count: int | None
) -> Iterator[_View]:
    """Read a sample every ``interval_s`` seconds, and yield ``compare`` of each two successive ones, ``count`` times.

    Without ``count`` it does not end.
    """
    before = read()
    for _ in range(count) if count else itertools.count():
        time.sleep(interval_s)
        after = read()
        yield compare(before, after)
        before = after


def show_views(
    views: Iterator[_View],
    as_json: bool,
    *,
    print_object: Callable[[_View], object],
    print_rows: Callable[[_View], object],
    render: Callable[[_View, int], RenderableType],
) -> None:
    """Show the views until they end, or until Ctrl-C, which is a normal end.

    ``print_object`` prints a view for --json, ``print_rows`` prints its lines for a pipe or a file. ``render`` returns
    the view for a terminal with this number of lines.
    """
    try:
        if as_json:
            for view in views:
                print_object(view)
        elif is_terminal():
            _show_live(views, render)
        else:
            for view in views:
                print_rows(view)
    except KeyboardInterrupt:
        pass


def _show_live(views: Iterator[_View], render: Callable[[_View, int], RenderableType]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for view in views:
            live.update(render(view, console.height), refresh=True)
