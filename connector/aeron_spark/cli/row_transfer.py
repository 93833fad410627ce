"""The loops of ``send`` and ``receive`` over rows, which are the same on both routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.cli.formats import display_name, total_size
from aeron_spark.cli.inputs import Input, InputReader
from aeron_spark.cli.output import progress
from aeron_spark.cli.outputs import VALUE, Output
from aeron_spark.cli.signals import StopRequest
from aeron_spark.errors import TOO_LONG, AeronSparkError


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
    longest = _LongestValue()
    with progress("sending", total_size(sources)) as advance, longest.in_errors():
        for name in sources:
            rows = 0
            for batch in reader.read(name, form, stopped):
                longest.note(batch, name, rows)
                target.write(batch.rows)
                rows += batch.rows.num_rows
                advance(batch.rows.num_rows, batch.size)
            if stopped():
                break
            target.end_file()
            longest.reset()
        target.finish()


class _LongestValue:
    """The longest value of a file, which is the one of an error about a value that is too long."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the values of a file."""
        self._bytes = -1
        self._place = ""

    def note(self, batch: Input, name: str, first_row: int) -> None:
        """Note the values of a batch of the file ``name``, whose first row has the number ``first_row``, from 0."""
        if VALUE not in batch.rows.schema.names:
            return
        values: Any = batch.rows.column(VALUE)
        if not any(one(values.type) for one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string)):
            return
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py()
        if longest is not None and longest > self._bytes:
            index = pc.index(lengths, longest).as_py()
            self._bytes = longest
            place = f"row {first_row + index + 1}" if batch.line_of is None else f"line {batch.line_of(index)}"
            self._place = f"{place} of {display_name(name)}"

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Add the line of the longest value to an error of the block about a value that is too long."""
        try:
            yield
        except AeronSparkError as error:
            if error.reason != TOO_LONG or not self._place:
                raise
            raise error.with_what(f"{self._place}: {error.what}") from error


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
