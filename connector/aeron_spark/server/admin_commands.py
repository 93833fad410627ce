"""The commands of a server's admin socket that show and end connections, and that ban keys and addresses.

Arguments and results are JSON objects. Times are in seconds since 1970, durations in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import REFUSALS, OptionError, RefusedError
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.keypair import public_text
from aeron_spark.protocol.sources import Network
from aeron_spark.server.ban_file import StoredBans
from aeron_spark.server.bans import Ban, Subject
from aeron_spark.server.connection_filter import ConnectionFilter, has_address
from aeron_spark.server.connection_report import ConnectionReport, ConnectionReporter
from aeron_spark.server.key_names import KeyNames, unknown_name
from aeron_spark.server.message_server import MessageServer

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

    def __init__(self, server: MessageServer, store: PeerStore, bans: StoredBans, reporter: ConnectionReporter) -> None:
        self.server: Final = server
        self.bans: Final = bans
        self._reporter: Final = reporter
        self.names: Final = KeyNames(
            store,
            lambda: ((one.name, one.key) for one in self.reports()),
            lambda: ((ban.name, ban.subject) for ban in bans.all() if isinstance(ban.subject, bytes)),
        )

    def reports(self) -> list[ConnectionReport]:
        """Return the reports of all connections, those of disconnected clients too."""
        return self._reporter.reports(self.server.sessions)

    def connections(self, ids: Iterable[str]) -> list[ConnectionRunner]:
        """Return the connections with these ids."""
        wanted = frozenset(ids)
        return [connection for connection in self.server.sessions if connection.id_text in wanted]

    def ban(self, subjects: Mapping[Subject, str], seconds: float | None, reason: str) -> tuple[Ban, ...]:
        """Ban keys and networks, and end their connections."""
        bans = self.bans.add(subjects, seconds, reason)
        for ban in bans:
            is_network = isinstance(ban.subject, Network)
            self.server.events.report(
                "banned", name=ban.name or None, network=str(ban.subject) if is_network else None, seconds=seconds
            )
        self.server.apply_grants()
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
        error, server = kicked_error(), self._clients.server
        by_id = {one.id: one for one in reports}
        for connection in self._clients.connections(by_id):
            report = by_id[connection.id_text]
            server.events.report(
                "kicked", id=connection.id_text, name=report.name, tag=report.tag, address=report.address or None,
                port=report.port or None, transport="ipc" if connection.peer.is_ipc else "udp",
            )  # fmt: skip
            server.end_connection(connection, error)


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
