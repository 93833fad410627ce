"""Random values of the structs that the wire and the files have, by their annotations; and checks of decoded values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any, Final

import msgspec
from msgspec import inspect

_NUMBERS: Final = (0, 1, 2, 3, 31, 32, 64, 127, 255, 1_000, 65_535, 2**31 - 1, 2**40, 2**62)
_TEXTS: Final = (
    "",
    "a",
    "prices",
    "orders.eu",
    "w-1",
    "run-7",
    "0123456789abcdef",
    "archive/1",
    "raw",
    "strict",
    "ü😀",
)
_HIGHEST: Final = 2**64 - 1
_LOWEST: Final = -(2**63)


def random_value(kind: inspect.Type, source: Random, given: Mapping[str, Any] | None = None) -> Any:
    """Return a value of a type of :func:`msgspec.inspect.type_info`; ``given`` makes those of some fields, by name."""
    match kind:
        case inspect.StructType(cls=cls, fields=members):
            known = given or {}
            return cls(**{
                one.name: known[one.name](source) if one.name in known else random_value(one.type, source, known)
                for one in members
                if one.required or source.random() < 0.5
            })  # fmt: skip
        case inspect.UnionType(types=types):
            return random_value(source.choice(types), source, given)
        case inspect.Metadata(type=inner):
            return random_value(inner, source, given)
        case inspect.IntType(ge=low, le=high):
            return min(max(source.choice(_NUMBERS), low or 0), 2**62 if high is None else high)
        case inspect.FloatType():
            return source.choice((0.0, 0.5, 60.0, 3_600.0))
        case inspect.StrType(max_length=length):
            return source.choice(_TEXTS)[:length]
        case inspect.BytesType(min_length=length):
            return source.randbytes(source.choice((0, 1, 8, 40)) if length is None else length)
        case inspect.BoolType():
            return source.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.LiteralType(values=values):
            return source.choice(values)
        case inspect.DictType(key_type=key, value_type=value):
            count = source.randrange(4)
            return {random_value(key, source): random_value(value, source, given) for _ in range(count)}
        case inspect.TupleType(item_types=types):
            return tuple(random_value(one, source, given) for one in types)
        case inspect.VarTupleType(item_type=item):
            return tuple(random_value(item, source, given) for _ in range(source.randrange(4)))
        case inspect.ListType(item_type=item):
            return [random_value(item, source, given) for _ in range(source.randrange(4))]
    raise AssertionError(f"no random value of {kind}")


def find_fault(value: object, *, any_number: bool = False) -> str | None:
    """Return why a decoded value cannot be used, or None.

    Its texts can be encoded. With ``any_number``, its numbers may be any; else they have at most 64 bits, and floats
    are finite, because a decoder has to refuse what cannot be compared and stored.
    """
    if value is None or value is True or value is False or isinstance(value, bytes | bytearray | memoryview):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"the text {value[:80]!r} cannot be encoded"
        return None
    if isinstance(value, int):
        return None if any_number or _LOWEST <= value <= _HIGHEST else f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return None if any_number or math.isfinite(value) else f"the number {value}"
    for part in _parts(value):
        fault = find_fault(part, any_number=any_number)
        if fault is not None:
            return fault
    return None


def _parts(value: object) -> Any:
    if isinstance(value, Mapping):
        return (*value, *value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return (getattr(value, name) for name in value.__struct_fields__)
    if is_dataclass(value):
        return (getattr(value, one.name) for one in fields(value))
    return ()
