"""Rows of the option table that only a server of the secure endpoint knows."""

from __future__ import annotations

from typing import Final

from aeron_spark.options.row import SERVER, Option, ValueType
from aeron_spark.options.values import INT32_MAX

LISTENING_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "bind", ValueType.ADDRESSES, "0.0.0.0",
        "Where to listen, separated by commas: `host:port`, `host:port:control` (the control port is the next one "
        "unless given), `[::1]:20121`, `ipc:`; `*` is every address of this machine, IPv4 and IPv6.",
        SERVER, "10.0.0.7:20121,[::1]:20121",
    ),
    Option(
        "ports", ValueType.PORT_PAIR, "20121,20122",
        "Data port, or data port and control port, of the addresses in `bind` that name none.", SERVER, "30121,30122",
    ),
    Option(
        "ipc", ValueType.FLAG, "false", "Listen over shared memory, too, for clients that share the media driver.",
        SERVER, "true",
    ),
    Option(
        "duologue", ValueType.CHOICE, "response",
        "How a server sends to a client: `response` through its control port, `mdc` through a port of `mdcPorts` for "
        "each client. Either way it reaches that client alone.",
        SERVER, "mdc", choices=("response", "mdc"),
    ),
    Option(
        "mdcPorts", ValueType.PORT_SPAN, None, "The ports of `duologue=mdc`, one for each connection.",
        SERVER, "20200-20299", low=1, high=65_535,
    ),
    Option(
        "sessionIdRange", ValueType.SPAN, "1610612736-1611661311",
        "Aeron session ids for connections, two for each. The default is what media drivers of this package leave "
        "free.",
        SERVER, "1000-1999", low=1, high=INT32_MAX,
    ),
    Option(
        "authorizedKeys", ValueType.PATH, None,
        "File of the clients that may come, and what each may do; without it any key may. It is read anew for each "
        "client.",
        SERVER, "/etc/aeron-spark/authorized_keys",
    ),
    Option(
        "streamsDir", ValueType.PATH, None,
        "Folder of the named streams' journals and stages; their rows are in the archive.",
        SERVER, "/srv/aeron-spark/streams", shown_default="`streams` beside the archive's folder",
    ),
    Option(
        "allow", ValueType.NETWORKS, None,
        "Networks or addresses that may come, separated by commas; without any, all may. `0.0.0.0/0` is all of IPv4 "
        "and nothing of IPv6. In Python functions of a candidate may stand there, too. Networks say nothing of clients "
        "over shared memory.",
        SERVER, "10.0.0.0/8,2001:db8::/32",
    ),
    Option(
        "deny", ValueType.NETWORKS, None, "Networks or addresses that may not come, whatever `allow` says.",
        SERVER, "10.66.0.0/16",
    ),
)  # fmt: skip

LIMIT_ROWS: Final[tuple[Option, ...]] = (
    Option(
        "maxBranches",
        ValueType.WHOLE,
        "256",
        "Further duologues of a connection: one for each partition that a client reads or writes at a time.",
        SERVER,
        "64",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "stageBytes",
        ValueType.SIZE,
        "64GiB",
        "What writers may have staged and not committed, in all.",
        SERVER,
        "8GiB",
        low=1,
    ),
    Option(
        "maxConnections", ValueType.WHOLE, "1000", "Connections in all; 0 is no limit.", SERVER, "100", high=INT32_MAX
    ),
    Option(
        "maxConnectionsPerAddress",
        ValueType.WHOLE,
        "0",
        "Connections of one IPv4 address or one IPv6 /64; 0 is no limit. A NAT may hide an office.",
        SERVER,
        "8",
        high=INT32_MAX,
    ),
    Option(
        "maxPending",
        ValueType.WHOLE,
        "256",
        "Handshakes under way in all; 0 is no limit.",
        SERVER,
        "64",
        high=INT32_MAX,
    ),
    Option(
        "maxPendingPerAddress",
        ValueType.WHOLE,
        "16",
        "Handshakes under way of one IPv4 address or IPv6 /64; 0 is no limit.",
        SERVER,
        "4",
        high=INT32_MAX,
    ),
    Option(
        "handshakesPerSecond",
        ValueType.NUMBER,
        "10",
        "Handshakes a second of one IPv4 address or IPv6 /64, after `handshakeBurst` of them; 0 is no limit.",
        SERVER,
        "0.5",
        high=1_000_000,
    ),
    Option(
        "handshakeBurst",
        ValueType.WHOLE,
        "50",
        "Handshakes of one IPv4 address or IPv6 /64 at once.",
        SERVER,
        "10",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "exemptLoopback",
        ValueType.FLAG,
        "false",
        "`true`: limits that go by address do not count this machine itself. Totals do.",
        SERVER,
        "true",
    ),
    Option(
        "maxSessions",
        ValueType.WHOLE,
        "10000",
        "Sessions in all, those of clients that have gone among them.",
        SERVER,
        "100",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "maxSessionsPerKey",
        ValueType.WHOLE,
        "16",
        "Sessions of one client's key; at the limit the oldest one that nobody is connected to ends.",
        SERVER,
        "1",
        low=1,
        high=INT32_MAX,
    ),
    Option(
        "deciders",
        ValueType.WHOLE,
        "8",
        "Threads that look at keys and filters of those who come.",
        SERVER,
        "2",
        low=1,
        high=1024,
    ),
)
