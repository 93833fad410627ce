"""``ReadOptions``: what ``spark.readStream`` and ``spark.read`` were given, parsed once, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aeron_spark.errors import OptionError
from aeron_spark.options.given import OptionReader, example
from aeron_spark.options.row import Where
from aeron_spark.options.values import Moment, TimestampFrom, WantedOffsets
from aeron_spark.options.ways import DirectRoute, ServerRoute, route_of


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
    max_delay_ns: int = 15 * 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a reader. Picklable; nothing in it has been started."""

    streaming: bool
    way: DirectRoute | ServerRoute
    payload: str  # auto | raw | framed | arrow
    starting: WantedOffsets
    starting_timestamp: Moment | None  # instead of ``starting``
    timestamp_from: TimestampFrom | None
    ending: WantedOffsets
    bounds: Bounds
    pushdown: bool
    read_path: str  # auto | files | replay
    limits: Limits
    min_partitions: int | None
    fail_on_data_loss: bool
    record: str  # auto | never
    include_metadata: bool
    idle_timeout_s: float
    query_name: str = ""  # of a streaming query, where its reader was given Spark's option 'queryName'
    ignored: tuple[str, ...] = ()  # given, and without effect here; worth a warning

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> ReadOptions:
        """Parse what Spark hands over. Raises ``OptionError``, one sentence and a remedy, for the first thing wrong."""
        where = Where.READ_STREAM if streaming else Where.READ_BATCH
        given = OptionReader(options, where)
        way = route_of(given, reading=True)
        timestamp_from = given.timestamp_from("timestampFrom")
        return cls(
            streaming=streaming,
            way=way,
            payload=given.choice("payload"),
            starting=_starting(given, streaming),
            starting_timestamp=_starting_timestamp(given, way, timestamp_from),
            timestamp_from=timestamp_from,
            ending=WantedOffsets("latest") if streaming else _ending(given),
            bounds=Bounds() if streaming else _bounds(given),
            pushdown=False if streaming else given.flag("pushdown"),
            read_path=_read_path(given, way),
            limits=_limits(given, streaming),
            min_partitions=given.whole("minPartitions"),
            fail_on_data_loss=given.flag("failOnDataLoss"),
            record=given.choice("record"),
            include_metadata=given.flag("includeMetadata"),
            idle_timeout_s=given.seconds("idleTimeout"),
            query_name=next((str(text) for name, text in options.items() if name.lower() == "queryname" and text), ""),
            ignored=tuple(name for name in given.names() if where in given.option(name).ignored),
        )


def _starting(given: OptionReader, streaming: bool) -> WantedOffsets:
    starting = given.offsets("startingOffsets", rest="earliest")
    if not streaming and "latest" in (starting.rest, *starting.named.values()):
        raise OptionError(
            "option 'startingOffsets' is 'latest' in a batch, which would read nothing",
            remedy="Start a batch at 'earliest' or at positions, or read with spark.readStream",
        )
    return starting


def _ending(given: OptionReader) -> WantedOffsets:
    ending = given.offsets("endingOffsets", rest="latest")
    if "earliest" in (ending.rest, *ending.named.values()):
        raise OptionError(
            "option 'endingOffsets' is 'earliest', which would read nothing",
            remedy="End a batch at 'latest' or at positions",
        )
    return ending


def _starting_timestamp(
    given: OptionReader, way: DirectRoute | ServerRoute, timestamp_from: TimestampFrom | None
) -> Moment | None:
    moment = given.moment("startingTimestamp")
    if moment is None:
        return None
    if "startingOffsets" in given:
        raise OptionError(
            "options 'startingTimestamp' and 'startingOffsets' both say where to start", remedy="Give only one of them"
        )
    # a server knows when it committed what, whatever the messages are
    if given.choice("payload") == "raw" and timestamp_from is None and isinstance(way, DirectRoute):
        raise OptionError(
            "option 'startingTimestamp' needs to know where the messages of a 'raw' stream have their publish times",
            remedy=example(given.option("timestampFrom")),
        )
    return moment


def _bounds(given: OptionReader) -> Bounds:
    start, end = given.whole("startPosition"), given.whole("endPosition")
    if start is not None and end is not None and start >= end:
        raise OptionError(
            f"option 'startPosition' ({start}) is not before 'endPosition' ({end})",
            remedy="A batch holds the messages that begin at or after the one and before the other",
        )
    return Bounds(start, end, given.sessions("sessionIds") or ())


def _read_path(given: OptionReader, way: DirectRoute | ServerRoute) -> str:
    path = given.choice("readPath")
    elsewhere = [archive for archive in way.archives if archive != "embedded"] if isinstance(way, DirectRoute) else []
    if path == "files" and elsewhere:
        raise OptionError(
            f"option 'readPath' is 'files', and where the files of the archive {elsewhere[0]} are nobody says",
            remedy="Only this machine's own archive is read in place: archive=embedded. With 'auto' the others replay",
        )
    return path


def _limits(given: OptionReader, streaming: bool) -> Limits:
    max_bytes, min_bytes = given.size("maxBytesPerTrigger"), given.size("minBytesPerTrigger")
    max_rows, max_delay_ns = given.whole("maxRowsPerTrigger"), given.duration_ns("maxTriggerDelay")
    if not streaming:
        return Limits()
    if max_bytes is not None and min_bytes is not None and min_bytes > max_bytes:
        raise OptionError(
            f"option 'minBytesPerTrigger' ({min_bytes}) is above 'maxBytesPerTrigger' ({max_bytes})",
            remedy="A micro-batch waits for the one and never holds more than the other",
        )
    return Limits(max_bytes, max_rows, min_bytes, max_delay_ns)
