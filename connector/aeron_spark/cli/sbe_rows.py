"""The rows of ``send`` and ``receive`` with ``--payload sbe``, the same on both routes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from aeron_spark.aeron.jvm import cluster_schema
from aeron_spark.cli.formats import display_name, format_of
from aeron_spark.cli.inputs import Input, InputReader, PlainReader, line_blocks, read_input
from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.log.sbe_rows import SbeBatches
from aeron_spark.options import ReadOptions, SbeFormatOptions, SbeOptions
from aeron_spark.rows.gathering import Row, numbered_rows_of_json, row_error
from aeron_spark.rows.values import Check, ValueProblem, check_of
from aeron_spark.sbe.encoding import EncodePlan, SbeEncoder, encode_plan, may_be_null, row_of
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.table import MessageColumns

_REQUIRED: Final = ValueProblem("it is NULL or missing, and the field is required", "Give a value.")


def reader_of(payload: str, sbe: SbeFormatOptions | None) -> tuple[InputReader, str]:
    """Return the reader of the input for a payload, and the payload of what it reads.

    Raises OptionError and DataFormatError for a wrong schema or message of payload ``sbe``.
    """
    if payload != "sbe":
        return PlainReader(payload), payload
    assert sbe is not None  # the options have been parsed
    return SbeReader(sbe), "raw"


class SbeReader:
    """Reads rows of one message type, and encodes each as a message: the column ``value`` of its batches."""

    def __init__(self, options: SbeFormatOptions) -> None:
        source = options.sbe_schema
        assert source is not None  # the options have checked it
        self._columns = MessageColumns(load_schema(source), options.sbe_settings())
        self._columns.check_names()
        self._plan = encode_plan(self._columns, self._columns.arrow_schema)
        if not self._columns.columns:
            raise OptionError(
                f"the {self._plan.label}, has no fields, and rows have at least one column",
                remedy="Choose another message.",
            )

    def read(self, name: str, form: str | None, stopped: Callable[[], bool]) -> Iterator[Input]:
        """Yield the messages of a file. Raises DataFormatError with the line or row, and the column, of a wrong value.

        Raises OptionError for columns of a Parquet or Arrow file that the message cannot have.
        """
        found = format_of(name, form, "json")
        if found == "json":
            yield from self._json(name, stopped)
            return
        encoder: SbeEncoder | None = None
        for batch in read_input(name, found, None, stopped):
            if encoder is None:
                encoder = SbeEncoder(encode_plan(self._columns, batch.rows.schema), row_of(display_name(name)))
            yield from _messages(encoder, batch.rows, batch.size)

    def _json(self, name: str, stopped: Callable[[], bool]) -> Iterator[Input]:
        rows = _JsonRows(self._columns.arrow_schema, self._plan, display_name(name))
        encoder = SbeEncoder(self._plan, rows.name_row)
        with line_blocks(name, stopped) as blocks:
            for block in blocks:
                batch = rows.batch(block)
                if batch.num_rows:
                    yield from _messages(encoder, batch, len(block))


class _JsonRows:
    """Parses blocks of JSON lines to rows with the types of a message's columns."""

    def __init__(self, schema: pa.Schema, plan: EncodePlan, source: str) -> None:
        self._schema = schema
        self._source = source
        self._label = plan.label
        required = {field.name for field in plan.block.fields if not may_be_null(field.values, field.type)}
        self._checks: dict[str, Check] = {
            field.name: check_of(field.with_nullable(field.name not in required)) for field in schema
        }
        self._next_line = 1
        self._first_row = 0  # number of the first row of the last batch
        self._lines: list[int] = []  # of the rows of the last batch

    def name_row(self, number: int) -> str:
        """Return the name of a row of the last batch, by its number over all batches."""
        return self._name_line(self._lines[number - self._first_row])

    def batch(self, block: bytes) -> pa.RecordBatch:
        """Return the rows of the next block. Raises DataFormatError with the line and the column of a wrong value."""
        self._first_row += len(self._lines)
        self._lines = []
        values: dict[str, list[object]] = {name: [] for name in self._checks}
        for line, row in self._parsed(block):
            self._lines.append(line)
            self._refuse_unknown(row, line)
            for name, check in self._checks.items():
                try:
                    values[name].append(check(row.get(name)))
                except ValueProblem as problem:
                    found = problem if row.get(name) is not None else _REQUIRED
                    raise row_error(self._name_line(line), name, found) from None
        self._next_line += block.count(b"\n")
        arrays = [pa.array(values[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _parsed(self, block: bytes) -> Iterator[tuple[int, Row]]:
        try:
            yield from numbered_rows_of_json(block.split(b"\n"), self._schema, self._next_line)
        except DataFormatError as error:
            raise DataFormatError(f"{self._source}: {error.what}", remedy=error.remedy) from None

    def _refuse_unknown(self, row: Row, line: int) -> None:
        for name in row:
            if name not in self._checks:
                close = difflib.get_close_matches(name, self._checks, n=1)
                raise DataFormatError(
                    f"{self._name_line(line)} has the column {name!r}, which the {self._label} does not have",
                    remedy=f"Did you mean {close[0]!r}?" if close else "Rename it, or remove it.",
                )

    def _name_line(self, line: int) -> str:
        return f"line {line} of {self._source}"


def _messages(encoder: SbeEncoder, rows: pa.RecordBatch, size: int) -> Iterator[Input]:
    for messages in encoder.encode(rows):
        yield Input(pa.RecordBatch.from_arrays([messages], ["value"]), size)
        size = 0  # a batch of many bytes becomes several arrays


class SbeReceiver:
    """Decodes received batches. Raises OptionError and DataFormatError for a wrong option or schema at its creation."""

    def __init__(self, options: SbeOptions, *, metadata: bool) -> None:
        has_events = isinstance(options, ReadOptions) and options.cluster_events
        source = cluster_schema() if has_events else options.sbe_schema
        assert source is not None  # the options have checked it
        columns = MessageColumns(load_schema(source), options.reader_settings(metadata=metadata))
        table = columns.table()
        self.schema: pa.Schema = table.schema
        self._batches = SbeBatches(table, "the stream", has_metadata=metadata)

    def decoded(self, batches: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of batches, as rows of columns. Raises DataFormatError as the options say."""
        for payload, batch in batches:
            if payload == "arrow":
                raise DataFormatError(
                    "the stream has Arrow batches, expected SBE messages", remedy="Leave out --payload sbe."
                )
            for rows in self._batches.decode(batch):
                yield "arrow", rows
        self._batches.report()
