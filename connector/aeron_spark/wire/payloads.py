"""A stream holds one payload: the error for rows of another one."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.texts import nearest
from aeron_spark.wire.foreign_arrow import read_schema

VALUE: Final = "value"
_MAX_SHOWN = 10  # columns in an error
_MAX_COMPARED = 100  # columns; a peer may send many, with long names
_MAX_NAME = 64  # characters


def other_payload(stream: str, held: str, given: str, schema: pa.Schema | bytes | None = None) -> DataFormatError:
    """Return the error for rows with the payload ``given``, written into a stream that holds ``held``.

    ``schema`` is that of ``arrow`` rows, also as bytes of Arrow IPC. A column with nearly the name ``value`` is named.
    """
    names = _names(schema)
    shown = ", ".join([*names[:_MAX_SHOWN], *(["..."] if names[_MAX_SHOWN:] else [])])
    columns = f", with the columns {shown}" if names else ""
    return DataFormatError(
        f"{stream} has {held} rows, and the new rows are {given}{columns}", remedy=_remedy(held, given, names)
    )


def _names(schema: pa.Schema | bytes | None) -> list[str]:
    if isinstance(schema, bytes):
        schema = read_schema(schema)
    return [] if schema is None else [name[:_MAX_NAME] for name in schema.names[:_MAX_COMPARED]]


def _remedy(held: str, given: str, names: list[str]) -> str:
    if given != "arrow" or not names:
        return f"Write with payload={held}, or to another stream."
    if VALUE in names:
        return f"Select only the column '{VALUE}' and write with payload={held}, or write to another stream."
    close = nearest(VALUE, names)
    if close:
        return f"Did you mean {VALUE!r} in place of {close!r}? Rename it, or write to another stream."
    return f"Write a column '{VALUE}' with payload={held}, or write to another stream."
