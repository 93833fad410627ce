"""A reader that follows a stream in a thread."""

from __future__ import annotations

import threading
from typing import Any, Final

from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.waiting import wait_for

TIMEOUT_S: Final = 120.0


class FollowingReader:
    """A reader in a thread, with the column ``n`` of the rows that it read, and the error that ended it."""

    def __init__(self, client: Client, stream: str, **options: Any) -> None:
        self.reader = client.reader(stream, follow=True, **options)
        self.numbers: list[int] = []
        self.error: AeronSparkError | None = None
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        try:
            for batch in self.reader:
                self.numbers += batch.column("n").to_pylist()
        except AeronSparkError as error:
            self.error = error

    def await_rows(self, count: int) -> None:
        """Wait until the reader has read ``count`` rows."""
        wait_for(lambda: len(self.numbers) >= count, TIMEOUT_S, f"{count} rows", state=lambda: str(self.numbers))

    def stop(self) -> None:
        """Stop the reader, and wait until it has ended; raise the error that ended it before."""
        self.reader.stop()
        self.await_end()
        if self.error is not None:
            raise self.error

    def await_end(self) -> None:
        """Wait until the reader has ended."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"the reader still follows, after {self.numbers}"
