"""The loops of ``send`` and ``receive`` over rows, which are the same on both routes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from aeron_spark.cli.formats import total_size
from aeron_spark.cli.inputs import InputReader
from aeron_spark.cli.output import progress
from aeron_spark.cli.outputs import Output
from aeron_spark.cli.signals import StopRequest


class RowTarget(Protocol):
    """Takes the rows that ``send`` reads."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take a batch of rows, or of messages."""

    def end_file(self) -> None:
        """Take the end of a file. Not called for a file whose input a signal ended."""

    def finish(self) -> None:
        """Wait until all rows are acknowledged. Called also if a signal ended the input early."""


def send_files(
    sources: Sequence[str], form: str | None, reader: InputReader, target: RowTarget, stopped: StopRequest
) -> None:
    """Write the rows of the files ``sources`` to ``target``. After a signal, it reads no further input."""
    with progress("sending", total_size(sources)) as advance:
        for name in sources:
            for batch in reader.read(name, form, stopped):
                target.write(batch.rows)
                advance(batch.rows.num_rows, batch.size)
            if stopped():
                break
            target.end_file()
        target.finish()


class RowReceiver:
    """Writes received batches to an output, at most ``count`` rows, until a signal comes.

    ``rows`` counts the written rows; ``interrupted``: whether a signal came after a batch.
    """

    def __init__(self, out: Output, count: int | None, stopped: StopRequest) -> None:
        self.rows = 0
        self.interrupted = False
        self._out = out
        self._count = count
        self._stopped = stopped

    def write_all(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> bool:
        """Write batches, each with its payload. Return whether they ended before ``count`` rows and before a signal."""
        with progress("receiving", None) as advance:
            for payload, batch in batches:
                part = batch if self._count is None else batch.slice(0, self._count - self.rows)
                self._out.write(payload, part)
                self.rows += part.num_rows
                advance(part.num_rows, part.nbytes)
                self.interrupted = self._stopped()
                if self.interrupted or self.rows == self._count:
                    return False
        return True
