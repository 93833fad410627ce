"""The bounds that the fields of a request's class have: of each value, and of the encoded request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final

from msgspec import inspect

_NUMBER: Final = 9  # longest encoding of a number, of a boolean and of None: a byte for the type, at most 8 of value
_LENGTH: Final = 5  # longest head of a text, of bytes, of an array and of a map
_CHARACTER: Final = 4  # bytes of a character, at most


Bound = tuple[str, Callable[[Any], Any], Any, Any, int | None]
"""The name of a field, the function that returns its value in a request, and the lowest, highest and longest value."""


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
