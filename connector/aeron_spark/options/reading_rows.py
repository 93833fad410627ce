"""Rows of the option table that only a reader knows."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.row import BATCH_READ, READING, Option, Route, ValueType
from aeron_spark.options.values import INT32_MAX

PLACE_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "payload",
        ValueType.CHOICE,
        "auto",
        "`raw`: one row a message, its bytes untouched. `framed`: bytes in this connector's wire format. `arrow`: "
        "the same, "
        "holding Arrow batches; rows are theirs. `auto`: what the stream says it is, else `raw`. `.schema(...)` "
        "chooses columns of `raw` and `framed`: `.schema('value BINARY, position BIGINT')` reads those two alone, and "
        "faster.",
        READING,
        "raw",
        choices=("auto", "raw", "framed", "arrow"),
    ),
    Option(
        "startingOffsets",
        ValueType.OFFSETS,
        "latest",
        "`earliest`, `latest`, or JSON of recording (`archive/id`, or just the id with one archive) or a stream's "
        "partition (`host:port/partition`, or just the partition with one server) to position, "
        '`"earliest"` or '
        '`"latest"`; recordings it does not name start at their beginning. For new queries only. A batch cannot '
        "start at `latest`.",
        READING,
        '{"embedded/7": 4096}',
        batch_default="earliest",
    ),
    Option(
        "startingTimestamp",
        ValueType.MOMENT,
        None,
        "Start at this publish time instead of `startingOffsets`: an ISO time (UTC where it names no zone), or "
        "relative such as "
        "`-10min`. For new queries only. Through a server it is the time of the commit, of any payload.",
        READING,
        "-10min",
    ),
    Option(
        "timestampFrom",
        ValueType.TIMESTAMP_FROM,
        None,
        "Where a foreign stream has its publish times: `reserved-ns` or `reserved-ms` (nano- or milliseconds "
        "since the epoch in Aeron's "
        "reserved value), or the byte offset of nanoseconds (64 bits, little-endian) in the payload. Without it the "
        "column `timestamp` of a `raw` stream is NULL.",
        READING,
        "reserved-ns",
    ),
    Option(
        "endingOffsets",
        ValueType.OFFSETS,
        "latest",
        'Where a batch ends: `latest`, or JSON as for `startingOffsets` (without `"earliest"`).',
        BATCH_READ,
        '{"embedded/7": 8192}',
    ),
    Option(
        "startPosition",
        ValueType.WHOLE,
        None,
        "Only messages that begin at or after this position.",
        BATCH_READ,
        "4096",
    ),
    Option(
        "endPosition",
        ValueType.WHOLE,
        None,
        "Only messages that begin before this position.",
        BATCH_READ,
        "8192",
        low=1,
    ),
    Option(
        "sessionIds",
        ValueType.SESSIONS,
        None,
        "Only messages of these Aeron sessions, separated by commas.",
        BATCH_READ,
        "17,-4242",
        way=Route.DIRECT,
    ),
    Option(
        "pushdown",
        ValueType.FLAG,
        "false",
        "Take position, session and time bounds from the query's filters; needs "
        "`spark.sql.python.filterPushdown.enabled=true`. Load a DataFrame of its own for each query: Spark 4.2 "
        "keeps what one query's filters left for all others of the same DataFrame, which then miss rows.",
        BATCH_READ,
        "true",
    ),
    Option(
        "readPath",
        ValueType.CHOICE,
        "auto",
        "`files` reads the segments of this machine's own archive in place, checking every message; `replay` asks the "
        "archive; `auto` takes the files where they can be read.",
        READING,
        "replay",
        choices=("auto", "files", "replay"),
        way=Route.DIRECT,
    ),
)


LIMIT_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "maxBytesPerTrigger",
        ValueType.SIZE,
        "1GiB",
        "Never more bytes of the log than this a micro-batch (at least one message, so that it never sticks), "
        "shared fairly over "
        "the recordings. A batch query ignores it.",
        READING,
        "64MiB",
        low=1,
        ignored=BATCH_READ,
    ),
    Option(
        "maxRowsPerTrigger",
        ValueType.WHOLE,
        None,
        "Never more rows than this a micro-batch, in the same way. A batch query ignores it.",
        READING,
        "100000",
        low=1,
        ignored=BATCH_READ,
    ),
    Option(
        "minBytesPerTrigger",
        ValueType.SIZE,
        None,
        "Wait until so many bytes have come, but not longer than `maxTriggerDelay`. A batch query ignores it.",
        READING,
        "8MiB",
        low=1,
        ignored=BATCH_READ,
    ),
    Option(
        "maxTriggerDelay",
        ValueType.DURATION,
        "15min",
        "The longest wait for `minBytesPerTrigger`. A batch query ignores it.",
        READING,
        "1min",
        ignored=BATCH_READ,
    ),
    Option(
        "minPartitions",
        ValueType.WHOLE,
        None,
        "Split large ranges, at term boundaries, into at least so many partitions where there are enough terms.",
        READING,
        "8",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "failOnDataLoss",
        ValueType.FLAG,
        "true",
        "A wanted range is gone (purged, truncated, recording deleted or replaced): `true` fails and says which "
        "and why; `false` warns "
        "and continues at the first position there is, and never repeats a row.",
        READING,
        "false",
    ),
    Option(
        "record",
        ValueType.CHOICE,
        "auto",
        "A stream that is not recorded: with `auto` a streaming query asks the archive, when it starts, to record the "
        "stream from then on, where the archive's host can hear it. It warns: earlier messages are lost, and the "
        "recording goes on after the query, until `aeron-spark recordings stop` ends it; for `aeron:ipc` it ends with "
        "this machine's node, too, which stops when neither a program nor a publisher uses it. `recordings list` shows "
        "it, with the program that started it and the name in the reader's option `queryName`. `never` fails with the "
        "remedy. A batch query never starts a recording and ignores this.",
        READING,
        "never",
        choices=("auto", "never"),
        way=Route.DIRECT,
        ignored=BATCH_READ,
    ),
    Option(
        "includeMetadata",
        ValueType.FLAG,
        "false",
        "With `framed` and `arrow`: adds the metadata columns of `raw`, prefixed `_aeron_`, and the writer's.",
        READING,
        "true",
    ),
    Option(
        "idleTimeout",
        ValueType.DURATION,
        "30s",
        "How long a task waits for data that is recorded but does not come.",
        READING,
        "30s",
    ),
)
