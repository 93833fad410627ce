"""The bounds of the fields of requests: the types with them, the fields of a class, and its longest encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import inspect

from aeron_spark.errors import UsageError

MAX_PARTITIONS: Final = 10_000  # of a stream: responses about positions have a number for each
MAX_SCHEMA_BYTES: Final = 2 << 20  # of Arrow IPC: it takes 0.1 s to look at, with some 28,000 columns

# Each text, number and list of a request has one of these bounds, which the decoder checks: a client must not make the
# server store, compare or report more. No request has a map: a client could choose keys that collide, and a map with
# n such keys costs n² steps. A longer value of the right kind gets its own error from the module that it concerns.
StreamName = Annotated[str, msgspec.Meta(max_length=128)]
Id = Annotated[str, msgspec.Meta(max_length=255)]  # of a writer, run, producer, reader or stage
Word = Annotated[str, msgspec.Meta(max_length=32)]  # one of a few
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Schema = Annotated[bytes, msgspec.Meta(max_length=MAX_SCHEMA_BYTES)]
Positions = Annotated[tuple[tuple[Int64, Int64], ...], msgspec.Meta(max_length=MAX_PARTITIONS)]
"""Pairs of a partition and a position in it."""

MAX_PARTS: Final = 1 << 16  # of a transaction; the server has at most so many stages of a key
Token = Annotated[str, msgspec.Meta(max_length=4_096)]
Stamp = Annotated[str, msgspec.Meta(max_length=4_096)]
Epoch = Annotated[int, msgspec.Meta(ge=0)]  # 64 bits
Items = Annotated[bytes, msgspec.Meta(max_length=16 << 20)]
MAX_TOKEN_BYTES: Final = 1_024  # of UTF-8; the journal has one token for each producer of each writer

_NUMBER: Final = 9  # longest encoding of a number, of a boolean and of None: a byte for the type, at most 8 of value
_LENGTH: Final = 5  # longest head of a text, of bytes, of an array and of a map
_CHARACTER: Final = 4  # bytes of a character, at most


Bound = tuple[str, Callable[[Any], Any], Any, Any, int | None]
"""The name of a field, the function that returns its value in a request, and the lowest, highest and longest value."""


@cache
def bounds_of(request: type) -> tuple[Bound, ...]:
    """Return the fields of a request that have bounds, also those of a struct in it."""
    return tuple(_bounds_in(inspect.type_info(request), ""))


def _bounds_in(info: inspect.Type, path: str) -> Iterator[Bound]:
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        for kind in field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,):
            if isinstance(kind, inspect.StructType):
                yield from _bounds_in(kind, f"{path}{field.name}.")
                continue
            high, longest = getattr(kind, "le", None), getattr(kind, "max_length", None)
            if high is not None or longest is not None:
                yield field.name, attrgetter(path + field.name), getattr(kind, "ge", None), high, longest


@cache
def longest_encoding(request: type) -> int:
    """Return the number of bytes that no encoded request of this class exceeds, from the bounds of its fields.

    Source: the formats of the MessagePack specification. Raises TypeError for a class with a field that has no bound.
    """
    return _longest(inspect.type_info(request))


def _longest(kind: inspect.Type) -> int:
    match kind:
        case inspect.StrType(max_length=int(length)):
            return _LENGTH + _CHARACTER * length
        case inspect.BytesType(max_length=int(length)):
            return _LENGTH + length
        case inspect.VarTupleType(item_type=item, max_length=int(length)):
            return _LENGTH + length * _longest(item)
        case inspect.TupleType(item_types=items):
            return _LENGTH + sum(map(_longest, items))
        case inspect.UnionType(types=types):
            return max(map(_longest, types))
        case inspect.StructType(fields=fields, tag_field=tag_field, tag=tag):
            longest_tag = 2 * _LENGTH + len(tag_field) + len(str(tag)) if tag_field is not None else 0
            return _LENGTH + longest_tag + sum(_LENGTH + len(field.name) + _longest(field.type) for field in fields)
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType() | inspect.NoneType():
            return _NUMBER
        case _:
            raise TypeError(f"{kind} has no bound")


def check_token(writer: str, transaction: int, token: str) -> None:
    """Raise UsageError for a token that is not text, or too long."""
    try:
        size = len(token.encode())
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(
            f"the token of transaction {transaction} of writer {writer!r} is {token!r}, expected text of valid Unicode",
            remedy="Give a str, for example a number as str(number).",
        ) from None
    if size > MAX_TOKEN_BYTES:
        raise UsageError(
            f"the token of transaction {transaction} of writer {writer!r} has {size} bytes of UTF-8, expected at most "
            f"{MAX_TOKEN_BYTES}",
            remedy="Give a shorter token.",
        )
