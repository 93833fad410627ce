"""``aeron-spark streams … --server``: manages the named streams of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import check_connection_options, check_stream_name, read_route_flags, split_server
from aeron_spark.cli.output import format_size, format_time, print_json, print_table
from aeron_spark.cli.signals import catch_stop_signals, operation
from aeron_spark.errors import DataLossError, OptionError

if TYPE_CHECKING:
    from aeron_spark.client.client import Client
    from aeron_spark.stream_client.admin import StreamInfo


def options_with_server(route_flags: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the connector's options if the command line names a server, else None."""
    options = read_route_flags(route_flags)
    return options if "server" in options else None


def require_name(name: str | None) -> str:
    """Return ``name``. Raises OptionError if it is missing or is not a stream name."""
    if name is None:
        raise OptionError(
            "the name of the server's stream is missing",
            remedy="Give it after the command, such as 'aeron-spark streams describe flights --server HOST:PORT'.",
        )
    return check_stream_name(name)


def list_all(options: Mapping[str, str], as_json: bool) -> None:
    """Print a line for each stream."""
    with _client(options) as client:
        found = client.streams()
    if as_json:
        for stream in found:
            print_json(_summary(stream))
        return
    print_table(
        "streams",
        ("name", "state", "payload", "partitions#", "bytes#", "retention", "created"),
        [
            (
                stream.name,
                stream.state,
                stream.content or "nothing yet",
                len(stream.partitions),
                stream.bytes,
                _retention_text(stream),
                _created(stream),
            )
            for stream in found
        ],
        empty="no streams",
    )
    for stream in found:
        if stream.problem:
            click.echo(f"stream {stream.name} is {stream.state}: {stream.problem}", err=True)


def describe(options: Mapping[str, str], name: str, as_json: bool) -> None:
    """Print the properties, columns and partitions of one stream."""
    with _client(options) as client:
        stream = client.stream(name)
    if as_json:
        print_json(_summary(stream) | {"details": [_partition(part) for part in stream.partitions]})
        return
    columns = [] if stream.schema is None else [(f"column {field.name}", str(field.type)) for field in stream.schema]
    print_table(
        f"stream {name}",
        ("property", "value"),
        [
            ("name", stream.name),
            ("state", stream.state),
            *([("problem", stream.problem)] if stream.problem else []),
            ("payload", stream.content or "nothing yet"),
            *columns,
            ("bytes", f"{stream.bytes:,} ({format_size(stream.bytes)})"),
            ("retention", _retention_text(stream)),
            ("created", _created(stream)),
        ],
        empty="",
        kind="stream",
    )
    rows = [(str(part.number), part.start, part.end) for part in stream.partitions]
    print_table("partitions", ("partition#", "start#", "end#"), rows, empty="", kind="partition")


def create(options: Mapping[str, str], name: str, partitions: int, retention: str | None, as_json: bool) -> None:
    """Create a stream. Checks the name and the retention before it connects."""
    from aeron_spark.stream_client.admin import parse_retention
    from aeron_spark.streams.definition import check_name

    check_name(name)
    parse_retention(retention)
    with _client(options) as client:
        stream = client.create_stream(name, partitions, retention=retention)
    if as_json:
        print_json(_summary(stream))
    else:
        counted = "1 partition" if partitions == 1 else f"{partitions:,} partitions"
        click.echo(f"created stream {name} with {counted}, retention: {_retention_text(stream)}")


def purge(
    options: Mapping[str, str],
    name: str,
    before: int | str | None,
    keep: int | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Delete whole segments at the beginning of partitions: before a position or time, or the last ``keep`` bytes.

    Raises OptionError for an unknown partition, and DataLossError for a stream whose state is not known.
    """
    with _client(options) as client:
        stream = client.stream(name)
        if stream.state in ("damaged", "recovering"):
            raise DataLossError(
                f"stream {name!r} is {stream.state}: {stream.problem}",
                remedy="See 'Damage' in docs/streams.md for what to do about this state.",
            )
        parts = [part for part in stream.partitions if partition in (None, part.number)]
        if not parts:
            raise OptionError(
                f"stream {name!r} has no partition {partition}",
                remedy=f"Give one of 0 to {len(stream.partitions) - 1}.",
            )
        new_starts = [part.start for part in stream.partitions]
        if keep is not None:
            for part in parts:
                new_starts = client.purge_stream(name, max(0, part.end - keep), partition=part.number)
        elif before is not None:
            new_starts = client.purge_stream(name, before, partition=partition)
    if as_json:
        for part in parts:
            start = new_starts[part.number]
            print_json({"partition": part.number, "start": part.start, "new_start": start, "bytes": start - part.start})
        return
    rows = [
        (str(part.number), part.start, new_starts[part.number], new_starts[part.number] - part.start) for part in parts
    ]
    print_table("purged", ("partition#", "start#", "new start#", "bytes#"), rows, empty="nothing to purge")


def delete(options: Mapping[str, str], name: str, as_json: bool) -> None:
    """Delete a stream with all its rows."""
    with _client(options) as client:
        size_bytes = client.stream(name).bytes
        client.delete_stream(name)
    if as_json:
        print_json({"name": name, "bytes": size_bytes, "deleted": True})
    else:
        click.echo(f"deleted stream {name} ({format_size(size_bytes)})")


@contextmanager
def _client(options: Mapping[str, str]) -> Iterator[Client]:
    from aeron_spark.client.opening import connect

    address, connection_options = split_server(options)
    check_connection_options(options)
    with catch_stop_signals(), operation(), connect(address, **connection_options) as client:
        yield client


def _retention_text(stream: StreamInfo) -> str:
    limits = []
    if stream.retention_bytes:
        limits.append(f"{format_size(stream.retention_bytes)} of each partition")
    if stream.retention_seconds:
        limits.append(_duration(stream.retention_seconds))
    return " and ".join(limits) or "everything"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def _created(stream: StreamInfo) -> str:
    return format_time(stream.created.timestamp())


def _summary(stream: StreamInfo) -> dict[str, Any]:
    columns = None if stream.schema is None else [
        {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in stream.schema
    ]  # fmt: skip
    return {
        "name": stream.name,
        "state": stream.state,
        "problem": stream.problem or None,
        "payload": stream.content or None,
        "schema": columns,
        "partitions": len(stream.partitions),
        "bytes": stream.bytes,
        "retention_bytes": stream.retention_bytes or None,
        "retention_seconds": stream.retention_seconds or None,
        "created": _created(stream),
    }


def _partition(part: Any) -> dict[str, int]:
    return {"partition": part.number, "start": part.start, "end": part.end}
