"""Executes the requests of one client that administer streams, such as to create, alter, rename, end or purge them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.server.stream_access import StreamAccess
from aeron_spark.streams.definition import Definition, check_segment_bytes
from aeron_spark.streams.model import PartitionState
from aeron_spark.streams.store import Condition, StreamStore
from aeron_spark.streams.stream import Stream
from aeron_spark.wire import stream_requests as admin_rpc

COMMIT_TIMEOUT_S: Final = 15.0  # longest wait of a request for a commit of the stream; clients wait for 20 s
MAX_WRITERS: Final = 1_000  # in one response


class StreamAdministration:
    """Executes requests on the streams of ``store``, as far as ``access`` allows the client to use them. Thread-safe.

    ``check_write`` raises RefusedError if nothing may be written now. ``max_partitions`` returns the limit of
    partitions that applies to a key whose line in the clients file has none. Methods raise AeronSparkError.
    """

    def __init__(
        self, access: StreamAccess, store: Callable[[], StreamStore], check_write: Callable[[], None],
        max_partitions: Callable[[], int],
    ) -> None:  # fmt: skip
        self._access: Final = access
        self._store: Final = store
        self._check_write: Final = check_write
        self._max_partitions: Final = max_partitions

    def execute(self, request: admin_rpc.AdminRequest) -> admin_rpc.Response:
        match request:
            case admin_rpc.ListStreams():
                return self.list_streams()
            case admin_rpc.DescribeStream():
                return self.describe(request)
            case admin_rpc.CreateStream():
                return self.create(request)
            case admin_rpc.AlterStream():
                return self.alter(request)
            case admin_rpc.RenameStream():
                return self.rename(request)
            case admin_rpc.EndStream():
                return self.end(request)
            case admin_rpc.ReopenStream():
                return self.reopen(request)
            case admin_rpc.DeleteStream():
                return self.delete(request)
            case admin_rpc.PurgeStream():
                return self.purge(request)
            case admin_rpc.ListWriters():
                return self.list_writers(request)
            case admin_rpc.ReleaseWriter():
                return self.release_writer(request)
            case admin_rpc.ListLeases():
                return self.list_leases(request)
            case admin_rpc.ReleaseLease():
                return self.release_lease(request)

    def list_streams(self) -> admin_rpc.StreamList:
        """Return all streams that the client may see."""
        found = []
        for name in self._store().names:
            if self._access.may_see(name):
                with suppress(OptionError, UsageError):  # it was renamed or deleted since
                    found.append(self._inspect(name))
        return admin_rpc.StreamList(tuple(found))

    def describe(self, request: admin_rpc.DescribeStream) -> admin_rpc.StreamInfo:
        if request.accept_damaged:
            self._access.check_exists(request)
            return self._inspect(request.stream)
        return self._description(self._access.stream(request))

    def create(self, request: admin_rpc.CreateStream) -> admin_rpc.StreamInfo:
        """Create a stream that belongs to the client's key."""
        self._access.check_request(type(request), request.stream)
        self._check_write()
        if request.segment_bytes:
            check_segment_bytes(request.stream, request.segment_bytes)
        created = self._store().create(
            request.stream, request.partitions, retention_bytes=request.retention_bytes,
            retention_seconds=request.retention_seconds, created_by=self._access.owner,
            creator_partitions=self._access.limit_of(lambda limits: limits.partitions, self._max_partitions()),
            term_bytes=request.segment_bytes, schema_policy=request.schema_policy,
            schema=request.schema or None,
        )  # fmt: skip
        return self._description(created)

    def alter(self, request: admin_rpc.AlterStream) -> admin_rpc.StreamAlteration:
        """Change the retention and the schema policy of a stream, or with ``dry_run`` compute the effect."""
        stream = self._access.stream(request)

        def change(definition: Definition) -> Definition:
            return definition.altered(
                retention_bytes=request.retention_bytes, retention_seconds=request.retention_seconds,
                schema_policy=request.schema_policy,
            )  # fmt: skip

        if request.dry_run:
            before, after = stream.definition, change(stream.definition)
        else:
            before, after = self._store().alter(request.stream, change, COMMIT_TIMEOUT_S)
        return admin_rpc.StreamAlteration(
            _properties(before), _properties(after), tuple(one.start for one in stream.states()),
            tuple(stream.retention_starts(after)),
        )  # fmt: skip

    def rename(self, request: admin_rpc.RenameStream) -> admin_rpc.StreamInfo:
        """Rename a stream. A repeated request has the same result."""
        store = self._store()
        self._access.check_request(type(request), request.stream)
        self._access.check(request.new_name, "create")
        if store.renamed_to(request.stream) == request.new_name:
            return self._description(store.get(request.new_name))
        self._access.check_exists(request)
        return self._description(store.rename(request.stream, request.new_name, COMMIT_TIMEOUT_S))

    def end(self, request: admin_rpc.EndStream) -> admin_rpc.StreamInfo:
        """End a stream; an ended one keeps the time of its end."""
        now_ns = time.time_ns()
        return self._change(request, lambda definition: definition.ended(now_ns))

    def reopen(self, request: admin_rpc.ReopenStream) -> admin_rpc.StreamInfo:
        """Let a stream take rows again."""
        return self._change(request, Definition.reopened)

    def list_writers(self, request: admin_rpc.ListWriters) -> admin_rpc.WriterList:
        """Return the next writer ids of a stream."""
        known = self._access.stream(request).writers()
        following = [one for one in known if one.id > request.after]
        return admin_rpc.WriterList(tuple(following[:MAX_WRITERS]), len(following) > MAX_WRITERS)

    def release_writer(self, request: admin_rpc.ReleaseWriter) -> admin_rpc.Done:
        """Let any key use a writer id."""
        self._access.stream(request).release_writer(request.writer)
        return admin_rpc.Done()

    def list_leases(self, request: admin_rpc.ListLeases) -> admin_rpc.LeaseList:
        """Return the leases of a stream's readers."""
        return admin_rpc.LeaseList(tuple(self._access.stream(request).live_leases()))

    def release_lease(self, request: admin_rpc.ReleaseLease) -> admin_rpc.Done:
        """End the leases of a reader."""
        self._access.stream(request).release_lease(request.reader)
        return admin_rpc.Done()

    def _change(
        self, request: admin_rpc.EndStream | admin_rpc.ReopenStream, change: Callable[[Definition], Definition]
    ) -> admin_rpc.StreamInfo:
        stream = self._access.stream(request)
        self._store().alter(request.stream, change, COMMIT_TIMEOUT_S)
        return self._description(stream)

    def delete(self, request: admin_rpc.DeleteStream) -> admin_rpc.Done:
        self._access.check_exists(request)
        self._store().delete(request.stream)
        return admin_rpc.Done()

    def purge(self, request: admin_rpc.PurgeStream) -> admin_rpc.PurgeReport:
        """Purge a stream. A repeated request reports what is freed since."""
        purged = self._access.stream(request).purge(
            partition=request.partition, before_position=request.before_position,
            before_time_ns=request.before_time_ns, seconds=COMMIT_TIMEOUT_S,
        )  # fmt: skip
        return admin_rpc.PurgeReport(tuple(purged))

    def _inspect(self, name: str) -> admin_rpc.StreamInfo:
        """Describe a stream, also a damaged one."""
        store = self._store()
        condition = store.condition(name)
        if name not in store.failed:
            return self._description(store.get(name))
        return _info(name, condition, store.definition(name))

    def _description(self, stream: Stream) -> admin_rpc.StreamInfo:
        definition, content, states = stream.definition, stream.content(), stream.states()
        return _info(definition.name, self._store().condition(definition.name), definition, content, states)


def _info(
    name: str, condition: Condition, definition: Definition | None, content: tuple[str, bytes | None] = ("", None),
    states: Sequence[PartitionState] = (),
) -> admin_rpc.StreamInfo:  # fmt: skip
    """Return a stream for its client; a damaged one has no states, and no ``definition`` if that is damaged, too."""
    return admin_rpc.StreamInfo(
        name=name,
        state=condition.state,
        problem=condition.problem,
        content=content[0],
        encoded_schema=content[1] or b"",
        created_ns=0 if definition is None else definition.created_ns,
        retention_bytes=0 if definition is None else definition.retention_bytes,
        retention_seconds=0.0 if definition is None else definition.retention_seconds,
        segment_bytes=0 if definition is None else definition.term_bytes,
        file_bytes=max((one.segment_length for one in states), default=0),
        partitions=tuple(admin_rpc.StreamPartition(one.partition, one.start, one.end) for one in states),
        schema_policy="" if definition is None else definition.schema_policy,
        former_names=() if definition is None else definition.names_before,
        ended_ns=0 if definition is None else definition.ended_ns,
        max_message_bytes=0 if definition is None else definition.max_message_bytes,
    )


def _properties(definition: Definition) -> admin_rpc.StreamProperties:
    return admin_rpc.StreamProperties(
        definition.retention_bytes, float(definition.retention_seconds), definition.schema_policy
    )
