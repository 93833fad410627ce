"""The options and columns of Spark's Kafka source and sink, each with what replaces it here.

``docs/from-kafka.md`` has the same names in a table, with those that mean the same in both sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_STREAM: Final = "Name the streams: 'channel' and 'streamId' (1001,1002), or 'server' and 'stream' (prices,trades)."
_NO_GROUPS: Final = "Leave it out: each query keeps its own positions in its checkpoint, and there are no groups."
_NO_RETRIES: Final = "Leave it out: a running query waits up to 'archiveTimeout' for an archive or its media driver."
_NO_HEADERS: Final = (
    "Leave it out: messages have no headers. 'includeMetadata' adds the metadata columns, and the writer's."
)
_START_TIME: Final = "Use 'startingTimestamp', one time for all partitions."

# By the name in lower case. A name that ends with a dot stands for all names that begin with it.
OPTIONS: Final[Mapping[str, str]] = {
    # the stream
    "kafka.bootstrap.servers": "Use 'server' (host:port) with 'serverKey', or 'channel' for the direct route.",
    "subscribe": _STREAM,
    "subscribepattern": "Use 'stream' with 'server': a text with '*', '?' or '[' is a pattern of names, as prices.*",
    "assign": f"{_STREAM} A query reads all partitions of a stream; a batch has 'sessionIds'.",
    "topic": "Use 'channel' and 'streamId', also as columns of a row, or 'server' and 'stream'.",
    # its part that a query reads
    "startingoffsetsbytimestamp": _START_TIME,
    "startingoffsetsbytimestampstrategy": "Leave it out: a time after the last message starts a recording at its end.",
    "endingoffsetsbytimestamp": "Use 'endingTimestamp', one time for all partitions.",
    "maxoffsetspertrigger": "Use 'maxRowsPerTrigger', or 'maxBytesPerTrigger'.",
    "minoffsetspertrigger": "Use 'minBytesPerTrigger'.",
    "maxrecordsperpartition": "Use 'minPartitions', which splits large ranges.",
    "groupidprefix": _NO_GROUPS,
    "kafka.group.id": _NO_GROUPS,
    "includeheaders": _NO_HEADERS,
    "kafkaconsumer.polltimeoutms": "Use 'idleTimeout'.",
    "fetchoffset.numretries": _NO_RETRIES,
    "fetchoffset.retryintervalms": _NO_RETRIES,
    "kafka.client.id": "Leave it out: through a server, the client's option tag names it.",
    "kafka.auto.offset.reset": "Use 'startingOffsets'.",
    "kafka.enable.auto.commit": "Leave it out: the checkpoint keeps the positions after each micro-batch.",
    "kafka.isolation.level": "Leave it out: readers of a server's stream see committed transactions only.",
    "kafka.request.timeout.ms": "Use 'connectTimeout' and 'idleTimeout'.",
    "kafka.acks": "Use 'ack': 'archive' or 'driver'.",
    "kafka.enable.idempotence": "Leave it out: through a server, writing is exactly once.",
    "kafka.delivery.timeout.ms": "Use 'offerTimeout' on the direct route.",
    "kafka.max.request.size": "Use 'maxMessageBytes'; a larger row is sent in chunks.",
    "kafka.transactional.id": "Use 'writerId' through a server, where each micro-batch is a transaction.",
    # a server instead of SASL and TLS
    "kafka.security.protocol": "Use 'server', 'serverKey' and 'identity': a server's connections are always encrypted.",
    "kafka.sasl.": "Use 'identity', the key of this client, through a server.",
    "kafka.ssl.": "Use 'serverKey' and 'identity' through a server.",
    "kafka.": "Leave it out: no Kafka client takes part. docs/from-kafka.md has a table of what replaces what.",
}  # fmt: skip

# By the name in lower case; the text completes "this source has ...". ``value`` and ``timestamp`` have the same name.
COLUMNS: Final[Mapping[str, str]] = {
    "key": "no key: put it into 'value', or write all columns with payload=arrow",
    "topic": "'channel' and 'streamId', and 'stream' if it reads several streams of a server",
    "partition": "'recordingId' on the direct route and through a server",
    "offset": "'position', in bytes",
    "timestamptype": "only 'timestamp', the publish time",
    "headers": "no headers: 'reservedValue' has 64 bits beside the value",
}


def replacement_of_option(name: str) -> str | None:
    """Return what to use for an option of Spark's Kafka source or sink, as a remedy; None for another name."""
    lower = name.lower()
    if lower in OPTIONS:
        return OPTIONS[lower]
    prefixes = [one for one in OPTIONS if one.endswith(".") and lower.startswith(one)]
    return OPTIONS[max(prefixes, key=len)] if prefixes else None


def replacement_of_column(name: str) -> str | None:
    """Return what to use for a column of Spark's Kafka source, as a remedy; None for another name."""
    found = COLUMNS.get(name.lower())
    return None if found is None else f"For Kafka's column {name!r}, this source has {found}."
