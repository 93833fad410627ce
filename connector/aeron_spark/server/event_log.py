"""The events of a server: makes them of its facts, and writes them to the log within limits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from aeron_spark.endpoint.connection import CallEnded, ConnectionCore
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, Ending, ErrorReported, stack_of
from aeron_spark.endpoint.holds import HoldChanged
from aeron_spark.endpoint.server_sessions import DRIVER_LOST, DriverBack, HandshakeEnded
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
from aeron_spark.facts import Bus
from aeron_spark.keys.clients_file import default_name
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.protocol.sources import UdpSource
from aeron_spark.server.event_table import EVENTS, EventType, Level
from aeron_spark.server.log_output import LogLimiter, describe
from aeron_spark.streams.model import (
    CommittedTransaction,
    DeletePending,
    LeaseOverridden,
    RecordingStopped,
    SchemaChanged,
    StreamNotOpened,
    StreamReadOnly,
    StreamRecovery,
    WriterFenced,
)
from aeron_spark.streams.time_index import SECOND_NS
from aeron_spark.wire.stream_requests import (
    NEXT_NUMBER,
    OPERATIONS,
    BeginTransaction,
    CommitEmptyTransaction,
    CommitTransaction,
    OpenStage,
    Request,
)

LOG: Final = logging.getLogger("aeron_spark.server")
RELOAD_FAILED: Final = "reload-failed"  # reason of the errors that say why a new clients file is not used
SUPPRESSED_INTERVAL_S: Final = 60.0  # between two reports of suppressed lines
SLOW_COMMIT_S: Final = 1.0

SUBJECTS: Final = ("name", "address", "stream", "volume")  # the first one that an event has, has its own limit

ENDINGS: Final = {
    Ending.CLOSED_BY_SERVER: "closed-by-server",
    Ending.CLOSED_BY_CLIENT: "closed-by-client",
    Ending.NOT_RESUMED: "not-resumed",
    Ending.NEVER_CONNECTED: "never-connected",
}
SCHEMA: Final = "schema"  # the reason of an error about columns that a stream does not take
DETACHED: Final = "detached"  # the client left or was silent, and may resume its session
_NOTICES: Final = {"init": "connected", "resume": "resumed", "disconnect": "disconnected"}


@dataclass(frozen=True, slots=True)
class EventReported:
    """An event of ``event_table`` was reported; the limits of the log do not apply here."""

    name: str
    fields: Mapping[str, Any]


class EventLog:
    """The events of one server. Thread-safe.

    Facts become events, and its parts report others. Each event becomes one record of the logger
    ``aeron_spark.server``, with the attributes ``event`` (its name) and ``fields``. ``docs/events.md`` lists the events
    and their fields. Values are texts, numbers, booleans, tuples of texts, or None, which is left out. Never give it a
    ticket, a cookie, a key's bytes or a payload.
    """

    def __init__(
        self,
        facts: Bus,
        name_of: Callable[[bytes], str] = default_name,
        clients_file: Path | None = None,
        log: logging.Logger = LOG,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``name_of`` returns the name of a client's key for logs. ``clients_file`` has the keys' own limits."""
        self.facts: Final = facts
        """The facts that it reports."""
        self._name_of: Final = name_of
        self._clients_file: Final = None if clients_file is None else str(clients_file)
        self._log: Final = log
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._limiter: Final = LogLimiter(clock())
        self._next_suppressed_report = clock() + SUPPRESSED_INTERVAL_S
        # names, and times at which they connected
        self._connected: Final[dict[ConnectionCore, tuple[str, float]]] = {}
        self._driver_lost_at: float | None = None
        facts.on(HandshakeEnded, self._on_handshake)
        facts.on(ConnectionChanged, self._on_connection)
        facts.on(CallEnded, self._on_call)
        facts.on(DriverBack, self._on_driver_back)
        facts.on(ErrorReported, self._on_error)
        facts.on(HoldChanged, self._on_hold)
        facts.on(StreamRecovery, self._on_recovery)
        facts.on(StreamNotOpened, self._on_not_opened)
        facts.on(StreamReadOnly, self._on_read_only)
        facts.on(RecordingStopped, self._on_recording_stopped)
        facts.on(CommittedTransaction, self._on_commit)
        facts.on(WriterFenced, self._on_fenced)
        facts.on(SchemaChanged, self._on_schema_changed)
        facts.on(DeletePending, self._on_delete_pending)
        facts.on(LeaseOverridden, self._on_lease_overridden)

    @property
    def suppressed_total(self) -> int:
        """The number of lines that the limits have suppressed."""
        return self._limiter.suppressed_total

    def report(self, event: str, /, *, level: Level | None = None, **fields: Any) -> None:
        """Report an event. ``level`` replaces the level of the table.

        Raises ValueError for an event or a field that ``event_table`` does not declare, and for a value in bytes.
        """
        declared = EVENTS.get(event)
        if declared is None:
            raise ValueError(f"the table of events has no event {event!r}")
        present = {field: fields[field] for field in declared.fields if fields.get(field) is not None}
        if len(present) < len(fields):
            _check(declared, fields)
        if any(isinstance(value, bytes | bytearray | memoryview) for value in present.values()):
            raise ValueError(f"event {event!r} has a value in bytes, which could be a secret")
        self.facts.emit(EventReported(event, present))
        self.report_suppressed_when_due()
        subject = next((present[field] for field in SUBJECTS if field in present), None)
        level = level or declared.level
        if not self._log.isEnabledFor(level):
            return
        with self._lock:
            is_admitted = self._limiter.admit(
                event,
                subject,
                self._clock(),
                is_caused_by_peer=declared.is_caused_by_peer,
                is_vital=level is Level.ERROR and not declared.is_caused_by_peer,
            )
        if is_admitted:
            self._write(declared, level, present)

    def report_suppressed_when_due(self) -> None:
        """Report the suppressed lines by event, once a minute. A server calls this about once a second."""
        if self._clock() < self._next_suppressed_report:
            return
        with self._lock:
            if self._clock() < self._next_suppressed_report:
                return
            self._next_suppressed_report = self._clock() + SUPPRESSED_INTERVAL_S
            suppressed = self._limiter.take_suppressed()
        for event, count in sorted(suppressed.items()):
            declared = EVENTS["log_suppressed"]
            self._write(declared, declared.level, {"event": event, "count": count})

    def _write(self, declared: EventType, level: Level, fields: Mapping[str, Any]) -> None:
        # a program's own formatter shows the message; the formatter of this package uses the attributes
        message = describe(declared.name, fields)
        self._log.log(level, "%s", message, extra={"event": declared.name, "fields": dict(fields)})

    # Facts of connections

    def _on_handshake(self, ended: HandshakeEnded) -> None:
        if ended.refusal is None:
            return
        limit = ended.refusal.limit
        self.report(
            "refused",
            reason=ended.refusal.code,
            limit=None if limit is None else limit.setting,
            value=None if limit is None else limit.value,
            clients_file=self._clients_file if limit is not None and limit.is_own else None,
            retry=ended.refusal.advice.retry.name.lower().replace("_", "-"),
            name=None if ended.key is None else self._name_of(ended.key),
            tag=ended.tag or None,
            address=str(ended.source.address) if isinstance(ended.source, UdpSource) else None,
            error=ended.refusal.text,
        )

    def _on_connection(self, fact: ConnectionChanged) -> None:
        if fact.notice == "connect":  # follows "init", at which the event was reported
            return
        fields = self._fields_of(fact.connection)
        if fact.notice == "disconnect":
            _, since = self._connected.pop(fact.connection, ("", None))
            fields["reason"] = reason_of(fact.cause)
            fields["error"] = str(fact.cause) if isinstance(fact.cause, AeronSparkError) else None
            fields["seconds"] = None if since is None else self._clock() - since
        else:
            self._connected.setdefault(fact.connection, (fields["name"], self._clock()))
        self.report(_NOTICES[fact.notice], **fields)

    def _on_call(self, ended: CallEnded) -> None:
        error = ended.error
        if ended.request is not None and (error is None or isinstance(error, AeronSparkError)):
            self._report_request(ended.request, self._name(ended.connection), error)
        if error is None or not ended.name:  # the error of a one-way call is reported as an error
            return
        is_expected = isinstance(error, AeronSparkError)  # its caller gets it with its remedy
        self.report(
            "call_failed",
            level=None if is_expected else Level.WARNING,
            call=ended.name,
            id=ended.connection.id,
            name=self._name(ended.connection),
            method=ended.what,
            error_type=type(error).__name__,
            error=error.what if isinstance(error, AeronSparkError) else str(error),
            stack=None if is_expected else stack_of(error),
        )

    def _report_request(self, request: Request[Any], name: str, error: AeronSparkError | None) -> None:
        if error is not None and error.reason == DIVERGED:
            self.report("diverged", stream=getattr(request, "stream", None), name=name, error=error.what)
        declared = EVENTS.get(OPERATIONS[type(request)].event)
        if declared is not None and error is None and not getattr(request, "dry_run", False):
            fields = {field: getattr(request, field) for field in declared.fields if field != "name"}
            self.report(declared.name, **fields, name=name)
        match request:
            case CommitTransaction() | CommitEmptyTransaction() if error is not None:
                self._report_failed(request, name, error)
                if error.reason == SCHEMA:  # another transaction has changed the schema since the stage was opened
                    self._report_schema(request.stream, name, error)
            case BeginTransaction() | OpenStage() if isinstance(error, TransportError | DataLossError):
                self._report_failed(request, name, error)  # as at a commit: the rows wait
            case OpenStage() if isinstance(error, DataFormatError) or (error is not None and error.reason == SCHEMA):
                self._report_schema(request.stream, name, error)

    def _report_failed(
        self,
        request: BeginTransaction | OpenStage | CommitTransaction | CommitEmptyTransaction,
        name: str,
        error: AeronSparkError,
    ) -> None:
        number = request.transaction.number
        self.report(
            "commit_failed",
            stream=request.stream,
            writer=request.transaction.writer,
            transaction=None if number == NEXT_NUMBER else number,
            name=name,
            reason=error.reason or code_of(error),
            error=error.what,
        )

    def _report_schema(self, stream: str, name: str, error: AeronSparkError) -> None:
        self.report("schema_refused", stream=stream, name=name, error=error.what)

    def _on_driver_back(self, _: DriverBack) -> None:
        lost_at, self._driver_lost_at = self._driver_lost_at, None
        self.report("driver_back", seconds=None if lost_at is None else self._clock() - lost_at)

    def _on_error(self, fact: ErrorReported) -> None:
        connection, error = fact.connection, fact.error
        if isinstance(error, AeronSparkError) and error.reason == DRIVER_LOST:
            self._driver_lost_at = self._clock()
            self.report("driver_lost", error=error.what, remedy=error.remedy)
        elif isinstance(error, AeronSparkError) and error.reason == RELOAD_FAILED:
            return  # the watcher of the clients file has reported it
        elif isinstance(error, TamperedError) and connection is not None:
            self.report("tampered", **self._fields_of(connection), error=error.what)
        else:
            known = error if isinstance(error, AeronSparkError) else None
            self.report(
                "error",
                error_type=type(error).__name__,
                id=None if connection is None else connection.id_text,
                name=None if connection is None else self._name(connection),
                error=str(error) if known is None else known.what,
                remedy=None if known is None else known.remedy or None,
                stack=stack_of(error) if known is None else None,
            )

    def _name(self, connection: ConnectionCore) -> str:
        # the one under which the client has connected
        known = self._connected.get(connection)
        return self._name_of(connection.peer.key) if known is None else known[0]

    def _on_hold(self, fact: HoldChanged) -> None:
        # the connection must wait from now on, because it uses too much memory or exceeds a rate
        if fact.is_held and fact.reason == "memory":
            self.report("paused", **self._fields_of(fact.connection), bytes=fact.connection.held_bytes)
        elif fact.is_held:
            self.report("throttled", **self._fields_of(fact.connection))

    def _fields_of(self, connection: ConnectionCore) -> dict[str, Any]:
        return {
            "id": connection.id_text, "name": self._name(connection), "tag": connection.peer.tag or None,
            "address": connection.peer.address or None, "port": connection.peer.port or None,
            "transport": "ipc" if connection.peer.is_ipc else "udp",
        }  # fmt: skip

    # Facts of streams

    def _on_recovery(self, recovery: StreamRecovery) -> None:
        # what was cut off, and rows that are lost
        cut = [(f"partition {index}: {end} to {was}", was - end) for index, (was, end) in recovery.truncated.items()]
        if recovery.torn_bytes:
            cut.insert(0, ("the end of the journal", recovery.torn_bytes))
        self.report(
            "recovered",
            level=Level.WARNING if cut else None,
            stream=recovery.stream,
            partitions=recovery.partitions,
            seconds=recovery.seconds,
            cut=tuple(where for where, _ in cut) or None,
            cut_bytes=sum(size for _, size in cut),
        )
        if recovery.restored_from_ns:
            copied = datetime.fromtimestamp(recovery.restored_from_ns // SECOND_NS, timezone.utc)
            self.report("restored", stream=recovery.stream, copied_at=f"{copied:%Y-%m-%dT%H:%M:%SZ}")
        if recovery.loss is not None:
            self._report_damage(recovery.stream, recovery.loss)

    def _on_not_opened(self, fact: StreamNotOpened) -> None:
        error = fact.error
        if error.retriable:
            self.report(
                "error",
                error_type=type(error).__name__,
                error=f"stream {fact.stream!r} could not be opened, and is tried again: {error.what}",
                remedy=error.remedy,
            )
        else:
            self._report_damage(fact.stream, error)

    def _on_read_only(self, fact: StreamReadOnly) -> None:
        self._report_damage(fact.stream, fact.error)

    def _report_damage(self, stream: str, error: AeronSparkError) -> None:
        self.report("stream_damaged", stream=stream, error=error.what, remedy=error.remedy or None)

    def _on_recording_stopped(self, fact: RecordingStopped) -> None:
        self.report(
            "recording_stopped",
            stream=fact.stream,
            partition=fact.partition,
            recording=fact.recording_id,
            error=fact.error.what,
        )

    def _on_commit(self, transaction: CommittedTransaction) -> None:
        if transaction.seconds > SLOW_COMMIT_S:
            self.report(
                "commit_slow",
                stream=transaction.stream,
                writer=transaction.writer,
                transaction=transaction.transaction,
                seconds=transaction.seconds,
                stage_s=transaction.stage_s,
                publish_s=transaction.publish_s,
                record_s=transaction.record_s,
                journal_s=transaction.journal_s,
            )

    def _on_fenced(self, fact: WriterFenced) -> None:
        self.report("writer_fenced", stream=fact.stream, writer=fact.writer)

    def _on_schema_changed(self, fact: SchemaChanged) -> None:
        self.report("schema_changed", stream=fact.stream, writer=fact.writer)

    def _on_delete_pending(self, fact: DeletePending) -> None:
        self.report("delete_pending", stream=fact.stream, error=fact.why)

    def _on_lease_overridden(self, fact: LeaseOverridden) -> None:
        for reader in fact.readers:
            self.report("lease_overridden", stream=fact.stream, reader=reader)


def _check(declared: EventType, fields: Mapping[str, Any]) -> None:
    unknown = [field for field in fields if field not in declared.fields]
    if unknown:
        raise ValueError(f"event {declared.name!r} has no field {', '.join(unknown)}")


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
