"""What two sides think a type looks like, small enough to exchange when they connect, and where they differ.

A field's digest is taken from the JSON schema that msgspec derives, without titles and descriptions and with references
written out: two classes of different names and documentation are one type if the same bytes mean the same in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect

from aeron_spark.errors import DataFormatError

FIELD_DIGEST_BYTES: Final = 8  # tells accidents apart; nothing secret depends on it
MAX_SUMMARIES: Final = 4096  # of one side
_NOTES: Final = {"title", "description", "examples"}  # parts of a schema that change no byte
_FORESEEABLE: Final = "keys of dicts and entries of sets must be str or bytes, whose hashes a peer cannot foresee"


class TypeSummary(msgspec.Struct, frozen=True, array_like=True):
    """A registered type as the other side needs to know it: its id, and a digest a field."""

    id: int
    name: str
    fields: dict[str, bytes]


_SUMMARIES: Final = msgspec.msgpack.Decoder(list[TypeSummary])


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which two sides' types differ. ``field`` is empty if it is the type as a whole."""

    type_id: int
    type_name: str
    field: str
    what: str

    def __str__(self) -> str:
        place = f"{self.type_name}.{self.field}" if self.field else self.type_name
        return f"type {self.type_id} ({place}): {self.what}"


def summarise(type_id: int, cls: type) -> TypeSummary:
    """Return what is told of ``cls`` to the other side."""
    (schema,), definitions = msgspec.json.schema_components([cls], ref_template="{name}")
    whole = definitions.get(schema.get("$ref", ""), schema)
    required = set(whole.get("required", ()))
    fields: dict[str, Any] = {
        name: [field, name in required] for name, field in dict(whole.get("properties", {})).items()
    }
    for place, field in enumerate(whole.get("prefixItems", ())):
        fields[str(place)] = [field, place < whole.get("minItems", 0)]
    return TypeSummary(
        type_id, cls.__name__, {name: _digest(_canonical(field, definitions, ())) for name, field in fields.items()}
    )


def encode_summary(summary: Iterable[TypeSummary]) -> bytes:
    """Return the summary as bytes, the same for the same types."""
    return msgspec.msgpack.encode(sorted(summary, key=lambda one: one.id), order="deterministic")


def decode_summary(data: bytes | memoryview) -> tuple[TypeSummary, ...]:
    """Read what the other side's ``encode_summary`` wrote. Raises DataFormatError."""
    try:
        summary = _SUMMARIES.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"the other side's list of types cannot be read: {error}", remedy="Use the same release on both sides"
        ) from None
    if len(summary) > MAX_SUMMARIES:
        raise DataFormatError(
            f"the other side has {len(summary)} types, more than {MAX_SUMMARIES}", remedy="Register fewer types"
        )
    return tuple(summary)


def differences(mine: Iterable[TypeSummary], theirs: Iterable[TypeSummary]) -> tuple[Difference, ...]:
    """Name each type, and field of a type, that the two sides do not have in common, by id and name."""
    ours = {one.id: one for one in mine}
    others = {one.id: one for one in theirs}
    found = []
    for type_id in sorted(ours.keys() | others.keys()):
        one, other = ours.get(type_id), others.get(type_id)
        if one is None or other is None:
            where = "there" if one is None else "here"
            found.append(Difference(type_id, (one or other or _NOBODY).name, "", f"is registered only {where}"))
        else:
            found += _field_differences(one, other)
    return tuple(found)


_NOBODY: Final = TypeSummary(0, "", {})


def _field_differences(mine: TypeSummary, theirs: TypeSummary) -> Iterator[Difference]:
    for field in sorted(mine.fields.keys() | theirs.fields.keys()):
        here, there = mine.fields.get(field), theirs.fields.get(field)
        if here == there:
            continue
        if here is None or there is None:
            what = f"the field exists only {'there' if here is None else 'here'}"
        else:
            what = "the field has another type, default or obligation there"
        yield Difference(mine.id, mine.name, field, what)


def fault_of_type(cls: type) -> str:
    """Return why objects of ``cls`` cannot be messages, or the empty string.

    In the second case msgspec has built all that it needs to decode ``cls``, so that any thread may. Until then no
    other thread may use ``cls`` with msgspec, or call this for a class with a field in common: the process would crash.
    """
    try:
        msgspec.msgpack.Decoder(cls)
        msgspec.json.schema(cls)
        described = inspect.type_info(cls)
    except (TypeError, NameError, AttributeError) as error:
        return str(error).splitlines()[0]
    if not isinstance(described, inspect.StructType | inspect.DataclassType):
        return "only msgspec.Struct classes and dataclasses can be registered"
    pending: list[inspect.Type] = [described]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for foreseeable in _hashed_by(one):
            if not _is_unforeseeable(foreseeable):
                return _FORESEEABLE
        pending += _within(one)
    return ""


def _hashed_by(one: inspect.Type) -> list[inspect.Type]:
    if isinstance(one, inspect.DictType):
        return [one.key_type]
    return [one.item_type] if isinstance(one, inspect.SetType | inspect.FrozenSetType) else []


def _is_unforeseeable(key: inspect.Type) -> bool:
    if isinstance(key, inspect.LiteralType):
        return all(isinstance(value, str) for value in key.values)
    if isinstance(key, inspect.EnumType):
        return all(isinstance(member.value, str) for member in key.cls)
    return isinstance(key, inspect.StrType | inspect.BytesType)


def _within(one: inspect.Type) -> list[inspect.Type]:
    if isinstance(one, inspect.UnionType):
        return list(one.types)
    if isinstance(one, inspect.TupleType):
        return list(one.item_types)
    if isinstance(one, inspect.DictType):
        return [one.value_type]
    if isinstance(one, inspect.Metadata):
        return [one.type]
    if isinstance(one, inspect.ListType | inspect.VarTupleType):
        return [one.item_type]
    fields = getattr(one, "fields", ())  # structs, dataclasses, named tuples, typed dicts
    return [field.type for field in fields]


def _canonical(schema: Any, definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    """``schema`` without notes; a reference is what it refers to, or how far up what it refers to began."""
    if isinstance(schema, list | tuple):
        return [_canonical(part, definitions, within) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref")
    if isinstance(name, str):
        if name in within:
            return {"$up": within[::-1].index(name)}
        return _canonical(definitions[name], definitions, (*within, name))
    # below "properties" the keys are fields' names: one may be called "title"
    return {
        key: (
            {field: _canonical(part, definitions, within) for field, part in value.items()}
            if key == "properties"
            else _canonical(value, definitions, within)
        )
        for key, value in schema.items()
        if key not in _NOTES
    }


def _digest(value: Any) -> bytes:
    text = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(text).digest()[:FIELD_DIGEST_BYTES]
