"""How the schema of a stream may change: columns that may be null come, and may be left out. Pure.

Columns are matched by name. A new one has to be nullable, as the rows before do not have it; so has one that the new
data leaves out, as the new rows do not have it. Types stay, but for what makes no difference to a row (as when reading:
``wire.conform``). A column that could not be null stays so.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.arrow import conform


def merge(known: bytes | None, new: bytes) -> bytes:
    """Return the stream's schema after data with the schema ``new``; all three are Arrow IPC schemas.

    That is ``known`` itself where nothing changes. Columns that are new come last. Raises DataFormatError, showing both
    schemas, where the change is not allowed; where ``new`` is no schema.
    """
    given = read_schema(new).remove_metadata()
    _check_names(given)
    if known is None:
        return serialize(given)
    held = read_schema(known)
    for field in held:
        if field.name in given.names:
            _check_column(field, given.field(field.name), held, given)
        elif not field.nullable:
            raise _refused(held, given, f"the column {field.name!r} is missing in the data and not nullable")
    added = [field for field in given if field.name not in held.names]
    for field in added:
        if not field.nullable:
            raise _refused(held, given, f"the new column {field.name!r} is not nullable")
    return serialize(pa.schema([*held, *added])) if added else known


def serialize(schema: pa.Schema) -> bytes:
    """Return the schema as an Arrow IPC message."""
    return schema.serialize().to_pybytes()


def read_schema(data: bytes) -> pa.Schema:
    """Return the schema of an Arrow IPC message. Raises DataFormatError where it is none."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFormatError(
            f"{len(data)} bytes are not an Arrow IPC schema: {error}",
            remedy="Use the same release of aeron-spark on both sides",
        ) from error


def _check_names(schema: pa.Schema) -> None:
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise DataFormatError(
            f"the data names the column {twice[0]!r} more than once:\n{_indented(schema)}\n",
            remedy="Give each column a name of its own",
        )


def _check_column(held: pa.Field[Any], given: pa.Field[Any], known: pa.Schema, new: pa.Schema) -> None:
    if given.nullable and not held.nullable:
        raise _refused(
            known, new, f"the column {held.name!r} was never null in the stream, and is nullable in the data"
        )
    try:
        # What reads the stream conforms each batch to its schema: a type it would refuse is refused here.
        conform(pa.RecordBatch.from_arrays([pa.nulls(0, given.type)], names=[held.name]), pa.schema([held]))
    except DataFormatError:
        raise _refused(known, new, f"the column {held.name!r} is {given.type} and not {held.type}") from None


def _refused(known: pa.Schema, new: pa.Schema, why: str) -> DataFormatError:
    return DataFormatError(
        f"the data's schema does not go with the stream's: {why}\nthe data has:\n{_indented(new)}\nthe stream has:\n"
        f"{_indented(known)}\n",
        remedy="Only nullable columns can be added or left out; cast the data, or write to another stream",
    )


def _indented(schema: pa.Schema) -> str:
    return "\n".join(f"    {field}" for field in schema) or "    (no columns)"
