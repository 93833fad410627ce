"""Requests about the transactions of a writer: begin, commit, abort, and the state that the server has.

All of them can be repeated after any error: the server commits a transaction once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aeron_spark.errors import ConnectError, RefusedError, SessionLost, StillWorking, WaitTimeout
from aeron_spark.stream_client.session import DRAINING, MIN_TIMEOUT_S, RETRY_INTERVAL_S, StreamSession
from aeron_spark.waiting import Deadline
from aeron_spark.wire.stream_admin_rpc import Request
from aeron_spark.wire.stream_rpc import (
    AbortTransaction,
    BeginTransaction,
    Begun,
    CommitEmptyTransaction,
    CommitPart,
    Committed,
    CommitTransaction,
    FindLostTransaction,
    LastCommitted,
    LastTransaction,
    Transaction,
)

COMMIT_TIMEOUT_S: Final = 600.0  # of a large transaction: the server copies it into the stream
ATTEMPT_TIMEOUT_S: Final = 20.0  # then the request is repeated, and the server says whether it still works on it
MIN_ATTEMPTS: Final = 3  # of one request before its deadline
SERVER_SHARE: Final = 0.6  # of an attempt's time that the server may wait; the rest is for the response to arrive
# The request had no response: the server may have done what it requests, or may do it later.
UNANSWERED: Final = (ConnectError, SessionLost, WaitTimeout)


def begin(session: StreamSession, stream: str, transaction: Transaction, *, timeout_s: float | None = None) -> Begun:
    """Begin a transaction and fence earlier runs; return the writer's last committed transaction.

    Raises RefusedError if a later run fenced this one, if another
    producer has committed a transaction with this id, and, with the reason "diverged", if the server was restored from
    a copy without a transaction that it had acknowledged.
    """
    return session.call(BeginTransaction(stream, transaction), timeout=timeout_s)


def commit(
    session: StreamSession, stream: str, transaction: Transaction, parts: Sequence[CommitPart], rows: int,
    deadline: Deadline | None = None, token: str = "", *, evolve_schema: bool = False,
) -> Committed:  # fmt: skip
    """Make the parts visible, all at once.

    If the request carries rows, the server must know the transaction's run: otherwise it has lost the state in which
    the writer began, and refuses. With ``evolve_schema`` these rows may add columns to a strict schema.

    ``rows`` is the number of rows that the writer counted: the server refuses parts with another number of rows, and a
    commit without parts. ``deadline`` bounds the server's silence. While the server says that it works on the commit,
    this waits for up to ``COMMIT_TIMEOUT_S`` and then raises StillWorking. The server keeps ``token`` with the
    producer's last transaction, see :func:`last_committed`.
    """
    begun = transaction.of_known_run()
    request_parts = tuple(parts)

    def request(seconds: float) -> CommitTransaction:
        return CommitTransaction(stream, begun, request_parts, rows, seconds, token, evolve_schema)

    return _commit(session, deadline, request)


def commit_empty(
    session: StreamSession, stream: str, transaction: Transaction, deadline: Deadline | None = None, token: str = ""
) -> Committed:
    """Commit a transaction without rows; see :func:`commit`."""
    return _commit(session, deadline, lambda seconds: CommitEmptyTransaction(stream, transaction, seconds, token))


def _commit(
    session: StreamSession, deadline: Deadline | None, make_request: Callable[[float], Request[Committed]]
) -> Committed:
    """Commit; ``make_request`` takes the seconds for which the server may wait before it responds."""
    commit_deadline = session.deadline(COMMIT_TIMEOUT_S, "the commit to end")
    silence_deadline = commit_deadline if deadline is None else deadline
    while True:
        attempt_s = attempt_timeout(silence_deadline)
        try:
            return session.call(make_request(attempt_s * SERVER_SHARE), timeout=attempt_s)
        except StillWorking:
            if session.client.closed or not commit_deadline.remaining():
                raise
            if silence_deadline is not commit_deadline:
                silence_deadline.progress()
        except (*UNANSWERED, RefusedError) as error:
            if isinstance(error, RefusedError) and error.reason != DRAINING:
                raise
            if session.client.closed or not silence_deadline.remaining():
                raise
            session.sleep(min(RETRY_INTERVAL_S, silence_deadline.remaining()))


def attempt_timeout(deadline: Deadline) -> float:
    """Return the seconds for one attempt of a request, so that several attempts fit before the deadline."""
    share_s = min(ATTEMPT_TIMEOUT_S, deadline.seconds / MIN_ATTEMPTS)
    return max(MIN_TIMEOUT_S, min(share_s, deadline.remaining()))


def abort(session: StreamSession, stream: str, transaction: Transaction, *, timeout_s: float | None = None) -> None:
    """Discard the staged rows of a transaction; a committed transaction stays."""
    session.call(AbortTransaction(stream, transaction), timeout=timeout_s)


def last_committed(
    session: StreamSession, stream: str, transaction: Transaction, *, timeout_s: float | None = None
) -> LastCommitted:
    """Return the last transaction of this one's writer and producer that is committed, -1 for none, and its token."""
    return session.call(LastTransaction(stream, transaction.writer, transaction.producer), timeout=timeout_s)


def first_lost(session: StreamSession, stream: str, writer: str, acknowledged: int, stamp: str) -> int | None:
    """Return the writer's first acknowledged transaction that the stream has no longer, or None if it has all."""
    return session.call(FindLostTransaction(stream, writer, acknowledged, stamp)).transaction
