"""The access of one connection's client to a server's streams, by the grant of its key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.protocol.grants import STREAM_ACTIONS, Grant, KeyLimits, StreamAction
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.streams.definition import renamed_stream, unknown_stream
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.stream import Stream
from aeron_spark.wire import stream_requests as admin_rpc
from aeron_spark.wire import stream_requests as rpc

ACTIONS: Final[Mapping[type[admin_rpc.Request[Any]], tuple[StreamAction, ...]]] = {
    admin_rpc.DescribeStream: STREAM_ACTIONS,
    admin_rpc.CreateStream: ("create",),
    admin_rpc.DeleteStream: ("purge",),
    admin_rpc.PurgeStream: ("purge",),
    **dict.fromkeys(
        (
            admin_rpc.AlterStream, admin_rpc.RenameStream, admin_rpc.EndStream, admin_rpc.ReopenStream,
            admin_rpc.ListWriters, admin_rpc.ReleaseWriter, admin_rpc.ListLeases, admin_rpc.ReleaseLease,
        ),
        ("manage",),
    ),
    rpc.PartitionStates: ("read", "write"),
    **dict.fromkeys(
        (rpc.FindBoundary, rpc.FindPosition, rpc.MeasureLags, rpc.AwaitCommits, rpc.RenewLease, rpc.StartRead),
        ("read",),
    ),
    **dict.fromkeys(
        (
            rpc.LastTransaction, rpc.BeginTransaction, rpc.FindLostTransaction, rpc.OpenStage, rpc.FinishStage,
            rpc.CommitTransaction, rpc.CommitEmptyTransaction, rpc.AbortTransaction,
        ),
        ("write",),
    ),
}  # fmt: skip
"""By request, the actions on its stream of which the client needs one. Other requests have no stream."""

RECENT_S: Final = 60.0  # after its last use, a stream counts as used by the client
MAX_RECENT_STREAMS: Final = 64  # remembered for one connection


class OnStream(Protocol):
    """A request that names a stream."""

    @property
    def stream(self) -> str:
        """The stream's name."""


class StreamAccess:
    """The streams of ``store`` for the client of one connection, whose present grant ``grant_of`` returns.

    A stream on which the grant has no action does not exist for the client. Thread-safe.
    """

    def __init__(
        self, connection: ConnectionRunner, store: Callable[[], StreamStore], grant_of: Callable[[Connection], Grant]
    ) -> None:
        self._connection: Final = connection
        self._store: Final = store
        self._grant_of: Final = grant_of
        self._lock: Final = threading.Lock()
        self._used_at: Final[dict[str, float]] = {}  # by name, in monotonic seconds; the last used one last

    @property
    def _grant(self) -> Grant:
        return self._grant_of(self._connection.for_program)

    @cached_property
    def owner(self) -> str:
        """The owner of the client's leases and writer ids: the fingerprint of its key."""
        return fingerprint(self._connection.peer.key)

    def limit_of(self, limit: Callable[[KeyLimits], int | None], default: int) -> int:
        """Return a limit of the client's key, or ``default`` if its line in the clients file has none."""
        own = limit(self._grant.limits)
        return default if own is None else own

    def may_see(self, name: str) -> bool:
        """Return whether the client may learn that a stream of this name exists."""
        return self._grant.may_see(name)

    def may_use(self, name: str, action: StreamAction) -> bool:
        """Return whether the client may use the action on the stream of this name."""
        return self._grant.may_use(name, action)

    def check(self, name: str, *actions: StreamAction) -> None:
        """Raise the error of :meth:`refusal`, if any."""
        error = self.refusal(name, *actions)
        if error is not None:
            raise error

    def refusal(self, name: str, *actions: StreamAction) -> AeronSparkError | None:
        """Return None if the grant has one of the actions on the stream; RefusedError if the client may see the stream.

        Otherwise the error is the OptionError for an unknown stream, whether the stream exists or not.
        """
        grant = self._grant
        if any(grant.may_use(name, action) for action in actions):
            return None
        if not grant.may_see(name) and actions != ("create",):  # a key may create a stream that it may not see
            return unknown_stream(name, self._visible_names(grant))
        return RefusedError(
            f"your key may not {' or '.join(actions)} stream {name!r}",
            remedy="Ask the server's operator to grant the action in the server's clients file.",
            reason="not-permitted",
        )

    def check_request(self, kind: type[admin_rpc.Request[Any]], stream: str) -> None:
        """Raise the error of :meth:`refusal` unless the client may send this kind of request for the stream.

        Called before the request is decoded, so that it costs nothing without the grant.
        """
        if kind in ACTIONS:
            self.check(stream, *ACTIONS[kind])

    def stream(self, request: OnStream) -> Stream:
        """Return the stream of a request. Raises as :meth:`check_exists`."""
        self.check_exists(request)
        self.note_use(request.stream)
        return self._store().get(request.stream)

    def check_exists(self, request: OnStream) -> None:
        """Raise OptionError if the stream of a request does not exist, also the error of :meth:`refusal`, if any."""
        name = request.stream
        self.check(name, *ACTIONS[type(request)])  # type: ignore[index]  # a request is a Request
        store, grant = self._store(), self._grant
        if name in store:
            return
        new_name = store.renamed_to(name)
        if new_name is not None and grant.may_see(new_name):
            raise renamed_stream(name, new_name)
        raise unknown_stream(name, self._visible_names(grant))

    def note_use(self, name: str) -> None:
        """Note that the client uses a stream now."""
        with self._lock:
            self._used_at.pop(name, None)
            self._used_at[name] = time.monotonic()
            if len(self._used_at) > MAX_RECENT_STREAMS:
                del self._used_at[next(iter(self._used_at))]

    def recent_streams(self) -> list[str]:
        """Return the sorted names of the streams that the client has used in the last minute."""
        since = time.monotonic() - RECENT_S
        with self._lock:
            return sorted(name for name, used_at in self._used_at.items() if used_at >= since)

    def written_stream(self, request: OnStream, writer: str) -> Stream:
        """Return the stream of a request of a writer id. Raises as :meth:`check_exists`.

        Raises RefusedError if the writer id is not granted to the client's key, or belongs to another key. An id
        without an owner then belongs to the key. A key to which an id is granted may also use that of another key.
        """
        stream = self.stream(request)
        may_write = self._grant.may_write_as(writer)
        if may_write is False:
            raise RefusedError(
                f"your key may not write under the writer id {writer!r}",
                remedy="Ask the server's operator to grant the id in the server's clients file (writers=).",
                reason="not-permitted",
            )
        stream.claim_writer(writer, self.owner, is_granted=may_write is True)
        return stream

    def _visible_names(self, grant: Grant) -> list[str]:
        return [name for name in self._store().names if grant.may_see(name)]
