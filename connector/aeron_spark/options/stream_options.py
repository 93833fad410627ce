"""``ReadOptions`` and ``WriteOptions``: what Spark was given, parsed once, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import (
    BATCH_READ,
    READING,
    STREAMING_WRITE,
    WRITING,
    OptionSet,
    Route,
    Where,
    option,
)
from aeron_spark.options.reader import OptionReader, example
from aeron_spark.options.routes import DirectRoute, ServerRoute, route_of
from aeron_spark.options.values import (
    INT32_MAX,
    Bytes,
    EndingOffsets,
    Nanoseconds,
    PublishTimes,
    Seconds,
    SessionIds,
    StartingOffsets,
    Time,
)

MAX_WRITER_ID: Final = 255  # bytes of UTF-8; the wire format has one byte for its length
MAX_MESSAGE_BYTES: Final = 16 << 20  # Aeron's own limit of one message, whatever the term length
MIN_MESSAGE_BYTES: Final = 512  # room for the wire format's header, a writer's id and some payload


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a batch read: only messages that begin in ``[start, end)``, of these sessions (empty: all)."""

    start: int | None = None
    end: int | None = None
    sessions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one micro-batch may hold, and how long it may wait to be a decent one. None: no such limit."""

    max_bytes: int | None = None
    max_rows: int | None = None
    min_bytes: int | None = None
    max_delay_ns: int = 0  # the longest wait for ``min_bytes``


@dataclass(frozen=True, kw_only=True)
class ReadOptions(OptionSet, where=READING):
    """Options of a reader. Picklable; nothing in it has been started."""

    streaming: bool
    route: DirectRoute | ServerRoute
    payload: Literal["auto", "raw", "framed", "arrow"] = option(
        "auto",
        "`raw`: one row a message, its bytes untouched. `framed`: bytes in this connector's wire format. `arrow`: "
        "the same, holding Arrow batches; rows are theirs. `auto`: what the stream says it is, else `raw`. "
        "`.schema(...)` chooses columns of `raw` and `framed`: `.schema('value BINARY, position BIGINT')` reads "
        "those two alone, and faster.",
        example="raw",
    )
    starting_offsets: StartingOffsets = option(
        "latest",
        "`earliest`, `latest`, or JSON of recording (`archive/id`, or just the id with one archive) or a stream's "
        'partition (`host:port/partition`, or just the partition with one server) to position, `"earliest"` or '
        '`"latest"`; recordings it does not name start at their beginning. For new queries only. A batch cannot '
        "start at `latest`.",
        example='{"embedded/7": 4096}',
        batch_default="earliest",
    )
    starting_timestamp: Time | None = option(
        None,
        "Start at this publish time instead of `startingOffsets`: an ISO time (UTC where it names no zone), or "
        "relative such as `-10min`. For new queries only. Through a server it is the time of the commit, of any "
        "payload.",
        example="-10min",
    )
    timestamp_from: PublishTimes | None = option(
        None,
        "Where a foreign stream has its publish times: `reserved-ns` or `reserved-ms` (nano- or milliseconds since "
        "the epoch in Aeron's reserved value), or the byte offset of nanoseconds (64 bits, little-endian) in the "
        "payload. Without it the column `timestamp` of a `raw` stream is NULL.",
        example="reserved-ns",
    )
    ending_offsets: EndingOffsets = option(
        "latest",
        'Where a batch ends: `latest`, or JSON as for `startingOffsets` (without `"earliest"`).',
        example='{"embedded/7": 8192}',
        only=BATCH_READ,
    )
    start_position: int | None = option(
        None, "Only messages that begin at or after this position.", example="4096", only=BATCH_READ
    )
    end_position: int | None = option(
        None, "Only messages that begin before this position.", example="8192", only=BATCH_READ, low=1
    )
    session_ids: SessionIds | None = option(
        None,
        "Only messages of these Aeron sessions, separated by commas.",
        example="17,-4242",
        only=(BATCH_READ, Route.DIRECT),
    )
    pushdown: bool = option(
        False,
        "Take position, session and time bounds from the query's filters; needs "
        "`spark.sql.python.filterPushdown.enabled=true`. Load a DataFrame of its own for each query: Spark 4.2 "
        "keeps what one query's filters left for all others of the same DataFrame, which then miss rows.",
        example="true",
        only=BATCH_READ,
    )
    read_path: Literal["auto", "files", "replay"] = option(
        "auto",
        "`files` reads the segments of this machine's own archive in place, checking every message; `replay` asks "
        "the archive; `auto` takes the files where they can be read.",
        example="replay",
        only=Route.DIRECT,
    )
    max_bytes_per_trigger: Bytes = option(
        "1GiB",
        "Never more bytes of the log than this a micro-batch (at least one message, so that it never sticks), "
        "shared fairly over the recordings. A batch query ignores it.",
        example="64MiB",
        low=1,
        ignored=BATCH_READ,
    )
    max_rows_per_trigger: int | None = option(
        None,
        "Never more rows than this a micro-batch, in the same way. A batch query ignores it.",
        example="100000",
        low=1,
        ignored=BATCH_READ,
    )
    min_bytes_per_trigger: Bytes | None = option(
        None,
        "Wait until so many bytes have come, but not longer than `maxTriggerDelay`. A batch query ignores it.",
        example="8MiB",
        low=1,
        ignored=BATCH_READ,
    )
    max_trigger_delay: Nanoseconds = option(
        "15min",
        "The longest wait for `minBytesPerTrigger`. A batch query ignores it.",
        example="1min",
        ignored=BATCH_READ,
    )
    min_partitions: int | None = option(
        None,
        "Split large ranges, at term boundaries, into at least so many partitions where there are enough terms.",
        example="8",
        low=1,
        high=INT32_MAX,
    )
    fail_on_data_loss: bool = option(
        True,
        "A wanted range is gone (purged, truncated, recording deleted or replaced): `true` fails and says which and"
        " why; `false` warns and continues at the first position there is, and never repeats a row.",
        example="false",
    )
    record: Literal["auto", "never"] = option(
        "auto",
        "A stream that is not recorded: with `auto` a streaming query asks the archive, when it starts, to record "
        "the stream from then on, where the archive's host can hear it. It warns: earlier messages are lost, and "
        "the recording goes on after the query, until `aeron-spark recordings stop` ends it; for `aeron:ipc` it "
        "ends with this machine's node, too, which stops when neither a program nor a publisher uses it. "
        "`recordings list` shows it, with the program that started it and the name in the reader's option "
        "`queryName`. `never` fails with the remedy. A batch query never starts a recording and ignores this.",
        example="never",
        only=Route.DIRECT,
        ignored=BATCH_READ,
    )
    include_metadata: bool = option(
        False,
        "With `framed` and `arrow`: adds the metadata columns of `raw`, prefixed `_aeron_`, and the writer's.",
        example="true",
    )
    idle_timeout: Seconds = option(
        "30s", "How long a task waits for data that is recorded but does not come.", example="30s"
    )
    query_name: str = ""  # of a streaming query, where its reader was given Spark's option 'queryName'
    ignored: tuple[str, ...] = ()  # given, and without effect here; worth a warning

    def __post_init__(self) -> None:
        self._check_offsets()
        self._check_starting_timestamp()
        self._check_bounds()
        self._check_read_path()
        self._check_limits()

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> ReadOptions:
        """Parse what Spark hands over. Raises OptionError, one sentence and a remedy, for the first thing wrong."""
        where = Where.READ_STREAM if streaming else Where.READ_BATCH
        reader = OptionReader(options, where)
        route = route_of(reader)
        if "startingTimestamp" in reader and "startingOffsets" in reader:
            raise OptionError(
                "options 'startingTimestamp' and 'startingOffsets' both say where to start",
                remedy="Give only one of them",
            )
        return reader.read(
            cls,
            streaming=streaming,
            route=route,
            query_name=next((str(text) for name, text in options.items() if name.lower() == "queryname" and text), ""),
            ignored=tuple(given.name for given in reader.given() if where in given.ignored),
        )

    @property
    def bounds(self) -> Bounds:
        """The bounds of a batch; a stream has none."""
        return Bounds(self.start_position, self.end_position, self.session_ids or ())

    @property
    def limits(self) -> Limits:
        """The limits of a stream's micro-batches; a batch has none."""
        if not self.streaming:
            return Limits()
        return Limits(
            self.max_bytes_per_trigger, self.max_rows_per_trigger, self.min_bytes_per_trigger, self.max_trigger_delay
        )

    def _check_offsets(self) -> None:
        starting, ending = self.starting_offsets, self.ending_offsets
        if not self.streaming and "latest" in (starting.rest, *starting.named.values()):
            raise OptionError(
                "option 'startingOffsets' is 'latest' in a batch, which would read nothing",
                remedy="Start a batch at 'earliest' or at positions, or read with spark.readStream",
            )
        if "earliest" in (ending.rest, *ending.named.values()):
            raise OptionError(
                "option 'endingOffsets' is 'earliest', which would read nothing",
                remedy="End a batch at 'latest' or at positions",
            )

    def _check_starting_timestamp(self) -> None:
        if self.starting_timestamp is None or self.timestamp_from is not None or isinstance(self.route, ServerRoute):
            return  # a server knows when it committed what, whatever the messages are
        if self.payload == "raw":
            raise OptionError(
                "option 'startingTimestamp' needs to know where the messages of a 'raw' stream have their publish "
                "times",
                remedy=example(self.declared["timestamp_from"]),
            )

    def _check_bounds(self) -> None:
        start, end = self.start_position, self.end_position
        if start is not None and end is not None and start >= end:
            raise OptionError(
                f"option 'startPosition' ({start}) is not before 'endPosition' ({end})",
                remedy="A batch holds the messages that begin at or after the one and before the other",
            )

    def _check_read_path(self) -> None:
        archives = self.route.archive if isinstance(self.route, DirectRoute) else ()
        elsewhere = [archive for archive in archives if archive != "embedded"]
        if self.read_path == "files" and elsewhere:
            raise OptionError(
                f"option 'readPath' is 'files', and where the files of the archive {elsewhere[0]} are nobody says",
                remedy="Only this machine's own archive is read in place: archive=embedded. With 'auto' the others "
                "replay",
            )

    def _check_limits(self) -> None:
        limits = self.limits
        if limits.max_bytes is not None and limits.min_bytes is not None and limits.min_bytes > limits.max_bytes:
            raise OptionError(
                f"option 'minBytesPerTrigger' ({limits.min_bytes}) is above 'maxBytesPerTrigger' ({limits.max_bytes})",
                remedy="A micro-batch waits for the one and never holds more than the other",
            )


@dataclass(frozen=True, kw_only=True)
class WriteOptions(OptionSet, where=WRITING):
    """Options of a writer. Picklable; nothing in it has been started."""

    streaming: bool
    route: DirectRoute | ServerRoute
    payload: Literal["auto", "raw", "framed", "arrow"] = option(
        "auto",
        "`raw`: column `value` (BINARY or STRING), optional `reservedValue`, optional `channel` and `streamId` that"
        " override the options (direct way); adds nothing to the bytes. `framed`: the same columns in this "
        "connector's wire format, any size. `arrow`: all columns. `auto`: `raw` if the columns are exactly those, "
        "else `arrow`.",
        example="arrow",
    )
    ack: Literal["auto", "archive", "driver"] = option(
        "auto",
        "When a task is done: `archive`: recorded; `driver`: handed to the media driver within the flow-control "
        "window; `auto`: `archive` where the target stream is recorded, else `driver`.",
        example="driver",
        only=Route.DIRECT,
    )
    offer_timeout: Seconds = option(
        "30s",
        "Back-pressure longer than this fails the task, with the Aeron result it saw last.",
        example="30s",
        only=Route.DIRECT,
    )
    when_unconnected: Literal["fail", "drop"] = option(
        "fail",
        "No subscriber within `connectTimeout`: `fail`, or `drop` (count, and drop as plain Aeron would).",
        example="drop",
        only=Route.DIRECT,
    )
    max_message_bytes: Bytes | None = option(
        None,
        "Larger Arrow batches are split by rows; one row larger than this is sent in chunks.",
        example="64KiB",
        low=MIN_MESSAGE_BYTES,
        high=MAX_MESSAGE_BYTES,
        shown="the channel's limit",
    )
    writer_id: str | None = option(
        None,
        "Names the writer in the metadata of `framed` and `arrow`; at most 255 bytes of UTF-8. Through a server a "
        "stream's transactions are exactly once under this name: a second query with it is refused, or fences the "
        "first one off.",
        example="edge-7",
        shown="the query's id",
    )
    accept_gap: bool = option(
        False,
        "A query's micro-batch is written only if its servers have all micro-batches before it. `true` writes the "
        "first micro-batch after a start in any case: for a query whose server was restored from an older copy, or "
        "that wrote elsewhere before. The rows between stay lost. Remove the option after that start.",
        example="true",
        only=(STREAMING_WRITE, Route.SERVER),
    )
    record: Literal["auto", "never"] = option(
        "never",
        "`auto`: ask the archive to record the target stream before writing, where nobody records it yet.",
        example="auto",
        only=Route.DIRECT,
    )

    def __post_init__(self) -> None:
        if self.ack == "archive" and self.when_unconnected == "drop":
            raise OptionError(
                "options 'ack' ('archive': done when recorded) and 'whenUnconnected' ('drop': rows may be thrown "
                "away) contradict",
                remedy="Use ack 'driver' to drop, or whenUnconnected 'fail' to be sure",
            )
        if self.writer_id is not None and len(self.writer_id.encode("utf-8", "surrogatepass")) > MAX_WRITER_ID:
            raise OptionError(
                f"option 'writerId' is longer than {MAX_WRITER_ID} bytes of UTF-8",
                remedy=example(self.declared["writer_id"]),
            )

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> WriteOptions:
        """Parse what Spark hands over. Raises OptionError, one sentence and a remedy, for the first thing wrong."""
        reader = OptionReader(options, Where.WRITE_STREAM if streaming else Where.WRITE_BATCH)
        return reader.read(cls, streaming=streaming, route=route_of(reader))
