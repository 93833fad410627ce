"""The thread of one stream reader or writer, which executes its calls in order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from aeron_spark.aio.own_loop import OwnLoop
from aeron_spark.errors import EndedError

T = TypeVar("T")


class OwnThread:
    """Executes calls one after the other. The thread starts with the first one, and ends after :meth:`end`.

    A call that was begun is executed, also if the task that awaits it is cancelled.
    """

    def __init__(self, own_loop: OwnLoop, label: str) -> None:
        self._own_loop: Final = own_loop
        self._label: Final = label
        self._executor: Final = ThreadPoolExecutor(1, thread_name_prefix="aeron-spark-aio-stream")

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Have the thread execute ``call`` after all earlier ones. Raises EndedError after :meth:`end`."""
        self._own_loop.check()
        try:
            return self._executor.submit(call)
        except RuntimeError:
            raise EndedError(f"{self._label} is closed", remedy="Open another one.") from None

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, or raise its error."""
        return await self.result(self.begin(call))

    async def result(self, begun: Future[T]) -> T:
        """Return the result of a call that was begun. A cancellation ends the wait only."""
        await self._own_loop.wait(begun)
        return begun.result()

    def begin_close(self, close: Callable[[], None]) -> Future[None] | None:
        """Have the thread execute ``close`` as its last call; None if that was begun before."""
        try:
            closing = self._executor.submit(close)
        except RuntimeError:
            return None
        self._executor.shutdown(wait=False)
        return closing

    async def close(self, close: Callable[[], None]) -> None:
        """Execute ``close`` as the last call of the thread, and wait for it. A second call does nothing."""
        self._own_loop.check()
        closing = self.begin_close(close)
        if closing is not None:
            await self.result(closing)

    def join(self, close: Callable[[], None]) -> None:
        """Execute ``close`` as the last call, and wait until the thread has ended. For another thread."""
        self.begin_close(close)
        self._executor.shutdown(wait=True)
