"""A range of a recording that somebody sends, as a source of messages; see :mod:`aeron_spark.aeron.drain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jpype

from aeron_spark.aeron.exceptions import describe
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import DataFormatError, TransportError

MOST: Final = 1 << 20  # bytes of a piece


class ReceivedRange:
    """``[start, end)`` of a recording: ``next_piece`` gives its bytes in order, cut anywhere, and waits for them.

    ``name`` is what errors call the recording. Messages are those whose frames are whole and undamaged; a frame that
    is not raises DataFormatError, naming its position.
    """

    def __init__(self, name: str, start: int, end: int, next_piece: Callable[[], memoryview]) -> None:
        self.end = end
        self.received = start  # stream position behind what has come
        self._name = name
        self._next_piece = next_piece
        self._java = jclass("io.aeronspark.ReceivedLog")(MOST, start)
        self._memory = memoryview(self._java.memory()).cast("B")

    @property
    def more(self) -> bool:
        """Whether the range goes on."""
        return int(self._java.position()) < self.end

    def fill(self, helper: Any) -> bool:
        """Move what has come into the helper's memory, and wait for more where that was all; whether it is full."""
        try:
            if bool(helper.drain(self._java, self.end)):
                return True
        except jpype.JException as error:
            raise DataFormatError(
                f"{self._name} is damaged on its server's disk: {describe(error)}",
                remedy="Restore the archive's files from a copy, or read from a later position.",
            ) from error
        if self.more:
            piece = self._next_piece()
            if piece.nbytes > MOST:
                raise TransportError(f"a piece of {self._name} has {piece.nbytes} bytes, and {MOST} are the most")
            at = int(self._java.next())
            self._memory[at : at + piece.nbytes] = piece
            self._java.added(piece.nbytes)
            self.received += piece.nbytes
        return False

    def consumed(self) -> None:
        """Nothing waits here: the sender is held up by its branch."""
