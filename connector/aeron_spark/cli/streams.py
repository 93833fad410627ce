"""``aeron-spark streams``: manages streams in archives, and with --server the named streams of a server."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any

import click

from aeron_spark import texts
from aeron_spark.cli.arguments import route_options, server_options, streams_of_flags, yes_option
from aeron_spark.cli.formats import check_file, format_of
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import Prompt, json_option, print_summary, table_options
from aeron_spark.errors import OptionError
from aeron_spark.log.facade import (
    Cells,
    NewStream,
    Purge,
    Summary,
    Table,
    check_stream_name,
    properties,
    retention_text,
)
from aeron_spark.options import values
from aeron_spark.texts import format_time, rounded_size

if TYPE_CHECKING:
    import pyarrow as pa

    from aeron_spark.client.client import Client
    from aeron_spark.wire.stream_requests import StreamLease, StreamProperties, StreamStage, StreamWriterId

policy_option = click.option(
    "--schema-policy",
    type=click.Choice(["strict", "additive"]),
    help="strict: the first transaction fixes the columns, and only writers with evolveSchema=true and the grant "
    "manage add nullable ones. additive: each writer may add nullable columns.",
)

# Columns that a narrow terminal does not show, the first ones first.
WRITER_OPTIONAL = ("single use", "changed", "owner")
STAGE_OPTIONAL = ("stage", "owner", "partition#")

recording_option = click.option(
    "--recording",
    "recordings",
    type=int,
    multiple=True,
    metavar="ID",
    help="Direct route: only the recording with this id; repeatable.  [default: all recordings of the stream]",
)


@click.group(cls=SuggestingGroup)
def streams() -> None:
    """Manage streams: those recorded in archives, or with --server the named streams of a server.

    \b
    On the direct route, a stream is the recordings of one channel and stream id:
      aeron-spark streams list
      aeron-spark streams describe --channel aeron:ipc --stream-id 1001
    On a server, a stream has a name and partitions:
      aeron-spark streams create flights --partitions 4 --server feeds.example:20121
    """


Connected = Callable[[], "AbstractContextManager[Client]"]
"""Connects with the server of the command; an OptionError after it has exit code 1."""


def named_command(
    *parameters: Callable[[Any], Any], output_options: Callable[[Any], Any] = json_option
) -> Callable[[Callable[..., Summary]], click.Command]:
    """Return the decorator for a command about the stream NAME of a server, with these ``parameters`` besides NAME.

    Its function gets what connects, the name, and the values of the parameters; it checks them before it connects.
    """

    def add(use: Callable[..., Summary]) -> click.Command:
        own = [one for one in inspect.signature(use).parameters if one not in ("connected", "name")]

        @wraps(use)
        def command(name: str, as_json: bool, **flags: Any) -> None:
            values = {one: flags.pop(one) for one in own}
            print_summary(use(streams_of_flags(flags).named(name), name, **values), as_json)

        decorators = (click.argument("name"), route_options, server_options, *parameters, output_options)
        return streams.command()(reduce(lambda function, decorate: decorate(function), reversed(decorators), command))

    return add


@streams.command("list")
@route_options
@server_options
@table_options
def list_streams(as_json: bool, **route_flags: Any) -> None:
    """List the streams of an archive, or with --server those of a server.

    --channel and --stream-id restrict the list to streams with that channel or stream id.
    """
    print_summary(streams_of_flags(route_flags).list(), as_json)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@table_options
def describe(name: str | None, as_json: bool, **route_flags: Any) -> None:
    """Describe a stream: payload, columns, size, retention, recordings or partitions.

    NAME is the stream's name on a server, or on the direct route the alias of its channel. A stream without an alias is
    named by --channel and --stream-id.
    """
    print_summary(streams_of_flags(route_flags).describe(name), as_json)


@named_command(output_options=table_options)
def usage(connected: Connected, name: str) -> Summary:
    """Show the disk space of the stream NAME, its stages, and the lag of its readers; needs --server.

    The lag is that of the reader with a lease that is furthest behind. Readers of the Python client have leases.
    """
    with connected() as client:
        found = client.stream_usage(name)
    table = properties(
        f"usage of {name}",
        ("bytes", f"{found.bytes:,} ({rounded_size(found.bytes)})"),
        ("bytes on disk", f"{found.disk_bytes:,} ({rounded_size(found.disk_bytes)})"),
        ("stages", str(found.stages)),
        ("leases", str(found.leases)),
        ("lag", f"{found.lag_bytes:,} bytes, {found.lag_seconds:.1f} s" if found.leases else "no reader has a lease"),
    )
    measured = {
        "name": name, "bytes": found.bytes, "disk_bytes": found.disk_bytes, "stages": found.stages,
        "leases": found.leases, "lag_bytes": found.lag_bytes, "lag_seconds": round(found.lag_seconds, 3),
    }  # fmt: skip
    return Summary([measured], [table])


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@click.option(
    "--before",
    metavar="POSITION|TIME",
    help="Delete the rows before this position in bytes, or before this time: ISO in UTC, or relative such as -7d.",
)
@click.option("--keep", metavar="SIZE", help="Keep this much at the end of each recording or partition, such as 10GiB.")
@recording_option
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --server: only this partition.  [default: all partitions]",
)
@click.option(
    "--wait",
    "wait_text",
    is_flag=False,
    flag_value="2min",
    metavar="[DURATION]",
    help="With --server: wait until the space is freed, except that of segments with readable rows; an error if this "
    "takes longer.  [default without a duration: 2min]",
)
@click.option("--dry-run", is_flag=True, help="Direct route: only show what would be deleted.")
@yes_option
@table_options
def purge(
    name: str | None,
    before: str | None,
    keep: str | None,
    recordings: tuple[int, ...],
    partition: int | None,
    wait_text: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **route_flags: Any,
) -> None:
    """Delete the oldest rows of a stream, to free disk space. NAME is as for 'streams describe'.

    On a server, the transactions before the position or time become unreadable at once, and the command says which of
    their files are deleted now, which later, and why. The transaction with the position stays.

    On the direct route, rows are deleted in whole segments (files), so up to one segment more is kept. The last segment
    always stays.

    \b
    For example:
      aeron-spark streams purge --channel aeron:ipc --stream-id 1001 --before -7d --dry-run
      aeron-spark streams purge flights --keep 10GiB --server feeds.example:20121
    """
    if (before is None) == (keep is None):
        raise OptionError("one of --before and --keep is required", remedy="For example --before -7d, or --keep 10GiB.")
    position, time_ns = _parse_before(before)
    wanted = Purge(before, position, time_ns, _parse_keep(keep), recordings, partition, wait_text, dry_run)
    print_summary(streams_of_flags(route_flags).purge(name, wanted, Prompt(yes)), as_json)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@recording_option
@yes_option
@json_option
def delete(name: str | None, recordings: tuple[int, ...], yes: bool, as_json: bool, **route_flags: Any) -> None:
    """Delete a stream with all its rows. NAME is as for 'streams describe'.

    On the direct route, the stream's stopped recordings and their files are deleted; an active one is refused.
    """
    print_summary(streams_of_flags(route_flags).delete(name, recordings, Prompt(yes)), as_json)


@streams.command()
@click.argument("name")
@route_options
@server_options
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of partitions; it cannot be changed later.  [default: 1]",
)
@click.option(
    "--retention",
    metavar="SIZE|TIME",
    help="Delete the oldest rows of a partition beyond this size (10GiB) or age (7d), or both (10GiB,7d).  [default: "
    "keep all rows]",
)
@click.option(
    "--segment",
    metavar="SIZE",
    help="Size of the files in which space is freed: a power of two from 1MiB to 1GiB. A raw value has at most an "
    "eighth of it.  [default: an eighth of the retention by size, from 1MiB to 16MiB; 16MiB without one]",
)
@policy_option
@click.option(
    "--schema",
    "schema_file",
    metavar="FILE",
    help="Give the stream the columns of this Parquet or Arrow file.  [default: those of the first transaction]",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if a stream has this name.")
@json_option
def create(
    name: str,
    partitions: int,
    retention: str | None,
    segment: str | None,
    schema_policy: str | None,
    schema_file: str | None,
    if_not_exists: bool,
    as_json: bool,
    **route_flags: Any,
) -> None:
    """Create the durable stream NAME on a server; needs --server. The schema policy is strict by default.

    \b
    For example:
      aeron-spark streams create flights --partitions 4 --retention 7d --server feeds.example:20121
    """
    wanted = NewStream(
        partitions,
        retention,
        segment,
        schema_policy or "strict",
        lambda: None if schema_file is None else _read_schema(schema_file),
        if_not_exists,
    )
    print_summary(streams_of_flags(route_flags).create(name, wanted), as_json)


@named_command(
    click.option(
        "--retention",
        metavar="SIZE|TIME|none",
        help="Keep this size (10GiB) of each partition, or rows of this age (7d), or both (10GiB,7d); none: all rows.",
    ),
    policy_option,
    click.option(
        "--dry-run", is_flag=True, help="Change nothing; only show the change and the rows that it would remove."
    ),
)
def alter(connected: Connected, name: str, retention: str | None, schema_policy: str | None, dry_run: bool) -> Summary:
    """Change the retention or the schema policy of the stream NAME; needs --server and the grant 'manage'.

    The server applies a new retention within some seconds. --dry-run shows first how many bytes become unreadable.

    \b
    For example:
      aeron-spark streams alter flights --retention 7d --dry-run --server feeds.example:20121
    """
    from aeron_spark.stream_client.operations import parse_new_retention

    if retention is None and schema_policy is None:
        raise OptionError("nothing to change", remedy="Give --retention, --schema-policy, or both.")
    parse_new_retention(retention)
    with connected() as client:
        found = client.alter_stream(name, retention=retention, schema_policy=schema_policy, dry_run=dry_run)
    before, after = _properties(found.before), _properties(found.after)
    verb = "would be" if dry_run else "become"
    size = rounded_size(sum(found.unreadable_bytes))
    sentences = [
        f"stream {name}{' (dry run, nothing is changed)' if dry_run else ''}",
        f"retention: {_change(retention_text(found.before), retention_text(found.after))}",
        f"schema policy: {_change(found.before.schema_policy, found.after.schema_policy)}",
        f"rows that {verb} unreadable now: {size} of {len(found.unreadable_bytes)} partitions",
        *(f"  partition {number}: {size:,} bytes" for number, size in enumerate(found.unreadable_bytes) if size),
    ]
    changed = {
        "name": name, "dry_run": dry_run, "before": before, "after": after,
        "unreadable_bytes": list(found.unreadable_bytes),
    }  # fmt: skip
    return Summary([changed], sentences=sentences)


@named_command(click.argument("new_name"))
def rename(connected: Connected, name: str, new_name: str) -> Summary:
    """Rename the stream NAME to NEW_NAME; needs --server, the grant 'manage' on NAME and 'create' on NEW_NAME.

    Running readers, writers and queries fail with the new name in their errors; started again with it, they continue
    where they were. The old name gives this error until another stream gets it.
    """
    check_stream_name(new_name)
    with connected() as client:
        client.rename_stream(name, new_name)
    return Summary([{"name": new_name, "former_name": name}], sentences=[f"renamed stream {name} to {new_name}"])


@named_command()
def end(connected: Connected, name: str) -> Summary:
    """End the stream NAME: it takes no more rows; needs --server and the grant 'manage'.

    Its rows stay readable. Readers that follow it end after its last row, and Spark queries wait. 'streams reopen'
    undoes it.
    """
    with connected() as client:
        ended = client.end_stream(name).ended
    at = None if ended is None else format_time(ended.timestamp())
    return Summary([{"name": name, "state": "ended", "ended": at}], sentences=[f"stream {name} has ended at {at}"])


@named_command()
def reopen(connected: Connected, name: str) -> Summary:
    """Let the stream NAME take rows again, after 'streams end'; needs --server and the grant 'manage'."""
    with connected() as client:
        state = client.reopen_stream(name).state
    return Summary([{"name": name, "state": state}], sentences=[f"stream {name} takes rows"])


@named_command(
    click.argument("action", required=False, type=click.Choice(["release"]), metavar="[release"),
    click.argument("writer_id", required=False, metavar="ID]"),
    output_options=table_options,
)
def writers(connected: Connected, name: str, action: str | None, writer_id: str | None) -> Summary:
    """List the writer ids of the stream NAME, or release ID from its key; needs --server and the grant 'manage'.

    An id belongs to the first key that writes under it. After 'release', the next key that writes under it owns it,
    and continues its transaction numbers.
    """
    if action is not None:
        released = _require_id(writer_id, "writers", "desk-7")
        with connected() as client:
            client.release_writer(name, released)
        return _released(name, "writer", released)
    with connected() as client:
        found = client.stream_writers(name)
    return _listed("writers", name, map(_writer_json, found), map(_writer_row, found), WRITER_OPTIONAL)


@named_command(output_options=table_options)
def stages(connected: Connected, name: str) -> Summary:
    """List the transactions of the stream NAME that are not committed; needs --server and the grant 'manage'.

    A stage has rows of one partition that a writer has sent. Readers see them when the writer commits. The server
    removes a stage that its writer has not used for an hour.
    """
    with connected() as client:
        found = client.stream_stages(name)
    return _listed("stages", name, map(_stage_json, found), map(_stage_row, found), STAGE_OPTIONAL)


@named_command(
    click.argument("action", required=False, type=click.Choice(["release"]), metavar="[release"),
    click.argument("reader", required=False, metavar="READER]"),
    output_options=table_options,
)
def leases(connected: Connected, name: str, action: str | None, reader: str | None) -> Summary:
    """List the leases of the readers of the stream NAME, or end those of READER; needs --server and the grant 'manage'.

    A lease delays the deletion of rows that its reader has not read. A reader that still runs takes another lease
    within 15 s.
    """
    if action is not None:
        released = _require_id(reader, "leases", "3f0c9a")
        with connected() as client:
            client.release_lease(name, released)
        return _released(name, "reader", released)
    with connected() as client:
        found = client.stream_leases(name)
    return _listed("leases", name, map(_lease_json, found), map(_lease_row, found))


def _listed(
    kind: str, name: str, values: Iterable[dict[str, Any]], rows: Iterable[Cells], optional: Sequence[str] = ()
) -> Summary:
    """Return the list of what a stream has of a kind, such as its leases."""
    return Summary(list(values), [Table(f"{kind} of {name}", list(rows), empty=f"no {kind}", optional=optional)])


def _properties(found: StreamProperties) -> dict[str, Any]:
    return {
        "retention_bytes": found.retention_bytes or None, "retention_seconds": found.retention_seconds or None,
        "schema_policy": found.schema_policy,
    }  # fmt: skip


def _change(before: str, after: str) -> str:
    return " → ".join(dict.fromkeys((before, after)))


def _writer_row(one: StreamWriterId) -> Cells:
    return {
        "writer": one.id,
        "last transaction#": one.last if one.last >= 0 else "none",
        "changed": format_time(one.changed.timestamp()),
        "owner": one.owner or "no key",
        "single use": "yes" if one.single_use else "no",
    }


def _writer_json(one: StreamWriterId) -> dict[str, Any]:
    return {
        "writer": one.id, "last": one.last, "changed": format_time(one.changed.timestamp()), "owner": one.owner or None,
        "single_use": one.single_use,
    }  # fmt: skip


def _stage_row(one: StreamStage) -> Cells:
    return {
        "writer": one.writer,
        "transaction#": one.transaction,
        "partition#": one.partition,
        "size#": rounded_size(one.bytes),
        "state": "finished" if one.finished else "growing",
        "expires in s#": round(one.expires_in),
        "owner": one.owner or "the server",
        "stage": one.id,
    }


def _stage_json(one: StreamStage) -> dict[str, Any]:
    return {
        "id": one.id, "writer": one.writer, "transaction": one.transaction, "partition": one.partition,
        "bytes": one.bytes, "owner": one.owner, "finished": one.finished, "expires_in": round(one.expires_in, 1),
    }  # fmt: skip


def _lease_row(one: StreamLease) -> Cells:
    return {
        "reader": one.reader,
        "owner": one.owner or "the server",
        "expires in s#": round(one.seconds),
        "positions": ", ".join(f"{partition}: {position}" for partition, position in sorted(one.positions.items())),
    }


def _lease_json(one: StreamLease) -> dict[str, Any]:
    return {
        "reader": one.reader, "owner": one.owner, "positions": one.positions, "seconds": round(one.seconds, 1),
    }  # fmt: skip


def _released(name: str, kind: str, released: str) -> Summary:
    return Summary(
        [{"name": name, kind: released, "released": True}], sentences=[f"released {kind} {released} of stream {name}"]
    )


def _require_id(value: str | None, command: str, example: str) -> str:
    if value is None:
        raise OptionError(
            "the id to release is missing", remedy=f"For example 'streams {command} NAME release {example}'."
        )
    return value


def _parse_before(text: str | None) -> tuple[int | None, int | None]:
    """Parse --before. Return a position in bytes, or a time in ns since 1970; the other is None."""
    if text is None:
        return None, None
    if text.isascii() and text.isdecimal():
        return int(text), None
    try:
        return None, values.parse_moment(text).at(time.time_ns())
    except ValueError as error:
        raise OptionError(
            f"--before is {text!r}, expected a position, {error}", remedy="Give a position, or a time such as -7d."
        ) from None


def _parse_keep(text: str | None) -> int | None:
    """Parse --keep. Return bytes."""
    try:
        return None if text is None else texts.parse_size(text, 0, texts.INT64_MAX)
    except ValueError as error:
        raise OptionError(f"--keep is {text!r}, expected {error}", remedy="Give a size such as 10GiB.") from None


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
