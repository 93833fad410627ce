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
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from aeron_spark.errors import OptionError
from aeron_spark.texts import format_time

if TYPE_CHECKING:
    from rich.console import Console, ConsoleDimensions, Group, RenderableType

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
SHORT_TEXT: Final = 24  # characters, those of a time; a longer text is cut off before a column is left out
ANY_WIDTH: Final = 1_000_000_000  # characters of a console that cuts nothing off
SHORTEST_TEXT: Final = 4  # characters: no text is cut off below it

_Command = TypeVar("_Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")


def _remember(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    context.meta[f"{__name__}.{parameter.name}"] = is_set


def _is_set(name: str) -> bool:
    """Return whether the command line has this option of :func:`table_options`, which a command with tables needs."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta[f"{__name__}.{name}"])


def table_options(command: _Command) -> _Command:
    """Add --json, --wide and --header to a command that prints tables."""
    for option in (
        json_option,
        click.option(
            "--header", is_flag=True, expose_value=False, callback=_remember,
            help="To a pipe: print a line with the names of the columns first.",
        ),
        click.option(
            "--wide", is_flag=True, expose_value=False, callback=_remember,
            help="On a terminal: show all columns, and cut nothing off.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


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

    If standard output is not a terminal, each row is a line of cells separated by tabs, without a title, and ``empty``
    goes to standard error. Commands that print several tables give a ``kind``: the first cell of each line. With
    --header, a line with the names of the columns comes first.

    On a terminal each row has one line. A terminal that is too narrow gets the table without some of the ``optional``
    columns, the first ones first, and with long texts cut off; with --wide it gets everything.
    """
    rows = list(rows)
    if not rows:
        if empty:
            click.echo(empty, err=not is_terminal())
    elif is_terminal():
        console = _console()
        width = None if _is_set("wide") else console.width
        if width is None:
            console.width = ANY_WIDTH
        console.print(make_table(title, columns, rows, width=width, optional=optional))
    else:
        print_header(columns, kind)
        print_lines(rows, kind)


def print_summary(summary: Summary, as_json: bool) -> None:
    """Print JSON objects, or tables and sentences, and warnings on standard error."""
    if as_json:
        for one in summary.objects:
            print_json(one)
        return
    for table in summary.tables:
        rows = [tuple(cells.values()) for cells in table.rows]
        columns = tuple(table.rows[0]) if rows else ()
        print_table(table.title, columns, rows, empty=table.empty, kind=table.kind, optional=table.optional)
    for line in summary.sentences:
        click.echo(line)
    for line in summary.notes:
        click.echo(line, err=True)


def print_header(columns: Sequence[str], kind: str | None = None) -> None:
    """With --header, print the names of columns as :func:`print_lines` prints a row."""
    if _is_set("header"):
        print_lines([[column.removesuffix("#") for column in columns]], kind)


def print_lines(rows: Iterable[Sequence[object]], kind: str | None = None) -> None:
    """Print each row as one line of cells separated by tabs, with ``kind`` as the first cell unless it is None."""
    for row in rows:
        cells = [_plain_cell(cell) for cell in row]
        click.echo("\t".join(cells if kind is None else [kind, *cells]))


def make_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    width: int | None,
    optional: Sequence[str] = (),
) -> Group:
    """Return a title line and a table; columns whose name ends in ``#`` are numbers.

    With ``width``, each row has one line of at most so many characters: ``optional`` columns are left out, the first
    ones first, and long texts are cut off. The title line says that. Without it, all cells are whole.
    """
    from rich.cells import cell_len
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    texts = [[format_cell(cell) for cell in row] for row in rows]
    whole = [max(map(cell_len, ("\n".join(cells)).split("\n"))) for cells in zip(_names(columns), *texts, strict=True)]
    is_wide = _is_set("wide")
    widths = dict(enumerate(whole)) if width is None else _fit(columns, whole, () if is_wide else optional, width)
    table = Table()
    for number, column_width in widths.items():
        justify: Literal["left", "right"] = "right" if columns[number].endswith("#") else "left"
        table.add_column(_names(columns)[number], justify=justify, width=column_width, no_wrap=True)
    is_cut = any(widths[number] < whole[number] for number in widths)
    for row in texts:
        cells = [row[number] for number in widths]
        if width is not None:
            is_cut = is_cut or any("\n" in cell for cell in cells)
            cells = [_first_line(cell) for cell in cells]
        table.add_row(*cells)
    hidden = len(columns) - len(widths)
    notes = [f"{hidden} column{'s' * (hidden > 1)} hidden"] * (hidden > 0) + ["texts cut off"] * is_cut
    note = f" ({', '.join(notes)}: --wide shows all)" if notes and not is_wide else ""
    line = Text(title, style="italic", no_wrap=True, overflow="ellipsis")
    if width is not None:
        line.truncate(max(SHORTEST_TEXT, width - len(note)), overflow="ellipsis")
    return Group(line.append(note), table)


def _names(columns: Sequence[str]) -> list[str]:
    return [column.removesuffix("#") for column in columns]


def _first_line(text: str) -> str:
    first, is_longer, _ = text.partition("\n")
    return f"{first} …" if is_longer else first


def _fit(columns: Sequence[str], whole: Sequence[int], optional: Sequence[str], width: int) -> dict[int, int]:
    """Return the widths of the columns that a table of at most ``width`` characters shows, by their numbers.

    ``whole`` has the width of each column's longest cell.
    """

    def excess() -> int:
        return 1 + sum(CELL_FRAME + one for one in widths.values()) - width

    texts = [number for number, column in enumerate(columns) if not column.endswith("#")]
    widths = dict(enumerate(whole))
    for number in texts:
        widths[number] = min(whole[number], max(SHORT_TEXT, len(columns[number])))
    for column in optional:
        if excess() > 0:
            del widths[columns.index(column)]
    texts = [number for number in texts if number in widths]
    for number in sorted(texts, key=lambda one: whole[one] - widths[one]):
        widths[number] += min(whole[number] - widths[number], max(0, -excess()))
    while excess() > 0 and (longer := [number for number in texts if widths[number] > SHORTEST_TEXT]):
        widths[max(longer, key=widths.__getitem__)] -= 1
    return widths


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


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
    headers: Mapping[str, Sequence[str]],
    render: Callable[[_View, ConsoleDimensions], RenderableType],
) -> None:
    """Show the views until they end, or until Ctrl-C, which is a normal end.

    ``print_object`` prints a view for --json, ``print_rows`` prints its lines for a pipe or a file, whose columns by
    their kind are ``headers``. ``render`` returns the view for a terminal of this size.
    """
    try:
        if as_json:
            for view in views:
                print_object(view)
        elif is_terminal():
            _show_live(views, render)
        else:
            for kind, columns in headers.items():
                print_header(columns, kind)
            for view in views:
                print_rows(view)
    except KeyboardInterrupt:
        pass


def _show_live(views: Iterator[_View], render: Callable[[_View, ConsoleDimensions], RenderableType]) -> None:
    from rich.live import Live

    console = _console()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for view in views:
            live.update(render(view, console.size), refresh=True)
