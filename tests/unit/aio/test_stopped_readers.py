"""A reader of asyncio that is stopped, or whose client is closed, while its thread still opens it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from aeron_spark.aio.own import OwnLoop
from aeron_spark.aio.reader import StreamReader
from aeron_spark.errors import ConnectError, EndedError, UsageError
from aeron_spark.stream_client import reader as plain
from aeron_spark.stream_client.reader import Positions

TIMEOUT_S = 10.0


class EndlessReader:
    """Yields batches until it is stopped."""

    def __init__(self) -> None:
        self.positions = Positions()
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True

    def __iter__(self) -> EndlessReader:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._is_stopped:
            raise StopIteration
        return pa.RecordBatch.from_pydict({"value": [1]})


def reader_that_stops_itself(made: Any, streams: Any) -> StreamReader:
    """Return a reader that is stopped while its thread makes the reader without asyncio."""

    def make() -> plain.StreamReader:
        streams.reader.stop()
        if isinstance(made, Exception):
            raise made
        return cast("plain.StreamReader", made)

    streams.reader = StreamReader(OwnLoop(), make, "s")
    return cast("StreamReader", streams.reader)


def test_a_reader_that_is_stopped_before_it_is_open_ends() -> None:
    """Regression: the stop was lost, and the reader went on until its client had closed the connection."""

    async def main() -> None:
        reader = reader_that_stops_itself(EndlessReader(), SimpleNamespace())
        assert [batch async for batch in reader] == []
        await reader.close()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_a_reader_whose_client_is_closed_before_it_is_open_says_so() -> None:
    async def main() -> None:
        reader = reader_that_stops_itself(ConnectError("the connection is closed"), SimpleNamespace())
        with pytest.raises(EndedError, match="the reader of stream 's' was closed before it was open"):
            await reader.open()
        await reader.close()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_a_second_task_that_iterates_is_refused_and_each_batch_comes_once() -> None:
    """Regression: all tasks that waited for a batch at the same time got the same one."""

    class Batches(EndlessReader):
        left = 20

        def __next__(self) -> pa.RecordBatch:
            if not self.left:
                raise StopIteration
            self.left -= 1
            return pa.RecordBatch.from_pydict({"value": [self.left]})

    async def main() -> None:
        reader = StreamReader(OwnLoop(), lambda: cast("plain.StreamReader", Batches()), "s")
        found: list[int] = []

        async def read() -> None:
            async for batch in reader:
                found.extend(batch.column("value").to_pylist())

        errors = await asyncio.gather(*(read() for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in errors] == [type(None), UsageError, UsageError]
        assert found == list(range(19, -1, -1))
        await reader.close()

    asyncio.run(main())
