"""The types of the options that ``connect``, ``Client.to`` and ``Server`` take as keywords.

Generated from the declarations of the options by `make docs`. None means that an option is not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from aeron_spark.protocol.access import Rule


class EndpointKeywords(TypedDict, total=False):
    """The options of a client and of a server, as keywords."""

    identity: str | None
    """Identity key of this endpoint: its file, or `env:NAME`, an environment variable. The default file of a client,
    and any file of a server, are created at the first use; `aeron-spark keys new --identity FILE` creates others.
    """

    shared_secret_file: str | PathLike[str] | None
    """File with a secret that both endpoints know: at least 16 bytes, readable only by this user; a final line break is
    ignored. A peer that does not know the secret is refused, even with an authorised key.
    """

    aeron_dir: str | PathLike[str] | None
    """Directory of the media driver. If none runs, a server starts its node there. A client starts one in the default
    directory, or where a node has run before; elsewhere it waits `connectTimeout` for the driver, which you run.
    """

    idle: Literal["busy-spin", "yielding", "backoff", "sleeping"] | None
    """How the event loop waits for messages: `busy-spin` uses a whole core, for the lowest latency; `yielding` lets
    other threads use the core; `backoff` sleeps up to 0.05 ms, `sleeping` 1 ms. After some milliseconds without
    messages, the last two wait for a shared thread of the process that wakes them within 1 ms of a message.
    """

    reliable: bool | str | None
    """`false`: Aeron does not request lost packets again. Frames are decrypted in strict order, so each loss then
    breaks the link; the client resumes, and unacknowledged messages are sent again.
    """

    mtu: int | str | None
    """Largest UDP payload in bytes, a multiple of 32. `auto`: 1184, which also fits through tunnels, for messages and
    calls; for the rows of streams, the largest of up to 16,384 bytes that the network carries without fragments. A
    number fixes both.
    """

    term_length: int | str | None
    """Bytes of a term buffer of a link, a power of two. Each direction has three buffers, allocated when they are used.
    At most half a buffer is in flight. A client uses no longer ones than the server, or 2 MiB.
    """

    max_message: int | str | None
    """Largest Aeron message in bytes, at most an eighth of `termLength`; the smaller value of both endpoints applies. A
    larger message is sent as a transfer of several records.
    """

    expiry: float | str | None
    """A link is lost this long after Aeron has reported that the peer is absent. Aeron itself reports it after 5 to 10
    s.
    """

    linger: float | str | None
    """How long an ended connection may still deliver its last frames."""

    session_timeout: float | str | None
    """How long the session of a disconnected client is kept, so that the client can resume it; at least 60 s, and more
    than `expiry` and `linger` together.
    """

    setup_timeout: float | str | None
    """Longest time to open a link after its handshake."""

    step_timeout: float | str | None
    """Longest time for each step of the handshake; on a server, half of it for the steps before HELLO_ACK."""

    keep_alive: float | str | None
    """A ping is sent after this time without a frame in either direction, so that NATs keep their mappings. After twice
    this time without a frame of the peer, another link replaces the link.
    """

    ping_timeout: float | str | None
    """Longest wait for the response to a ping."""

    send_timeout: float | str | None
    """Longest wait of a message for room; then sending it fails."""

    close_timeout: float | str | None
    """Longest wait of closing until accepted messages are sent."""

    buffering: bool | str | None
    """`false`: no new messages are accepted while the peer is disconnected. Messages accepted before are kept."""

    buffer_bytes: int | str | None
    """Limit for the unacknowledged messages of a connection, each counted with 128 additional bytes; at the limit, the
    sender waits.
    """

    buffer_time: float | str | None
    """How long messages wait while the peer is disconnected, before the session is lost."""

    queue_bytes: int | str | None
    """Limit for received messages that listeners have not handled; at the limit, the peer's sending must wait."""

    max_transfers: int | str | None
    """Transfers (large messages and files) that a connection may receive at a time."""

    transfer_memory: int | str | None
    """A transfer larger than this is written to a file while it arrives."""

    transfer_memory_total: int | str | None
    """Limit for the announced sizes of a connection's transfers in memory; transfers beyond it are written to files."""

    transfer_disk_total: int | str | None
    """Limit for the announced sizes of a connection's transfers in files."""

    spill_dir: str | PathLike[str] | None
    """Folder for the files of transfers."""

    max_calls: int | str | None
    """Remote calls of a connection that may wait for their responses at a time."""

    max_running: int | str | None
    """Remote calls of the peer that may wait or run at a time; further calls fail with the reason `busy`."""

    call_bytes: int | str | None
    """Limit for the encoded arguments of a connection's calls that arrive, wait or run; further calls fail with the
    reason `busy`.
    """

    max_objects: int | str | None
    """Remote objects that a connection may have."""

    workers: int | str | None
    """Threads that run the remote calls of all connections; started when they are needed."""

    max_tampered: int | str | None
    """Frames that may fail authentication within `tamperedTime`: each breaks the link, which the client replaces; at
    this number the connection ends.
    """

    tampered_time: float | str | None
    """Period in which `maxTampered` counts frames."""


class ClientOptions(EndpointKeywords, total=False):
    """The options of a client, as keywords."""

    tag: str | None
    """Short name of this client for the server, at most 32 printable characters."""

    bind: str | None
    """Local address of this client: `host:port` or `host:port:receive port`. The server sees `port`; the client
    receives on the receive port, by default the next port.
    """

    ipc: Literal["auto", "only", "never"] | None
    """Use of shared memory: `auto` tries it before UDP if the server is on this machine; `only` never uses UDP; `never`
    always uses UDP. The address `ipc:` means `only`.
    """

    known_servers: str | PathLike[str] | None
    """File with the keys of the servers that this client has accepted."""

    server_key: str | None
    """The only public key that the server may have; `knownServers` is not read then."""

    trust_first_use: bool | str | None
    """`true`: accept an unknown server, and store its key in `knownServers` after the handshake. `false`: refuse it."""

    validate: bool | str | None
    """`false`: accept a server whose key has changed, and flag the connection (`remote_key_changed`). The stored key
    stays unchanged.
    """

    connect_timeout: float | str | None
    """Longest time for all attempts to connect; 0 means until the client is closed."""

    reconnect: bool | str | None
    """`true`: reconnect after the link is lost. `false`: the first loss of the link ends the connection."""

    first_pause: float | str | None
    """Shortest time between the starts of two attempts to connect; it doubles with each attempt."""

    longest_pause: float | str | None
    """Longest time between the starts of two attempts to connect, unless an attempt takes longer."""


class ServerOptions(EndpointKeywords, total=False):
    """The options of a server, as keywords."""

    bind: str | Sequence[str] | None
    """Addresses to listen on, separated by commas: `host:port`, `host:port:control` (by default, the control port is
    the next port), `[::1]:20121`, `ipc:`; the host `*` means all IPv4 and IPv6 addresses of this machine.
    """

    ports: int | str | Sequence[int] | None
    """Data port, or data port and control port, for the addresses in `bind` without a port."""

    ipc: Literal["auto", "always", "never"] | None
    """Use of shared memory, for clients on the same media driver: `auto` also listens there, unless another server of
    this media driver does; `always` ends the start with an error then; `never` listens at `bind` only.
    """

    reply_channel: Literal["response", "mdc"] | None
    """How the server sends to a client: `response` uses its control port, `mdc` a port of `mdcPorts` for each client.
    With both, only that client gets the messages.
    """

    mdc_ports: str | None
    """Ports for `replyChannel=mdc`, one for each connection."""

    session_id_range: str | None
    """Aeron session ids for connections, two for each. Media drivers that aeron-spark starts do not use the ids of the
    default range.
    """

    authorized_keys: str | PathLike[str] | None
    """Clients file: the client keys that the server admits, and what each may do. A change applies within two seconds,
    also to connected clients.
    """

    allow_any_key: bool | str | None
    """`true`: admit every client key, with every grant, in place of a clients file. For tests and private networks."""

    streams_dir: str | PathLike[str] | None
    """Folder for the journals and stages of streams; their rows are in the archive."""

    sync_level: int | str | None
    """Disk writes of the archive of the node that the server starts: 0 leaves syncing to the operating system, 1 syncs
    data, 2 syncs metadata, too. With 0 a power loss can remove acknowledged rows. A node that runs with another
    level ends the start of the server with an error.
    """

    admin_socket: str | PathLike[str] | None
    """Unix socket on which the commands of this machine, such as `aeron-spark server status`, ask the server. Only the
    server's user and root may use it.
    """

    allow: str | Rule | Sequence[str | Rule] | None
    """Networks or addresses of the clients that the server admits, separated by commas; without it, all. `0.0.0.0/0`
    means all IPv4 and no IPv6 addresses. In Python, functions of a candidate are also allowed. Networks do not apply
    to clients over shared memory.
    """

    deny: str | Rule | Sequence[str | Rule] | None
    """Networks or addresses that the server refuses, even if `allow` has them."""

    max_bulk_links: int | str | None
    """Bulk links of a connection. A client needs one for each partition that it reads or writes at a time."""

    stage_bytes: int | str | None
    """Limit for the staged and uncommitted bytes of all writers."""

    stage_bytes_per_key: int | str | None
    """Limit for the staged and uncommitted bytes of one client key. A key's own limit is `stage-bytes=` in the clients
    file.
    """

    max_partitions: int | str | None
    """Partitions of all streams; 0 means no limit."""

    max_partitions_per_key: int | str | None
    """Partitions of the streams that one client key created; 0 means no limit. A key's own limit is `partitions=` in
    the clients file.
    """

    max_columns: int | str | None
    """Columns of a stream, with all fields in them; 0 means no limit. The schema of a stream that has more already
    stays, and gets no further columns.
    """

    lease_delay: float | str | None
    """How long the leases of readers may delay the retention of a stream. Later, rows beyond the retention are deleted,
    also if a reader has not read them.
    """

    drain_timeout: float | str | None
    """How long a server that is asked to end (SIGTERM, SIGINT) lets the running commits and calls finish."""

    disk_reserve: int | str | None
    """Bytes that stay free on the disks of `streamsDir` and of the archive. With fewer the server is not ready; 0 means
    no reserve.
    """

    max_connections: int | str | None
    """Connections in total; 0 means no limit."""

    max_connections_per_address: int | str | None
    """Connections from one IPv4 address or one IPv6 /64; 0 means no limit. All clients behind a NAT count as one
    address.
    """

    max_pending: int | str | None
    """Pending handshakes in total; 0 means no limit. Half of them is kept for addresses that had a connection in the
    last day.
    """

    max_pending_per_address: int | str | None
    """Pending handshakes from one IPv4 address or IPv6 /64; 0 means no limit. With many handshakes of other addresses
    the limit is lower, down to 1.
    """

    handshakes_per_second: float | str | None
    """Handshakes per second from one IPv4 address or IPv6 /64, after a burst of `handshakeBurst`; 0 means no limit."""

    handshake_burst: int | str | None
    """Handshakes that one IPv4 address or IPv6 /64 may start at once."""

    exempt_loopback: bool | str | None
    """`true`: limits for each address ignore clients on this machine; total limits do not."""

    max_sessions: int | str | None
    """Sessions in total, including those of disconnected clients."""

    max_connections_per_key: int | str | None
    """Connections of one client key, including sessions of disconnected clients: at the limit, the oldest of these
    ends. A key's own limit is `connections=` in the clients file.
    """

    workers_per_key: int | str | None
    """Threads of `workers` that the calls of all connections of one client key may have at a time. A free thread takes
    the next call of the key that has waited longest; the connections of a key take turns.
    """

    memory_limit: int | str | None
    """Limit for the memory that all clients make the server hold: calls, messages, transfers and responses. Near it,
    the connections that hold the most pause; at it, calls fail with the reason `busy`, and the connection that holds
    the most ends. A response of more than a quarter of it is refused with the reason `limit`: its value and its
    copies would not fit. The responses of more than 256 KiB that are sent at the same time have this quarter
    together; others are refused with the reason `busy`. 256 KiB are assured to each connection; 0 means no limit.
    """

    bytes_in: int | str | None
    """Bytes per second that the server reads from all connections of one client key; at the limit it reads later. A
    key's own limit is `bytes-in=` in the clients file.
    """

    bytes_out: int | str | None
    """Bytes per second that the server sends to all connections of one client key; at the limit it sends later. A key's
    own limit is `bytes-out=` in the clients file.
    """

    messages_in: int | str | None
    """Messages per second that the server reads from all connections of one client key, beside calls and streams. A
    key's own limit is `messages-in=` in the clients file.
    """

    deciders: int | str | None
    """Threads that check keys and filters during handshakes."""

    http: str | None
    """Serve `/metrics`, `/healthz` and `/readyz` on this `HOST:PORT`, without authentication; `:9464` means 127.0.0.1.
    It needs the extra `server`: `pip install aeron-spark[server]`.
    """

    metrics_streams: int | str | None
    """Streams with metrics of their own, the largest ones; the metrics of all others have the stream `_other`."""

    log_format: Literal["text", "json"] | None
    """Write the log to standard error, one line for each event: as text for people, or as JSON for programs. Without
    it, a Python program configures the module `logging` itself.
    """

    log_level: Literal["debug", "info", "warning", "error"] | None
    """The least level of the lines in the log of `logFormat`."""
