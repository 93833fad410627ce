"""Rows of the option table that only a writer knows."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.row import STREAMING_WRITE, WRITING, Option, Route, ValueType

MAX_MESSAGE_BYTES: Final = 16 << 20  # Aeron's own limit of one message, whatever the term length
MIN_MESSAGE_BYTES: Final = 512  # room for the wire format's header, a writer's id and some payload


WRITING_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "payload",
        ValueType.CHOICE,
        "auto",
        "`raw`: column `value` (BINARY or STRING), optional `reservedValue`, optional `channel` and `streamId` "
        "that override the options (direct way); "
        "adds nothing to the bytes. `framed`: the same columns in this connector's wire format, any size. "
        "`arrow`: all columns. "
        "`auto`: `raw` if the columns are exactly those, else `arrow`.",
        WRITING,
        "arrow",
        choices=("auto", "raw", "framed", "arrow"),
    ),
    Option(
        "ack",
        ValueType.CHOICE,
        "auto",
        "When a task is done: `archive`: recorded; `driver`: handed to the media driver within the flow-control "
        "window; "
        "`auto`: `archive` where the target stream is recorded, else `driver`.",
        WRITING,
        "driver",
        choices=("auto", "archive", "driver"),
        way=Route.DIRECT,
    ),
    Option(
        "offerTimeout",
        ValueType.DURATION,
        "30s",
        "Back-pressure longer than this fails the task, with the Aeron result it saw last.",
        WRITING,
        "30s",
        way=Route.DIRECT,
    ),
    Option(
        "whenUnconnected",
        ValueType.CHOICE,
        "fail",
        "No subscriber within `connectTimeout`: `fail`, or `drop` (count, and drop as plain Aeron would).",
        WRITING,
        "drop",
        choices=("fail", "drop"),
        way=Route.DIRECT,
    ),
    Option(
        "maxMessageBytes",
        ValueType.SIZE,
        None,
        "Larger Arrow batches are split by rows; one row larger than this is sent in chunks.",
        WRITING,
        "64KiB",
        low=MIN_MESSAGE_BYTES,
        high=MAX_MESSAGE_BYTES,
        shown_default="the channel's limit",
    ),
    Option(
        "writerId",
        ValueType.TEXT,
        None,
        "Names the writer in the metadata of `framed` and `arrow`; at most 255 bytes of UTF-8. Through a server a "
        "stream's transactions are exactly once under this name: a second query with it is refused, or fences the "
        "first one off.",
        WRITING,
        "edge-7",
        shown_default="the query's id",
    ),
    Option(
        "acceptGap",
        ValueType.FLAG,
        "false",
        "A query's micro-batch is written only if its servers have all micro-batches before it. `true` writes the "
        "first micro-batch after a start in any case: for a query whose server was restored from an older copy, or "
        "that wrote elsewhere before. The rows between stay lost. Remove the option after that start.",
        STREAMING_WRITE,
        "true",
        way=Route.SERVER,
    ),
    Option(
        "record",
        ValueType.CHOICE,
        "never",
        "`auto`: ask the archive to record the target stream before writing, where nobody records it yet.",
        WRITING,
        "auto",
        choices=("auto", "never"),
        way=Route.DIRECT,
    ),
)
