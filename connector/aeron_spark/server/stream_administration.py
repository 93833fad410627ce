"""Executes the requests of one client that administer streams: list, describe, create, delete and purge them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aeron_spark.protocol.grants import STREAM_ACTIONS
from aeron_spark.server.stream_access import StreamAccess
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.stream import Stream
from aeron_spark.wire import stream_rpc as rpc


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

    def list_streams(self) -> rpc.StreamList:
        """Return all streams that the client may see."""
        store = self._store()
        return rpc.StreamList(tuple(self._inspect(name) for name in store.names if self._access.may_see(name)))

    def describe(self, request: rpc.DescribeStream) -> rpc.StreamDescription:
        """Describe a stream."""
        if request.accept_damaged:
            self._access.check(request.stream, *STREAM_ACTIONS)
            return self._inspect(request.stream)
        return self._description(self._access.stream(request.stream, *STREAM_ACTIONS))

    def create(self, request: rpc.CreateStream) -> rpc.StreamDescription:
        """Create a stream that belongs to the client's key."""
        self._access.check(request.stream, "create")
        self._check_write()
        term_length = {"term_bytes": request.term_bytes} if request.term_bytes else {}
        created = self._store().create(
            request.stream, request.partitions, retention_bytes=request.retention_bytes,
            retention_seconds=request.retention_seconds, created_by=self._access.owner,
            creator_partitions=self._access.limit_of(lambda limits: limits.partitions, self._max_partitions()),
            **term_length,
        )  # fmt: skip
        return self._description(created)

    def delete(self, request: rpc.DeleteStream) -> rpc.Done:
        """Delete a stream."""
        self._access.check(request.stream, "purge")
        self._store().delete(request.stream)
        return rpc.Done()

    def purge(self, request: rpc.PurgeStream) -> rpc.PartitionPositions:
        """Purge a stream, and return the new starts of its partitions."""
        starts = self._access.stream(request.stream, "purge").purge(
            partition=request.partition, before_position=request.before_position, before_time_ns=request.before_time_ns
        )
        return rpc.PartitionPositions(tuple(starts))

    def _inspect(self, name: str) -> rpc.StreamDescription:
        """Describe a stream, also a damaged one."""
        store = self._store()
        condition = store.condition(name)
        if name not in store.failed:
            return self._description(store.get(name))
        definition = store.definition(name)
        return rpc.StreamDescription(
            name=name,
            state=condition.state,
            problem=condition.problem,
            content="",
            schema=b"",
            created_ns=0 if definition is None else definition.created_ns,
            retention_bytes=0 if definition is None else definition.retention_bytes,
            retention_seconds=0.0 if definition is None else definition.retention_seconds,
            term_bytes=0 if definition is None else definition.term_bytes,
            partitions=(),
        )

    def _description(self, stream: Stream) -> rpc.StreamDescription:
        definition = stream.definition
        content, schema = stream.content()
        condition = self._store().condition(definition.name)
        return rpc.StreamDescription(
            name=definition.name,
            state=condition.state,
            problem=condition.problem,
            content=content,
            schema=schema or b"",
            created_ns=definition.created_ns,
            retention_bytes=definition.retention_bytes,
            retention_seconds=definition.retention_seconds,
            term_bytes=definition.term_bytes,
            partitions=tuple(rpc.PartitionRange(one.partition, one.start, one.end) for one in stream.states()),
        )
