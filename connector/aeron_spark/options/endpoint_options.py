"""What a client and a server of the secure endpoint can be told: ``ClientOptions`` and ``ServerOptions``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import CLIENT, ENDPOINT, SERVER, Option, OptionSet, Where, option
from aeron_spark.options.reader import OptionReader
from aeron_spark.options.values import (
    INT32_MAX,
    AddressTexts,
    Bytes,
    NumberRange,
    OwnAddress,
    PathText,
    PortPair,
    PortRange,
    PublicKey,
    Rules,
    Seconds,
    SecondsOrZero,
)
from aeron_spark.protocol import limits, liveness
from aeron_spark.protocol.access import Rule
from aeron_spark.protocol.ids import FIRST_SESSION_ID, LAST_SESSION_ID
from aeron_spark.protocol.keypair import public_text
from aeron_spark.protocol.rpc_calls import MAX_IN_FLIGHT
from aeron_spark.protocol.rpc_dispatch import MAX_RUNNING
from aeron_spark.protocol.rpc_objects import MAX_OBJECTS
from aeron_spark.protocol.session import BUFFER_BYTES
from aeron_spark.protocol.tickets import MAX_SESSIONS, MAX_SESSIONS_PER_KEY
from aeron_spark.protocol.transfers import MAX_MEMORY_BYTES, MAX_SPILLED_BYTES, MAX_TRANSFERS, MEMORY_LIMIT
from aeron_spark.transport.addresses import ip_of
from aeron_spark.transport.api import LINK_TERM_BYTES, MAX_MESSAGE_BYTES, MTU_BYTES, ServerAddress
from aeron_spark.transport.channel_parameters import FRAME_ALIGNMENT, MTU_MAX_BYTES, TERM_MAX_BYTES, TERM_MIN_BYTES
from aeron_spark.transport.endpoint_channels import EndpointAddress, server_address, server_addresses

MIN_MTU_BYTES: Final = 1184  # HELLO needs 1132
MIN_MESSAGE_BYTES: Final = 128 << 10
MAX_AERON_MESSAGE_BYTES: Final = 16 << 20  # Aeron's own limit
MESSAGES_A_TERM: Final = 8  # Aeron takes messages of up to an eighth of a term
MIN_BUFFER_BYTES: Final = 128 << 10  # room for one record
IN_MEMORY: Final = ServerAddress(media="ipc")
_RULES: Final = ("allow", "deny")


@dataclass(frozen=True, kw_only=True)
class TransportOptions(OptionSet, where=ENDPOINT):
    """This side's key and media driver, and how its channels are tuned."""

    identity: str | None = option(
        None,
        "This side's key: the file of it, or `env:NAME`, a variable that holds it. A client's default file, and "
        "every file of a server, are made when they are first used; `aeron-spark keys new --identity FILE` makes "
        "any other.",
        example="me.key",
        shown="`identity` (a client) or `server` (a server) in `$XDG_CONFIG_HOME/aeron-spark`",
    )
    shared_secret_file: PathText | None = option(
        None,
        "File of a secret that both sides have, at least 16 bytes and readable by this user alone; a line break at "
        "its end does not count. Whoever does not know it is refused, whatever key it has.",
        example="/etc/aeron-spark/shared.secret",
    )
    aeron_dir: PathText | None = option(
        None,
        "Directory of the media driver; one is started there when none runs.",
        example="/dev/shm/aeron-desk",
        shown="`/dev/shm/aeron-spark-<user>`",
    )
    idle: Literal["busy-spin", "yielding", "backoff", "sleeping"] = option(
        "backoff",
        "How the polling thread waits: `busy-spin` takes a core of its own for the shortest latency, `yielding` a "
        "core that others may have, `backoff` sleeps up to 0.05 ms, `sleeping` 1 ms each time. The last two rest "
        "after some milliseconds of silence, until one thread of the process calls them: what comes is seen within "
        "a millisecond.",
        example="sleeping",
    )
    reliable: bool = option(
        True,
        "`false`: Aeron does not ask again for packets that were lost. Frames are opened in strict order, so that "
        "each loss then makes the connection anew, and what was lost is sent again by it.",
        example="false",
    )
    mtu: Bytes = option(
        MTU_BYTES,
        "Bytes of a UDP payload, a multiple of 32. The default is safe through tunnels.",
        example="8KiB",
        low=MIN_MTU_BYTES,
        high=MTU_MAX_BYTES,
    )
    term_length: Bytes = option(
        LINK_TERM_BYTES,
        "Bytes of a term buffer of a connection, a power of two; each direction has three, made as they are used. "
        "No more than half of it is under way at a time.",
        example="4MiB",
        low=TERM_MIN_BYTES,
        high=TERM_MAX_BYTES,
    )
    max_message: Bytes = option(
        MAX_MESSAGE_BYTES,
        "Bytes of the largest Aeron message that is taken, at most an eighth of `termLength`; the smaller one of "
        "both sides counts. What is larger goes as a stream of chunks.",
        example="512KiB",
        low=MIN_MESSAGE_BYTES,
        high=MAX_AERON_MESSAGE_BYTES,
    )


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(OptionSet, where=ENDPOINT):
    """Times and bounds of each connection."""

    expiry: Seconds = option(
        liveness.EXPIRY_SECONDS,
        "A connection is gone when Aeron has said for so long that the other side is not there. Aeron itself takes "
        "5 to 10 s to notice.",
        example="10s",
    )
    linger: SecondsOrZero = option(
        liveness.LINGER_SECONDS, "How long a connection that has ended may still deliver its last frames.", example="1s"
    )
    session_timeout: Seconds = option(
        liveness.RETENTION_SECONDS,
        "How long the session of a client that has gone is kept, so that it can come back to it; at least 60 s, and"
        " more than `expiry` and `linger` together.",
        example="10min",
    )
    setup_timeout: Seconds = option(
        liveness.SETUP_SECONDS, "How long a connection may take to open after its handshake.", example="30s"
    )
    step_timeout: Seconds = option(
        "10s",
        "How long each step of the handshake may take; a server gives those before it has answered half of it.",
        example="30s",
    )
    keep_alive: Seconds = option(
        liveness.KEEP_ALIVE_SECONDS,
        "A frame is sent after so long without one, so that NATs keep the way open.",
        example="20s",
    )
    ping_timeout: Seconds = option(liveness.PING_SECONDS, "How long a ping waits for its answer.", example="5s")
    # as Spark's sinks wait for room (offerTimeout)
    send_timeout: Seconds = option("30s", "How long a message waits for room before sending it fails.", example="5s")
    close_timeout: Seconds = option("2s", "How long closing waits for what was sent to go out.", example="10s")
    buffering: bool = option(
        True,
        "`false`: nothing new is accepted while the other side is away. What was accepted before is kept all the same.",
        example="false",
    )
    buffer_bytes: Bytes = option(
        BUFFER_BYTES,
        "What a connection keeps of messages that are not acknowledged yet, 128 bytes a message beside its own; "
        "beyond it the sender waits.",
        example="64MiB",
        low=MIN_BUFFER_BYTES,
    )
    buffer_time: Seconds | None = option(
        None,
        "How long messages wait while nobody is connected, before the session is lost.",
        example="30s",
        shown="`sessionTimeout`",
    )
    queue_bytes: Bytes = option(
        "4MiB",
        "What may be received and not yet taken by listeners, before the other side is held up.",
        example="16MiB",
        low=1,
    )
    max_transfers: int = option(
        MAX_TRANSFERS,
        "Streams (large messages and files) of a connection that may arrive at a time.",
        example="8",
        low=1,
        high=INT32_MAX,
    )
    transfer_memory: Bytes = option(
        MEMORY_LIMIT, "A stream larger than this is written to a file as it arrives.", example="1MiB"
    )
    transfer_memory_total: Bytes = option(
        MAX_MEMORY_BYTES,
        "What all streams in memory of a connection may announce; beyond it they are written to files.",
        example="16MiB",
    )
    transfer_disk_total: Bytes = option(
        MAX_SPILLED_BYTES, "What all streams in files of a connection may announce.", example="1GiB"
    )
    spill_dir: PathText | None = option(
        None,
        "Where the files of streams are written.",
        example="/var/tmp",
        shown="the system's directory for temporary files",
    )
    max_calls: int = option(
        MAX_IN_FLIGHT,
        "Remote calls of a connection that may wait for their answers.",
        example="1000",
        low=1,
        high=INT32_MAX,
    )
    max_running: int = option(
        MAX_RUNNING,
        "Remote calls of the other side that may wait or run here at a time; beyond it they are answered `busy`.",
        example="100",
        low=1,
        high=INT32_MAX,
    )
    max_objects: int = option(MAX_OBJECTS, "Remote objects of a connection.", example="100", low=1, high=INT32_MAX)
    workers: int = option(
        "64",
        "Threads that run remote calls of all connections; made when they are needed.",
        example="8",
        low=1,
        high=4096,
    )
    max_tampered: int = option(
        "5",
        "Each frame that fails its authentication makes the connection anew; so many within `tamperedTime` end it.",
        example="1",
        low=1,
        high=INT32_MAX,
    )
    tampered_time: Seconds = option("1min", "See `maxTampered`.", example="10min")


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(ConnectionOptions, TransportOptions, where=ENDPOINT):
    """What a client and a server both know. Raises OptionError for what contradicts itself or cannot work."""

    def __post_init__(self) -> None:
        self._check_times()
        self._check_sizes()

    def _check_times(self) -> None:
        kept, ending, least = self.session_timeout, self.expiry + self.linger, liveness.MIN_RETENTION_SECONDS
        if kept < least:
            raise OptionError(
                f"option 'sessionTimeout' is {kept:g} s, less than {least:g} s: a client that has to find "
                "its way back would come too late",
                remedy=f"Make it at least {least:g}s",
            )
        if kept <= ending:
            raise OptionError(
                f"option 'sessionTimeout' is {kept:g} s, but a connection takes {ending:g} s to end ('expiry' and "
                "'linger')",
                remedy="Raise 'sessionTimeout', or lower the other two",
            )

    def _check_sizes(self) -> None:
        mtu, term, most = self.mtu, self.term_length, self.max_message
        if mtu % FRAME_ALIGNMENT:
            raise OptionError(
                f"option 'mtu' is {mtu}, not a multiple of {FRAME_ALIGNMENT}",
                remedy=f"The next one is {mtu - mtu % FRAME_ALIGNMENT}",
            )
        if term & (term - 1):
            raise OptionError(
                f"option 'termLength' is {term}, not a power of two", remedy=f"The next one is {1 << term.bit_length()}"
            )
        if most > term // MESSAGES_A_TERM:
            raise OptionError(
                f"option 'maxMessage' is {most}, more than an eighth of 'termLength' ({term})",
                remedy=f"Make 'termLength' at least {1 << (MESSAGES_A_TERM * most - 1).bit_length()}, or messages "
                "smaller",
            )


@dataclass(frozen=True, kw_only=True)
class ClientOptions(EndpointOptions, where=CLIENT):
    """Options of a client, and the ``server_address``. Nothing has been started.

    Where the address of the server is shared memory, ``ipc`` is ``only``, and ``aeron_dir`` the driver it names.
    """

    server_address: ServerAddress = IN_MEMORY
    tag: str | None = option(None, "A short name of this client, at most 32 printable characters.", example="desk-7")
    bind: OwnAddress | None = option(
        None,
        "This side's own address: `host:port`, where `port` is the one that the server sees and the next one "
        "receives, or `host:port:receive port`.",
        example="0.0.0.0:20400",
        shown="ports that the system chooses",
    )
    ipc: Literal["auto", "only", "never"] = option(
        "auto",
        "Shared memory: `auto` tries it first where the server is on this machine, then UDP; `only` and `never` do "
        "what they say. The address `ipc:` is `only`.",
        example="never",
    )
    known_servers: PathText | None = option(
        None,
        "File of the servers this client knows by their keys.",
        example="/etc/aeron-spark/known_servers",
        shown="`$XDG_CONFIG_HOME/aeron-spark/known_servers`",
    )
    server_key: PublicKey | None = option(
        None,
        "The only key that the server may have; `knownServers` is not asked then.",
        example="aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    )
    trust_first_use: bool = option(
        True,
        "A server that is not known yet is trusted, and remembered once the handshake has completed. `false` "
        "refuses it.",
        example="false",
    )
    validate: bool = option(
        True,
        "`false`: a server whose key has changed is let in, and flagged (`remote_key_changed`). What is known of it"
        " stays as it was.",
        example="false",
    )
    connect_timeout: SecondsOrZero = option(
        "30s", "How long connecting may take in all; 0 tries until closed.", example="5s"
    )
    reconnect: bool = option(
        True,
        "Come back after the server was lost. `false`: the first loss of the way ends the connection.",
        example="false",
    )
    first_pause: Seconds = option(
        "100ms", "Between the first two attempts; then twice as long each time.", example="1s"
    )
    longest_pause: Seconds = option("5s", "Between two attempts at most.", example="30s")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server_key is not None and not self.validate:
            raise OptionError(
                "options 'serverKey' (the only key the server may have) and 'validate' ('false': any key may come) "
                "contradict",
                remedy="Leave one of them out",
            )
        if self.first_pause > self.longest_pause:
            raise OptionError(
                f"option 'firstPause' ({self.first_pause:g} s) is longer than 'longestPause' ({self.longest_pause:g} "
                "s)",
                remedy="The pauses grow from the one to the other",
            )

    @classmethod
    def parse(cls, address: str = "", options: Mapping[str, object] | None = None) -> ClientOptions:
        """Read a client's options and the address of its server; without one only shared memory is left.

        Raises OptionError, one sentence and a remedy, for the first thing wrong.
        """
        # a program may have the server's key as its bytes
        texts = {name: public_text(one) if isinstance(one, bytes) else one for name, one in (options or {}).items()}
        reader = OptionReader(texts, Where.CLIENT)
        found = server_address(address) if address else EndpointAddress(IN_MEMORY)
        given = reader.read(cls, server_address=found.place)
        return given._in_memory(found) if found.is_ipc else given

    def _in_memory(self, address: EndpointAddress) -> ClientOptions:
        if self.ipc == "never":
            raise OptionError(
                "option 'ipc' is 'never', and no address of a server on the network is given",
                remedy="Give host:port, or leave 'ipc' out",
            )
        chosen, named = self.aeron_dir, address.aeron_dir
        if chosen is not None and named is not None and chosen != named:
            raise OptionError(
                f"option 'aeronDir' is {chosen}, and the address names {named}", remedy="Name one media driver"
            )
        return replace(self, ipc="only", aeron_dir=chosen or named)

    @property
    def may_be_ipc(self) -> bool:
        """Whether the server may share this machine's memory: it is on this machine, as far as its address tells."""
        if self.ipc == "only":
            return True
        address = ip_of(self.server_address.host)
        return address is not None and address.is_loopback


@dataclass(frozen=True, kw_only=True)
class ServerOptions(EndpointOptions, where=SERVER):
    """Options of a server, and the ``places`` where it listens. Nothing has been started.

    Where an address is shared memory, ``aeron_dir`` is the driver it names. ``allow`` and ``deny`` may hold functions.
    """

    addresses: tuple[ServerAddress, ...] = ()
    bind: AddressTexts = option(
        "0.0.0.0",
        "Where to listen, separated by commas: `host:port`, `host:port:control` (the control port is the next one "
        "unless given), `[::1]:20121`, `ipc:`; `*` is every address of this machine, IPv4 and IPv6.",
        example="10.0.0.7:20121,[::1]:20121",
    )
    ports: PortPair = option(
        "20121,20122",
        "Data port, or data port and control port, of the addresses in `bind` that name none.",
        example="30121,30122",
    )
    ipc: bool = option(
        False, "Listen over shared memory, too, for clients that share the media driver.", example="true"
    )
    reply_channel: Literal["response", "mdc"] = option(
        "response",
        "How a server sends to a client: `response` through its control port, `mdc` through a port of `mdcPorts` "
        "for each client. Either way it reaches that client alone.",
        example="mdc",
    )
    mdc_ports: PortRange | None = option(
        None, "The ports of `replyChannel=mdc`, one for each connection.", example="20200-20299", low=1, high=65535
    )
    session_id_range: NumberRange = option(
        (FIRST_SESSION_ID, LAST_SESSION_ID),
        "Aeron session ids for connections, two for each. The default is what media drivers of this package leave "
        "free.",
        example="1000-1999",
        low=1,
        high=INT32_MAX,
    )
    authorized_keys: PathText | None = option(
        None,
        "File of the clients that may come, and what each may do; without it any key may. It is read anew for each "
        "client.",
        example="/etc/aeron-spark/authorized_keys",
    )
    streams_dir: PathText | None = option(
        None,
        "Folder of the named streams' journals and stages; their rows are in the archive.",
        example="/srv/aeron-spark/streams",
        shown="`streams` beside the archive's folder",
    )
    allow: Rules | None = option(
        None,
        "Networks or addresses that may come, separated by commas; without any, all may. `0.0.0.0/0` is all of IPv4"
        " and nothing of IPv6. In Python functions of a candidate may stand there, too. Networks say nothing of "
        "clients over shared memory.",
        example="10.0.0.0/8,2001:db8::/32",
    )
    deny: Rules | None = option(
        None, "Networks or addresses that may not come, whatever `allow` says.", example="10.66.0.0/16"
    )
    max_bulk_links: int = option(
        "256",
        "Further duologues of a connection: one for each partition that a client reads or writes at a time.",
        example="64",
        low=1,
        high=INT32_MAX,
    )
    stage_bytes: Bytes = option(
        "64GiB", "What writers may have staged and not committed, in all.", example="8GiB", low=1
    )
    max_connections: int = option(
        limits.MAX_CONNECTIONS, "Connections in all; 0 is no limit.", example="100", high=INT32_MAX
    )
    max_connections_per_address: int = option(
        limits.MAX_CONNECTIONS_PER_ADDRESS,
        "Connections of one IPv4 address or one IPv6 /64; 0 is no limit. A NAT may hide an office.",
        example="8",
        high=INT32_MAX,
    )
    max_pending: int = option(
        limits.MAX_PENDING, "Handshakes under way in all; 0 is no limit.", example="64", high=INT32_MAX
    )
    max_pending_per_address: int = option(
        limits.MAX_PENDING_PER_ADDRESS,
        "Handshakes under way of one IPv4 address or IPv6 /64; 0 is no limit.",
        example="4",
        high=INT32_MAX,
    )
    handshakes_per_second: float = option(
        limits.HANDSHAKES_PER_SECOND,
        "Handshakes a second of one IPv4 address or IPv6 /64, after `handshakeBurst` of them; 0 is no limit.",
        example="0.5",
        high=1000000,
    )
    handshake_burst: int = option(
        limits.HANDSHAKE_BURST,
        "Handshakes of one IPv4 address or IPv6 /64 at once.",
        example="10",
        low=1,
        high=INT32_MAX,
    )
    exempt_loopback: bool = option(
        False, "`true`: limits that go by address do not count this machine itself. Totals do.", example="true"
    )
    max_sessions: int = option(
        MAX_SESSIONS,
        "Sessions in all, those of clients that have gone among them.",
        example="100",
        low=1,
        high=INT32_MAX,
    )
    max_sessions_per_key: int = option(
        MAX_SESSIONS_PER_KEY,
        "Sessions of one client's key; at the limit the oldest one that nobody is connected to ends.",
        example="1",
        low=1,
        high=INT32_MAX,
    )
    deciders: int = option(
        "8", "Threads that look at keys and filters of those who come.", example="2", low=1, high=1024
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reply_channel == "mdc" and self.mdc_ports is None:
            raise OptionError(
                "option 'replyChannel' is 'mdc', which needs ports of its own",
                remedy="For example --mdc-ports 20200-20299",
            )
        if self.mdc_ports is None:
            return
        if self.reply_channel != "mdc":
            raise OptionError(
                "option 'mdcPorts' is for replyChannel 'mdc', and it is 'response'",
                remedy="Leave it out, or set replyChannel=mdc",
            )
        first, last = self.mdc_ports
        for address in self.addresses:
            for name, port in (("data", address.data_port), ("control", address.control_port)):
                if address.media == "udp" and first <= port <= last:
                    raise OptionError(
                        f"option 'mdcPorts' ({first}-{last}) holds the {name} port {port}", remedy="Choose other ports"
                    )

    @classmethod
    def parse(cls, address: str = "", options: Mapping[str, object] | None = None) -> ServerOptions:
        """Read a server's options; ``address`` stands for ``bind``, and ``allow`` and ``deny`` may hold functions.

        Raises OptionError, one sentence and a remedy, for the first thing wrong.
        """
        texts, functions = _without_functions(options or {})
        reader = OptionReader(texts, Where.SERVER)
        if address and "bind" in reader:
            raise OptionError("the address is given twice, by itself and as 'bind'", remedy="Give one of them")
        given = reader.read(cls)

        def parse(text: str) -> tuple[EndpointAddress, ...]:
            return server_addresses(text, given.ports)

        found = parse(address) if address else reader.value(cls.declared["bind"], parse) or ()
        return replace(
            given,
            addresses=given._with_shared_memory(found),
            aeron_dir=given._aeron_dir(found),
            allow=(*(given.allow or ()), *functions["allow"]),
            deny=(*(given.deny or ()), *functions["deny"]),
        )

    def _with_shared_memory(self, addresses: tuple[EndpointAddress, ...]) -> tuple[ServerAddress, ...]:
        places = tuple(one.place for one in addresses)
        in_memory = self.ipc and not any(one.is_ipc for one in addresses)
        return (*places, IN_MEMORY) if in_memory else places

    def _aeron_dir(self, addresses: tuple[EndpointAddress, ...]) -> str | None:
        """Return the one media driver that the addresses and ``aeronDir`` name."""
        named = {one for one in (self.aeron_dir, *(one.aeron_dir for one in addresses)) if one is not None}
        if len(named) > 1:
            raise OptionError(
                f"several media drivers are named: {', '.join(sorted(named))}",
                remedy="Name one, with 'aeronDir' or in the address",
            )
        return named.pop() if named else None


def flags_of(endpoint: type[ClientOptions | ServerOptions]) -> tuple[Option, ...]:
    """Return the options of a client or a server in the order of ``--help``: its own before times and bounds."""
    sets = (TransportOptions, endpoint, ConnectionOptions)
    return tuple(declared for one in sets for declared in one.declared.values())


def _without_functions(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, list[Rule]]]:
    """Set apart the functions in ``allow`` and ``deny``."""
    functions: dict[str, list[Rule]] = {name: [] for name in _RULES}
    texts: dict[str, object] = {}
    for name, value in options.items():
        rest: object = value
        if name.lower() in functions:
            rules = list(value) if isinstance(value, list | tuple) else [value]
            functions[name.lower()] += [cast("Callable[..., bool]", one) for one in rules if callable(one)]
            rest = [one for one in rules if not callable(one)] or None
        texts[name] = rest
    return texts, functions
