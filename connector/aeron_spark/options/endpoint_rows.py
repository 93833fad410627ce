"""Rows of the option table for the secure endpoint: what a server and a client both know."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.row import ENDPOINT, Option, ValueType
from aeron_spark.options.values import INT32_MAX

# Aeron's own limits of a term, an MTU and a message. HELLO needs an MTU of 1132 bytes.
MIN_TERM_BYTES: Final = 64 << 10
MAX_TERM_BYTES: Final = 1 << 30
MIN_MTU_BYTES: Final = 1184
MAX_MTU_BYTES: Final = 65_504
MIN_MESSAGE_BYTES: Final = 128 << 10
MAX_MESSAGE_BYTES: Final = 16 << 20
MIN_BUFFER_BYTES: Final = 128 << 10  # room for one record


WAY_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "identity", ValueType.TEXT, None,
        "This side's key: the file of it, or `env:NAME`, a variable that holds it. A client's default file, and every "
        "file of a server, are made when they are first used; `aeron-spark keys new --identity FILE` makes any other.",
        ENDPOINT, "me.key",
        shown_default="`identity` (a client) or `server` (a server) in `$XDG_CONFIG_HOME/aeron-spark`",
    ),
    Option(
        "sharedSecretFile", ValueType.PATH, None,
        "File of a secret that both sides have, at least 16 bytes and readable by this user alone; a line break at its "
        "end does not count. Whoever does not know it is refused, whatever key it has.",
        ENDPOINT, "/etc/aeron-spark/shared.secret",
    ),
    Option(
        "aeronDir", ValueType.PATH, None, "Directory of the media driver; one is started there when none runs.",
        ENDPOINT, "/dev/shm/aeron-desk", shown_default="`/dev/shm/aeron-spark-<user>`",
    ),
    Option(
        "idle", ValueType.CHOICE, "backoff",
        "How the polling thread waits: `busy-spin` takes a core of its own for the shortest latency, `yielding` a core "
        "that others may have, `backoff` sleeps up to 0.05 ms, `sleeping` 1 ms each time. The last two rest after some "
        "milliseconds of silence, until one thread of the process calls them: what comes is seen within a millisecond.",
        ENDPOINT, "sleeping", choices=("busy-spin", "yielding", "backoff", "sleeping"),
    ),
    Option(
        "reliable", ValueType.FLAG, "true",
        "`false`: Aeron does not ask again for packets that were lost. Frames are opened in strict order, so that each "
        "loss then makes the connection anew, and what was lost is sent again by it.",
        ENDPOINT, "false",
    ),
    Option(
        "mtu", ValueType.SIZE, "1184", "Bytes of a UDP payload, a multiple of 32. The default is safe through tunnels.",
        ENDPOINT, "8KiB", low=MIN_MTU_BYTES, high=MAX_MTU_BYTES,
    ),
    Option(
        "termLength", ValueType.SIZE, "2MiB",
        "Bytes of a term buffer of a connection, a power of two; each direction has three, made as they are used. No "
        "more than half of it is under way at a time.",
        ENDPOINT, "4MiB", low=MIN_TERM_BYTES, high=MAX_TERM_BYTES,
    ),
    Option(
        "maxMessage", ValueType.SIZE, "128KiB",
        "Bytes of the largest Aeron message that is taken, at most an eighth of `termLength`; the smaller one of both "
        "sides counts. What is larger goes as a stream of chunks.",
        ENDPOINT, "512KiB", low=MIN_MESSAGE_BYTES, high=MAX_MESSAGE_BYTES,
    ),
)  # fmt: skip

TIME_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "expiry",
        ValueType.DURATION,
        "4s",
        "A connection is gone when Aeron has said for so long that the other side is not there. Aeron itself takes 5 "
        "to 10 s to notice.",
        ENDPOINT,
        "10s",
    ),
    Option(
        "linger",
        ValueType.DURATION_OR_ZERO,
        "5s",
        "How long a connection that has ended may still deliver its last frames.",
        ENDPOINT,
        "1s",
    ),
    Option(
        "sessionTimeout",
        ValueType.DURATION,
        "2min",
        "How long the session of a client that has gone is kept, so that it can come back to it; at least 60 s, and "
        "more than `expiry` and `linger` together.",
        ENDPOINT,
        "10min",
    ),
    Option(
        "setupTimeout",
        ValueType.DURATION,
        "10s",
        "How long a connection may take to open after its handshake.",
        ENDPOINT,
        "30s",
    ),
    Option(
        "stepTimeout",
        ValueType.DURATION,
        "10s",
        "How long each step of the handshake may take; a server gives those before it has answered half of it.",
        ENDPOINT,
        "30s",
    ),
    Option(
        "keepAlive",
        ValueType.DURATION,
        "15s",
        "A frame is sent after so long without one, so that NATs keep the way open.",
        ENDPOINT,
        "20s",
    ),
    Option("pingTimeout", ValueType.DURATION, "30s", "How long a ping waits for its answer.", ENDPOINT, "5s"),
    Option(
        "sendTimeout",
        ValueType.DURATION,
        "30s",
        "How long a message waits for room before sending it fails.",
        ENDPOINT,
        "5s",
    ),
    Option(
        "closeTimeout", ValueType.DURATION, "2s", "How long closing waits for what was sent to go out.", ENDPOINT, "10s"
    ),
)

BOUND_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "buffering",
        ValueType.FLAG,
        "true",
        "`false`: nothing new is accepted while the other side is away. What was accepted before is kept all the same.",
        ENDPOINT,
        "false",
    ),
    Option(
        "bufferBytes",
        ValueType.SIZE,
        "16MiB",
        "What a connection keeps of messages that are not acknowledged yet, 128 bytes a message beside its own; beyond "
        "it the sender waits.",
        ENDPOINT,
        "64MiB",
        low=MIN_BUFFER_BYTES,
    ),
    Option(
        "bufferTime",
        ValueType.DURATION,
        None,
        "How long messages wait while nobody is connected, before the session is lost.",
        ENDPOINT,
        "30s",
        shown_default="`sessionTimeout`",
    ),
    Option(
        "queueBytes",
        ValueType.SIZE,
        "4MiB",
        "What may be received and not yet taken by listeners, before the other side is held up.",
        ENDPOINT,
        "16MiB",
        low=1,
    ),
    Option(
        "maxStreams",
        ValueType.WHOLE,
        "64",
        "Streams (large messages and files) of a connection that may arrive at a time.",
        ENDPOINT,
        "8",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "streamMemory",
        ValueType.SIZE,
        "16MiB",
        "A stream larger than this is written to a file as it arrives.",
        ENDPOINT,
        "1MiB",
        low=0,
    ),
    Option(
        "streamMemoryTotal",
        ValueType.SIZE,
        "64MiB",
        "What all streams in memory of a connection may announce; beyond it they are written to files.",
        ENDPOINT,
        "16MiB",
        low=0,
    ),
    Option(
        "streamDiskTotal",
        ValueType.SIZE,
        "64GiB",
        "What all streams in files of a connection may announce.",
        ENDPOINT,
        "1GiB",
        low=0,
    ),
    Option(
        "spillDir",
        ValueType.PATH,
        None,
        "Where the files of streams are written.",
        ENDPOINT,
        "/var/tmp",
        shown_default="the system's directory for temporary files",
    ),
    Option(
        "maxCalls",
        ValueType.WHOLE,
        "65536",
        "Remote calls of a connection that may wait for their answers.",
        ENDPOINT,
        "1000",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "maxRunning",
        ValueType.WHOLE,
        "65536",
        "Remote calls of the other side that may wait or run here at a time; beyond it they are answered `busy`.",
        ENDPOINT,
        "100",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "maxObjects",
        ValueType.WHOLE,
        "10000",
        "Remote objects of a connection.",
        ENDPOINT,
        "100",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "workers",
        ValueType.WHOLE,
        "64",
        "Threads that run remote calls of all connections; made when they are needed.",
        ENDPOINT,
        "8",
        low=1,
        high=4096,
    ),
    Option(
        "maxTampered",
        ValueType.WHOLE,
        "5",
        "Each frame that fails its authentication makes the connection anew; so many within `tamperedTime` end it.",
        ENDPOINT,
        "1",
        low=1,
        high=INT32_MAX,
    ),
    Option("tamperedTime", ValueType.DURATION, "1min", "See `maxTampered`.", ENDPOINT, "10min"),
)
