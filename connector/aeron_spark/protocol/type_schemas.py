"""Summarises message types for the handshake, and finds differences between the types of two endpoints.

The digest of a field is computed from the JSON schema that msgspec derives, without titles and descriptions, and with
resolved references. Two classes with different names and documentation have equal digests if they decode the same bytes
in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect

from aeron_spark.errors import DataFormatError

FIELD_DIGEST_BYTES: Final = 8  # detects accidental differences; not a security measure
MAX_SUMMARIES: Final = 4096  # of one endpoint
_NOTES: Final = {"title", "description", "examples"}  # parts of a schema that do not affect the encoding
_PREDICTABLE: Final = "keys of dicts and entries of sets must be str or bytes, whose hashes a peer cannot predict"


class TypeSummary(msgspec.Struct, frozen=True, array_like=True):
    """A registered type: its id, its name, and the digests of its fields by name."""

    id: int
    name: str
    fields: dict[str, bytes]


_SUMMARIES: Final = msgspec.msgpack.Decoder(list[TypeSummary])


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the types of two endpoints. ``field`` is empty if it concerns the whole type."""

    type_id: int
    type_name: str
    field: str
    text: str

    def __str__(self) -> str:
        name = f"{self.type_name}.{self.field}" if self.field else self.type_name
        return f"type {self.type_id} ({name}): {self.text}"


def summarise(type_id: int, cls: type) -> TypeSummary:
    """Return the summary of ``cls``."""
    (schema,), definitions = msgspec.json.schema_components([cls], ref_template="{name}")
    resolved = definitions.get(schema.get("$ref", ""), schema)
    required = set(resolved.get("required", ()))
    fields: dict[str, Any] = {
        name: [field, name in required] for name, field in dict(resolved.get("properties", {})).items()
    }
    for index, field in enumerate(resolved.get("prefixItems", ())):
        fields[str(index)] = [field, index < resolved.get("minItems", 0)]
    return TypeSummary(
        type_id, cls.__name__, {name: _digest(_canonical(field, definitions, ())) for name, field in fields.items()}
    )


def encode_summary(summary: Iterable[TypeSummary]) -> bytes:
    """Encode summaries. Equal types have equal bytes."""
    return msgspec.msgpack.encode(sorted(summary, key=lambda item: item.id), order="deterministic")


def decode_summary(data: bytes | memoryview) -> tuple[TypeSummary, ...]:
    """Decode the summaries of the peer. Raises DataFormatError."""
    try:
        summary = _SUMMARIES.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"the peer's list of message types is invalid: {error}",
            remedy="Use the same release of aeron-spark at both ends.",
        ) from None
    if len(summary) > MAX_SUMMARIES:
        raise DataFormatError(
            f"the peer has {len(summary)} message types, and the limit is {MAX_SUMMARIES}",
            remedy="Register fewer types.",
        )
    return tuple(summary)


def differences(mine: Iterable[TypeSummary], theirs: Iterable[TypeSummary]) -> tuple[Difference, ...]:
    """Return the types and fields that differ between the two endpoints, by id and name."""
    local = {summary.id: summary for summary in mine}
    remote = {summary.id: summary for summary in theirs}
    found: list[Difference] = []
    for type_id in sorted(local.keys() | remote.keys()):
        if type_id not in remote:
            found.append(Difference(type_id, local[type_id].name, "", "is registered only by this endpoint"))
        elif type_id not in local:
            found.append(Difference(type_id, remote[type_id].name, "", "is registered only by the peer"))
        else:
            found += _field_differences(local[type_id], remote[type_id])
    return tuple(found)


def _field_differences(mine: TypeSummary, theirs: TypeSummary) -> Iterator[Difference]:
    for field in sorted(mine.fields.keys() | theirs.fields.keys()):
        local, remote = mine.fields.get(field), theirs.fields.get(field)
        if local == remote:
            continue
        if local is None or remote is None:
            text = f"the field exists only at {'the peer' if local is None else 'this endpoint'}"
        else:
            text = "the peer's field has another type or default, or is not equally required"
        yield Difference(mine.id, mine.name, field, text)


def fault_of_type(cls: type) -> str:
    """Return why objects of ``cls`` cannot be messages, or the empty string.

    After it has returned the empty string, any thread can decode ``cls``, because msgspec has prepared it. Until then
    no other thread may use ``cls`` with msgspec, or call this for a class with a common field: the process would crash.
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
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if not all(map(_has_unpredictable_hash, _hashed_types(current))):
            return _PREDICTABLE
        pending += _contained_types(current)
    return ""


def _hashed_types(container: inspect.Type) -> list[inspect.Type]:
    if isinstance(container, inspect.DictType):
        return [container.key_type]
    return [container.item_type] if isinstance(container, inspect.SetType | inspect.FrozenSetType) else []


def _has_unpredictable_hash(key: inspect.Type) -> bool:
    if isinstance(key, inspect.LiteralType):
        return all(isinstance(value, str) for value in key.values)
    if isinstance(key, inspect.EnumType):
        return all(isinstance(member.value, str) for member in key.cls)
    return isinstance(key, inspect.StrType | inspect.BytesType)


def _contained_types(container: inspect.Type) -> list[inspect.Type]:
    if isinstance(container, inspect.UnionType):
        return list(container.types)
    if isinstance(container, inspect.TupleType):
        return list(container.item_types)
    if isinstance(container, inspect.DictType):
        return [container.value_type]
    if isinstance(container, inspect.Metadata):
        return [container.type]
    if isinstance(container, inspect.ListType | inspect.VarTupleType):
        return [container.item_type]
    fields = getattr(container, "fields", ())  # structs, dataclasses, named tuples, typed dicts
    return [field.type for field in fields]


def _canonical(schema: Any, definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    """Return ``schema`` without notes, with resolved references. A recursive reference becomes its relative depth."""
    if isinstance(schema, list | tuple):
        return [_canonical(part, definitions, within) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref")
    if isinstance(name, str):
        if name in within:
            return {"$up": within[::-1].index(name)}
        return _canonical(definitions[name], definitions, (*within, name))
    # the keys of "properties" are the names of fields, which may be "title"
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
