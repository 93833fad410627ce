"""The options of both ends of the secure endpoint, and those of a client."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import CLIENT, ENDPOINT, Option, OptionReader, OptionSet, Restart, Where, option
from aeron_spark.options.values import (
    INT32_MAX,
    Bytes,
    BytesOrAuto,
    OwnAddress,
    PathText,
    PublicKey,
    Seconds,
    SecondsOrZero,
)
from aeron_spark.protocol import liveness
from aeron_spark.protocol.handshake_payloads import check_tag
from aeron_spark.protocol.keypair import public_text
from aeron_spark.protocol.rpc_dispatch import CALL_BYTES, MAX_IN_FLIGHT, MAX_RUNNING, CallLimits
from aeron_spark.protocol.rpc_objects import MAX_OBJECTS
from aeron_spark.protocol.session import BUFFER_BYTES, SessionLimits
from aeron_spark.protocol.transfers import MAX_MEMORY_BYTES, MAX_SPILLED_BYTES, MAX_TRANSFERS, MEMORY_LIMIT
from aeron_spark.transport.api import LINK_TERM_BYTES, MAX_MESSAGE_BYTES, MTU_BYTES, ChannelSettings, ServerAddress
from aeron_spark.transport.channel import FRAME_ALIGNMENT, MTU_MAX_BYTES, TERM_MAX_BYTES, TERM_MIN_BYTES
from aeron_spark.transport.endpoint_channels import EndpointAddress, server_address

if TYPE_CHECKING:
    from aeron_spark.protocol.client_handshake import ClientTiming
    from aeron_spark.protocol.frame_cipher import CipherLimits

MIN_MTU_BYTES: Final = MTU_BYTES  # HELLO needs 1132
MIN_MESSAGE_BYTES: Final = 128 << 10
MAX_AERON_MESSAGE_BYTES: Final = 16 << 20  # Aeron's own limit
MIN_MESSAGES_PER_TERM: Final = 8  # Aeron's longest message is an eighth of a term
MIN_BUFFER_BYTES: Final = 128 << 10  # room for one record
RECORD_BYTES: Final = 96 << 10  # of the longest record: a chunk of a transfer, or a message of 64 KiB with its type
RESPONSE_SHARE: Final = 4  # a response is held three times: the value, its encoding, and the records being sent
SHARED_MEMORY: Final = ServerAddress(media="ipc")


@dataclass(frozen=True, kw_only=True)
class TransportOptions(OptionSet, where=ENDPOINT):
    """The key, media driver and channel settings of an endpoint."""

    identity: str | None = option(
        None,
        "Identity key of this endpoint: its file, or `env:NAME`, an environment variable. The default file of a "
        "client, and any file of a server, are created at the first use; `aeron-spark keys new --identity FILE` "
        "creates others.",
        example="me.key",
        shown="`identity` (a client) or `server` (a server) in `$XDG_CONFIG_HOME/aeron-spark`",
        restart=Restart.VERIFIED,
    )
    shared_secret_file: PathText | None = option(
        None,
        "File with a secret that both endpoints know: at least 16 bytes, readable only by this user; a final line "
        "break is ignored. A peer that does not know the secret is refused, even with an authorised key.",
        example="/etc/aeron-spark/shared.secret",
        restart=Restart.VERIFIED,
    )
    aeron_dir: PathText | None = option(
        None,
        "Directory of the media driver. If none runs, a server starts its node there. A client starts one in the "
        "default directory, or where a node has run before; elsewhere it waits `connectTimeout` for the driver, "
        "which you run.",
        example="/dev/shm/aeron-desk",
        shown="`/dev/shm/aeron-spark-<user>`",
        restart=Restart.OPENED,
    )
    idle: Literal["busy-spin", "yielding", "backoff", "sleeping"] = option(
        "backoff",
        "How the event loop waits for messages: `busy-spin` uses a whole core, for the lowest latency; `yielding` "
        "lets other threads use the core; `backoff` sleeps up to 0.05 ms, `sleeping` 1 ms. After some milliseconds "
        "without messages, the last two wait for a shared thread of the process that wakes them within 1 ms of a "
        "message.",
        example="sleeping",
        restart=Restart.THREADS,
    )
    reliable: bool = option(
        True,
        "`false`: Aeron does not request lost packets again. Frames are decrypted in strict order, so each loss then "
        "breaks the link; the client resumes, and unacknowledged messages are sent again.",
        example="false",
        restart=Restart.CHANNELS,
    )
    mtu: BytesOrAuto | None = option(
        None,
        "Largest UDP payload in bytes, a multiple of 32. `auto`: 1184, which also fits through tunnels, for messages "
        "and calls; for the rows of streams, the largest of up to 16,384 bytes that the network carries without "
        "fragments. A number fixes both.",
        example="8KiB",
        shown="`auto`",
        low=MIN_MTU_BYTES,
        high=MTU_MAX_BYTES,
        restart=Restart.CHANNELS,
    )
    term_length: Bytes = option(
        LINK_TERM_BYTES,
        "Bytes of a term buffer of a link, a power of two. Each direction has three buffers, allocated when they are "
        "used. At most half a buffer is in flight. A client uses no longer ones than the server, or 2 MiB.",
        example="4MiB",
        low=TERM_MIN_BYTES,
        high=TERM_MAX_BYTES,
        restart=Restart.CHANNELS,
    )
    max_message: Bytes = option(
        MAX_MESSAGE_BYTES,
        "Largest Aeron message in bytes, at most an eighth of `termLength`; the smaller value of both endpoints "
        "applies. A larger message is sent as a transfer of several records.",
        example="512KiB",
        low=MIN_MESSAGE_BYTES,
        high=MAX_AERON_MESSAGE_BYTES,
        restart=Restart.CHANNELS,
    )


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(OptionSet, where=ENDPOINT):
    """Times and limits of each connection."""

    expiry: Seconds = option(
        liveness.EXPIRY_SECONDS,
        "A link is lost this long after Aeron has reported that the peer is absent. Aeron itself reports it after 5 "
        "to 10 s.",
        example="10s",
        restart=Restart.SESSION,
    )
    linger: SecondsOrZero = option(
        liveness.LINGER_SECONDS,
        "How long an ended connection may still deliver its last frames.",
        example="1s",
        restart=Restart.SESSION,
    )
    session_timeout: Seconds = option(
        liveness.RETENTION_SECONDS,
        "How long the session of a disconnected client is kept, so that the client can resume it; at least 60 s, and "
        "more than `expiry` and `linger` together.",
        example="10min",
        restart=Restart.SESSION,
    )
    setup_timeout: Seconds = option(
        liveness.SETUP_SECONDS,
        "Longest time to open a link after its handshake.",
        example="30s",
        restart=Restart.SESSION,
    )
    step_timeout: Seconds = option(
        "10s",
        "Longest time for each step of the handshake; on a server, half of it for the steps before HELLO_ACK.",
        example="30s",
        restart=Restart.SESSION,
    )
    keep_alive: Seconds = option(
        liveness.KEEP_ALIVE_SECONDS,
        "A ping is sent after this time without a frame in either direction, so that NATs keep their mappings. After "
        "twice this time without a frame of the peer, another link replaces the link.",
        example="20s",
        restart=Restart.SESSION,
    )
    ping_timeout: Seconds = option(
        liveness.PING_SECONDS, "Longest wait for the response to a ping.", example="5s", restart=Restart.SESSION
    )
    # as Spark's sinks wait for room (offerTimeout)
    send_timeout: Seconds = option(
        "30s", "Longest wait of a message for room; then sending it fails.", example="5s", restart=Restart.SESSION
    )
    close_timeout: Seconds = option(
        "2s", "Longest wait of closing until accepted messages are sent.", example="10s", restart=Restart.SESSION
    )
    buffering: bool = option(
        True,
        "`false`: no new messages are accepted while the peer is disconnected. Messages accepted before are kept.",
        example="false",
        restart=Restart.SESSION,
    )
    buffer_bytes: Bytes = option(
        BUFFER_BYTES,
        "Limit for the unacknowledged messages of a connection, each counted with 128 additional bytes; at the limit, "
        "the sender waits.",
        example="64MiB",
        low=MIN_BUFFER_BYTES,
        restart=Restart.SESSION,
    )
    buffer_time: Seconds | None = option(
        None,
        "How long messages wait while the peer is disconnected, before the session is lost.",
        example="30s",
        shown="`sessionTimeout`",
        restart=Restart.SESSION,
    )
    queue_bytes: Bytes = option(
        "4MiB",
        "Limit for received messages that listeners have not handled; at the limit, the peer's sending must wait.",
        example="16MiB",
        low=1,
        restart=Restart.SESSION,
    )
    max_transfers: int = option(
        MAX_TRANSFERS,
        "Transfers (large messages and files) that a connection may receive at a time.",
        example="8",
        low=1,
        high=INT32_MAX,
        restart=Restart.SESSION,
    )
    transfer_memory: Bytes = option(
        MEMORY_LIMIT,
        "A transfer larger than this is written to a file while it arrives.",
        example="1MiB",
        restart=Restart.SESSION,
    )
    transfer_memory_total: Bytes = option(
        MAX_MEMORY_BYTES,
        "Limit for the announced sizes of a connection's transfers in memory; transfers beyond it are written to "
        "files.",
        example="16MiB",
        restart=Restart.SESSION,
    )
    transfer_disk_total: Bytes = option(
        MAX_SPILLED_BYTES,
        "Limit for the announced sizes of a connection's transfers in files.",
        example="1GiB",
        restart=Restart.SESSION,
    )
    spill_dir: PathText | None = option(
        None,
        "Folder for the files of transfers.",
        example="/var/tmp",
        shown="the system's folder for temporary files",
        restart=Restart.SESSION,
    )
    max_calls: int = option(
        MAX_IN_FLIGHT,
        "Remote calls of a connection that may wait for their responses at a time.",
        example="1000",
        low=1,
        high=INT32_MAX,
        restart=Restart.SESSION,
    )
    max_running: int = option(
        MAX_RUNNING,
        "Remote calls of the peer that may wait or run at a time; further calls fail with the reason `busy`.",
        example="100",
        low=1,
        high=INT32_MAX,
        live=True,
    )
    call_bytes: Bytes = option(
        CALL_BYTES,
        "Limit for the encoded arguments of a connection's calls that arrive, wait or run; further calls fail with the "
        "reason `busy`.",
        example="4MiB",
        low=64 * 1024,
        live=True,
    )
    max_objects: int = option(
        MAX_OBJECTS,
        "Remote objects that a connection may have.",
        example="100",
        low=1,
        high=INT32_MAX,
        restart=Restart.SESSION,
    )
    workers: int = option(
        "64",
        "Threads that run the remote calls of all connections; started when they are needed.",
        example="8",
        low=1,
        high=4096,
        restart=Restart.THREADS,
    )
    max_tampered: int = option(
        "5",
        "Frames that may fail authentication within `tamperedTime`: each breaks the link, which the client replaces; "
        "at this number the connection ends.",
        example="1",
        low=1,
        high=INT32_MAX,
        restart=Restart.SESSION,
    )
    tampered_time: Seconds = option(
        "1min", "Period in which `maxTampered` counts frames.", example="10min", restart=Restart.SESSION
    )


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(ConnectionOptions, TransportOptions, where=ENDPOINT):
    """The options of both a client and a server. Raises OptionError for values that contradict each other.

    The cached properties are groups of options, in the form that the pure parts of an endpoint take. Some import a
    module with cryptography only when they are used: a process that plans a query of Spark reads options, too.
    """

    measures_round_trip: ClassVar[bool] = False  # of each connection: a server shows it to its operators

    def __post_init__(self) -> None:
        self._check_times()
        self._check_sizes()

    @property
    def workers_per_key(self) -> int:
        """The workers that the calls of one key may have: all, unless a server has many clients."""
        return self.workers

    @property
    def memory_limit(self) -> int:
        """The limit of what all connections hold; 0, as for a client: no limit."""
        return 0

    @property
    def spill_folder(self) -> Path:
        """The folder for the files of transfers."""
        return Path(tempfile.gettempdir() if self.spill_dir is None else self.spill_dir).expanduser()

    @cached_property
    def times(self) -> liveness.Times:
        """The times of links and their connections."""
        return liveness.Times(
            expiry_seconds=self.expiry,
            setup_seconds=self.setup_timeout,
            linger_seconds=self.linger,
            keep_alive_seconds=self.keep_alive,
            ping_seconds=self.ping_timeout,
            retention_seconds=self.session_timeout,
            measures_round_trip=self.measures_round_trip,
        )

    @cached_property
    def session_limits(self) -> SessionLimits:
        """The limits of a connection's unacknowledged records."""
        return SessionLimits(
            buffer_bytes=self.buffer_bytes,
            buffer_seconds=self.session_timeout if self.buffer_time is None else self.buffer_time,
            retention_seconds=self.session_timeout,
            max_record_bytes=RECORD_BYTES,
            buffering=self.buffering,
        )

    @cached_property
    def key_limits(self) -> CipherLimits:
        """How much one key of a link encrypts."""
        from aeron_spark.protocol.frame_cipher import CipherLimits

        return CipherLimits()

    @cached_property
    def channel(self) -> ChannelSettings:
        """The parameters of a link's channels."""
        return ChannelSettings(
            self.term_length, self.mtu or MTU_BYTES, self.reliable, self.max_message, finds_mtu=self.mtu is None
        )

    @cached_property
    def call_limits(self) -> CallLimits:
        """The limits of the calls of each peer."""
        return CallLimits(self.max_running, self.call_bytes, self.memory_limit // RESPONSE_SHARE)

    def _check_times(self) -> None:
        session_s, ending_s, min_session_s = (
            self.session_timeout,
            self.expiry + self.linger,
            liveness.MIN_RETENTION_SECONDS,
        )
        if session_s < min_session_s:
            raise OptionError(
                f"option 'sessionTimeout' is {session_s:g} s, expected at least {min_session_s:g} s: a client that "
                "reconnects would lose its session",
                remedy=f"Make it at least {min_session_s:g}s.",
            )
        if session_s <= ending_s:
            raise OptionError(
                f"option 'sessionTimeout' is {session_s:g} s, expected more than 'expiry' and 'linger' together, "
                f"{ending_s:g} s",
                remedy="Raise 'sessionTimeout', or lower the other two.",
            )
        if self.buffer_time is not None and self.buffer_time > session_s:
            raise OptionError(
                f"messages wait {self.buffer_time:g} s for a connection, but their session is kept for {session_s:g} s "
                "only",
                remedy="Lower bufferTime (buffer_seconds), or raise sessionTimeout (retention_seconds).",
            )

    def _check_sizes(self) -> None:
        mtu, term, message = self.mtu, self.term_length, self.max_message
        if mtu is not None and mtu % FRAME_ALIGNMENT:
            raise OptionError(
                f"option 'mtu' is {mtu} bytes, not a multiple of {FRAME_ALIGNMENT}",
                remedy=f"Use {mtu - mtu % FRAME_ALIGNMENT}.",
            )
        if term & (term - 1):
            raise OptionError(
                f"option 'termLength' is {term} bytes, not a power of two", remedy=f"Use {1 << term.bit_length()}."
            )
        if message > term // MIN_MESSAGES_PER_TERM:
            min_term = 1 << (MIN_MESSAGES_PER_TERM * message - 1).bit_length()
            raise OptionError(
                f"option 'maxMessage' is {message} bytes, more than an eighth of 'termLength' ({term})",
                remedy=f"Raise 'termLength' to at least {min_term}, or lower 'maxMessage'.",
            )


@dataclass(frozen=True, kw_only=True)
class ClientOptions(EndpointOptions, where=CLIENT):
    """The options of a client, and the address of its server.

    For a shared-memory address, ``ipc`` is ``only``, and ``aeron_dir`` is the media driver in the address.
    """

    server_address: ServerAddress = SHARED_MEMORY
    tag: str | None = option(
        None, "Short name of this client for the server, at most 32 printable characters.", example="desk-7"
    )
    bind: OwnAddress | None = option(
        None,
        "Local address of this client: `host:port` or `host:port:receive port`. The server sees `port`; the client "
        "receives on the receive port, by default the next port.",
        example="0.0.0.0:20400",
        shown="ports that the system chooses",
    )
    ipc: Literal["auto", "only", "never"] = option(
        "auto",
        "Use of shared memory: `auto` tries it before UDP if the server is on this machine; `only` never uses UDP; "
        "`never` always uses UDP. The address `ipc:` means `only`.",
        example="never",
    )
    known_servers: PathText | None = option(
        None,
        "File with the keys of the servers that this client has accepted.",
        example="/etc/aeron-spark/known_servers",
        shown="`$XDG_CONFIG_HOME/aeron-spark/known_servers`",
    )
    server_key: PublicKey | None = option(
        None,
        "The only public key that the server may have; `knownServers` is not read then.",
        example="aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    )
    trust_first_use: bool = option(
        True,
        "`true`: accept an unknown server, and store its key in `knownServers` after the handshake. `false`: refuse "
        "it.",
        example="false",
    )
    validate: bool = option(
        True,
        "`false`: accept a server whose key has changed, and flag the connection (`remote_key_changed`). The stored "
        "key stays unchanged.",
        example="false",
    )
    connect_timeout: SecondsOrZero = option(
        "30s", "Longest time for all attempts to connect; 0 means until the client is closed.", example="5s"
    )
    reconnect: bool = option(
        True,
        "`true`: reconnect after the link is lost. `false`: the first loss of the link ends the connection.",
        example="false",
    )
    first_pause: Seconds = option(
        "100ms",
        "Shortest time between the starts of two attempts to connect; it doubles with each attempt.",
        example="1s",
    )
    longest_pause: Seconds = option(
        "5s",
        "Longest time between the starts of two attempts to connect, unless an attempt takes longer.",
        example="30s",
    )

    @cached_property
    def timing(self) -> ClientTiming:
        """The times of the steps of a handshake."""
        from aeron_spark.protocol.client_handshake import ClientTiming

        return ClientTiming(hello_ack_s=self.step_timeout, done_ack_s=self.step_timeout)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tag(self.tag or "")
        if self.server_key is not None and not self.validate:
            raise OptionError(
                "options 'serverKey' (the only key the server may have) and 'validate' ('false': accept a changed key) "
                "contradict each other",
                remedy="Leave one of them out.",
            )
        if self.first_pause > self.longest_pause:
            raise OptionError(
                f"option 'firstPause' ({self.first_pause:g} s) is longer than 'longestPause' ({self.longest_pause:g} "
                "s)",
                remedy="Lower 'firstPause', or raise 'longestPause'.",
            )

    @classmethod
    def parse(cls, address: str = "", options: Mapping[str, object] | None = None) -> ClientOptions:
        """Read a client's options and the address of its server; no address means shared memory.

        Raises OptionError for the first wrong option.
        """
        # a program may give the server's key as bytes
        texts = {name: public_text(one) if isinstance(one, bytes) else one for name, one in (options or {}).items()}
        reader = OptionReader(texts, Where.CLIENT)
        parsed = server_address(address) if address else EndpointAddress(SHARED_MEMORY)
        client_options = reader.read(cls, server_address=parsed.address)
        return client_options._for_shared_memory(parsed) if parsed.is_ipc else client_options

    def _for_shared_memory(self, address: EndpointAddress) -> ClientOptions:
        if self.ipc == "never":
            raise OptionError(
                "option 'ipc' is 'never', but the server's address is not host:port",
                remedy="Give host:port, or leave 'ipc' out.",
            )
        if self.aeron_dir is not None and address.aeron_dir is not None and self.aeron_dir != address.aeron_dir:
            raise OptionError(
                f"option 'aeronDir' is {self.aeron_dir}, but the address has the media driver {address.aeron_dir}",
                remedy="Give one media driver.",
            )
        return replace(self, ipc="only", aeron_dir=self.aeron_dir or address.aeron_dir)


def flags_of(endpoint: type[EndpointOptions]) -> tuple[Option, ...]:
    """Return the options of a client or a server in the order of ``--help``: times and limits last."""
    sets = (TransportOptions, endpoint, ConnectionOptions)
    return tuple(declared for one in sets for declared in one.declared.values())
