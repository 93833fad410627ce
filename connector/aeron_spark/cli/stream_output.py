"""Prints what the streams of a route return, and runs commands that use a route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import read_route_flags
from aeron_spark.cli.output import print_json, print_table, print_warnings
from aeron_spark.cli.signals import StopRequest, catch_sigint, catch_stop_signals, operation

if TYPE_CHECKING:
    from aeron_spark.client.named_streams import ServerStreams
    from aeron_spark.direct.catalog import DirectStreams
    from aeron_spark.log.facade import Summary


def streams_of_flags(route_flags: Mapping[str, Any]) -> DirectStreams | ServerStreams:
    """Return the streams of the route that the flags of a command choose."""
    return streams_of_options(read_route_flags(route_flags))


def streams_of_options(options: Mapping[str, str]) -> DirectStreams | ServerStreams:
    """Return the streams of the route that the options choose."""
    from aeron_spark.log_factory import streams_of

    return streams_of(options, partial(running, options))


@contextmanager
def running(options: Mapping[str, str]) -> Iterator[StopRequest]:
    """Run the part of a command that uses the route of ``options``; an OptionError of it has exit code 1.

    Through a server, SIGTERM ends it as SIGINT does, so that it leaves the server. Directly, SIGTERM ends the process.
    """
    if "server" in options:
        with catch_stop_signals() as stopped, operation():
            yield stopped
    else:
        with catch_sigint() as stopped, print_warnings(), operation():
            yield stopped


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
