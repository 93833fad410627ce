"""Reads a server's stream in a program of asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Final

import pyarrow as pa

from aeron_spark.aio.own import OwnLoop, OwnThread
from aeron_spark.errors import AeronSparkError, EndedError, UsageError
from aeron_spark.process import bind_to_process
from aeron_spark.stream_client import reader as plain
from aeron_spark.stream_client.reader import Positions


class StreamReader:
    """Iterates over the rows of a stream (``async for``); ``Client.reader`` makes it.

    It reads as the reader without asyncio does. It has one thread, from its first use until :meth:`close`, the end of
    its ``async with`` block, or the close of the client. If a task is cancelled while it waits for a batch, the next
    task gets that batch. It is for one task at a time: another one that iterates meanwhile gets UsageError at once.
    """

    def __init__(self, own_loop: OwnLoop, make: Callable[[], plain.StreamReader], stream: str) -> None:
        bind_to_process(self)
        self.stream: Final = stream
        self._own_loop: Final = own_loop
        self._thread: Final = OwnThread(own_loop, f"the reader of stream {stream!r}")
        self._make: Final = make
        self._reader: plain.StreamReader | None = None  # made by the thread
        self._is_stopped = False
        self._batches: Iterator[pa.RecordBatch] | None = None  # of the thread
        self._next: Future[tuple[pa.RecordBatch | None, Positions]] | None = None  # a batch that no task has got
        self._positions: Positions | None = None
        self._is_awaited = False  # whether a task waits for a batch

    @property
    def positions(self) -> Positions:
        """The positions after the batches that the program has got; see ``StreamReader.positions`` without asyncio.

        Raises UsageError before the first use.
        """
        if self._positions is None:
            raise UsageError(
                f"the reader of stream {self.stream!r} is not open", remedy="Use it in an `async with` block."
            )
        return self._positions.copy()

    async def open(self) -> StreamReader:
        """Find the start positions; ``async with`` and the first iteration do so. Raises as ``Client.reader``."""
        self._positions = self._positions or await self._thread.run(lambda: self._opened().positions)
        return self

    def __aiter__(self) -> StreamReader:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if self._is_awaited:
            raise UsageError(
                f"another task waits for a batch of the reader of stream {self.stream!r}",
                remedy="Make a reader in each task, for other partitions: client.reader(..., partitions=[0]).",
            )
        if self._next is None:
            self._next = self._thread.begin(self._take)
        taken = self._next
        self._is_awaited = True
        try:
            await self._own_loop.wait(taken)  # a cancellation leaves the batch to the next task
        finally:
            self._is_awaited = False
        self._next = None
        batch, self._positions = taken.result()
        if batch is None:
            raise StopAsyncIteration
        return batch

    def stop(self) -> None:
        """End the iteration soon; :attr:`positions` stay."""
        self._is_stopped = True  # before the next line: the thread may be making the reader
        if self._reader is not None:
            self._reader.stop()

    async def close(self) -> None:
        """Stop, and end the lease and the thread. A second call does nothing."""
        self.stop()
        await self._thread.close(self._close)

    async def __aenter__(self) -> StreamReader:
        try:
            return await self.open()
        except BaseException:
            self._thread.begin_close(self._close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def join(self) -> None:
        """Close, and wait until the thread has ended. For a thread that closes the client."""
        self._thread.join(self._close)

    # On the reader's thread.

    def _opened(self) -> plain.StreamReader:
        if self._reader is None:
            try:
                self._reader = self._make()
            except AeronSparkError as error:
                if self._is_stopped:  # the client has closed the connection
                    raise EndedError(
                        f"the reader of stream {self.stream!r} was closed before it was open",
                        remedy="Open another one.",
                    ) from error
                raise
            if self._is_stopped:
                self._reader.stop()
        return self._reader

    def _take(self) -> tuple[pa.RecordBatch | None, Positions]:
        reader = self._opened()
        if self._batches is None:
            self._batches = iter(reader)
        batch: pa.RecordBatch | None = None
        try:
            batch = next(self._batches, None)
        finally:
            if batch is None:  # the end, or an error: a further iteration begins again at the positions
                self._batches = None
        return batch, reader.positions

    def _close(self) -> None:
        batches, self._batches = self._batches, None
        close: Callable[[], object] = getattr(batches, "close", lambda: None)
        close()
