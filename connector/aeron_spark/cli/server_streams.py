"""``aeron-spark streams … --server``: manages the named streams of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aeron_spark import units
from aeron_spark.cli.arguments import check_connection_options, check_stream_name, read_route_flags, split_server
from aeron_spark.cli.formats import check_file, format_of
from aeron_spark.cli.output import format_size, format_time, print_json, print_table
from aeron_spark.cli.signals import catch_stop_signals, operation
from aeron_spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

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
    with connected(options) as client:
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
                retention_text(stream.retention_bytes, stream.retention_seconds),
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
    with connected(options) as client:
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
            ("retention", retention_text(stream.retention_bytes, stream.retention_seconds)),
            *([("segment", _segment_text(stream))] if stream.file_bytes else []),
            ("schema policy", stream.schema_policy),
            ("created", _created(stream)),
            *([("ended", format_time(stream.ended.timestamp()))] if stream.ended else []),
            *([("former names", ", ".join(stream.former_names))] if stream.former_names else []),
        ],
        empty="",
        kind="stream",
    )
    rows = [(str(part.number), part.start, part.end) for part in stream.partitions]
    print_table("partitions", ("partition#", "start#", "end#"), rows, empty="", kind="partition")


def create(
    options: Mapping[str, str], name: str, partitions: int, retention: str | None, segment: str | None,
    schema_policy: str, schema_file: str | None, if_not_exists: bool, as_json: bool,
) -> None:  # fmt: skip
    """Create a stream. Checks the name, the sizes and the file of the schema before it connects."""
    from aeron_spark.stream_client.admin import parse_retention
    from aeron_spark.streams.definition import check_name

    check_name(name)
    parse_retention(retention)
    segment_bytes = 0 if segment is None else _parse_segment(name, segment)
    schema = None if schema_file is None else _read_schema(schema_file)
    with connected(options) as client:
        stream = client.create_stream(
            name, partitions, retention=retention, segment_bytes=segment_bytes, schema_policy=schema_policy,
            schema=schema, exist_ok=if_not_exists,
        )  # fmt: skip
    if as_json:
        print_json(_summary(stream))
    else:
        found = len(stream.partitions)
        counted = "1 partition" if found == 1 else f"{found:,} partitions"
        kept = retention_text(stream.retention_bytes, stream.retention_seconds)
        begin = f"stream {name} exists" if if_not_exists else f"created stream {name}"
        click.echo(
            f"{begin} with {counted}, retention: {kept}, segment: {_segment_text(stream)}, "
            f"schema policy: {stream.schema_policy}"
        )


def _parse_segment(name: str, text: str) -> int:
    """Return the bytes of a segment. Raises OptionError."""
    from aeron_spark.streams.definition import MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, check_segment_bytes

    try:
        size = units.parse_size(text, MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)
    except ValueError as error:
        raise OptionError(
            f"--segment is {text!r}, expected {error}", remedy="Give a power of two from 1MiB to 1GiB."
        ) from None
    check_segment_bytes(name, size)
    return size


def _segment_text(stream: StreamInfo) -> str:
    """Return the size of the segments, and the bytes that a partition holds in excess if its files are longer."""
    size = format_size(stream.segment_bytes)
    if stream.file_bytes <= stream.segment_bytes:
        return size
    longer = format_size(stream.file_bytes)
    return (
        f"{size} ({longer} in fact: the archive of the node has longer segments, so a partition holds at most {longer} "
        "besides its readable rows)"
    )


def _read_schema(name: str) -> pa.Schema:
    """Return the schema of a Parquet or Arrow file. Raises OptionError for another file."""
    check_file(name)
    form = format_of(name, None)
    if form not in ("parquet", "arrow"):
        raise OptionError(
            f"--schema {name} is not a Parquet or Arrow file by its suffix",
            remedy="Give a file such as flights.parquet or flights.arrow; only its columns are used, not its rows.",
        )
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if form == "parquet":
            return pyarrow.parquet.read_schema(name)
        try:
            with pa.ipc.open_file(name) as file:
                return file.schema
        except pa.ArrowInvalid:  # the other form of an Arrow file
            with open(name, "rb") as data, pa.ipc.open_stream(data) as stream:
                return stream.schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise OptionError(
            f"--schema {name} is not a complete {form} file: {error}", remedy="Give a Parquet or Arrow file."
        ) from None


def delete(options: Mapping[str, str], name: str, as_json: bool) -> None:
    """Delete a stream with all its rows."""
    with connected(options) as client:
        size_bytes = client.stream(name).bytes
        client.delete_stream(name)
    if as_json:
        print_json({"name": name, "bytes": size_bytes, "deleted": True})
    else:
        click.echo(f"deleted stream {name} ({format_size(size_bytes)})")


@contextmanager
def connected(options: Mapping[str, str]) -> Iterator[Client]:
    """Connect to the server of the options; yield the client."""
    from aeron_spark.client.opening import connect

    address, connection_options = split_server(options)
    check_connection_options(options)
    with catch_stop_signals(), operation(), connect(address, **connection_options) as client:
        yield client


def retention_text(size: int, seconds: float) -> str:
    """Return a retention in words."""
    limits = []
    if size:
        limits.append(f"{format_size(size)} of each partition")
    if seconds:
        limits.append(_duration(seconds))
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
        "segment_bytes": stream.segment_bytes or None,
        "file_bytes": stream.file_bytes or None,
        "schema_policy": stream.schema_policy or None,
        "created": _created(stream),
        "ended": None if stream.ended is None else format_time(stream.ended.timestamp()),
        "former_names": list(stream.former_names),
    }


def _partition(part: Any) -> dict[str, int]:
    return {"partition": part.number, "start": part.start, "end": part.end}
