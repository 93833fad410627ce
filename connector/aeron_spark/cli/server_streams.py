"""``aeron-spark streams … --server``: a server's named streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import check_client, client_arguments, route_given, stream_named
from aeron_spark.cli.output import iso, print_json, print_table, size
from aeron_spark.cli.signals import operation, stopping
from aeron_spark.errors import DataLossError, OptionError

if TYPE_CHECKING:
    from aeron_spark.client.opening import Client
    from aeron_spark.stream_client.admin import StreamInfo


def server_given(way: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the options where ``way`` leads to a server, else None."""
    given = route_given(way)
    return given if "server" in given else None


def named(name: str | None) -> str:
    """Return a stream's name. Raises OptionError where none was given, or where it cannot be one."""
    if name is None:
        raise OptionError("a stream of a server has a name", remedy="Give it: aeron-spark streams … NAME --server …")
    return stream_named(name)


def list_all(given: Mapping[str, str], as_json: bool) -> None:
    """Say which streams there are."""
    with _client(given) as client:
        found = client.streams()
    if as_json:
        for one in found:
            print_json(_summary(one))
        return
    print_table(
        "streams",
        ("name", "state", "holds", "partitions#", "bytes#", "retention", "created"),
        [
            (
                one.name,
                one.state,
                one.content or "nothing yet",
                len(one.partitions),
                one.bytes,
                _kept(one),
                _created(one),
            )
            for one in found
        ],
        empty="no streams",
    )
    for one in found:
        if one.problem:
            click.echo(f"stream {one.name} is {one.state}: {one.problem}", err=True)


def describe(given: Mapping[str, str], name: str, as_json: bool) -> None:
    """Say all about one stream."""
    with _client(given) as client:
        one = client.stream(name)
    if as_json:
        print_json(_summary(one) | {"details": [_partition(part) for part in one.partitions]})
        return
    columns = [] if one.schema is None else [(f"column {field.name}", str(field.type)) for field in one.schema]
    print_table(
        f"stream {name}",
        ("what", "value"),
        [
            ("name", one.name),
            ("state", one.state),
            *([("problem", one.problem)] if one.problem else []),
            ("holds", one.content or "nothing yet"),
            *columns,
            ("bytes", f"{one.bytes:,} ({size(one.bytes)})"),
            ("retention", _kept(one)),
            ("created", _created(one)),
        ],
        empty="",
        kind="stream",
    )
    rows = [(str(part.number), part.start, part.end) for part in one.partitions]
    print_table("partitions", ("partition#", "start#", "end#"), rows, empty="", kind="partition")


def create(given: Mapping[str, str], name: str, partitions: int, retention: str | None, as_json: bool) -> None:
    """Create a stream."""
    from aeron_spark.stream_client.admin import parse_retention
    from aeron_spark.streams.definition import check_name

    check_name(name)  # both before anything is started
    parse_retention(retention)
    with _client(given) as client:
        made = client.create_stream(name, partitions, retention=retention)
    if as_json:
        print_json(_summary(made))
    else:
        parts = "1 partition" if partitions == 1 else f"{partitions:,} partitions"
        click.echo(f"created stream {name} with {parts}, retention: {_kept(made)}")


def purge(
    given: Mapping[str, str],
    name: str,
    before: int | str | None,
    keep: int | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Delete the beginnings of partitions: before a position or a time, or all but ``keep`` bytes of each."""
    with _client(given) as client:
        was = client.stream(name)
        if was.state in ("damaged", "recovering"):
            raise DataLossError(f"stream {name!r} is {was.state}: {was.problem}")
        parts = [one for one in was.partitions if partition in (None, one.number)]
        if not parts:
            raise OptionError(
                f"stream {name!r} has no partition {partition}", remedy=f"It has {len(was.partitions)}, from 0 on."
            )
        starts = [one.start for one in was.partitions]
        if keep is not None:
            for one in parts:
                starts = client.purge_stream(name, max(0, one.end - keep), partition=one.number)
        elif before is not None:
            starts = client.purge_stream(name, before, partition=partition)
    for one in parts if as_json else ():
        start = starts[one.number]
        print_json({"partition": one.number, "start": one.start, "new_start": start, "bytes": start - one.start})
    if not as_json:
        rows = [(str(one.number), one.start, starts[one.number], starts[one.number] - one.start) for one in parts]
        print_table("purged", ("partition#", "start#", "new start#", "bytes#"), rows, empty="nothing to purge")


def delete(given: Mapping[str, str], name: str, as_json: bool) -> None:
    """Delete a stream."""
    with _client(given) as client:
        was = client.stream(name)
        client.delete_stream(name)
    if as_json:
        print_json({"name": name, "bytes": was.bytes, "deleted": True})
    else:
        click.echo(f"deleted stream {name} ({size(was.bytes)})")


@contextmanager
def _client(given: Mapping[str, str]) -> Iterator[Client]:
    from aeron_spark.client.opening import connect

    address, options = client_arguments(given)
    check_client(given)
    with stopping(), operation(), connect(address, **options) as client:
        yield client


def _kept(one: StreamInfo) -> str:
    limits = []
    if one.retention_bytes:
        limits.append(f"{size(one.retention_bytes)} of each partition")
    if one.retention_seconds:
        limits.append(_duration(one.retention_seconds))
    return " and ".join(limits) or "everything"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def _created(one: StreamInfo) -> str:
    return iso(one.created.timestamp())


def _summary(one: StreamInfo) -> dict[str, Any]:
    columns = None if one.schema is None else [
        {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in one.schema
    ]  # fmt: skip
    return {
        "name": one.name,
        "state": one.state,
        "problem": one.problem or None,
        "payload": one.content or None,
        "schema": columns,
        "partitions": len(one.partitions),
        "bytes": one.bytes,
        "retention_bytes": one.retention_bytes or None,
        "retention_seconds": one.retention_seconds or None,
        "created": _created(one),
    }


def _partition(part: Any) -> dict[str, int]:
    return {"partition": part.number, "start": part.start, "end": part.end}
