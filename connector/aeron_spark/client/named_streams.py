"""The named streams of a server, for commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from aeron_spark import texts
from aeron_spark.client import client as opening
from aeron_spark.client.client import Client
from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.log.facade import (
    PREVIEW,
    Cells,
    Confirmation,
    NewStream,
    Purge,
    Reading,
    Running,
    Summary,
    Table,
    cells_of,
    check_stream_name,
    column_cells,
    columns_of,
    count_text,
    properties,
    retention_text,
)
from aeron_spark.options import ClientOptions, SbeFormatOptions, SbeOptions
from aeron_spark.options.declaration import Where
from aeron_spark.options.stream_options import split_sbe_options
from aeron_spark.stream_client.operations import parse_retention
from aeron_spark.texts import format_time, rounded_size
from aeron_spark.wire.stream_requests import HeldBytes, PurgedPartition, StreamInfo

if TYPE_CHECKING:
    from aeron_spark.client.command_rows import ServerSource, ServerTarget

DIRECT_ROUTE_OPTIONS: Final = ("channel", "streamId", "archive", "cluster")
DIRECT_WRITE_OPTIONS: Final = ("ack", "record")
# Columns that a narrow terminal does not show, the first ones first.
STREAM_OPTIONAL: Final = ("created", "payload", "retention", "partitions#")
PURGED_OPTIONAL: Final = ("earliest before#", "freed now#", "unreadable now#")
STREAM_OPTIONS: Final = ("payload", "writerId", "evolveSchema")  # of a reader or writer, not of its connection


def split_server(options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the server's address and the other options. Raises OptionError for an option of the direct route."""
    for name in DIRECT_WRITE_OPTIONS:
        if name in options:
            raise OptionError(f"option {name!r} is for the direct route, without a server", remedy="Leave it out.")
    others: dict[str, Any] = dict(options)
    address = others.pop("server")
    for name in DIRECT_ROUTE_OPTIONS:
        if name in others:
            raise OptionError(
                f"a server and option {name!r} exclude each other: {name!r} is for the direct route",
                remedy="Leave one of them out.",
            )
    return address, others


def check_connection(address: str, options: Mapping[str, Any]) -> None:
    """Raise OptionError for a wrong option of a connection to a server, before the command starts anything."""
    read_shared_secret(ClientOptions.parse(address, options).shared_secret_file)


class ServerStreams:
    """The named streams of the server of ``options``. Each method connects for itself."""

    def __init__(self, options: Mapping[str, str], running: Running) -> None:
        self._running = running
        self._sbe: dict[str, str] | None = None  # the options of payload=sbe
        given = dict(options)
        if "stream" in given and given.get("payload") == "sbe":
            given, self._sbe = split_sbe_options(given)
        self._address, self._options = split_server(given)
        self._given: dict[str, str] = {}  # the options of a reader or writer
        if "stream" in given:
            self._stream = check_stream_name(self._options.pop("stream"))
            self._given = {name: self._options.pop(name) for name in STREAM_OPTIONS if name in self._options}
        check_connection(self._address, self._options)

    def list(self) -> Summary:
        """Return a row for each stream."""
        with self._connected() as client:
            found = client.streams()
        notes = [f"stream {one.name} is {one.state}: {one.problem}" for one in found if one.problem]
        table = Table("streams", [_row(one) for one in found], empty="no streams", optional=STREAM_OPTIONAL)
        return Summary([_json(one) for one in found], [table], notes=notes)

    def describe(self, name: str | None) -> Summary:
        """Return the properties, columns and partitions of one stream."""
        name = _required(name)
        with self._connected() as client:
            stream = client.stream(name)
        table = properties(
            f"stream {name}",
            ("name", stream.name),
            ("state", stream.state),
            *([("problem", stream.problem)] if stream.problem else []),
            ("payload", stream.content or "nothing yet"),
            *column_cells(stream.schema),
            ("bytes", f"{stream.bytes:,} ({rounded_size(stream.bytes)})"),
            ("retention", retention_text(stream)),
            *([("segment", _segment(stream))] if stream.file_bytes else []),
            ("schema policy", stream.schema_policy),
            ("created", _time(stream.created)),
            *([("ended", _time(stream.ended))] if stream.ended else []),
            *([("former names", ", ".join(stream.former_names))] if stream.former_names else []),
        )
        rows: list[Cells] = [
            {"partition#": str(one.number), "start#": one.start, "end#": one.end} for one in stream.partitions
        ]
        details = [{"partition": one.number, "start": one.start, "end": one.end} for one in stream.partitions]
        return Summary([_json(stream) | {"details": details}], [table, Table("partitions", rows, "partition")])

    def create(self, name: str, wanted: NewStream) -> Summary:
        """Create a stream. Checks the name, the sizes and the schema before it connects."""
        from aeron_spark.streams.definition import check_name

        check_name(name)
        parse_retention(wanted.retention)
        segment_bytes = 0 if wanted.segment is None else _parse_segment(name, wanted.segment)
        schema = wanted.schema()
        with self._connected() as client:
            stream = client.create_stream(
                name,
                wanted.partitions,
                retention=wanted.retention,
                segment_bytes=segment_bytes,
                schema_policy=wanted.schema_policy,
                schema=schema,
                exist_ok=wanted.exist_ok,
            )
        begin = f"stream {name} exists" if wanted.exist_ok else f"created stream {name}"
        sentence = (
            f"{begin} with {count_text(len(stream.partitions), 'partition')}, retention: {retention_text(stream)}, "
            f"segment: {_segment(stream)}, schema policy: {stream.schema_policy}"
        )
        return Summary([_json(stream)], sentences=[sentence])

    def purge(self, name: str | None, wanted: Purge, confirmation: Confirmation) -> Summary:
        """Purge partitions, and say what this freed.

        Raises OptionError for an unknown partition, DataLossError for a stream whose state is not known, and
        WaitTimeout if not everything was freed after ``wait``, unless that is None.
        """
        _refuse_direct_flags(recording=wanted.recordings, dry_run=wanted.dry_run)
        name = _required(name)
        confirmation.check(PREVIEW)
        confirmation.ask(f"Purge stream {name} of {self._address}?")
        wait_s = _parse_wait(wanted.wait)
        with self._connected() as client:
            stream = client.stream(name)
            purged = _purged(client, stream, wanted, wait_s)
        objects = [_purged_json(one) for one in purged]
        if any(one.has_changed for one in purged):
            return Summary(objects, [Table("purged", [_purged_row(one) for one in purged], optional=PURGED_OPTIONAL)])
        return Summary(objects, sentences=[f"nothing to purge: {_why_nothing(stream, purged, wanted)}"])

    def delete(self, name: str | None, recordings: Sequence[int], confirmation: Confirmation) -> Summary:
        """Delete a stream with all its rows."""
        _refuse_direct_flags(recording=recordings)
        name = _required(name)
        confirmation.check(PREVIEW)
        confirmation.ask(f"Delete stream {name} of {self._address}, with all its rows?")
        with self._connected() as client:
            size_bytes = client.stream(name).bytes
            client.delete_stream(name)
        sentence = f"deleted stream {name} ({rounded_size(size_bytes)})"
        return Summary([{"name": name, "bytes": size_bytes, "deleted": True}], sentences=[sentence])

    def named(self, name: str) -> Callable[[], AbstractContextManager[Client]]:
        """Return what connects for a command about the stream with this name. Raises OptionError for a wrong name."""
        check_stream_name(name)
        return self._connected

    def writer(self, commit_rows: int | None) -> ServerTarget:
        """Return what writes to the stream of the options; commits after ``commit_rows`` rows and after each file."""
        from aeron_spark.client.command_rows import ServerTarget  # the commands about streams do not load it

        sbe = None if self._sbe is None else SbeFormatOptions.parse_alone(self._sbe, Where.WRITE_BATCH)
        return ServerTarget((self._address, self._options), self._stream, self._given, commit_rows, sbe)

    def reader(self, wanted: Reading) -> ServerSource:
        """Return what receives the stream of the options."""
        from aeron_spark.client.command_rows import ServerSource

        if "payload" in self._given:
            raise OptionError(
                "--payload cannot be used here: the server knows the payload of its stream", remedy="Leave it out."
            )
        sbe = None if self._sbe is None else SbeOptions.parse_alone(self._sbe, Where.READ_BATCH)
        return ServerSource((self._address, self._options), self._stream, wanted, sbe)

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        with self._running(), opening.connect(self._address, **self._options) as client:
            yield client


def _required(name: str | None) -> str:
    if name is None:
        raise OptionError(
            "the name of the server's stream is missing",
            remedy="Give it after the command, such as 'aeron-spark streams describe flights --server HOST:PORT'.",
        )
    return check_stream_name(name)


def _refuse_direct_flags(**flags: object) -> None:
    for name, value in flags.items():
        if value:
            raise OptionError(
                f"--{name.replace('_', '-')} is for the direct route, without a server",
                remedy="Leave out this option or --server.",
            )


def _parse_segment(name: str, text: str) -> int:
    """Return the bytes of a segment. Raises OptionError."""
    from aeron_spark.streams.definition import MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, check_segment_bytes

    try:
        size = texts.parse_size(text, MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)
    except ValueError as error:
        raise OptionError(
            f"--segment is {text!r}, expected {error}", remedy="Give a power of two from 1MiB to 1GiB."
        ) from None
    check_segment_bytes(name, size)
    return size


def _parse_wait(text: str | None) -> float:
    """Parse --wait. Return seconds; 0 without the option."""
    try:
        return 0.0 if text is None else texts.parse_duration_ns(text) / texts.NANOS
    except ValueError as error:
        raise OptionError(f"--wait is {text!r}, expected {error}", remedy="Give a duration such as 2min.") from None


def _purged(client: Client, stream: StreamInfo, wanted: Purge, wait_s: float) -> Sequence[PurgedPartition]:
    if stream.state in ("damaged", "recovering"):
        raise DataLossError(
            f"stream {stream.name!r} is {stream.state}: {stream.problem}",
            remedy="See 'Damage' in docs/streams.md for what to do about this state.",
        )
    parts = [part for part in stream.partitions if wanted.partition in (None, part.number)]
    if not parts:
        raise OptionError(
            f"stream {stream.name!r} has no partition {wanted.partition}",
            remedy=f"Give one of 0 to {len(stream.partitions) - 1}.",
            reason="no-partition",
        )
    if wanted.keep is None:
        before = wanted.before if wanted.position is None else wanted.position
        assert before is not None
        return client.purge_stream(stream.name, before, partition=wanted.partition, wait=wait_s)
    return [
        one
        for part in parts
        for one in client.purge_stream(stream.name, max(0, part.end - wanted.keep), partition=part.number, wait=wait_s)
    ]


def _why_nothing(stream: StreamInfo, purged: Sequence[PurgedPartition], wanted: Purge) -> str:
    leases = sorted({held.sentence for one in purged for held in one.held if held.why == "lease"})
    if leases:
        return f"rows before it are under the {', '.join(leases)}"
    ends = {part.number: part.end for part in stream.partitions}
    if all(one.start == ends[one.number] for one in purged):
        return "no partition has rows"
    if wanted.keep is not None:
        return f"no partition has a transaction before its last {wanted.keep:,} bytes"
    if wanted.position is not None:
        return f"no transaction ends before position {wanted.position:,}"
    return f"no transaction was committed before {wanted.before}"


def _purged_row(one: PurgedPartition) -> Cells:
    return {
        "partition#": str(one.number),
        "earliest before#": one.before,
        "earliest now#": one.start,
        "unreadable now#": one.unreadable_bytes,
        "freed now#": one.freed_bytes,
        "freed later#": sum(held.bytes for held in one.held),
        "why": ", ".join(f"{held.bytes:,} {held.sentence}" for held in one.held),
    }


def _purged_json(one: PurgedPartition) -> dict[str, Any]:
    return {
        "partition": one.number,
        "start": one.before,
        "new_start": one.start,
        "bytes": one.unreadable_bytes,
        "freed": one.freed_bytes,
        "held": [_held_json(held) for held in one.held],
    }


def _held_json(held: HeldBytes) -> dict[str, Any]:
    return {
        "bytes": held.bytes,
        "why": held.why,
        "holder": held.holder or None,
        "reader": held.reader or None,
        "until": None if held.until is None else _time(held.until),
    }


def _row(stream: StreamInfo) -> Cells:
    found = _json(stream)
    return {
        **cells_of(found, "name", "state"),
        "payload": stream.content or "nothing yet",
        **cells_of(found, "partitions#", "bytes#"),
        "retention": retention_text(stream),
        "created": found["created"],
    }


def _json(stream: StreamInfo) -> dict[str, Any]:
    return {
        "name": stream.name,
        "state": stream.state,
        "problem": stream.problem or None,
        "payload": stream.content or None,
        "schema": columns_of(stream.schema),
        "partitions": len(stream.partitions),
        "bytes": stream.bytes,
        "retention_bytes": stream.retention_bytes or None,
        "retention_seconds": stream.retention_seconds or None,
        "segment_bytes": stream.segment_bytes or None,
        "file_bytes": stream.file_bytes or None,
        "schema_policy": stream.schema_policy or None,
        "created": _time(stream.created),
        "ended": None if stream.ended is None else _time(stream.ended),
        "former_names": list(stream.former_names),
    }


def _segment(stream: StreamInfo) -> str:
    """Return the size of the segments, and the bytes that a partition holds in excess if its files are longer."""
    size = rounded_size(stream.segment_bytes)
    if stream.file_bytes <= stream.segment_bytes:
        return size
    longer = rounded_size(stream.file_bytes)
    return (
        f"{size} ({longer} in fact: the archive of the node has longer segments, so a partition holds at most {longer} "
        "besides its readable rows)"
    )


def _time(moment: datetime) -> str:
    return format_time(moment.timestamp())
