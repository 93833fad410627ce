"""Makes views of successive samples, and shows them: live on a terminal, else as lines or JSON objects."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from aeron_spark.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType

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
    views: Iterator[_View], as_json: bool, *, print_object: Callable[[_View], object],
    print_rows: Callable[[_View], object], render: Callable[[_View, int], RenderableType],
) -> None:  # fmt: skip
    """Show the views until they end, or until Ctrl-C, which is a normal end.

    ``print_object`` prints a view for --json, ``print_rows`` prints its lines for a pipe or a file. ``render`` returns
    the view for a terminal with this number of lines.
    """
    try:
        if as_json:
            for view in views:
                print_object(view)
        elif output.is_terminal():
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
