"""Makes record batches of columns: of a dict of arrays, a pandas DataFrame, or a structured numpy array.

pandas and numpy are not imported: an object can be theirs only if the program has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.errors import DataFormatError
from aeron_spark.rows.gathering import remedy_of_unknown, row_error
from aeron_spark.rows.values import (
    GIVE_SCHEMA,
    NAME,
    UNKNOWN,
    USE_BATCH,
    ValueProblem,
    check_known,
    check_of,
    is_name,
    merged,
    text_of,
    type_of,
)

ADD_ZONE: Final = (
    "Give it a zone: series.dt.tz_localize('UTC') in pandas, pyarrow.compute.assume_timezone(pyarrow.array(x), 'UTC') "
    "for numpy, with write_columns()."
)
NO_INDEX: Final = "Write df.reset_index(), with the index as columns, or df.reset_index(drop=True), without it."


class DataFrame(Protocol):
    """A pandas DataFrame."""

    @property
    def columns(self) -> Any:
        """Its names."""

    @property
    def iloc(self) -> Any:
        """Its values by position."""


class StructuredArray(Protocol):
    """A structured numpy array."""

    @property
    def dtype(self) -> Any:
        """Its fields."""

    @property
    def ndim(self) -> int:
        """The number of dimensions: 1."""


def is_data_frame(data: object) -> bool:
    """Whether it is a pandas DataFrame."""
    return _is_of("pandas", "DataFrame", data)


def is_structured_array(data: Any) -> bool:
    """Whether it is a numpy array of one dimension with named fields."""
    return _is_of("numpy", "ndarray", data) and data.dtype.names is not None and data.ndim == 1


def columns_of_data_frame(frame: Any) -> dict[str, Any]:
    """Return the columns of a DataFrame. Raises DataFormatError for a named index and for names that are not str."""
    names = [name for name in frame.index.names if name is not None]
    if names:
        raise DataFormatError(f"the DataFrame has the index {names[0]!r}, which is not a column", remedy=NO_INDEX)
    found = {}
    for position, name in enumerate(frame.columns):
        if not isinstance(name, str):
            raise DataFormatError(
                f"the DataFrame's column {name!r} has a name that is not a str",
                remedy="Rename it: df.rename(columns=str).",
            )
        if name in found:
            raise DataFormatError(f"the DataFrame has two columns {name!r}", remedy="Rename one of them.")
        found[name] = frame.iloc[:, position]
    return found


def columns_of_structured_array(array: Any) -> dict[str, Any]:
    """Return the fields of a structured numpy array."""
    return {name: array[name] for name in array.dtype.names}


def batch_of_columns(columns: Mapping[str, Any], schema: pa.Schema | None) -> pa.RecordBatch:
    """Return the batch of columns: lists, or arrays of numpy, pandas or PyArrow. Without a schema, their types tell it.

    Raises DataFormatError that names row and column of a value that cannot be stored, and for columns of different
    lengths. A nullable column of the schema can be missing. The batch has no columns if there are no rows.
    """
    if not isinstance(columns, Mapping):
        raise DataFormatError(
            f"a {type(columns).__name__} is not a dict of columns",
            remedy="Write rows, such as a list of dicts, with write().",
        )
    columns = {name: _as_sequence(name, values) for name, values in columns.items()}
    _check_lengths(columns)
    _check_names(columns, schema)
    rows = len(next(iter(columns.values()), ()))
    if not rows:
        return pa.RecordBatch.from_arrays([], names=[])
    if schema is None:
        arrays = {name: _inferred(name, values) for name, values in columns.items()}
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return pa.RecordBatch.from_arrays([_column(field, columns, rows) for field in schema], schema=schema)


def _is_of(module: str, name: str, data: object) -> bool:
    loaded = sys.modules.get(module)
    # Another thread may be importing the module now: then it has no such class yet, and the data is not of it.
    return loaded is not None and isinstance(data, getattr(loaded, name, ()))


def _as_sequence(name: str, values: Any) -> Any:
    if not is_name(name):
        raise DataFormatError(f"the name {name!r} of a column is not {NAME}", remedy="Write a dict with names as keys.")
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise DataFormatError(
            f"the column {name!r} is a {type(values).__name__}, and not a list or an array",
            remedy="Give all columns as lists or arrays of one length.",
        )
    if _is_of("numpy", "ndarray", values) and (values.ndim != 1 or values.dtype.names is not None):
        return values.tolist()
    return values


def _check_names(columns: Mapping[str, Any], schema: pa.Schema | None) -> None:
    for name in columns:
        if schema is not None and name not in schema.names:
            raise DataFormatError(f"the column {name!r} is not in the schema", remedy=remedy_of_unknown(schema))


def _check_lengths(columns: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise DataFormatError(
            f"the columns have different lengths: {text}",
            remedy="Give all columns the same number of values.",
        )


def _column(field: pa.Field[Any], columns: Mapping[str, Any], rows: int) -> pa.Array[Any]:
    """Return a column of the schema."""
    if field.name not in columns:
        if not field.nullable:
            raise DataFormatError(f"the column {field.name!r} is missing, and not nullable", remedy="Add it.")
        nulls: pa.Array[Any] = pa.nulls(rows, field.type)
        return nulls
    values = columns[field.name]
    array = _typed(values)
    if array is None or not (array.type.equals(field.type) or _can_cast(array.type, field.type)):
        return _checked(field, _objects(values))
    if array.null_count and not field.nullable:
        row = _first_true(array.is_null())
        raise row_error(f"row {row}", field.name, ValueProblem("it is null, and not nullable", "Give a value."))
    return array if array.type.equals(field.type) else _cast(field, array)


def _inferred(name: str, values: Any) -> pa.Array[Any]:
    """Return a column whose type the values tell."""
    array: pa.Array[Any] | None = _typed(values)
    if array is None:
        objects = _objects(values)
        kind = _type_of_objects(name, objects)
        return _checked(pa.field(name, kind), objects)
    _check_type(name, array, is_explicit=isinstance(values, pa.Array))
    return array


def _type_of_objects(name: str, values: Sequence[Any]) -> pa.DataType:
    kind: pa.DataType = UNKNOWN
    for row, value in enumerate(values):
        try:
            kind = merged(kind, type_of(value))
        except ValueProblem as problem:
            raise row_error(f"row {row}", name, problem) from None
    _check_known(name, kind, len(values))
    return kind


def _check_type(name: str, array: pa.Array[Any], *, is_explicit: bool) -> None:
    """Raise DataFormatError if the type of the array does not tell that of the column."""
    kind: Any = array.type
    _check_known(name, kind, len(array))
    problem = None
    if pa.types.is_timestamp(kind) and kind.tz is None and not is_explicit:
        problem = ValueProblem("the time has no zone", ADD_ZONE)
    elif pa.types.is_decimal(kind) and not is_explicit:
        problem = ValueProblem("a decimal does not tell the digits that the column needs", GIVE_SCHEMA)
    if problem is not None:
        raise row_error(f"row {_first_true(array.is_valid())}", name, problem)


def _check_known(name: str, kind: pa.DataType, rows: int) -> None:
    try:
        check_known(kind)
    except ValueProblem as problem:
        raise row_error(f"rows 0 to {rows - 1}" if rows > 1 else "row 0", name, problem) from None


def _typed(values: Any) -> Any:
    """Return the Arrow array of values that have one type; None for Python objects."""
    if isinstance(values, pa.Array):
        return values
    dtype = getattr(values, "dtype", None)
    if dtype is None or str(dtype) == "object":
        return None
    if _is_of("numpy", "ndarray", values) and not dtype.isnative:
        values = values.astype(dtype.newbyteorder("="))
    try:
        found: Any = pa.array(values, from_pandas=_is_pandas(values))
    except (pa.ArrowException, TypeError, ValueError):
        return None
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if isinstance(found.type, pa.BaseExtensionType):
        return None
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    return found.cast(pa.string()) if pa.types.is_large_string(found.type) else found


def _objects(values: Any) -> Sequence[Any]:
    """Return values as Python objects; pandas marks missing ones in several ways."""
    if isinstance(values, pa.Array):
        return values.to_pylist()
    if _is_pandas(values):
        return [None if is_missing else value for value, is_missing in zip(values, values.isna(), strict=True)]
    found: Sequence[Any] = values
    return found


def _is_pandas(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "pandas"


def _checked(field: pa.Field[Any], values: Sequence[Any]) -> pa.Array[Any]:
    """Return a column of Python objects."""
    check = check_of(field)
    found = []
    for value in values:
        try:
            found.append(check(value))
        except ValueProblem as problem:
            raise row_error(f"row {len(found)}", field.name, problem) from None
    array: pa.Array[Any] = pa.array(found, field.type)
    return array


def _can_cast(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether PyArrow's cast between the types keeps each value or raises."""
    kinds = (_kind(actual), _kind(wanted))
    return kinds[0] == kinds[1] != "" or kinds in (("int", "float"), ("float", "int"))


def _kind(found: Any) -> str:
    types = pa.types
    if types.is_timestamp(found):
        return "instant" if found.tz is not None else "local time"
    for matches, kind in (
        (types.is_integer, "int"), (types.is_floating, "float"), (types.is_decimal, "decimal"), (types.is_date, "date"),
        (types.is_time, "time"), (types.is_duration, "duration"), (types.is_string, "string"),
        (types.is_large_string, "string"), (types.is_string_view, "string"), (types.is_binary, "binary"),
        (types.is_large_binary, "binary"), (types.is_binary_view, "binary"),
    ):  # fmt: skip
        if matches(found):
            return kind
    return ""


def _cast(field: pa.Field[Any], array: Any) -> pa.Array[Any]:
    """Return the array with the type of the field. Raises DataFormatError with the first row that does not fit."""
    found = _safe_cast(array, field.type)
    if found is not None:
        return found
    begin, end = 0, len(array)  # the first row that does not fit is between them
    while end - begin > 1:
        middle = (begin + end) // 2
        if _safe_cast(array.slice(begin, middle - begin), field.type) is None:
            end = middle
        else:
            begin = middle
    reason = f"{text_of(array[begin].as_py())} does not fit {field.type}"
    raise row_error(f"row {begin}", field.name, ValueProblem(reason, f"Convert it. {USE_BATCH}"))


def _safe_cast(array: Any, kind: pa.DataType) -> pa.Array[Any] | None:
    """Return the array with another type, or None if a value does not fit."""
    try:
        found: pa.Array[Any] = array.cast(kind)
    except pa.ArrowException:
        return None
    if pa.types.is_floating(kind) and pa.types.is_floating(array.type):
        became_infinite: Any = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(array)))
        if pc.any(became_infinite).as_py():
            return None
    return found


def _first_true(mask: Any) -> int:
    """Return the first row that is true in the mask."""
    found: Any = pc.index(mask, True)
    return int(found.as_py())
