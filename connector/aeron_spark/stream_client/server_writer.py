"""A server's streams as a ``LogWriter``: the route through a server, which stages rows and commits transactions.

Not in ``server_log``: a process that plans or reads does not load what encodes rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.log.writing import Source
from aeron_spark.stream_client import staging
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import InlineRequest, InlineRoom, ServerAppender
from aeron_spark.wire.stream_requests import (
    CommitEmptyTransaction,
    CommitPart,
    Committed,
    CommitTransaction,
    LastCommitted,
    OpenStage,
    Transaction,
)

ABORT_TIMEOUT_S: Final = 5.0  # later the server discards the stages when they expire
ANSWER_TIMEOUT_S: Final = 5.0  # of one question whether a server answers; a wait for its restart asks several times


class ServerWriter:
    """Writes transactions to ``stream`` on the servers of ``sessions``, by name; see :class:`LogWriter`.

    One server takes all rows of a transaction, so that the transaction is visible completely or not at all.
    """

    has_transactions = True
    has_schema = True

    def __init__(
        self,
        sessions: Mapping[str, StreamSession],
        stream: str,
        *,
        max_message_bytes: int | None = None,
        evolve_schema: bool = False,
    ) -> None:
        self._sessions = sessions
        self._stream = stream
        self._max_message_bytes = max_message_bytes
        self._evolve_schema = evolve_schema

    def check_other_host(self) -> None:
        """Do nothing: every host can reach the servers."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers that hold the stream."""
        return tuple(self._sessions)

    def server_of(self, transaction: Transaction) -> str:
        """Return the server that takes the transaction: servers take turns, single-use writers are spread by hash."""
        turn = zlib.crc32(transaction.writer.encode()) if transaction.single_use else transaction.number
        return self.servers[turn % len(self._sessions)]

    def has_reached(self, server: str) -> bool:
        """Whether the server has accepted a connection of this process before, or has refused one for now."""
        return not self._sessions[server].client.closed

    def check_answers(self, transaction: Transaction, server: str) -> None:
        """Return if the server answers; see :meth:`LogWriter.check_answers`."""
        staging.last_committed(self._sessions[server], self._stream, transaction, timeout_s=ANSWER_TIMEOUT_S)

    def begin(self, transaction: Transaction, source: Source, payload: str) -> ServerAppender:
        """Return an appender that stages the rows of one task; see :meth:`LogWriter.begin`.

        One request stages a few rows, if the longest message of the stream is known: the first task of a process
        learns it.
        """
        session = self._sessions[self.server_of(transaction)]
        limit = session.message_limits.get(self._stream, 0)
        return ServerAppender(
            session,
            OpenStage(
                self._stream,
                transaction,
                None,
                max(0, source.partition),
                payload,
                max_message_bytes=self._max_message_bytes or 0,
                evolve_schema=self._evolve_schema,
            ),
            source,
            inline=InlineRequest(InlineRoom(), limit, opens_stage=True) if limit else None,
        )

    def commit(
        self, transaction: Transaction, server: str, parts: Sequence[CommitPart], rows: int, token: str = ""
    ) -> Committed:
        """Make the staged parts visible at once; see :meth:`LogWriter.commit`."""
        session = self._sessions[server]
        if rows:
            begun, seconds = transaction.of_known_run(), staging.COMMIT_TIMEOUT_S
            return staging.commit(session, CommitTransaction(self._stream, begun, tuple(parts), rows, seconds, token))
        staging.begin(session, self._stream, transaction)  # no stage was opened, which does this, too
        empty = CommitEmptyTransaction(self._stream, transaction, staging.COMMIT_TIMEOUT_S, token)
        return staging.commit(session, empty)

    def abort(self, transaction: Transaction, server: str) -> None:
        """Discard the staged rows unless they are committed; an error is ignored, because stages expire."""
        with suppress(AeronSparkError):
            staging.abort(self._sessions[server], self._stream, transaction, timeout_s=ABORT_TIMEOUT_S)

    def last_committed(self, transaction: Transaction, server: str) -> LastCommitted:
        """Return the last committed transaction of the writer and producer on a server, and its token."""
        return staging.last_committed(self._sessions[server], self._stream, transaction)
