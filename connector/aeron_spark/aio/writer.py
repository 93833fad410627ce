"""Writes transactions to a server's stream in a program of asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from aeron_spark.aio.own import OwnLoop, OwnThread
from aeron_spark.errors import AeronSparkError, RefusedError, UsageError
from aeron_spark.process import bind_to_process
from aeron_spark.rows.gathering import Text
from aeron_spark.stream_client import buffered_writer
from aeron_spark.stream_client import writer as plain
from aeron_spark.stream_client.buffer_folder import TransactionOutcome
from aeron_spark.stream_client.row_input import Rows

PlainWriter = TypeVar("PlainWriter", bound=plain.Writer)
_W = TypeVar("_W", bound="AwaitedWriter")  # type: ignore[type-arg]


class AwaitedWriter(ABC, Generic[PlainWriter]):
    """Writes transactions. The end of an ``async with`` block commits, an exception in the block aborts.

    The writer has one thread, from its first use until :meth:`close` or the close of the client, which executes its
    calls in order. A cancellation ends the wait for a call, and not the call: a cancelled ``write`` is still written,
    and a cancelled ``commit`` is still committed. The next ``commit()`` returns its outcome. Tasks can share it, and so
    share one transaction: a commit has the rows of all calls of ``write`` before it.
    """

    def __init__(self, own_loop: OwnLoop, make: Callable[[], PlainWriter], stream: str) -> None:
        bind_to_process(self)
        self.stream: Final = stream
        self._own_loop: Final = own_loop
        self._thread: Final = OwnThread(own_loop, f"the writer of stream {stream!r}")
        self._make: Final = make
        self._made: PlainWriter | None = None  # by the thread
        self._commit: Future[int] | None = None  # whose outcome the program has not got

    @property
    def _writer(self) -> PlainWriter:
        if self._made is None:
            raise UsageError(
                f"the writer of stream {self.stream!r} is not open", remedy="Use it in an `async with` block."
            )
        return self._made

    @property
    @abstractmethod
    def last(self) -> int:
        """The number of the last durable transaction, -1 before the first one. Raises UsageError before it is open."""

    @property
    @abstractmethod
    def last_token(self) -> str:
        """The token of the last durable transaction, or "". Raises UsageError before it is open."""

    async def open(self: _W) -> _W:
        """Make the writer; ``async with`` and the first call do so. Raises as ``Client.writer``."""
        await self._thread.run(self._opened)
        return self

    async def write(self, data: Rows, *, partition: int | None = None) -> None:
        """Add rows to the transaction, all or none; see ``StreamWriter.write`` without asyncio.

        The writer's thread iterates over an iterable.
        """
        await self._add(lambda: self._opened().write(data, partition=partition))

    async def write_columns(self, columns: Mapping[str, Any], *, partition: int | None = None) -> None:
        """Add rows as :meth:`write` does, given by columns."""
        await self._add(lambda: self._opened().write_columns(columns, partition=partition))

    async def write_json(self, text: Text | Iterable[Text], *, partition: int | None = None) -> None:
        """Add rows as :meth:`write` does, given as JSON."""
        await self._add(lambda: self._opened().write_json(text, partition=partition))

    async def _add(self, add: Callable[[], None]) -> None:
        writing = self._thread.begin(add)
        self._commit = None  # the rows are those of the next transaction, or the failed commit refuses them
        await self._thread.result(writing)

    async def commit(self, token: str = "") -> int:
        """Commit the transaction with ``token`` and return its number, or -1 without rows and token.

        After a cancelled ``commit()``, without a ``write()`` since, it waits for that commit and returns its number; if
        that commit failed, it commits again. So each transaction is committed once, and its outcome is known.
        """
        committing = self._commit = self._thread.begin(self._commit_after(self._commit, token))
        await self._own_loop.wait(committing)  # a cancellation leaves the outcome to the next commit
        if self._commit is committing:  # else another task has begun a later call
            self._commit = None
        return committing.result()

    def _commit_after(self, former: Future[int] | None, token: str) -> Callable[[], int]:
        def commit() -> int:
            if former is not None and former.exception() is None:
                return former.result()  # it has ended: the thread executes the calls in order
            return self._opened().commit(token)

        return commit

    async def abort(self) -> None:
        """Drop the rows since the last successful commit.

        Raises RefusedError if a cancelled ``commit()`` has committed them; :attr:`last` is the number then.
        """
        former, self._commit = self._commit, None

        def abort() -> None:
            if former is not None and former.exception() is None and former.result() >= 0:
                raise RefusedError(
                    f"transaction {former.result()} cannot be aborted: its cancelled commit() has committed it",
                    remedy="Continue with the next transaction.",
                )
            self._opened().abort()

        await self._thread.run(abort)

    def stop(self) -> None:
        """Do nothing: the close of the client ends the calls of its writers."""

    async def close(self) -> None:
        """Stop writing, drop uncommitted rows, and end the thread. A second call does nothing."""
        await self._thread.close(self._close)

    async def __aenter__(self: _W) -> _W:
        try:
            return await self.open()
        except BaseException:
            self._thread.begin_close(self._close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()  # if it raises, the writer stays open: a further commit() or abort() gives the outcome
        await self.close()

    def join(self) -> None:
        """Close, and wait until the thread has ended. For a thread that closes the client."""
        self._thread.join(self._close)

    def _opened(self) -> PlainWriter:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _close(self) -> None:
        if self._made is not None:
            self._made.close()


class StreamWriter(AwaitedWriter[plain.StreamWriter]):
    """Writes to a stream while its server can be reached; ``Client.writer`` makes it."""

    @property
    def last(self) -> int:
        """The number of the last committed transaction, -1 before the first one."""
        return self._writer.last

    @property
    def last_token(self) -> str:
        """The token of the last committed transaction, or ""; see ``StreamWriter.last_token`` without asyncio."""
        return self._writer.last_token

    @property
    def writer_id(self) -> str:
        """The writer id, or the one that was made for this writer."""
        return self._writer.writer_id

    async def accept_loss(self) -> int:
        """See ``StreamWriter.accept_loss`` without asyncio."""
        return await self._thread.run(lambda: self._opened().accept_loss())


class BufferedWriter(AwaitedWriter[buffered_writer.BufferedWriter]):
    """Writes transactions to a folder, from which they are sent; ``Client.writer`` with ``buffer`` makes it."""

    @property
    def last(self) -> int:
        """The number of the last transaction in the folder, -1 before the first one."""
        return self._writer.last

    @property
    def last_token(self) -> str:
        """The token of the last transaction in the folder, or ""; see ``BufferedWriter.last_token`` without asyncio."""
        return self._writer.last_token

    @property
    def writer_id(self) -> str:
        """The writer id of the folder."""
        return self._writer.writer_id

    @property
    def unsent(self) -> int:
        """The number of transactions that are not sent yet."""
        return self._writer.unsent

    @property
    def acknowledged(self) -> int:
        """The number of the last transaction that the server has acknowledged."""
        return self._writer.acknowledged

    @property
    def trouble(self) -> AeronSparkError | None:
        """Why sending does not go on; None if it does."""
        return self._writer.trouble

    def outcome(self, number: int) -> TransactionOutcome:
        """Return whether a transaction is acknowledged, buffered, absent or diverged."""
        return self._writer.outcome(number)

    async def flush(self, timeout: float = buffered_writer.SPACE_TIMEOUT_S) -> None:
        """Wait until all transactions are acknowledged. Raises WaitTimeout after ``timeout`` seconds."""
        await self._thread.run(lambda: self._opened().flush(timeout))

    async def accept_loss(self) -> None:
        """See ``BufferedWriter.accept_loss`` without asyncio."""
        await self._thread.run(lambda: self._opened().accept_loss())
