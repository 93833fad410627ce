"""Rows of the option table: how a stream is reached, for reading and writing alike."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.row import EVERYWHERE, READING, Option, Route, ValueType
from aeron_spark.options.values import INT32_MAX, INT32_MIN

DIRECT_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "channel",
        ValueType.CHANNEL,
        None,
        "The Aeron channel of the stream. With `streamId`: the direct way, for a trusted network and any existing "
        "Aeron program.",
        EVERYWHERE,
        "aeron:udp?endpoint=224.20.30.39:40123|interface=localhost",
        way=Route.DIRECT,
    ),
    Option(
        "streamId",
        ValueType.WHOLE,
        None,
        "The stream within the channel. An archive's own control streams are refused.",
        EVERYWHERE,
        "1001",
        low=INT32_MIN,
        high=INT32_MAX,
        way=Route.DIRECT,
    ),
    Option(
        "archive",
        ValueType.ARCHIVES,
        "embedded",
        "Control channel of an Aeron Archive, or several separated by commas; or `embedded`: this machine's own "
        "media driver "
        "and archive under `aeronDir`, started when absent, shared by all processes, stopped when unused.",
        EVERYWHERE,
        "aeron:udp?endpoint=archive.example:8010",
        way=Route.DIRECT,
    ),
    Option(
        "aeronDir",
        ValueType.PATH,
        None,
        "Directory of the media driver of this machine; one is started there when none runs.",
        EVERYWHERE,
        "/dev/shm/aeron-desk",
        shown_default="`/dev/shm/aeron-spark-<user>`",
    ),
    Option(
        "responseChannel",
        ValueType.RESPONSE,
        None,
        "Where an archive elsewhere sends its responses; `response` for Aeron's response channels, which need no "
        "inbound port here, and on the archive's side the port after its control port.",
        EVERYWHERE,
        "aeron:udp?endpoint=10.0.0.7:0",
        shown_default="an ephemeral port on the address that faces the archive",
        way=Route.DIRECT,
    ),
    Option(
        "replayChannel",
        ValueType.RESPONSE,
        None,
        "Where an archive elsewhere replays to; `response` as above.",
        READING,
        "aeron:udp?endpoint=10.0.0.7:0",
        shown_default="an ephemeral port on the address that faces the archive",
        way=Route.DIRECT,
    ),
    Option(
        "credentialsFile",
        ValueType.PATH,
        None,
        "File with the credentials for an archive that asks for them. The secret itself never stands in an option.",
        EVERYWHERE,
        "/etc/aeron/archive.credentials",
        way=Route.DIRECT,
    ),
    Option(
        "connectTimeout",
        ValueType.DURATION,
        "10s",
        "How long to wait for a driver, an archive, a server or (writing) a subscriber.",
        EVERYWHERE,
        "10s",
    ),
)


SERVER_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "server",
        ValueType.ADDRESSES,
        None,
        "`host:port` of a secure endpoint, or `host:port:control` where the control port is not the next one; several "
        "separated by commas where the stream's partitions live on several; or `@` and the path of a file that lists "
        "them, an address and a key a line, which the query's driver reads again for each micro-batch, so that a "
        "server can be added while the query runs. With `stream`: the way with keys and encryption, and exactly once "
        "for writers. Every option of a client below may stand beside it.",
        EVERYWHERE,
        "feeds.example:20121",
        way=Route.SERVER,
    ),
    Option(
        "stream", ValueType.STREAM, None, "Name of a stream of the server.", EVERYWHERE, "flights", way=Route.SERVER
    ),
    Option(
        "identity",
        ValueType.IDENTITY,
        None,
        "This side's key: the path of its file, a name in SparkFiles (`spark.addFile`), or `env:NAME`, a variable that "
        "holds it, in the driver's and the executors' environment. Never the key itself, which Spark would show.",
        EVERYWHERE,
        "/etc/aeron-spark/me.key",
        shown_default="`identity` in `$XDG_CONFIG_HOME/aeron-spark`, made when it is first used",
        way=Route.SERVER,
    ),
    Option(
        "serverKey",
        ValueType.PUBLIC_KEYS,
        None,
        "The server's public key, as `aeron-spark keys show --server` prints it on the server; one for all, or one for "
        "each server, separated by commas. Required: executors trust nobody on first use.",
        EVERYWHERE,
        "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        way=Route.SERVER,
    ),
    Option(
        "handshake",
        ValueType.CHOICE,
        "worker",
        "`worker`: each Python worker has one authenticated connection, over which each of its tasks opens ways of "
        "its own (milliseconds). `partition`: each task's partition has a connection, with a handshake, of its own.",
        EVERYWHERE,
        "partition",
        choices=("worker", "partition"),
        way=Route.SERVER,
    ),
)
