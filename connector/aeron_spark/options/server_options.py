"""The options of a server of the secure endpoint, and those of a running server, which a reload replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, cast

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import SERVER, OptionReader, Restart, Where, option
from aeron_spark.options.endpoint_options import SHARED_MEMORY, EndpointOptions
from aeron_spark.options.values import (
    INT32_MAX,
    AddressTexts,
    Bytes,
    NumberRange,
    OptionType,
    PathText,
    PortRange,
    Seconds,
    SecondsOrZero,
    unbounded,
)
from aeron_spark.protocol import limits
from aeron_spark.protocol.access import Filters, Rule
from aeron_spark.protocol.ids import FIRST_SESSION_ID, LAST_SESSION_ID, REUSE_DELAY_S
from aeron_spark.protocol.sources import Network
from aeron_spark.protocol.tickets import MAX_CONNECTIONS_PER_KEY, MAX_SESSIONS
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import EndpointAddress, Ports, port_pair, server_addresses

if TYPE_CHECKING:
    from aeron_spark.protocol.server_handshake import ServerTiming

_RULES: Final = ("allow", "deny")


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse networks or addresses, separated by commas. Raises OptionError for an invalid one."""
    return tuple(Network.parse(part.strip()) for part in text.split(","))


PortPair = Annotated[Ports, OptionType("PORT-PAIR", "ports", unbounded(port_pair), "{0[0]},{0[1]}".format)]
Rules = Annotated[tuple[Rule, ...], OptionType("NETWORKS", "networks", unbounded(parse_networks))]


@dataclass(frozen=True, kw_only=True)
class ServerOptions(EndpointOptions, where=SERVER):
    """The options of a server, and the addresses on which it listens.

    For a shared-memory address, ``aeron_dir`` is the media driver in the address. ``allow`` and ``deny`` may also have
    functions.
    """

    measures_round_trip: ClassVar[bool] = True
    id_reuse_delay: ClassVar[float] = REUSE_DELAY_S  # of the Aeron ids of an ended link
    addresses: tuple[ServerAddress, ...] = ()
    bind: AddressTexts = option(
        "0.0.0.0",
        "Addresses to listen on, separated by commas: `host:port`, `host:port:control` (by default, the control port "
        "is the next port), `[::1]:20121`, `ipc:`; the host `*` means all IPv4 and IPv6 addresses of this machine.",
        example="10.0.0.7:20121,[::1]:20121",
        restart=Restart.OPENED,
    )
    ports: PortPair = option(
        "20121,20122",
        "Data port, or data port and control port, for the addresses in `bind` without a port.",
        example="30121,30122",
        restart=Restart.OPENED,
    )
    ipc: Literal["auto", "always", "never"] = option(
        "auto",
        "Use of shared memory, for clients on the same media driver: `auto` also listens there, unless another server "
        "of this media driver does; `always` ends the start with an error then; `never` listens at `bind` only.",
        example="never",
        restart=Restart.OPENED,
    )
    reply_channel: Literal["response", "mdc"] = option(
        "response",
        "How the server sends to a client: `response` uses its control port, `mdc` a port of `mdcPorts` for each "
        "client. With both, only that client gets the messages.",
        example="mdc",
        restart=Restart.OPENED,
    )
    mdc_ports: PortRange | None = option(
        None,
        "Ports for `replyChannel=mdc`, one for each connection.",
        example="20200-20299",
        low=1,
        high=65535,
        restart=Restart.OPENED,
    )
    session_id_range: NumberRange = option(
        (FIRST_SESSION_ID, LAST_SESSION_ID),
        "Aeron session ids for connections, two for each. Media drivers that aeron-spark starts do not use the ids of "
        "the default range.",
        example="1000-1999",
        low=1,
        high=INT32_MAX,
        restart=Restart.OPENED,
    )
    authorized_keys: PathText | None = option(
        None,
        "Clients file: the client keys that the server admits, and what each may do. A change applies within two "
        "seconds, also to connected clients.",
        example="/etc/aeron-spark/authorized_keys",
        shown="`authorized_keys` in `$XDG_CONFIG_HOME/aeron-spark`",
        restart=Restart.KEYS,
    )
    allow_any_key: bool = option(
        False,
        "`true`: admit every client key, with every grant, in place of a clients file. For tests and private networks.",
        example="true",
        restart=Restart.KEYS,
    )
    streams_dir: PathText | None = option(
        None,
        "Folder for the journals and stages of streams; their rows are in the archive.",
        example="/srv/aeron-spark/streams",
        shown="the archive's folder with the suffix `.streams`",
        restart=Restart.OPENED,
    )
    sync_level: int | None = option(
        None,
        "Disk writes of the archive of the node that the server starts: 0 leaves syncing to the operating system, 1 "
        "syncs data, 2 syncs metadata, too. With 0 a power loss can remove acknowledged rows. A node that runs with "
        "another level ends the start of the server with an error.",
        example="1",
        low=0,
        high=2,
        shown="0, or the level of the node that runs",
        restart=Restart.NODE,
    )
    admin_socket: PathText | None = option(
        None,
        "Unix socket on which the commands of this machine, such as `aeron-spark server status`, ask the server. Only "
        "the server's user and root may use it.",
        example="/run/aeron-spark/admin.sock",
        shown="`admin.sock` in `streamsDir`",
        restart=Restart.OPENED,
    )
    allow: Rules | None = option(
        None,
        "Networks or addresses of the clients that the server admits, separated by commas; without it, all. "
        "`0.0.0.0/0` means all IPv4 and no IPv6 addresses. In Python, functions of a candidate are also allowed. "
        "Networks do not apply to clients over shared memory.",
        example="10.0.0.0/8,2001:db8::/32",
        live=True,
    )
    deny: Rules | None = option(
        None,
        "Networks or addresses that the server refuses, even if `allow` has them.",
        example="10.66.0.0/16",
        live=True,
    )
    max_bulk_links: int = option(
        "256",
        "Bulk links of a connection. A client needs one for each partition that it reads or writes at a time.",
        example="64",
        low=1,
        high=INT32_MAX,
        live=True,
    )
    stage_bytes: Bytes = option(
        "64GiB", "Limit for the staged and uncommitted bytes of all writers.", example="8GiB", low=1, live=True
    )
    stage_bytes_per_key: Bytes = option(
        "16GiB",
        "Limit for the staged and uncommitted bytes of one client key. A key's own limit is `stage-bytes=` in the "
        "clients file.",
        example="1GiB",
        low=1,
        live=True,
    )
    max_partitions: int = option(
        "4000", "Partitions of all streams; 0 means no limit.", example="1000", high=INT32_MAX, live=True
    )
    max_partitions_per_key: int = option(
        "1000",
        "Partitions of the streams that one client key created; 0 means no limit. A key's own limit is `partitions=` "
        "in the clients file.",
        example="100",
        high=INT32_MAX,
        live=True,
    )
    max_columns: int = option(
        "2000",
        "Columns of a stream, with all fields in them; 0 means no limit. The schema of a stream that has more already "
        "stays, and gets no further columns.",
        example="500",
        high=INT32_MAX,
        live=True,
    )
    lease_delay: Seconds = option(
        "1h",
        "How long the leases of readers may delay the retention of a stream. Later, rows beyond the retention are "
        "deleted, also if a reader has not read them.",
        example="10min",
        live=True,
    )
    drain_timeout: SecondsOrZero = option(
        "20s",
        "How long a server that is asked to end (SIGTERM, SIGINT) lets the running commits and calls finish.",
        example="1min",
        live=True,
    )
    disk_reserve: Bytes = option(
        "2GiB",
        "Bytes that stay free on the disks of `streamsDir` and of the archive. With fewer the server is not ready; 0 "
        "means no reserve.",
        example="20GiB",
        live=True,
    )
    max_connections: int = option(
        limits.MAX_CONNECTIONS, "Connections in total; 0 means no limit.", example="100", high=INT32_MAX, live=True
    )
    max_connections_per_address: int = option(
        limits.MAX_CONNECTIONS_PER_ADDRESS,
        "Connections from one IPv4 address or one IPv6 /64; 0 means no limit. All clients behind a NAT count as one "
        "address.",
        example="8",
        high=INT32_MAX,
        live=True,
    )
    max_pending: int = option(
        limits.MAX_PENDING,
        "Pending handshakes in total; 0 means no limit. Half of them is kept for addresses that had a connection in "
        "the last day.",
        example="64",
        high=INT32_MAX,
        live=True,
    )
    max_pending_per_address: int = option(
        limits.MAX_PENDING_PER_ADDRESS,
        "Pending handshakes from one IPv4 address or IPv6 /64; 0 means no limit. With many handshakes of other "
        "addresses the limit is lower, down to 1.",
        example="4",
        high=INT32_MAX,
        live=True,
    )
    handshakes_per_second: float = option(
        limits.HANDSHAKES_PER_SECOND,
        "Handshakes per second from one IPv4 address or IPv6 /64, after a burst of `handshakeBurst`; 0 means no limit.",
        example="0.5",
        high=1000000,
        live=True,
    )
    handshake_burst: int = option(
        limits.HANDSHAKE_BURST,
        "Handshakes that one IPv4 address or IPv6 /64 may start at once.",
        example="10",
        low=1,
        high=INT32_MAX,
        live=True,
    )
    exempt_loopback: bool = option(
        False,
        "`true`: limits for each address ignore clients on this machine; total limits do not.",
        example="true",
        live=True,
    )
    max_sessions: int = option(
        MAX_SESSIONS,
        "Sessions in total, including those of disconnected clients.",
        example="100",
        low=1,
        high=INT32_MAX,
        live=True,
    )
    max_connections_per_key: int = option(
        MAX_CONNECTIONS_PER_KEY,
        "Connections of one client key, including sessions of disconnected clients: at the limit, the oldest of these "
        "ends. A key's own limit is `connections=` in the clients file.",
        example="16",
        low=1,
        high=INT32_MAX,
        live=True,
    )
    workers_per_key: int = option(
        "16",
        "Threads of `workers` that the calls of all connections of one client key may have at a time. A free thread "
        "takes the next call of the key that has waited longest; the connections of a key take turns.",
        example="4",
        low=1,
        high=4096,
        live=True,
    )
    memory_limit: Bytes = option(
        "512MiB",
        "Limit for the memory that all clients make the server hold: calls, messages, transfers and responses. Near "
        "it, the connections that hold the most pause; at it, calls fail with the reason `busy`, and the connection "
        "that holds the most ends. A response of more than a quarter of it is refused with the reason `limit`: its "
        "value and its copies would not fit. The responses of more than 256 KiB that are sent at the same time have "
        "this quarter together; others are refused with the reason `busy`. 256 KiB are assured to each connection; 0 "
        "means no limit.",
        example="1GiB",
        live=True,
    )
    bytes_in: Bytes | None = option(
        None,
        "Bytes per second that the server reads from all connections of one client key; at the limit it reads later. A "
        "key's own limit is `bytes-in=` in the clients file.",
        example="50MiB",
        low=1,
        live=True,
    )
    bytes_out: Bytes | None = option(
        None,
        "Bytes per second that the server sends to all connections of one client key; at the limit it sends later. A "
        "key's own limit is `bytes-out=` in the clients file.",
        example="50MiB",
        low=1,
        live=True,
    )
    messages_in: int | None = option(
        None,
        "Messages per second that the server reads from all connections of one client key, beside calls and streams. A "
        "key's own limit is `messages-in=` in the clients file.",
        example="1000",
        low=1,
        high=INT32_MAX,
        live=True,
    )
    deciders: int = option(
        "8",
        "Threads that check keys and filters during handshakes.",
        example="2",
        low=1,
        high=1024,
        restart=Restart.THREADS,
    )

    http: str | None = option(
        None,
        "Serve `/metrics`, `/healthz` and `/readyz` on this `HOST:PORT`, without authentication; `:9464` means "
        "127.0.0.1. It needs the extra `server`: `pip install aeron-spark[server]`.",
        example=":9464",
        restart=Restart.OPENED,
    )
    metrics_streams: int = option(
        "200",
        "Streams with metrics of their own, the largest ones; the metrics of all others have the stream `_other`.",
        example="50",
        low=0,
        high=100_000,
        restart=Restart.METRICS,
    )
    log_format: Literal["text", "json"] | None = option(
        None,
        "Write the log to standard error, one line for each event: as text for people, or as JSON for programs. "
        "Without it, a Python program configures the module `logging` itself.",
        example="json",
        shown="`text` for the command `server`",
        live=True,
    )
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "info", "The least level of the lines in the log of `logFormat`.", example="warning", live=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reply_channel == "mdc" and self.mdc_ports is None:
            raise OptionError(
                "option 'replyChannel' is 'mdc', which needs 'mdcPorts'",
                remedy="For example --mdc-ports 20200-20299",
            )
        if self.mdc_ports is None:
            return
        if self.reply_channel != "mdc":
            raise OptionError(
                "option 'mdcPorts' needs replyChannel 'mdc', but it is 'response'",
                remedy="Leave it out, or set replyChannel=mdc.",
            )
        first, last = self.mdc_ports
        for address in self.addresses:
            for name, port in (("data", address.data_port), ("control", address.control_port)):
                if address.media == "udp" and first <= port <= last:
                    raise OptionError(
                        f"option 'mdcPorts' ({first}-{last}) contains the {name} port {port} of an address",
                        remedy="Choose other ports.",
                    )

    @classmethod
    def parse(cls, address: str = "", options: Mapping[str, object] | None = None) -> ServerOptions:
        """Read a server's options; ``address`` replaces ``bind``, and ``allow`` and ``deny`` may have functions.

        Raises OptionError for the first wrong option.
        """
        texts, functions = _without_functions(options or {})
        reader = OptionReader(texts, Where.SERVER)
        if address and "bind" in reader:
            raise OptionError("the address is given twice, as an argument and as 'bind'", remedy="Give one of them.")
        server_options = reader.read(cls)

        def parse(text: str) -> tuple[EndpointAddress, ...]:
            return server_addresses(text, server_options.ports)

        parsed = parse(address) if address else reader.value(cls.declared["bind"], parse) or ()
        return replace(
            server_options,
            addresses=server_options._with_shared_memory(parsed),
            aeron_dir=server_options._aeron_dir(parsed),
            allow=(*(server_options.allow or ()), *functions["allow"]),
            deny=(*(server_options.deny or ()), *functions["deny"]),
        )

    @cached_property
    def timing(self) -> ServerTiming:
        """The times of the steps of a handshake."""
        from aeron_spark.protocol.server_handshake import ServerTiming

        step_s = self.step_timeout
        return ServerTiming(
            hello_s=step_s / 2, admitting_s=step_s / 2, path_s=step_s, done_s=step_s, authenticating_s=step_s
        )

    @cached_property
    def admission(self) -> limits.Limits:
        """The limits of handshakes and connections."""
        return limits.Limits(
            connections=self.max_connections,
            connections_per_address=self.max_connections_per_address,
            pending=self.max_pending,
            pending_per_address=self.max_pending_per_address,
            handshakes_per_second=self.handshakes_per_second,
            handshake_burst=self.handshake_burst,
            exempt_loopback=self.exempt_loopback,
        )

    @cached_property
    def filters(self) -> Filters:
        """The rules by which clients are admitted."""
        return Filters(self.allow or (), self.deny or ())

    @property
    def optional_addresses(self) -> tuple[ServerAddress, ...]:
        """The addresses at which the server listens only if no other server does."""
        return (SHARED_MEMORY,) if self.ipc == "auto" and SHARED_MEMORY not in self.addresses else ()

    @property
    def longest_message(self) -> int:
        """Bytes of the longest message of any link or bulk link."""
        is_ipc = any(address.media == "ipc" for address in (*self.addresses, *self.optional_addresses))
        return self.channel.for_bulk_link(is_ipc=is_ipc).max_message

    def _with_shared_memory(self, endpoints: tuple[EndpointAddress, ...]) -> tuple[ServerAddress, ...]:
        addresses = tuple(endpoint.address for endpoint in endpoints)
        if self.ipc == "never" and SHARED_MEMORY in addresses:
            raise OptionError(
                "option 'ipc' is 'never', but an address of the server is ipc:", remedy="Leave one of them out."
            )
        return (*addresses, SHARED_MEMORY) if self.ipc == "always" and SHARED_MEMORY not in addresses else addresses

    def _aeron_dir(self, endpoints: tuple[EndpointAddress, ...]) -> str | None:
        """Return the media driver of the addresses and ``aeronDir``. Raises OptionError for several."""
        folders = (self.aeron_dir, *(endpoint.aeron_dir for endpoint in endpoints))
        drivers = {folder for folder in folders if folder is not None}
        if len(drivers) > 1:
            raise OptionError(
                f"the options have several media drivers, expected one: {', '.join(sorted(drivers))}",
                remedy="Give one, with 'aeronDir' or in the address.",
            )
        return drivers.pop() if drivers else None


def _without_functions(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, list[Rule]]]:
    """Return the options without the functions in ``allow`` and ``deny``, and these functions."""
    functions: dict[str, list[Rule]] = {name: [] for name in _RULES}
    texts: dict[str, object] = {}
    for name, value in options.items():
        without: object = value
        if name.lower() in functions:
            rules = list(value) if isinstance(value, list | tuple) else [value]
            functions[name.lower()] += [cast("Callable[..., bool]", rule) for rule in rules if callable(rule)]
            without = [rule for rule in rules if not callable(rule)] or None
        texts[name] = without
    return texts, functions


@dataclass(frozen=True, slots=True)
class OptionChanges:
    """The names of the options that changed and apply now, and of those that need a restart; ``bind`` for addresses."""

    changed: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()


class LiveOptions:
    """The options that apply now. A part that needs one reads it from ``value`` at each use.

    Changed limits of clients, streams and stages apply to further ones, all other live options also to present ones.
    Thread-safe; one thread at a time replaces them.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.value = options
        """The present options: those of the start, with the live ones of the last reload."""
        self.restart_needed: tuple[str, ...] = ()
        """The options that the last reload found changed, and that need a restart."""
        self.on_replaced: Callable[[], object] = lambda: None
        """Called after a replacement, for the one part that cannot read them at each use: Python's logging."""

    def compare(self, configured: ServerOptions) -> OptionChanges:
        """Return what ``replace`` would return. Raises OptionError for values that contradict the running ones."""
        return self._changed(configured)[1]

    def replace(self, configured: ServerOptions) -> OptionChanges:
        """Apply the live options of a configuration, and return what differs. Raises as ``compare``."""
        self.value, changes = self._changed(configured)
        self.restart_needed = changes.restart_needed
        self.on_replaced()
        return changes

    def _changed(self, configured: ServerOptions) -> tuple[ServerOptions, OptionChanges]:
        running, declared = self.value, ServerOptions.options()
        live = {field: getattr(configured, field) for field, option in declared.items() if option.live}
        differing = [
            option
            for field, option in declared.items()
            if field != "bind" and getattr(running, field) != getattr(configured, field)
        ]
        restarting = [option.name for option in differing if not option.live]
        if running.addresses != configured.addresses:
            restarting.append("bind")
        changed = sorted(option.name for option in differing if option.live)
        return replace(running, **live), OptionChanges(tuple(changed), tuple(sorted(restarting)))
