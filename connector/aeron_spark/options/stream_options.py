"""The options of reading and writing streams, and of SBE messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeVar

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import (
    BATCH_READ,
    EVERYWHERE,
    READING,
    STREAMING_WRITE,
    WRITING,
    Format,
    Option,
    OptionReader,
    OptionSet,
    Route,
    Where,
    example,
    option,
)
from aeron_spark.options.routes import DirectRoute, ServerRoute, route_of
from aeron_spark.options.values import (
    INT32_MAX,
    Bytes,
    EndingOffsets,
    Nanoseconds,
    OptionType,
    PublishTimes,
    Seconds,
    SessionIds,
    StartingOffsets,
    Time,
)
from aeron_spark.sbe.settings import (
    FRAMINGS,
    DecimalColumns,
    Framing,
    OnMalformed,
    SbeSettings,
    TimeColumns,
    parse_decimals,
    parse_messages,
    parse_mode,
    parse_times,
)

_Sbe = TypeVar("_Sbe", bound="SbeFormatOptions")

MessageNames = Annotated[
    tuple[str, ...], OptionType("MESSAGES", "messages", lambda text, low, high: parse_messages(text))
]
DecimalType = Annotated[DecimalColumns, OptionType("DECIMALS", "type", lambda text, low, high: parse_decimals(text))]
TimeUnits = Annotated[TimeColumns, OptionType("TIMES", "times", lambda text, low, high: parse_times(text))]
ModeName = Annotated[
    OnMalformed,
    OptionType(
        "CHOICE", "one of", lambda text, low, high: parse_mode(text), choices=tuple(mode.name for mode in OnMalformed)
    ),
]


@dataclass(frozen=True, kw_only=True)
class SbeFormatOptions(OptionSet, where=EVERYWHERE):
    """The schema of SBE messages, and how its types become columns, for readers and writers.

    With another payload they have no effect, and are refused.
    """

    sbe_schema: str | None = option(
        None,
        "The schema: the path of its XML file on the query's driver, a file name in SparkFiles, or the XML itself. The "
        "executors need no file. A newer schema may continue an old checkpoint. Messages are "
        "written with its version.",
        example="/schemas/market.xml",
    )
    sbe_message: MessageNames | None = option(
        None,
        "The message, by name or template id: its fields are the columns. Several, separated by commas, or `*` for "
        "all: the column `message` has the name, and each message is a column of type STRUCT, which is NULL in rows of "
        "other messages. A writer has one.",
        example="Trade",
        shown="the schema's only message",
    )
    sbe_decimals: DecimalType = option(
        "exact",
        "Composites of mantissa and exponent. `exact`: DECIMAL if the exponent is constant, else a STRUCT. `double`, "
        "or a type such as `decimal(38,9)`: all of them; a message with a value that does not fit is malformed. A "
        "writer does not have `double`.",
        example="decimal(38,9)",
    )
    sbe_times: TimeUnits = option(
        "explicit",
        "Which integers become TIMESTAMP and DATE. `explicit`: those whose unit the schema says; nanoseconds are cut "
        "to microseconds. `none`: no field. A list such as `sendingTime:us,bids.at:ns` adds units that the schema does "
        "not say.",
        example="sendingTime:us",
    )
    sbe_enums: Literal["names", "values"] = option(
        "names", "Enums: as `names` (an unknown value is the text of its number), or as `values`.", example="values"
    )
    sbe_sets: Literal["names", "bits", "flags"] = option(
        "names",
        "Sets: as ARRAY of `names` (an unknown bit is the text of its number), as one number of all `bits`, or as "
        "STRUCT of BOOLEAN `flags`.",
        example="flags",
    )

    @classmethod
    def parse_alone(cls: type[_Sbe], options: Mapping[str, object], where: Where) -> _Sbe:
        """Parse these options without those of a stream. Raises OptionError for a wrong one, or without a schema."""
        found = OptionReader(options, where).read(cls)
        if found.sbe_schema is None:
            raise no_schema()
        return found

    def sbe_settings(self) -> SbeSettings:
        """Return the settings of the columns."""
        return SbeSettings(
            messages=self.sbe_message or (),
            decimals=self.sbe_decimals,
            times=self.sbe_times,
            enums=self.sbe_enums,
            sets=self.sbe_sets,
        )

    def check_sbe(self, payload: str, given: tuple[str, ...]) -> None:
        """Raise OptionError for ``payload=sbe`` without a schema, and for ``given`` options with another payload."""
        if payload == "sbe" and self.sbe_schema is None and "sbeTable" not in given:
            raise no_schema()
        if payload == "sbe" and "sbeTable" in given and len(given) > 1:
            setting = next(name for name in given if name != "sbeTable")
            raise OptionError(
                f"option 'sbeTable' is a compiled schema with its settings, and '{setting}' is one of them",
                remedy="Leave one of them out, or compile the table with this setting.",
            )
        if payload != "sbe" and given:
            raise OptionError(
                f"option '{given[0]}' is only for payload=sbe, and 'payload' is '{payload}'",
                remedy="Add .option('payload', 'sbe'), on the command line --payload sbe, or leave the option out.",
            )


@dataclass(frozen=True, kw_only=True)
class SbeOptions(SbeFormatOptions, where=READING):
    """The options of a reader of SBE messages."""

    sbe_others: Literal["skip", "keep", "fail"] | None = option(
        None,
        "Messages of other types or other schemas: `skip`, `keep` (rows with NULL in all columns) or `fail`. They do "
        "not count as malformed.",
        example="fail",
        shown="`keep` with `sbeMessage=*`, else `skip`",
    )
    sbe_mode: ModeName = option(
        "FAILFAST",
        "A malformed message: `FAILFAST` fails the task, with recording, position, byte and field. `PERMISSIVE` makes "
        "a row with NULL in all columns and the message's bytes in `_corrupt_record`. `DROPMALFORMED` leaves it out "
        "and warns.",
        example="PERMISSIVE",
    )
    sbe_framing: Literal["one", "sequence", "aligned-8", "sofh", "length16", "length32", "cluster"] | None = option(
        None,
        "How messages lie in an Aeron message. `one`: one, and bytes behind it are ignored. `sequence`: one behind the "
        "other. `aligned-8`: each at a multiple of 8 bytes. `sofh`: behind FIX's Simple Open Framing Header. "
        "`length16`: behind a 16-bit length that includes itself. `length32`: behind a 32-bit length that does not "
        "include itself; both are little-endian. `cluster`: behind the session header of Aeron Cluster's log, whose "
        "other entries are left out.",
        example="sequence",
        shown="`one`; with `cluster=log` `cluster`",
    )
    sbe_table: str | None = option(
        None,
        "A schema that `aeron-spark sbe compile` has compiled, with its settings, in place of all other options "
        "`sbe…`: the path of its file, a file name in SparkFiles, or the text itself. For programs without Python.",
        example="/schemas/trade.json",
        only=Format.AERON_JVM,
    )

    def reader_settings(self, *, metadata: bool) -> SbeSettings:
        """Return the settings of a decoder; ``metadata`` adds the columns of each message's header."""
        return replace(
            self.sbe_settings(),
            others=self.sbe_others or "",
            mode=self.sbe_mode,
            framing=FRAMINGS[self.sbe_framing or "one"],
            metadata=metadata,
        )


def is_sbe(option: Option) -> bool:
    """Whether an option is one of ``payload=sbe``."""
    return option.argument in SbeOptions.options()


def no_schema() -> OptionError:
    """Return the error for ``payload=sbe`` without a schema."""
    return OptionError(
        "option 'payload' is 'sbe', and 'sbeSchema' is missing",
        remedy=f"{example(SbeFormatOptions.declared['sbe_schema'])}; on the command line --sbe-schema FILE",
    )


def split_sbe_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options without those of ``payload=sbe``, and those alone."""
    names = {option.name.lower() for option in SbeOptions.options().values()}
    sbe = {name: text for name, text in options.items() if name.lower() in names}
    return {name: text for name, text in options.items() if name not in {*sbe, "payload"}}, sbe


# Messages of Aeron's own schema in a cluster's log, besides those of the clients.
CLUSTER_EVENTS: Final = (
    "TimerEvent", "SessionOpenEvent", "SessionCloseEvent", "ClusterActionRequest", "NewLeadershipTermEvent",
    "MembershipChangeEvent",
)  # fmt: skip
MAX_WRITER_ID: Final = 255  # bytes of UTF-8; the wire format has one byte for its length
MAX_MESSAGE_BYTES: Final = 16 << 20  # Aeron's limit for one message with any term length
MAX_BATCH_BYTES: Final = 1 << 30  # the default of maxBytesPerTrigger
# With Trigger.AvailableNow each further micro-batch costs 0.2 s. A sink's micro-batch is one transaction, and a server
# has space for 16 GiB of staged rows of a key, which need more bytes than in the log.
MAX_AVAILABLE_NOW_BYTES: Final = 4 << 30
MIN_MESSAGE_BYTES: Final = 512  # has room for the wire format's header, a writer id and some payload


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a batch read: messages that begin in ``[start, end)``, of these Aeron session ids (empty: all)."""

    start: int | None = None
    end: int | None = None
    sessions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a micro-batch; None means no limit. ``max_delay_ns`` is the longest wait for ``min_bytes``.

    ``available_now_bytes`` limits the micro-batches of ``Trigger.AvailableNow``, instead of ``max_bytes``.
    """

    max_bytes: int | None = None
    available_now_bytes: int | None = None
    max_rows: int | None = None
    min_bytes: int | None = None
    max_delay_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class ReadOptions(SbeOptions, where=READING):
    """The options of a reader. Picklable."""

    streaming: bool
    route: DirectRoute | ServerRoute
    payload: Literal["auto", "raw", "framed", "arrow", "sbe"] = option(
        "auto",
        "`raw`: one row for each message, its bytes unchanged. `framed`: values in this connector's wire format. "
        "`arrow`: Arrow batches in that format, with their rows. `sbe`: SBE messages as typed columns, by the options "
        "`sbe…`. `auto`: what the stream holds. A query of an empty stream begins with the columns of `raw`; the first "
        "message settles the payload, which the checkpoint keeps. If it is another one, the query fails with both "
        "names, and can be started again; a message in the wire format is never the value of a row. `.schema(...)` "
        "selects columns, in any order, metadata columns too: `.schema('value BINARY, position BIGINT')` reads only "
        "these two, and no other column is decoded, which is faster. With `arrow`, a selected column that a batch does "
        "not have is NULL, and columns that cannot be NULL must be selected.",
        example="raw",
    )
    starting_offsets: StartingOffsets = option(
        "latest",
        'Start of the read: `earliest`, `latest`, or JSON that maps recordings to positions, `"earliest"` or '
        '`"latest"`. A recording is `archive/id` (only the id with one archive), or a stream\'s partition '
        "`host:port/partition` (only the partition with one server). Other recordings start at their beginning. For "
        "new queries only. A batch cannot start at `latest`.",
        example='{"embedded/7": 4096}',
        batch_default="earliest",
    )
    starting_timestamp: Time | None = option(
        None,
        "Start at this publish time, instead of `startingOffsets`: an ISO time (UTC if it has no zone), or a time "
        "relative to now such as `-10min`. For new queries only. Through a server, the time of the commit is used, "
        "with any payload.",
        example="-10min",
    )
    timestamp_from: PublishTimes | None = option(
        None,
        "Location of the publish time in messages of other programs: `reserved-ns` or `reserved-ms` (Aeron's reserved "
        "value, in nano- or milliseconds since 1970), or the byte offset of 64-bit little-endian nanoseconds in the "
        "payload. Without it, the column `timestamp` of a `raw` stream is NULL, because neither Aeron nor its archive "
        "keeps a time for a message. A watermark on it lets no row through; a streaming query with this column logs a "
        "warning.",
        example="reserved-ns",
    )
    ending_offsets: EndingOffsets = option(
        "latest",
        'End of the batch: `latest`, or JSON as for `startingOffsets`, without `"earliest"`.',
        example='{"embedded/7": 8192}',
        only=BATCH_READ,
    )
    ending_timestamp: Time | None = option(
        None,
        "End the batch before the first message of this publish time or a later one, instead of `endingOffsets`: a "
        "time as for `startingTimestamp`, and with the same conditions.",
        example="-1min",
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
        "Only messages with these Aeron session ids, separated by commas.",
        example="17,-4242",
        only=(BATCH_READ, Route.DIRECT),
    )
    pushdown: bool = option(
        False,
        "`true`: use the query's filters on position, session and time as bounds; needs "
        "`spark.sql.python.filterPushdown.enabled=true`. Load a separate DataFrame for each query: Spark 4.2 applies "
        "the filters of one query to all later queries of the same DataFrame, which then miss rows.",
        example="true",
        only=BATCH_READ,
    )
    read_path: Literal["auto", "files", "replay"] = option(
        "auto",
        "`files`: read the segment files of this machine's archive, and check every message. `replay`: request a "
        "replay from the archive. `auto`: `files` if they can be read, else `replay`.",
        example="replay",
        only=Route.DIRECT,
    )
    max_bytes_per_trigger: Bytes | None = option(
        None,
        "Most bytes of the log in a micro-batch, divided fairly among the recordings; at least one message is always "
        "read. By default 1GiB; 4GiB with the trigger `availableNow`, whose query ends with what is there, so that "
        "small micro-batches only cost time. A batch query ignores it.",
        example="64MiB",
        low=1,
        ignored=BATCH_READ,
    )
    max_rows_per_trigger: int | None = option(
        None,
        "Most rows in a micro-batch, divided in the same way. A batch query ignores it.",
        example="100000",
        low=1,
        ignored=BATCH_READ,
    )
    min_bytes_per_trigger: Bytes | None = option(
        None,
        "A micro-batch waits for this many bytes, but at most `maxTriggerDelay`. A batch query ignores it.",
        example="8MiB",
        low=1,
        ignored=BATCH_READ,
    )
    max_trigger_delay: Nanoseconds = option(
        "15min",
        "Longest wait for `minBytesPerTrigger`. A batch query ignores it.",
        example="1min",
        ignored=BATCH_READ,
    )
    min_partitions: int | None = option(
        None,
        "Split large ranges at term boundaries into at least this many Spark partitions, if they have enough terms.",
        example="8",
        low=1,
        high=INT32_MAX,
    )
    fail_on_data_loss: bool = option(
        True,
        "If a wanted range is gone (purged, truncated, damaged, recording deleted or replaced): `true` fails and names "
        "the range and the cause; `false` warns and continues at the first existing position, without repeating a row.",
        example="false",
    )
    record: Literal["auto", "never"] = option(
        "auto",
        "For a stream that is not recorded. `auto`: at its start, a streaming query asks the archive to record the "
        "stream from then on, if the stream reaches the archive's host, and warns: earlier messages are lost. The "
        "recording continues after the query until `aeron-spark recordings stop` ends it; a recording of `aeron:ipc` "
        "also ends with this machine's node, which stops when no program or publisher uses it. `recordings list` "
        "shows the recording with the program that started it and the reader's option `queryName`. `never`: the query "
        "fails. A batch query never starts a recording and ignores this option.",
        example="never",
        only=Route.DIRECT,
        ignored=BATCH_READ,
    )
    include_metadata: bool = option(
        False,
        "`true`: with `framed`, `arrow` and `sbe`, add the metadata columns of `raw` with the prefix `_aeron_`, and "
        "those of the writer, or of the SBE message's header.",
        example="true",
    )
    cluster_events: bool = option(
        False,
        "`true`: with `cluster=log` and `payload=sbe`, the rows are the entries of the cluster itself instead of its "
        "clients' messages: leadership terms, sessions, timers and actions. They need no `sbeSchema`, and `sbeMessage` "
        "can choose some of them.",
        example="true",
        only=(Route.DIRECT, Format.AERON),
    )
    idle_timeout: Seconds = option(
        "30s", "Longest wait of a task for recorded data that does not arrive.", example="30s"
    )
    query_name: str = ""  # of a streaming query whose reader has Spark's option 'queryName'
    given_sbe: tuple[str, ...] = ()  # names of the given options of payload=sbe
    ignored: tuple[str, ...] = ()  # names of given options that have no effect here; the caller warns

    def __post_init__(self) -> None:
        self._check_offsets()
        self._check_timestamps()
        self._check_bounds()
        self._check_read_path()
        self._check_limits()
        self._check_cluster_events()
        if not self.cluster_events:
            self.check_sbe(self.payload, self.given_sbe)

    @classmethod
    def parse(
        cls, options: Mapping[str, object], *, streaming: bool, spark_format: Format = Format.AERON
    ) -> ReadOptions:
        """Parse the options that Spark passes to a reader. Raises OptionError for the first wrong option."""
        where = Where.READ_STREAM if streaming else Where.READ_BATCH
        reader = OptionReader(options, where, spark_format)
        route = route_of(reader)
        for edge in ("start", "end"):
            if f"{edge}ingTimestamp" in reader and f"{edge}ingOffsets" in reader:
                raise OptionError(
                    f"options '{edge}ingTimestamp' and '{edge}ingOffsets' both set the {edge} of the read",
                    remedy="Give only one of them.",
                )
        if streaming and "record" in reader and isinstance(route, DirectRoute) and route.cluster:
            raise OptionError(
                "option 'record' has no effect on the log of a cluster, which its members record",
                remedy="Leave it out.",
            )
        return reader.read(
            cls,
            streaming=streaming,
            route=route,
            query_name=next((str(text) for name, text in options.items() if name.lower() == "queryname" and text), ""),
            given_sbe=tuple(option.name for option in reader.given_options() if is_sbe(option)),
            ignored=tuple(option.name for option in reader.given_options() if where in option.ignored),
        )

    @property
    def cluster_log(self) -> bool:
        """Whether the stream is the log of a cluster."""
        return isinstance(self.route, DirectRoute) and self.route.cluster == "log"

    def reader_settings(self, *, metadata: bool) -> SbeSettings:
        """Return the settings of a decoder; those of a cluster's log differ where no option is given."""
        settings = super().reader_settings(metadata=metadata)
        if self.cluster_events:
            return replace(settings, messages=settings.messages or CLUSTER_EVENTS, others=settings.others or "skip")
        if self.cluster_log and self.sbe_framing is None:
            return replace(settings, framing=Framing.CLUSTER)
        return settings

    @property
    def bounds(self) -> Bounds:
        """The bounds of a batch read; a streaming read has none."""
        return Bounds(self.start_position, self.end_position, self.session_ids or ())

    @property
    def limits(self) -> BatchLimits:
        """The limits of micro-batches; a batch read has none."""
        if not self.streaming:
            return BatchLimits()
        given = self.max_bytes_per_trigger
        return BatchLimits(
            MAX_BATCH_BYTES if given is None else given,
            MAX_AVAILABLE_NOW_BYTES if given is None else given,
            self.max_rows_per_trigger,
            self.min_bytes_per_trigger,
            self.max_trigger_delay,
        )

    def _check_offsets(self) -> None:
        starting, ending = self.starting_offsets, self.ending_offsets
        if not self.streaming and "latest" in (starting.default, *starting.named.values()):
            raise OptionError(
                "option 'startingOffsets' is 'latest' in a batch, which would read nothing",
                remedy="Start a batch at 'earliest' or at positions, or read with spark.readStream.",
            )
        if "earliest" in (ending.default, *ending.named.values()):
            raise OptionError(
                "option 'endingOffsets' is 'earliest', which would read nothing",
                remedy="End a batch at 'latest' or at positions.",
            )

    def _check_timestamps(self) -> None:
        if self.timestamp_from is not None or isinstance(self.route, ServerRoute):
            return  # a server knows the commit times of all rows
        for name in ("starting_timestamp", "ending_timestamp"):
            if getattr(self, name) is not None and self.payload in ("raw", "sbe"):
                raise OptionError(
                    f"option '{self.declared[name].name}' needs 'timestampFrom' for a '{self.payload}' stream, whose "
                    "messages have no standard publish time",
                    remedy=example(self.declared["timestamp_from"]),
                )

    def _check_cluster_events(self) -> None:
        if not self.cluster_events:
            return
        if not self.cluster_log or self.payload != "sbe":
            missing = "cluster=log" if not self.cluster_log else "payload=sbe"
            raise OptionError(
                f"option 'clusterEvents' needs {missing}",
                remedy="Add .option('cluster', 'log') and .option('payload', 'sbe'), or leave the option out.",
            )
        for name in ("sbeSchema", "sbeFraming"):
            if name in self.given_sbe:
                raise OptionError(
                    f"option 'clusterEvents' reads the entries of the cluster, and '{name}' is for messages of its "
                    "clients",
                    remedy="Leave one of them out.",
                )

    def _check_bounds(self) -> None:
        start, end = self.start_position, self.end_position
        if start is not None and end is not None and start >= end:
            raise OptionError(
                f"option 'startPosition' ({start}) is not before 'endPosition' ({end})",
                remedy="Give a start position below the end position.",
            )

    def _check_read_path(self) -> None:
        archives = self.route.archive if isinstance(self.route, DirectRoute) else ()
        remote = [archive for archive in archives if archive != "embedded"]
        if self.read_path == "files" and remote:
            raise OptionError(
                f"option 'readPath' is 'files', but only the files of archive=embedded can be read, not those of the "
                f"archive {remote[0]}",
                remedy="Use archive=embedded, or readPath=auto, which replays from other archives.",
            )

    def _check_limits(self) -> None:
        limits = self.limits
        if limits.max_bytes is not None and limits.min_bytes is not None and limits.min_bytes > limits.max_bytes:
            raise OptionError(
                f"option 'minBytesPerTrigger' ({limits.min_bytes}) is above 'maxBytesPerTrigger' ({limits.max_bytes})",
                remedy="Lower 'minBytesPerTrigger', or raise 'maxBytesPerTrigger'.",
            )


@dataclass(frozen=True, kw_only=True)
class WriteOptions(SbeFormatOptions, where=WRITING):
    """The options of a writer. Picklable."""

    streaming: bool
    route: DirectRoute | ServerRoute
    payload: Literal["auto", "raw", "framed", "arrow", "sbe"] = option(
        "auto",
        "`raw`: the bytes of column `value` (BINARY or STRING) unchanged, with optional `reservedValue`, and on the "
        "direct route optional `channel` and `streamId` that override the options. `framed`: the same columns in this "
        "connector's wire format, with values of any size. `arrow`: all columns. `sbe`: each row is one "
        "SBE message of the type `sbeMessage`, with the fields' names as columns. `auto`: `raw` if the DataFrame has "
        "exactly `value` and those optional columns, else `arrow`. With any payload, a stream that holds another one "
        "is refused; with `ack=driver` only if this machine's archive recorded it.",
        example="arrow",
    )
    ack: Literal["auto", "archive", "driver"] = option(
        "auto",
        "When a task ends: `archive`: after the archive has recorded its messages; `driver`: after the media driver "
        "has taken them within the flow-control window; `auto`: `archive` if the target stream is recorded, else "
        "`driver`.",
        example="driver",
        only=Route.DIRECT,
    )
    offer_timeout: Seconds = option(
        "30s",
        "Longest back-pressure; then the task fails, with Aeron's last result.",
        example="30s",
        only=Route.DIRECT,
    )
    when_unconnected: Literal["fail", "drop"] = option(
        "fail",
        "If no subscriber connects within `connectTimeout`: `fail`, or `drop` and count the messages, as Aeron does.",
        example="drop",
        only=Route.DIRECT,
    )
    max_message_bytes: Bytes | None = option(
        None,
        "Largest message in bytes. A larger Arrow batch is split by rows; a larger row is sent in chunks.",
        example="64KiB",
        low=MIN_MESSAGE_BYTES,
        high=MAX_MESSAGE_BYTES,
        shown="the channel's limit",
    )
    writer_id: str | None = option(
        None,
        "Name of the writer, at most 255 bytes of UTF-8, in the metadata of `framed` and `arrow`. Through a server, it "
        "is the writer id for exactly-once commits: a second query with the same id is refused, or fences the first.",
        example="edge-7",
        shown="the query's id",
    )
    accept_gap: bool = option(
        False,
        "`false`: a micro-batch is written only if the servers have all earlier micro-batches of the query. `true`: "
        "the first micro-batch after a start is written in any case, for a query whose server was restored from an "
        "older copy, or that wrote to another server before. The missing rows stay lost. Remove the option after that "
        "start.",
        example="true",
        only=(STREAMING_WRITE, Route.SERVER),
    )
    evolve_schema: bool = option(
        False,
        "`true`: the query may add nullable columns to a stream whose schema policy is `strict`. Its key needs the "
        "grant `manage`. `false`: a new column fails the query, unless the stream's schema policy is `additive`.",
        example="true",
        only=Route.SERVER,
    )
    record: Literal["auto", "never"] = option(
        "never",
        "`auto`: ask the archive to record the target stream before writing, if it is not recorded yet.",
        example="auto",
        only=Route.DIRECT,
    )

    given_sbe: tuple[str, ...] = ()  # names of the given options of payload=sbe

    def __post_init__(self) -> None:
        self.check_sbe(self.payload, self.given_sbe)
        if self.ack == "archive" and self.when_unconnected == "drop":
            raise OptionError(
                "options 'ack' ('archive': done when recorded) and 'whenUnconnected' ('drop': rows may be dropped) "
                "contradict each other",
                remedy="Use ack 'driver', or whenUnconnected 'fail'.",
            )
        if self.writer_id is not None and len(self.writer_id.encode("utf-8", "surrogatepass")) > MAX_WRITER_ID:
            raise OptionError(
                f"option 'writerId' is longer than {MAX_WRITER_ID} bytes of UTF-8",
                remedy=example(self.declared["writer_id"]),
            )

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> WriteOptions:
        """Parse the options that Spark passes to a writer. Raises OptionError for the first wrong option."""
        reader = OptionReader(options, Where.WRITE_STREAM if streaming else Where.WRITE_BATCH)
        given_sbe = tuple(option.name for option in reader.given_options() if is_sbe(option))
        return reader.read(cls, streaming=streaming, route=route_of(reader), given_sbe=given_sbe)
