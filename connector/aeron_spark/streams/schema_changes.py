"""Merges the schema of new data into the schema of a stream. Pure.

Columns are matched by name. A new column must be nullable, because earlier rows do not have it. A column that the new
data leaves out must be nullable, because the new rows do not have it. A type may change only if ``wire.arrow.conform``
accepts it. A column that is not nullable stays so. Names that differ only in upper and lower case are refused, because
Spark and Delta Lake take them for one name; streams of earlier releases that have such columns keep them.

The schema policy of the stream says who may add columns. With ``additive`` each writer may. With ``strict`` the first
transaction fixes the schema, and only a writer that requests it and has the grant "manage" may add columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.streams.definition import ADDITIVE
from aeron_spark.wire.arrow import conform, indented
from aeron_spark.wire.foreign_arrow import count_fields, has_more_fields, read_schema


class Evolution(Enum):
    """Whether a writer may add columns to a strict schema."""

    NOT_REQUESTED = "not requested"
    NOT_PERMITTED = "not permitted"
    """It requested that, and its key does not have the grant "manage"."""
    PERMITTED = "permitted"

    @classmethod
    def of(cls, is_requested: bool, is_permitted: bool) -> Evolution:
        """Return the member for a writer's request, and what its key is granted."""
        if not is_requested:
            return cls.NOT_REQUESTED
        return cls.PERMITTED if is_permitted else cls.NOT_PERMITTED


def check_fields(known: bytes | None, new: bytes | None, limit: int) -> None:
    """Raise RefusedError, reason "limit", if a schema has more than ``limit`` fields and more than the stream has.

    All columns and all fields in them count; a ``limit`` of 0 is none. The caller checks the schema of a request before
    it takes a lock, because the cost of the other operations rises with the number of fields.
    """
    if new is None or new == known or not limit:
        return
    if not has_more_fields(new, limit):
        return
    if known is None or has_more_fields(new, count_fields(read_schema(known))):
        raise RefusedError(
            f"the schema has more columns, with the fields in them, than the limit of {limit} (maxColumns)",
            remedy="Use fewer columns, or ask the server's operator to raise the limit.",
            reason="limit",
        )


def evolve(known: bytes | None, new: bytes, policy: str, evolution: Evolution) -> bytes:
    """Return the schema as :func:`merge`. Raises RefusedError, reason "schema", if the policy refuses new columns."""
    merged = merge(known, new)
    if known is None or merged is known or policy == ADDITIVE or evolution is Evolution.PERMITTED:
        return merged
    known_schema, new_schema = read_schema(known), read_schema(new)
    known_names = set(known_schema.names)
    added = [name for name in new_schema.names if name not in known_names]
    is_requested = evolution is Evolution.NOT_PERMITTED
    grant = ", and your key does not have the grant manage, which evolveSchema needs" if is_requested else ""
    raise RefusedError(
        f"the data adds the columns {', '.join(map(repr, added))}, but the stream's schema is strict{grant}"
        f"{_both_schemas(known_schema, new_schema)}",
        remedy="Leave these columns out. Or add them under a key with the grant manage and with evolveSchema=true (in "
        "Python evolve_schema=True). Or ask the operator for the schema policy additive (aeron-spark streams alter).",
        reason="schema",
    )


def merge(known: bytes | None, new: bytes) -> bytes:
    """Return the schema of a stream with schema ``known`` after data with schema ``new``; all are Arrow IPC schemas.

    Returns ``known`` itself if nothing changes. New columns are last. Raises DataFormatError for a change that is not
    allowed, with both schemas in its text, and for bytes that are not a schema.
    """
    if known is not None and new == known:  # as in most transactions: to compare ten columns takes 0.15 ms
        return known
    new_schema = read_schema(new).remove_metadata()
    _check_names(new_schema)
    if known is None:
        _check_case(list(new_schema))
        return serialize(new_schema)
    known_schema = read_schema(known)
    new_fields = {field.name: field for field in new_schema}
    for field in known_schema:
        if field.name in new_fields:
            _check_column(field, new_fields.pop(field.name), known_schema, new_schema)
        elif not field.nullable:
            raise _change_error(
                known_schema, new_schema, f"the column {field.name!r} is missing in the data and not nullable"
            )
    added = list(new_fields.values())
    for field in added:
        if not field.nullable:
            raise _change_error(known_schema, new_schema, f"the new column {field.name!r} is not nullable")
    _check_case(added, known_schema)
    return serialize(pa.schema([*known_schema, *added])) if added else known


def serialize(schema: pa.Schema) -> bytes:
    """Return the schema as an Arrow IPC message."""
    return schema.serialize().to_pybytes()


def _check_names(schema: pa.Schema) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise DataFormatError(
                f"the data has more than one column {name!r}:\n{indented(schema)}\n",
                remedy="Give each column its own name.",
            )
        seen.add(name)


def _check_case(added: Sequence[pa.Field[Any]], known: Sequence[pa.Field[Any]] | pa.Schema = ()) -> None:
    """Raise DataFormatError if an added field has the name of another one in other letters, at any depth."""
    taken = {field.name.lower(): field.name for field in known}
    for field in added:
        other = taken.get(field.name.lower())
        if other is not None:
            raise DataFormatError(
                f"the columns {other!r} and {field.name!r} differ only in upper and lower case, and Spark and Delta "
                "Lake take them for one column",
                remedy="Rename one of them.",
            )
        taken[field.name.lower()] = field.name
        _check_case(_children(field.type))


def _children(kind: pa.DataType) -> list[pa.Field[Any]]:
    """Return the fields of a nested type: its own, or those of its elements."""
    return [kind.field(number) for number in range(kind.num_fields)]


def _check_column(known_field: pa.Field[Any], new_field: pa.Field[Any], known: pa.Schema, new: pa.Schema) -> None:
    name = known_field.name
    if new_field.nullable and not known_field.nullable:
        raise _change_error(known, new, f"the column {name!r} is nullable in the data, but not in the stream")
    try:
        # A reader conforms each record batch to the stream's schema: a type that conform() refuses is refused here.
        conform(pa.RecordBatch.from_arrays([pa.nulls(0, new_field.type)], names=[name]), pa.schema([known_field]))
    except DataFormatError:
        raise _change_error(
            known, new, f"the column {name!r} is {new_field.type}, expected {known_field.type}"
        ) from None


def _change_error(known: pa.Schema, new: pa.Schema, why: str) -> DataFormatError:
    return DataFormatError(
        f"the data's schema does not fit the stream's: {why}{_both_schemas(known, new)}",
        remedy="Add or leave out only nullable columns: cast the data, or write to another stream.",
    )


def _both_schemas(known: pa.Schema, new: pa.Schema) -> str:
    return f"\nthe data has:\n{indented(new)}\nthe stream has:\n{indented(known)}\n"
