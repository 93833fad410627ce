"""Reports the facts of a server as events."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aeron_spark.connection.call_observer import ServedCall, stack_of
from aeron_spark.connection.holds import Reason
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import (
    REFUSALS,
    AeronSparkError,
    DataFormatError,
    DataLossError,
    RefusedError,
    TamperedError,
    TransportError,
    code_of,
)
from aeron_spark.keys.client_table import ClientsChange
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.protocol.server_effects import Ending, HandshakeEnded, Notice
from aeron_spark.protocol.server_machine import DRIVER_LOST
from aeron_spark.protocol.sources import UdpSource
from aeron_spark.server.clients_watcher import CLIENTS, RELOAD_FAILED
from aeron_spark.server.event_table import Level
from aeron_spark.server.events import ServerEvents
from aeron_spark.server.observer import ServerObserver
from aeron_spark.wire.stream_admin_rpc import (
    AlterStream,
    CreateStream,
    DeleteStream,
    EndStream,
    PurgeStream,
    ReleaseLease,
    ReleaseWriter,
    RenameStream,
    ReopenStream,
)
from aeron_spark.wire.stream_rpc import (
    AnyRequest,
    BeginTransaction,
    CommitEmptyTransaction,
    CommitTransaction,
    OpenStage,
)

ENDINGS: Final = {
    Ending.CLOSED_BY_SERVER: "closed-by-server",
    Ending.CLOSED_BY_CLIENT: "closed-by-client",
    Ending.NOT_RESUMED: "not-resumed",
    Ending.NEVER_CONNECTED: "never-connected",
}
SCHEMA: Final = "schema"  # the reason of an error about columns that a stream does not take
DETACHED: Final = "detached"  # the client left or was silent, and may resume its session
_NOTICES: Final = {"connect": "connected", "resume": "resumed", "disconnect": "disconnected"}


class EventObserver(ServerObserver):
    """Reports handshakes, connections, errors and losses of the media driver. Thread-safe.

    ``name_of`` returns the name of a client's key for logs. ``clients_file`` has the keys' own limits.
    """

    def __init__(
        self, events: ServerEvents, name_of: Callable[[bytes], str], clock: Callable[[], float] = time.monotonic,
        clients_file: Path | None = None,
    ) -> None:  # fmt: skip
        self._events: Final = events
        self._name_of: Final = name_of
        self._clock: Final = clock
        self._clients_file: Final = None if clients_file is None else str(clients_file)
        # names, and times at which they connected
        self._connected: Final[dict[ConnectionRunner, tuple[str, float]]] = {}
        self._driver_lost_at: float | None = None

    def handshake_ended(self, ended: HandshakeEnded) -> None:
        """Report a refusal."""
        if ended.refusal is None:
            return
        limit = ended.refusal.limit
        self._events.report(
            "refused", reason=ended.refusal.code,
            limit=None if limit is None else limit.setting,
            value=None if limit is None else limit.value,
            clients_file=self._clients_file if limit is not None and limit.is_own else None,
            retry=ended.refusal.advice.retry.name.lower().replace("_", "-"),
            name=None if ended.key is None else self._name_of(ended.key), tag=ended.tag or None,
            address=str(ended.source.address) if isinstance(ended.source, UdpSource) else None,
            error=ended.refusal.text,
        )  # fmt: skip

    def connection_changed(
        self, connection: ConnectionRunner, notice: Notice, cause: Ending | AeronSparkError | None
    ) -> None:
        """Report that a client has connected or disconnected."""
        fields = self.fields_of(connection)
        if notice == "disconnect":
            _, since = self._connected.pop(connection, ("", None))
            fields["reason"] = reason_of(cause)
            fields["error"] = str(cause) if isinstance(cause, AeronSparkError) else None
            fields["seconds"] = None if since is None else self._clock() - since
        else:
            self._connected.setdefault(connection, (fields["name"], self._clock()))
        self._events.report(_NOTICES[notice], **fields)

    def call_ended(self, connection: ConnectionRunner, ended: ServedCall) -> None:
        """Report a call that failed. The error of a one-way call is reported as an error."""
        error = ended.error
        if error is None or ended.is_one_way:
            return
        is_expected = isinstance(error, AeronSparkError)  # its caller gets it with its remedy
        self._events.report(
            "call_failed", level=None if is_expected else Level.WARNING, call=ended.call, id=connection.id,
            name=self.name(connection), method=ended.description, error_type=type(error).__name__,
            error=error.what if isinstance(error, AeronSparkError) else str(error),
            stack=None if is_expected else stack_of(error),
        )  # fmt: skip

    def request_ended(self, connection: ConnectionRunner, request: AnyRequest, error: AeronSparkError | None) -> None:
        """Report changes of streams, commits that failed, and clients that have diverged."""
        name = self.name(connection)
        if error is not None and error.reason == DIVERGED:
            self._events.report("diverged", stream=getattr(request, "stream", None), name=name, error=error.what)
        match request:
            case CreateStream() if error is None:
                self._events.report("stream_created", stream=request.stream, partitions=request.partitions, name=name)
            case DeleteStream() if error is None:
                self._events.report("stream_deleted", stream=request.stream, name=name)
            case AlterStream(dry_run=False) if error is None:
                self._events.report(
                    "stream_altered", stream=request.stream, retention_bytes=request.retention_bytes,
                    retention_seconds=request.retention_seconds, schema_policy=request.schema_policy, name=name,
                )  # fmt: skip
            case RenameStream() if error is None:
                self._events.report("stream_renamed", stream=request.stream, new_name=request.new_name, name=name)
            case EndStream() if error is None:
                self._events.report("stream_ended", stream=request.stream, name=name)
            case ReopenStream() if error is None:
                self._events.report("stream_reopened", stream=request.stream, name=name)
            case ReleaseWriter() if error is None:
                self._events.report("writer_released", stream=request.stream, writer=request.writer, name=name)
            case ReleaseLease() if error is None:
                self._events.report("lease_released", stream=request.stream, reader=request.reader, name=name)
            case PurgeStream() if error is None:
                self._events.report("purged", stream=request.stream, name=name)
            case CommitTransaction() | CommitEmptyTransaction() if error is not None:
                self._report_failed(request, name, error)
                if error.reason == SCHEMA:  # another transaction has changed the schema since the stage was opened
                    self._report_schema(request.stream, name, error)
            case BeginTransaction() | OpenStage() if isinstance(error, TransportError | DataLossError):
                self._report_failed(request, name, error)  # as at a commit: the rows wait
            case OpenStage() if isinstance(error, DataFormatError) or (error is not None and error.reason == SCHEMA):
                self._report_schema(request.stream, name, error)

    def _report_failed(
        self, request: BeginTransaction | OpenStage | CommitTransaction | CommitEmptyTransaction, name: str,
        error: AeronSparkError,
    ) -> None:  # fmt: skip
        self._events.report(
            "commit_failed", stream=request.stream, writer=request.writer, transaction=request.transaction, name=name,
            reason=error.reason or code_of(error), error=error.what,
        )  # fmt: skip

    def _report_schema(self, stream: str, name: str, error: AeronSparkError) -> None:
        self._events.report("schema_refused", stream=stream, name=name, error=error.what)

    def driver_back(self) -> None:
        """Report that the server uses a media driver again."""
        lost_at, self._driver_lost_at = self._driver_lost_at, None
        self._events.report("driver_back", seconds=None if lost_at is None else self._clock() - lost_at)

    def on_error(self, connection: ConnectionRunner | None, error: BaseException) -> None:
        """Report an error that the server gives to error listeners."""
        if isinstance(error, AeronSparkError) and error.reason == DRIVER_LOST:
            self._driver_lost_at = self._clock()
            self._events.report("driver_lost", error=error.what, remedy=error.remedy)
        elif isinstance(error, AeronSparkError) and error.reason == RELOAD_FAILED:
            return  # ``clients_changed`` has reported it
        elif isinstance(error, TamperedError) and connection is not None:
            self._events.report("tampered", **self.fields_of(connection), error=error.what)
        else:
            known = error if isinstance(error, AeronSparkError) else None
            self._events.report(
                "error", error_type=type(error).__name__,
                id=None if connection is None else connection.id_text,
                name=None if connection is None else self.name(connection),
                error=str(error) if known is None else known.what,
                remedy=None if known is None else known.remedy or None,
                stack=stack_of(error) if known is None else None,
            )  # fmt: skip

    def name(self, connection: ConnectionRunner) -> str:
        """Return the name of a client for logs: the one under which it has connected."""
        known = self._connected.get(connection)
        return self._name_of(connection.peer.key) if known is None else known[0]

    def clients_changed(self, change: ClientsChange | AeronSparkError) -> None:
        """Report a new version of the clients file, or why it is not used."""
        if isinstance(change, AeronSparkError):
            self._events.report(
                "reload_failed", files=(CLIENTS,), error=change.what, remedy=change.remedy or None
            )  # fmt: skip
        else:
            self._events.report(
                "clients_changed", level=None if change.keys else Level.WARNING, added=change.added,
                removed=change.removed, changed=change.changed, narrowed=change.narrowed, keys=change.keys,
            )  # fmt: skip

    def hold_changed(self, connection: ConnectionRunner, reason: Reason, is_held: bool) -> None:
        """Report a connection that must wait from now on, because it uses too much memory or exceeds a rate."""
        if is_held and reason == "memory":
            self._events.report("paused", **self.fields_of(connection), bytes=connection.held_bytes)
        elif is_held:
            self._events.report("throttled", **self.fields_of(connection))

    def fields_of(self, connection: ConnectionRunner) -> dict[str, Any]:
        """Return the fields that describe the client of a connection."""
        return {
            "id": connection.id_text, "name": self.name(connection), "tag": connection.peer.tag or None,
            "address": connection.peer.address or None, "port": connection.peer.port or None,
            "transport": "ipc" if connection.peer.is_ipc else "udp",
        }  # fmt: skip


def reason_of(cause: Ending | AeronSparkError | None) -> str:
    """Return the code of the reason for which a client is disconnected."""
    match cause:
        case None:
            return DETACHED
        case Ending():
            return ENDINGS[cause]
        case RefusedError(reason=reason) if reason in REFUSALS:
            return reason
        case _:
            return code_of(cause)
