"""The bounds that the fields of a request's class have: of each value, and of the encoded request."""

from __future__ import annotations

from typing import Any, Final

from msgspec import inspect

_NUMBER: Final = 9  # longest encoding of a number, of a boolean and of None: a byte for the type, at most 8 of value
_LENGTH: Final = 5  # longest head of a text, of bytes, of an array and of a map
_CHARACTER: Final = 4  # bytes of a character, at most


def bounds_of(request: type) -> tuple[tuple[str, Any, Any, int | None], ...]:
    """Return the fields of a request that have bounds: the name, the lowest, the highest and the longest value."""
    info = inspect.type_info(request)
    assert isinstance(info, inspect.StructType)
    found = []
    for field in info.fields:
        for kind in field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,):
            high, longest = getattr(kind, "le", None), getattr(kind, "max_length", None)
            if high is not None or longest is not None:
                found.append((field.name, getattr(kind, "ge", None), high, longest))
    return tuple(found)


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
        case inspect.StructType(fields=fields, tag_field=str(tag_field), tag=str(tag)):
            longest_tag = 2 * _LENGTH + len(tag_field) + len(tag)
            return _LENGTH + longest_tag + sum(_LENGTH + len(field.name) + _longest(field.type) for field in fields)
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType() | inspect.NoneType():
            return _NUMBER
        case _:
            raise TypeError(f"{kind} has no bound")
