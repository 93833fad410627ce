"""The operator's commands: the admin socket, and the reports of connections, keys and streams.

Arguments and results are JSON objects. Times are in seconds since 1970, durations in seconds.

The mode of the socket's file is the access control: only the server's user and root may connect.
"""

from __future__ import annotations

import difflib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from aeron_spark import unix_sockets
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.errors import REFUSALS, AeronSparkError, EndedError, OptionError, RefusedError
from aeron_spark.keys.bans import Ban, StoredBans, Subject
from aeron_spark.keys.clients_file import key_name
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.admin_messages import MAX_REQUEST_BYTES, decode_request, encode_response
from aeron_spark.protocol.grants import Grant, matches
from aeron_spark.protocol.keypair import PREFIX, fingerprint, parse_public, public_text
from aeron_spark.protocol.sources import Network, canonical_address
from aeron_spark.server.event_log import EventLog
from aeron_spark.streams.store import StreamStore

OperatorResult = Mapping[str, Any]
OperatorCommand = Callable[[Mapping[str, Any]], OperatorResult | Iterable[OperatorResult]]
"""Executes a command with its arguments, and returns one result, or several that are sent one by one.

Results have values that JSON has. An AeronSparkError becomes the error of the response.
"""


class OperatorService:
    """The commands of the server's operator; see protocol.admin_messages for the lines.

    Other parts of the server may add ``commands`` at any time. ``report`` takes the exceptions of commands that are not
    errors of this package.
    """

    def __init__(self, commands: Mapping[str, OperatorCommand], report: Callable[[BaseException], object]) -> None:
        self._commands: Final = commands
        self._report: Final = report

    def respond(self, line: bytes) -> Iterator[bytes]:
        """Execute the line of a request, and yield the lines of the response."""
        try:
            name, arguments = decode_request(line)
            command = self._commands.get(name)
            if command is None:
                raise OptionError(
                    f"the server has no command {name[:64]!r}",
                    remedy="Use the aeron-spark command of the server's release.",
                )
            result = command(arguments)
            if isinstance(result, Mapping):
                yield encode_response(result)
                return
            for one in result:
                yield encode_response(one, has_more=True)
            yield encode_response(None)
        except AeronSparkError as error:
            yield encode_response(error)
        except Exception as error:
            self._report(error)
            failure = AeronSparkError(
                f"the command failed: {type(error).__name__}: {error}", remedy="See the server's log."
            )
            yield encode_response(failure)


class KeyNames:
    """The names of the keys that a server knows: those of its clients file, of its connections and of its bans.

    ``connected`` and ``banned`` return the names and keys of the latter two. Thread-safe.
    """

    def __init__(
        self,
        store: PeerStore,
        connected: Callable[[], Iterable[tuple[str, bytes]]],
        banned: Callable[[], Iterable[tuple[str, bytes]]],
    ) -> None:
        self._store: Final = store
        self._connected: Final = connected
        self._banned: Final = banned

    def name(self, key: bytes) -> str:
        """Return the name of a key: that of the clients file, or one that is made from the key."""
        return key_name(key, self._store.grant(key))

    def key(self, text: str) -> bytes:
        """Return the key with this name, fingerprint or public key.

        Raises RefusedError with the most similar name for an unknown one, DataFormatError for a wrong public key.
        """
        if text.startswith(PREFIX):
            return parse_public(text)
        known = self._known()
        if text in known:
            return known[text]
        for key in known.values():
            if fingerprint(key) == text:
                return key
        raise unknown_name("key name", text, known)

    def check(self, name: str) -> None:
        """Raise RefusedError with the most similar name, unless the server knows a key of this name."""
        known = self._known()
        if name not in known:
            raise unknown_name("key name", name, known)

    def _known(self) -> dict[str, bytes]:
        in_file = ((key_name(key, grant), key) for key, grant in self._store.grants().items())
        return {name: key for names in (self._banned(), self._connected(), in_file) for name, key in names}


def unknown_name(what: str, name: str, known: Iterable[str]) -> RefusedError:
    """Return the error for a name that the server does not know, with the most similar one as remedy."""
    nearest = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean {nearest[0]!r}?" if nearest else "'aeron-spark connections list' shows those in use."
    return RefusedError(f"unknown {what} {name!r}", remedy=remedy)


ConnectionState = Literal["connected", "paused", "throttled", "disconnected"]
"""``paused``: the server acknowledges nothing, because what the client sent before waits, or for want of memory.
``throttled``: the client has used up a rate of its key. ``disconnected``: the client may resume the session."""


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """One connection at one time. The client chose its ``tag``: escape it before you print it.

    ``id`` is as in the logs of both ends. ``name`` is that of the client's key. ``address`` is empty over shared
    memory. ``since`` is in seconds since 1970. ``idle_seconds``: since the last message, call or data of a bulk link.
    ``calls`` wait or run. ``waiting_bytes`` were received, and wait for listeners, workers or the rest of a transfer;
    ``unacknowledged_bytes`` were sent, or wait to be sent. ``streams`` are those that the client used in the last
    minute. ``received_bytes`` and ``sent_bytes`` count the frames of the connection and of its bulk links.
    """

    id: str
    name: str
    key: bytes
    tag: str
    address: str
    port: int
    since: float
    state: ConnectionState
    idle_seconds: float
    round_trip_seconds: float | None
    calls: int
    waiting_bytes: int
    unacknowledged_bytes: int
    streams: tuple[str, ...]
    bulk_links: int
    received_bytes: int
    sent_bytes: int


class ConnectionReporter:
    """Makes reports of the connections of a server. Thread-safe."""

    def __init__(self, endpoint: ServerEndpoint, streams_of: Callable[[ConnectionCore], Sequence[str]]) -> None:
        self.endpoint: Final = endpoint
        self._streams_of: Final = streams_of

    def reports(self) -> list[ConnectionReport]:
        """Return the reports of all connections, those of disconnected clients too."""
        bulk_links, now = self.endpoint.bulk_links.counts(), time.monotonic()
        found = []
        for connection in self.endpoint.connections:
            try:
                grant = connection.grant
            except EndedError:
                continue
            found.append(self._report(connection, grant, bulk_links[id(connection)], now))
        return found

    def _report(self, connection: ConnectionCore, grant: Grant, bulk_links: int, now: float) -> ConnectionReport:
        peer, (received_bytes, sent_bytes) = connection.peer, connection.traffic.totals()
        return ConnectionReport(
            id=connection.id_text,
            name=key_name(peer.key, grant),
            key=peer.key,
            tag=peer.tag,
            address=peer.address,
            port=peer.port,
            since=connection.connected_at,
            state=self._state(connection),
            idle_seconds=connection.idle_seconds(now),
            round_trip_seconds=connection.round_trip,
            calls=connection.running_calls,
            waiting_bytes=connection.waiting_bytes,
            unacknowledged_bytes=connection.unacknowledged_bytes,
            streams=tuple(self._streams_of(connection)),
            bulk_links=bulk_links,
            received_bytes=received_bytes,
            sent_bytes=sent_bytes,
        )

    def _state(self, connection: ConnectionCore) -> ConnectionState:
        if not connection.connected:
            return "disconnected"
        if connection in self.endpoint.holds.throttled:
            return "throttled"
        return "paused" if connection.is_paused else "connected"


@dataclass(frozen=True, slots=True)
class ConnectionFilter:
    """Selects the connections that meet all conditions; None is no condition.

    ``ids`` are those of reports. ``tag`` is a pattern, as in the clients file. No network has a connection over shared
    memory.
    """

    ids: frozenset[str] | None = None
    name: str | None = None
    key: bytes | None = None
    tag: str | None = None
    network: Network | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no condition, and selects every connection."""
        return all(one is None for one in (self.ids, self.name, self.key, self.tag, self.network))

    def selects(self, report: ConnectionReport) -> bool:
        """Return whether the connection meets all conditions."""
        return (
            (self.ids is None or report.id in self.ids)
            and self.name in (None, report.name)
            and self.key in (None, report.key)
            and (self.tag is None or matches(report.tag, [self.tag]))
            and (self.network is None or has_address(self.network, report.address))
        )


def has_address(network: Network, address: str) -> bool:
    """Return whether a network has an address; False for the empty address of shared memory."""
    return bool(address) and network.matches(canonical_address(address))


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One stream at one time. A client chose its ``name``: escape it before you print it.

    ``state`` is that of ``StreamStore.condition``. ``committed_bytes`` is the sum of the partitions' end positions,
    ``kept_bytes`` that of the bytes that readers can read; a damaged stream has 0 of both.
    """

    name: str
    state: str
    partitions: int
    kept_bytes: int
    committed_bytes: int


class StreamCommands:
    """The command ``streams.list``. ``opened_store`` returns the store, or None before its recovery has ended."""

    def __init__(self, opened_store: Callable[[], StreamStore | None]) -> None:
        self._opened_store: Final = opened_store

    def list_streams(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``streams``: the reports of all streams; none before the recovery has ended."""
        return {"streams": [asdict(one) for one in self.reports()]}

    def reports(self) -> list[StreamReport]:
        """Return the reports of all streams, in the order of their names."""
        store = self._opened_store()
        return [] if store is None else [report for name in store.names for report in _reports(store, name)]


def _reports(store: StreamStore, name: str) -> list[StreamReport]:
    """Return the report of a stream; none for one that was deleted meanwhile."""
    try:
        state = store.condition(name).state
        partitions = [] if name in store.failed else store.get(name).states()
    except AeronSparkError:
        return []
    return [
        StreamReport(
            name=name,
            state=state,
            partitions=len(partitions),
            kept_bytes=sum(one.end - one.start for one in partitions),
            committed_bytes=sum(one.end for one in partitions),
        )
    ]


Arguments = Mapping[str, Any]
Command = Callable[[Arguments], dict[str, Any]]

MAX_REASON_CHARACTERS: Final = 1000
MAX_BAN_S: Final = 1000 * 365 * 86_400.0  # a ban ends in a year that has four digits
KICKED: Final = "kicked"
REPORT_FIELDS: Final = tuple(field.name for field in fields(ConnectionReport))


def kicked_error() -> RefusedError:
    """Return the error that a client gets whose connection the operator ends."""
    return RefusedError("the server's operator ended the connection", remedy=REFUSALS[KICKED].remedy, reason=KICKED)


class ServerClients:
    """The clients of one server, as the commands see them. Thread-safe."""

    def __init__(self, events: EventLog, store: PeerStore, bans: StoredBans, reporter: ConnectionReporter) -> None:
        self.events: Final = events
        self.endpoint: Final = reporter.endpoint
        self.bans: Final = bans
        self._reporter: Final = reporter
        self.names: Final = KeyNames(
            store,
            lambda: ((one.name, one.key) for one in self.reports()),
            lambda: ((ban.name, ban.subject) for ban in bans.all() if isinstance(ban.subject, bytes)),
        )

    def reports(self) -> list[ConnectionReport]:
        """Return the reports of all connections, those of disconnected clients too."""
        return self._reporter.reports()

    def connections(self, ids: Iterable[str]) -> list[ConnectionCore]:
        """Return the connections with these ids."""
        wanted = frozenset(ids)
        return [connection for connection in self.endpoint.connections if connection.id_text in wanted]

    def ban(self, subjects: Mapping[Subject, str], seconds: float | None, reason: str) -> tuple[Ban, ...]:
        """Ban keys and networks, and end their connections."""
        bans = self.bans.add(subjects, seconds, reason)
        for ban in bans:
            is_network = isinstance(ban.subject, Network)
            self.events.report(
                "banned", name=ban.name or None, network=str(ban.subject) if is_network else None, seconds=seconds
            )
        self.endpoint.apply_grants()
        return bans


class ConnectionCommands:
    """The commands ``connections.list``, ``connections.describe`` and ``connections.kick``."""

    def __init__(self, clients: ServerClients) -> None:
        self._clients: Final = clients

    @property
    def commands(self) -> dict[str, Command]:
        """The commands by name."""
        return {
            "connections.list": self.list_connections,
            "connections.describe": self.describe,
            "connections.kick": self.kick,
        }

    def list_connections(self, arguments: Arguments) -> dict[str, Any]:
        """Return ``connections``: the reports of all connections."""
        return {"connections": [report_object(one) for one in self._clients.reports()]}

    def describe(self, arguments: Arguments) -> dict[str, Any]:
        """Return the report of the connection ``id``. Raises RefusedError for an unknown id."""
        wanted = normal_id(_text(arguments, "id") or "")
        reports = self._clients.reports()
        for report in reports:
            if report.id == wanted:
                return report_object(report)
        raise unknown_name("connection", wanted, [report.id for report in reports])

    def kick(self, arguments: Arguments) -> dict[str, Any]:
        """End the connections that meet all of ``ids``, ``name``, ``key``, ``tag`` and ``address``.

        ``ban_seconds`` also bans their keys. Returns the ``connections`` and the ``bans``; ``dry_run`` changes nothing.
        Raises RefusedError for an unknown name, OptionError without a condition or for a wrong one.
        """
        chosen = self._filter(arguments)
        seconds, dry_run = _seconds(arguments, "ban_seconds"), arguments.get("dry_run") is True
        reports = [one for one in self._clients.reports() if chosen.selects(one)]
        bans: tuple[Ban, ...] = ()
        if reports and not dry_run:
            if seconds is None:
                self._end(reports)
            else:
                subjects: dict[Subject, str] = {one.key: one.name for one in reports}
                bans = self._clients.ban(subjects, seconds, _reason(arguments))
        return {
            "connections": [report_object(one) for one in reports],
            "bans": [ban_object(ban) for ban in bans],
        }

    def _filter(self, arguments: Arguments) -> ConnectionFilter:
        names, name, key = self._clients.names, _text(arguments, "name"), _text(arguments, "key")
        address, ids = _text(arguments, "address"), arguments.get("ids") or None
        if ids is not None and not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
            raise _wrong("ids", ids)
        if name is not None:
            names.check(name)
        chosen = ConnectionFilter(
            ids=None if ids is None else frozenset(map(normal_id, ids)),
            name=name,
            key=None if key is None else names.key(key),
            tag=_text(arguments, "tag"),
            network=None if address is None else Network.parse(address),
        )
        if chosen.is_empty:
            raise OptionError(
                "no connection is named", remedy="Give ids, or one of --name, --key, --tag and --address."
            )
        return chosen

    def _end(self, reports: Iterable[ConnectionReport]) -> None:
        error, clients = kicked_error(), self._clients
        by_id = {one.id: one for one in reports}
        for connection in clients.connections(by_id):
            report = by_id[connection.id_text]
            clients.events.report(
                "kicked",
                id=connection.id_text,
                name=report.name,
                tag=report.tag,
                address=report.address or None,
                port=report.port or None,
                transport="ipc" if connection.peer.is_ipc else "udp",
            )
            clients.endpoint.disconnect(connection, keep_session=False, error=error)


class BanCommands:
    """The commands ``bans.list``, ``bans.add`` and ``bans.remove``."""

    def __init__(self, clients: ServerClients) -> None:
        self._clients: Final = clients

    @property
    def commands(self) -> dict[str, Command]:
        """The commands by name."""
        return {"bans.list": self.list_bans, "bans.add": self.add, "bans.remove": self.remove}

    def list_bans(self, arguments: Arguments) -> dict[str, Any]:
        """Return ``bans``: those that have not expired."""
        return {"bans": [ban_object(ban) for ban in self._clients.bans.all()]}

    def add(self, arguments: Arguments) -> dict[str, Any]:
        """Ban ``key`` or ``address`` for ``seconds``, and end their connections.

        Returns the ``ban`` and the ``connections`` that it ends. Raises RefusedError for an unknown name.
        """
        subject, name = self._subject(arguments)
        ended = [one for one in self._clients.reports() if _is_subject(subject, one)]
        (ban,) = self._clients.ban({subject: name}, _seconds(arguments, "seconds"), _reason(arguments))
        return {"ban": ban_object(ban), "connections": [report_object(one) for one in ended]}

    def remove(self, arguments: Arguments) -> dict[str, Any]:
        """Remove the ban of exactly this ``key`` or ``address``, and return it. Raises RefusedError without one."""
        subject, name = self._subject(arguments)
        ban = self._clients.bans.remove(subject)
        if ban is None:
            what = f"key {name}" if isinstance(subject, bytes) else f"address {subject}"
            raise RefusedError(f"no ban of {what}", remedy="'aeron-spark bans list' shows the bans.")
        return {"ban": ban_object(ban)}

    def _subject(self, arguments: Arguments) -> tuple[Subject, str]:
        """Return the banned key with its name, or the network."""
        key, address = _text(arguments, "key"), _text(arguments, "address")
        if (key is None) == (address is None):
            raise OptionError("a ban is of a key or of an address", remedy="Give either --key or --address.")
        if address is not None:
            return Network.parse(address), ""
        names = self._clients.names
        found = names.key(key or "")
        return found, names.name(found)


def report_object(report: ConnectionReport) -> dict[str, Any]:
    """Return a report as a JSON object."""
    values = {name: getattr(report, name) for name in REPORT_FIELDS}  # ten times as fast as asdict, which copies
    return {**values, "key": public_text(report.key), "streams": list(report.streams)}


def ban_object(ban: Ban) -> dict[str, Any]:
    """Return a ban as a JSON object, with ``key`` and ``name``, or with ``address``."""
    subject = ban.subject
    named = {"address": str(subject)} if isinstance(subject, Network) else {"key": public_text(subject)}
    return {**named, "name": ban.name, "since": ban.since, "until": ban.until, "reason": ban.reason}


def normal_id(text: str) -> str:
    """Return the id of a connection as reports have it: eight hexadecimal digits, in lower case."""
    return text.strip().lower().removeprefix("0x").rjust(8, "0")


def _is_subject(subject: Subject, report: ConnectionReport) -> bool:
    return report.key == subject if isinstance(subject, bytes) else has_address(subject, report.address)


def _text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(name, value)
    return value


def _seconds(arguments: Arguments, name: str) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value <= MAX_BAN_S:
        raise _wrong(name, value)
    return float(value)


def _reason(arguments: Arguments) -> str:
    reason = _text(arguments, "reason") or ""
    if len(reason) > MAX_REASON_CHARACTERS:
        raise OptionError(
            f"the reason has {len(reason)} characters, the limit is {MAX_REASON_CHARACTERS}", remedy="Shorten it."
        )
    return reason


def _wrong(name: str, value: object) -> OptionError:
    return OptionError(
        f"the argument {name!r} is {str(value)[:100]!r}, which the command does not take",
        remedy="Use the aeron-spark command of the server's release.",
    )


MAX_CONNECTIONS: Final = 32  # each has a thread while its command runs
REQUEST_TIMEOUT_S: Final = 2.0  # for the whole request
SEND_TIMEOUT_S: Final = 5.0  # for each line of the response
CLOSE_TIMEOUT_S: Final = 1.0  # for the commands that run when the socket closes
RECEIVE_BYTES: Final = 4096


class AdminSocket:
    """Listens at ``path``. ``respond`` executes the line of a request on a separate thread, and returns the response.

    The lines of a response are sent one by one. ``report`` takes errors of the socket. A client that is slow, or that
    sends no request, is disconnected after a few seconds.
    """

    def __init__(
        self,
        path: Path,
        respond: Callable[[bytes], Iterable[bytes]],
        report: Callable[[BaseException], object],
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        """Raises InUseError if another process listens at ``path``, SetupError if it cannot be used."""
        self.path: Final = path
        self._respond: Final = respond
        self._report: Final = report
        self._request_timeout_s: Final = request_timeout_s
        self._send_timeout_s: Final = send_timeout_s
        self._lock: Final = threading.Lock()
        self._connections: Final[dict[socket.socket, threading.Thread]] = {}
        self._is_closed = False
        self._listening: Final = unix_sockets.listen(path)
        self._file: Final = os.lstat(path)
        self._thread: Final = threading.Thread(target=self._accept_all, name="aeron-spark-admin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen, remove the file, and end the connections. Further calls do nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        with suppress(OSError):
            if os.path.samestat(self._file, os.lstat(self.path)):
                self.path.unlink()
        self._listening.shutdown(socket.SHUT_RDWR)  # ends ``accept``
        self._thread.join()
        self._listening.close()
        with self._lock:
            connections = dict(self._connections)
        end = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in connections.values():
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _accept_all(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if not self._is_closed:
                    self._report(error)  # for example: the process has no file descriptor left
                    time.sleep(0.1)
                continue
            self._accept(connection)

    def _accept(self, connection: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="aeron-spark-admin-command", daemon=True)
        with self._lock:
            if self._is_closed or len(self._connections) >= MAX_CONNECTIONS:
                _refuse(connection)
                return
            self._connections[connection] = thread
        try:
            thread.start()
        except RuntimeError as error:  # the process has too many threads
            self._forget(connection)
            connection.close()
            self._report(error)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            del self._connections[connection]

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):  # the client has gone, sends no request, or takes no response
                for response in self._respond(self._read_line(connection)):
                    connection.settimeout(self._send_timeout_s)  # for all of the line
                    connection.sendall(response)
        finally:
            self._forget(connection)

    def _read_line(self, connection: socket.socket) -> bytes:
        """Read the request, or the beginning of one that is too long. Raises OSError if it does not arrive in time."""
        end = time.monotonic() + self._request_timeout_s
        line = b""
        while not line.endswith(b"\n") and len(line) <= MAX_REQUEST_BYTES:
            connection.settimeout(max(0.001, end - time.monotonic()))
            received = connection.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionResetError("the client sent no complete request")
            line += received
        return line


def _refuse(connection: socket.socket) -> None:
    """Send an error without waiting, and close."""
    error = RefusedError(
        f"{MAX_CONNECTIONS} commands run at the server's admin socket, the limit",
        remedy="Try again in a few seconds.",
        reason="busy",
    )
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.sendall(encode_response(error))
