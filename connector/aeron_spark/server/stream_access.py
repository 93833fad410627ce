"""The access of one connection's client to a server's streams, by the grant of its key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import AeronSparkError, RefusedError
from aeron_spark.protocol.grants import Grant, KeyLimits, StreamAction
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.streams.definition import renamed_stream, unknown_stream
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.stream import Stream

RECENT_S: Final = 60.0  # after its last use, a stream counts as used by the client
MAX_RECENT_STREAMS: Final = 64  # remembered for one connection


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

    def stream(self, name: str, *actions: StreamAction) -> Stream:
        """Return a stream on which the client may use one of the actions. Raises as :meth:`check`."""
        self.check_exists(name, *actions)
        self.note_use(name)
        return self._store().get(name)

    def check_exists(self, name: str, *actions: StreamAction) -> None:
        """Raise OptionError if no stream has the name, also the error of :meth:`refusal`, if any."""
        self.check(name, *actions)
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

    def written_stream(self, name: str, writer: str) -> Stream:
        """Return a stream to which the client may write under a writer id. Raises as :meth:`check`.

        Raises RefusedError if the id is not granted to the client's key, or belongs to another key.
        """
        stream = self.stream(name, "write")
        may_write = self._grant.may_write_as(writer)
        if may_write is None:
            stream.claim_writer(writer, self.owner)
        elif not may_write:
            raise RefusedError(
                f"your key may not write under the writer id {writer!r}",
                remedy="Ask the server's operator to grant the id in the server's clients file (writers=).",
                reason="not-permitted",
            )
        return stream

    def _visible_names(self, grant: Grant) -> list[str]:
        return [name for name in self._store().names if grant.may_see(name)]
