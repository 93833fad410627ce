"""The requests of commands to the streams of a route, and the output: commands do not know the route.

``direct/catalog`` and ``client/named_streams`` have the streams of a route. What a route cannot do raises OptionError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.texts import rounded_size

if TYPE_CHECKING:
    import pyarrow as pa

    from aeron_spark.wire.stream_requests import StreamInfo, StreamProperties

EDGES: Final = ("earliest", "latest")
PREVIEW: Final = "'aeron-spark streams describe' shows the stream without deleting it."

Cells = Mapping[str, str | int | None]
"""The cells of a row by their columns; those of a column whose name ends in ``#`` are numbers."""


class Table(NamedTuple):
    """A table. In a pipe, the first cell of each line is ``kind``. Without rows, the sentence ``empty`` is printed.

    A narrow terminal does not show the ``optional`` columns, the first ones first.
    """

    title: str
    rows: Sequence[Cells]
    kind: str | None = None
    empty: str = ""
    optional: Sequence[str] = ()


class Summary(NamedTuple):
    """The output of a command: ``objects`` with --json, else the tables, then the sentences. ``notes`` are warnings."""

    objects: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Table] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()


class Confirmation(Protocol):
    """Asks the user, before something is deleted."""

    def check(self, preview: str) -> None:
        """Raise OptionError if the user cannot be asked. ``preview`` tells the user how to look without a deletion."""

    def ask(self, question: str) -> None:
        """Return if the user says yes, else raise."""


class StopSignal(Protocol):
    """Whether the user has asked the command to stop."""

    def __call__(self) -> bool:
        """Return whether a signal came."""

    def start_polling(self) -> None:
        """Promise to call this object: the first signal does not raise from now on."""


Running = Callable[[], AbstractContextManager[StopSignal]]
"""Enters the part of a command that uses a server or an archive: errors before it are those of the command line."""


class Purge(NamedTuple):
    """The rows to purge: those before a position, before a time, or before the last ``keep`` bytes.

    ``before`` is the position or the time as it was given, ``position`` and ``time_ns`` are what it means.
    """

    before: str | None
    position: int | None
    time_ns: int | None
    keep: int | None
    recordings: Sequence[int] = ()
    partition: int | None = None
    wait: str | None = None
    dry_run: bool = False


class NewStream(NamedTuple):
    """The properties of a stream to create. ``schema`` reads its columns, after the other values are checked."""

    partitions: int
    retention: str | None
    segment: str | None
    schema_policy: str
    schema: Callable[[], pa.Schema | None]
    exist_ok: bool


class Reading(NamedTuple):
    """The rows to receive: their start as it was given, whether to follow the stream, and the longest wait (s)."""

    start: str | None
    follow: bool
    timeout: float | None
    metadata: bool

    @property
    def position(self) -> int | None:
        """The start, if it is a position in bytes."""
        return int(self.start) if self.start and self.start.isascii() and self.start.isdecimal() else None

    @property
    def is_edge(self) -> bool:
        """Whether the start is one of ``EDGES``."""
        return self.start is not None and self.start.lower() in EDGES


def properties(title: str, *cells: tuple[str, str | None]) -> Table:
    """Return the table of one stream's properties, each with its name and its value."""
    return Table(title, [{"property": name, "value": value} for name, value in cells], kind="stream")


def cells_of(found: Mapping[str, Any], *columns: str) -> dict[str, Any]:
    """Return cells with the values that a JSON object has under the columns' names: ``new start#`` is ``new_start``."""
    return {column: found[column.removesuffix("#").replace(" ", "_")] for column in columns}


def columns_of(schema: pa.Schema | None) -> list[dict[str, Any]] | None:
    """Return the columns of a stream as JSON objects have them."""
    if schema is None:
        return None
    return [{"name": one.name, "type": str(one.type), "nullable": one.nullable} for one in schema]


def column_cells(schema: pa.Schema | None) -> list[tuple[str, str]]:
    """Return the columns of a stream as properties."""
    return [] if schema is None else [(f"column {one.name}", str(one.type)) for one in schema]


def count_text(count: int, thing: str) -> str:
    """Return a number of things, such as ``1 row`` and ``1,000 rows``."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def retention_text(stream: StreamInfo | StreamProperties) -> str:
    """Return a retention in words."""
    limits = []
    if stream.retention_bytes:
        limits.append(f"{rounded_size(stream.retention_bytes)} of each partition")
    if stream.retention_seconds:
        limits.append(_duration_text(stream.retention_seconds))
    return " and ".join(limits) or "everything"


def _duration_text(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def check_stream_name(name: str) -> str:
    """Return ``name``. Raises OptionError if a stream of a server cannot have it."""
    try:
        return values.parse_stream_name(name)
    except ValueError as error:
        raise OptionError(f"{name[:160]!r} is not a stream name", remedy=f"Give {error}.") from None


def refuse_stream_flags(**flags: object) -> None:
    """Raise OptionError for a flag that only a named stream of a server has, on a command line without one."""
    for name, value in flags.items():
        if value is not None:
            raise OptionError(
                f"--{name.replace('_', '-')} is for a named stream of a server",
                remedy="Add --server HOST:PORT --stream NAME.",
            )


def require_channel(options: Mapping[str, str]) -> None:
    """Raise OptionError if the channel or the stream id is missing, and no cluster's log is named."""
    if "cluster" in options:
        return
    for name, option, example in (("channel", "--channel", "aeron:ipc"), ("streamId", "--stream-id", "1001")):
        if name not in options:
            raise OptionError(f"{option} is required", remedy=f"For example {option} {example}.")


def check_start_time(text: str) -> None:
    """Raise OptionError if a start is not a time either."""
    try:
        values.parse_moment(text)
    except ValueError as error:
        raise OptionError(
            f"--start is {text!r}, expected earliest, latest, a position or {error}",
            remedy="'aeron-spark receive --help' has examples.",
        ) from None
