"""How commands speak: tables for people, one JSON object a line for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from typing import Any

import click
from rich.console import Console
from rich.table import Table

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
aeron_dir_option = click.option(
    "--aeron-dir", metavar="DIR", help="The media driver's directory.  [default: this user's own]"
)


def print_json(value: object) -> None:
    """Print one object as one line; times without an end become null, because JSON has no infinity."""
    click.echo(json.dumps(_plain(value), sort_keys=True))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table, or the sentence ``empty``; columns whose name ends in ``#`` are numbers."""
    made = table(title, columns, rows)
    if made.row_count:
        # A table cut to 80 columns would hide values from whoever reads it in a file or a pipe.
        console = Console(highlight=False, markup=False)
        console = console if console.is_terminal else Console(highlight=False, markup=False, width=200)
        console.print(made)
    else:
        click.echo(empty)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, fold: bool = True) -> Table:
    """Return a table; columns whose name ends in ``#`` are numbers. What is too long is folded, or cut to a line."""
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
    """Return a cell's text."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return str(cell)


def moment(seconds: float | None) -> str:
    """Return a time since the epoch as ISO text in UTC."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat(timespec="milliseconds")


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
