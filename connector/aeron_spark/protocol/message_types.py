"""Encodes messages, arguments and results as MessagePack with stable type ids, and summarises the types.

A decoder follows the bytes: nesting can exhaust the stack, an array can announce 2^32 entries, and the keys of a map
can have equal hashes. Therefore this module limits the depth and the number of entries, and permits only text and bytes
as keys: a peer cannot predict their hashes, while chosen integers or tuples make a map quadratic. The same rules apply
within extension types that contain MessagePack.

The digest of a field is computed from the JSON schema that msgspec derives, without titles and descriptions, and with
resolved references. Two classes with different names and documentation have equal digests if they decode the same bytes
in the same way.

    encoded = u16 type id (big-endian) | body

    id    type       body
    1     None       MessagePack, like all types below except
    2     bool
    3     int        -2^63 to 2^64 - 1
    4     float
    5     str        the text in UTF-8, without MessagePack
    6     bytes      the bytes, without MessagePack (bytearray and memoryview arrive as bytes)
    7     list       entries of any of these types
    8     tuple
    9     dict       keys are str or bytes
    10    datetime   with a zone: the same instant in UTC; without a zone: unchanged
    11    UUID
    12    Decimal    at most 512 characters
    13    reference  to a remote object
    64 …  registered by the program: msgspec.Struct or dataclass, as msgspec writes it

MessagePack has no tuple, UUID or Decimal, so in a body they are extension types (``_Code``). Values of registered types
in lists, tuples and dicts are extension types, too. Fields of a registered type are encoded as annotated: a field with
the annotation ``Any`` can contain a remote object, but a tuple in it arrives as a list.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
from msgspec import inspect, msgpack

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError


@dataclass(frozen=True, slots=True)
class ShapeLimits:
    """Limits of one MessagePack value: levels of nested containers, and entries of all containers together."""

    depth: int
    items: int


MESSAGE_SHAPE: Final = ShapeLimits(depth=64, items=1_000_000)  # at most about 100 MB of Python objects


def _scalar_lengths() -> list[int]:
    lengths = [0] * 256
    for first in (*range(0x00, 0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3):
        lengths[first] = 1
    for first, payload in ((0xCA, 4), (0xCB, 8), (0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        lengths[first] = 1 + payload
    for power, first in enumerate(range(0xD0, 0xD4)):  # int8 to int64
        lengths[first] = 1 + 2**power
    for first in range(0xA0, 0xC0):  # fixstr
        lengths[first] = 1 + (first & 0x1F)
    return lengths


_LENGTHS: Final = tuple(_scalar_lengths())  # complete length by first byte; 0: depends on later bytes
_SIZED: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin and str: width of the length
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_KEYS: Final = frozenset((*range(0xA0, 0xC0), *_SIZED))


class _Unsafe(Exception):
    pass


def fault_of(
    body: bytes | memoryview,
    *,
    nested: Mapping[int, int],
    limits: ShapeLimits = MESSAGE_SHAPE,
) -> str | None:
    """Return the fault of ``body``, which must be one MessagePack value, or None.

    ``nested`` has the extension types that contain MessagePack, and the offset in their payload where it begins.
    """
    scanner = _Scanner(body, nested, limits)
    try:
        end = scanner.scan_values(0, 1, 0)
    except _Unsafe as fault:
        return str(fault)
    except IndexError:
        return "it is truncated"
    if end != len(body):
        return "it is truncated" if end > len(body) else f"{len(body) - end} bytes follow the value"
    return None


class _Scanner:
    __slots__ = ("body", "items", "limits", "nested")

    def __init__(self, body: bytes | memoryview, nested: Mapping[int, int], limits: ShapeLimits) -> None:
        self.body = body
        self.nested = nested
        self.limits = limits
        self.items = 0

    def scan_values(self, at: int, count: int, depth: int, *, pairs: bool = False) -> int:
        """Check ``count`` values from offset ``at``, and return their end. ``pairs``: every other value is a key."""
        self.items += count
        if self.items > self.limits.items:
            raise _Unsafe(f"it has more than {self.limits.items} entries")
        if depth > self.limits.depth:
            raise _Unsafe(f"it is nested deeper than {self.limits.depth} levels")
        body, lengths = self.body, _LENGTHS
        for index in range(count):
            first = body[at]
            if pairs and not index & 1 and first not in _KEYS:
                raise _Unsafe("a map has a key that is neither text nor bytes")
            length = lengths[first]
            at = at + length if length else self.scan_sized(first, at, depth)
        return at

    def scan_sized(self, first: int, at: int, depth: int) -> int:
        """Check the value at ``at``, whose length depends on more than its first byte, and return its end."""
        if first & 0xF0 == 0x90:
            return self.scan_values(at + 1, first & 0x0F, depth + 1)
        if first & 0xF0 == 0x80:
            return self.scan_values(at + 1, 2 * (first & 0x0F), depth + 1, pairs=True)
        if width := _SIZED.get(first):
            return at + 1 + width + self.read_number(at + 1, width)
        if width := _ARRAYS.get(first):
            return self.scan_values(at + 1 + width, self.read_number(at + 1, width), depth + 1)
        if width := _MAPS.get(first):
            return self.scan_values(at + 1 + width, 2 * self.read_number(at + 1, width), depth + 1, pairs=True)
        if length := _FIXED_EXTENSIONS.get(first):
            return self.scan_extension(at + 1, length, depth)
        if width := _EXTENSIONS.get(first):
            return self.scan_extension(at + 1 + width, self.read_number(at + 1, width), depth)
        raise _Unsafe(f"it has the invalid first byte 0x{first:02x}")

    def scan_extension(self, at: int, length: int, depth: int) -> int:
        """Check an extension value whose code is at ``at``, and return its end."""
        end = at + 1 + length
        prefix = self.nested.get(self.body[at])
        if prefix is None:
            return end
        if length <= prefix or self.scan_values(at + 1 + prefix, 1, depth + 1) != end:
            raise _Unsafe("a nested value does not fill its extension")
        return end

    def read_number(self, at: int, width: int) -> int:
        return int.from_bytes(self.body[at : at + width], "big")


FIELD_DIGEST_BYTES: Final = 8  # detects accidental differences; not a security measure
_NOTES: Final = {"title", "description", "examples"}  # parts of a schema that do not affect the encoding
_PREDICTABLE: Final = "keys of dicts and entries of sets must be str or bytes, whose hashes a peer cannot predict"


class TypeSummary(msgspec.Struct, frozen=True, array_like=True):
    """A registered type: its id, its name, and the digests of its fields by name."""

    id: int
    name: str
    fields: dict[str, bytes]


def summarise(type_id: int, cls: type) -> TypeSummary:
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


FIRST_USER_ID: Final = 64
LAST_ID: Final = 2**16 - 1
MAX_BYTES: Final = 2**40  # of one message; transfers and frames have lower limits
MAX_DECIMAL_CHARACTERS: Final = 512
TYPE_ID: Final = struct.Struct(">H")


class BuiltIn(IntEnum):
    """The type ids of built-in types."""

    NONE = 1
    BOOL = 2
    INT = 3
    FLOAT = 4
    STR = 5
    BYTES = 6
    LIST = 7
    TUPLE = 8
    DICT = 9
    DATETIME = 10
    UUID = 11
    DECIMAL = 12
    REFERENCE = 13


_BYTES: Final = int(BuiltIn.BYTES)
_TYPE_BYTES: Final = TYPE_ID.size


class _Code:
    """Extension types in a body, in addition to MessagePack's timestamp (-1). Not an enum, which msgspec rejects."""

    TUPLE: Final = 1  # a MessagePack array
    UUID: Final = 2  # 16 bytes
    DECIMAL: Final = 3  # text in ASCII
    LOCAL_DATETIME: Final = 4  # a datetime without a zone: ISO 8601 in ASCII
    TYPED: Final = 5  # u16 type id, MessagePack
    REFERENCE: Final = 6  # u8 owner of the object (0 the sender, 1 the receiver), then a MessagePack int or str


_NESTED: Final[dict[int, int]] = {_Code.TUPLE: 0, _Code.TYPED: TYPE_ID.size, _Code.REFERENCE: 1}
_BUILT_IN: Final[dict[type, BuiltIn]] = {
    type(None): BuiltIn.NONE,
    bool: BuiltIn.BOOL,
    int: BuiltIn.INT,
    float: BuiltIn.FLOAT,
    str: BuiltIn.STR,
    bytes: BuiltIn.BYTES,
    bytearray: BuiltIn.BYTES,
    memoryview: BuiltIn.BYTES,
    list: BuiltIn.LIST,
    tuple: BuiltIn.TUPLE,
    dict: BuiltIn.DICT,
    datetime: BuiltIn.DATETIME,
    UUID: BuiltIn.UUID,
    Decimal: BuiltIn.DECIMAL,
}
_UNCHANGED_TYPES: Final = frozenset({type(None), bool, int, float, str, bytes, bytearray, memoryview})
_REMEDY_SEND: Final = "Register its class as a message type, or send its fields as a dict or a tuple."
_REMEDY_RECEIVE: Final = "Register the same message types, and use the same release of aeron-spark, at both ends."

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Reference:
    """An encoded reference to a remote object. ``target`` is a global name, or an object id of this connection."""

    mine: bool  # the encoder of the reference has the object
    target: int | str


class References(Protocol):
    """Converts between the remote objects of one connection and references."""

    def refer(self, value: object) -> Reference | None:
        """Return the reference of a remote object or a proxy, or None if ``value`` is not passed by reference."""

    def resolve(self, reference: Reference) -> object:
        """Return the local object, or the proxy, of the peer's reference. Raises DataFormatError."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The type id and the body of a value. The body of a ``bytes`` value is the value itself, not a copy."""

    type_id: int
    body: Buffer

    @property
    def size(self) -> int:
        """Bytes of type id and body."""
        return TYPE_ID.size + len(self.body)

    def parts(self) -> tuple[bytes, Buffer]:
        """Return the two buffers to send, one after the other."""
        return TYPE_ID.pack(self.type_id), self.body

    def __bytes__(self) -> bytes:
        return b"".join(self.parts())


class Types:
    """The message types of one endpoint. Both ends must register the same classes with the same ids."""

    def __init__(self, *, shape: ShapeLimits = MESSAGE_SHAPE, max_bytes: int = MAX_BYTES) -> None:
        self.shape = shape
        self.max_bytes = max_bytes
        self._classes: dict[int, type] = {}
        self._ids: dict[type, int] = {}

    def register(self, cls: type, type_id: int) -> None:
        """Register a msgspec.Struct or dataclass with an id from 64 to 65535. Raises OptionError if it is unsuitable.

        For one thread of the process at a time, also with several ``Types``: see ``fault_of_type``.
        """
        if not isinstance(cls, type) or (fault := fault_of_type(cls)):
            reason = fault if isinstance(cls, type) else "it is not a class"
            raise OptionError(
                f"{cls!r} cannot be registered as a message type: {reason}",
                remedy="Use a msgspec.Struct or a dataclass with plain fields; annotate remote objects as Any.",
            )
        if type(type_id) is not int or not FIRST_USER_ID <= type_id <= LAST_ID:
            raise OptionError(
                f"the type id {type_id!r} of {cls.__name__} is not a number from {FIRST_USER_ID} to {LAST_ID}",
                remedy="Choose one, and use it at both ends.",
            )
        if type_id in self._classes or cls in self._ids:
            other = self._classes.get(type_id, cls)
            raise OptionError(
                f"{other.__name__} is already registered with the type id {self._ids[other]}",
                remedy="Use one id for each class.",
            )
        self._classes[type_id] = cls
        self._ids[cls] = type_id

    def summary(self) -> tuple[TypeSummary, ...]:
        """Return the summaries of the registered types in the order of their ids, to compare both ends."""
        return tuple(summarise(type_id, self._classes[type_id]) for type_id in sorted(self._classes))

    def encode(self, value: object, references: References | None = None) -> Encoded:
        """Encode a value as type id and body. Raises OptionError if it contains a value that cannot be sent."""
        cls = type(value)
        type_id = self._ids.get(cls)
        if type_id is not None:
            encoded = Encoded(
                type_id, self._encode_checked(lambda hook: msgpack.encode(value, enc_hook=hook), references)
            )
        elif isinstance(value, str) and cls is str:
            encoded = Encoded(BuiltIn.STR, _utf8(value))
        elif isinstance(value, bytes | bytearray | memoryview):
            encoded = Encoded(BuiltIn.BYTES, value.cast("B") if isinstance(value, memoryview) else value)
        else:
            built_in = _BUILT_IN.get(cls, BuiltIn.REFERENCE)
            encoded = Encoded(built_in, self.encode_plain(value, references))
        if encoded.size > self.max_bytes:
            raise _encode_error(f"it has {encoded.size} bytes, and the limit is {self.max_bytes}", "Send a file.")
        return encoded

    def decode(self, data: Buffer, references: References | None = None) -> object:
        """Decode a message. Raises DataFormatError for any invalid ``data``."""
        if len(data) < _TYPE_BYTES:
            raise _decode_error("it is shorter than its type id")
        (type_id,) = TYPE_ID.unpack_from(data)
        if type_id == _BYTES:  # a fast path for the most frequent type
            return bytes(data[_TYPE_BYTES:])
        return self.decode_body(type_id, memoryview(data)[_TYPE_BYTES:], references)

    def decode_body(self, type_id: int, body: Buffer, references: References | None = None) -> object:
        """Decode a body with a known type id. Raises DataFormatError."""
        if type_id == BuiltIn.BYTES:
            return bytes(body)
        if type_id == BuiltIn.STR:
            return _text(body)
        cls = self._classes.get(type_id)
        if cls is not None:
            return self._decode_checked(body, cls, references)
        value = self.decode_plain(body, references) if type_id in _BUILT_IN_IDS else None
        if type_id == BuiltIn.REFERENCE and type(value) not in _BUILT_IN:
            return value
        if type_id not in _BUILT_IN_IDS or _BUILT_IN.get(type(value)) != type_id:
            raise self._type_error(type_id)
        return value

    def encode_plain(
        self, value: object, references: References | None = None, shape: ShapeLimits | None = None
    ) -> bytes:
        """Encode a value as MessagePack without a type id, for arguments and results. Raises OptionError."""
        return self._encode_checked(
            lambda hook: msgpack.encode(self._pack(value, references), enc_hook=hook), references, shape
        )

    def decode_plain(
        self, body: Buffer, references: References | None = None, shape: ShapeLimits | None = None
    ) -> object:
        """Decode the bytes of ``encode_plain``. Raises DataFormatError."""
        return self._decode_checked(body, Any, references, shape)

    def _encode_checked(
        self,
        encode: Callable[[Callable[[object], object]], bytes],
        references: References | None,
        shape: ShapeLimits | None = None,
    ) -> bytes:
        try:
            body = encode(lambda value: self._pack(value, references))
        except RecursionError:
            raise _encode_error("it is nested too deep, or contains itself", _REMEDY_SEND) from None
        except OverflowError:
            raise _encode_error("an int exceeds 64 bits", "Send it as a str or a Decimal.") from None
        except UnicodeEncodeError:
            raise _encode_error("a str has lone surrogates, which UTF-8 cannot encode", "Send it as bytes.") from None
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, AeronSparkError):
                raise
            raise _encode_error(f"it cannot be encoded: {error}", _REMEDY_SEND) from error
        fault = fault_of(body, nested=_NESTED, limits=shape or self.shape)
        if fault:
            raise _encode_error(f"the receiver would reject it: {fault}", _REMEDY_SEND)
        return body

    def _pack(self, value: object, references: References | None) -> object:
        """Return ``value`` in types that msgspec encodes without loss; extension types replace for example tuples."""
        cls = type(value)
        if cls in _UNCHANGED_TYPES:
            return value
        if isinstance(value, list) and cls is list:
            if _UNCHANGED_TYPES.issuperset(map(type, value)):
                return value
            return [self._pack(entry, references) for entry in value]
        if isinstance(value, dict) and cls is dict:
            for key in value:
                if type(key) is not str and type(key) is not bytes:
                    raise _encode_error(
                        f"a dict has the key {key!r:.80}", "Use str or bytes as keys, or send a list of tuples."
                    )
            return {key: self._pack(entry, references) for key, entry in value.items()}
        if isinstance(value, tuple) and cls is tuple:
            return msgpack.Ext(_Code.TUPLE, msgpack.encode([self._pack(entry, references) for entry in value]))
        if isinstance(value, datetime) and cls is datetime:
            naive = value.utcoffset() is None
            return msgpack.Ext(_Code.LOCAL_DATETIME, value.isoformat().encode()) if naive else value
        if isinstance(value, UUID) and cls is UUID:
            return msgpack.Ext(_Code.UUID, value.bytes)
        if isinstance(value, Decimal) and cls is Decimal:
            return msgpack.Ext(_Code.DECIMAL, _decimal_text(value))
        return self._pack_object(value, references)

    def _pack_object(self, value: object, references: References | None) -> object:
        type_id = self._ids.get(type(value))
        if type_id is not None:
            body = msgpack.encode(value, enc_hook=lambda inner: self._pack(inner, references))
            return msgpack.Ext(_Code.TYPED, TYPE_ID.pack(type_id) + body)
        if isinstance(value, Reference):
            reference: Reference | None = value
        else:
            reference = references.refer(value) if references is not None else None
        if reference is None:
            known = ", ".join(sorted({cls.__name__ for cls in _BUILT_IN} | {cls.__name__ for cls in self._ids}))
            raise _encode_error(f"its type {type(value).__qualname__} is not one of {known}", _REMEDY_SEND)
        return msgpack.Ext(_Code.REFERENCE, bytes([not reference.mine]) + msgpack.encode(reference.target))

    def _decode_checked(
        self, body: Buffer, cls: Any, references: References | None, shape: ShapeLimits | None = None
    ) -> object:
        data = body if isinstance(body, bytes) else memoryview(body)
        if len(data) > self.max_bytes:
            raise _decode_error(f"it has {len(data)} bytes, and the limit is {self.max_bytes}")
        fault = fault_of(data, nested=_NESTED, limits=shape or self.shape)
        if fault:
            raise _decode_error(fault)
        try:
            return self._read(data, cls, references)
        except AeronSparkError:
            raise
        except Exception as error:  # a registered class may check its fields, and raise any exception
            raise _decode_error(str(error)[:200] or type(error).__name__) from error

    def _read(self, data: Buffer, cls: Any, references: References | None) -> Any:
        def extension(code: int, payload: memoryview) -> object:
            return self._unpack(code, payload, references)

        return msgpack.decode(data, type=cls, ext_hook=extension)

    def _unpack(self, code: int, payload: memoryview, references: References | None) -> object:
        if code == _Code.TUPLE:
            return tuple(self._read(payload, list, references))
        if code == _Code.UUID:
            return UUID(bytes=bytes(payload))
        if code == _Code.DECIMAL and len(payload) <= MAX_DECIMAL_CHARACTERS:
            return Decimal(str(payload, "ascii"))
        if code == _Code.LOCAL_DATETIME:
            return datetime.fromisoformat(str(payload, "ascii")).replace(tzinfo=None)
        if code == _Code.TYPED:
            (type_id,) = TYPE_ID.unpack_from(payload)
            if type_id not in self._classes:
                raise self._type_error(type_id)
            return self._read(payload[TYPE_ID.size :], self._classes[type_id], references)
        if code == _Code.REFERENCE and references is not None and payload[0] <= 1:
            target = msgpack.decode(payload[1:], type=int | str)
            return references.resolve(Reference(mine=payload[0] == 0, target=target))
        raise _decode_error(f"it has an unknown extension type {code}")

    def _type_error(self, type_id: int) -> DataFormatError:
        if type_id in _BUILT_IN_IDS:
            return _decode_error(
                f"its body is not of type {BuiltIn(type_id).name.lower()}, as its type id {type_id} announces"
            )
        known = ", ".join(f"{known} ({cls.__name__})" for known, cls in sorted(self._classes.items())[:20])
        return DataFormatError(
            f"a message has the type id {type_id}, which is not registered; registered are {known or 'none'}",
            remedy=_REMEDY_RECEIVE,
        )


_BUILT_IN_IDS: Final = frozenset(int(type_id) for type_id in BuiltIn)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _encode_error("a str has lone surrogates, which UTF-8 cannot encode", "Send it as bytes.") from None


def _text(body: Buffer) -> str:
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError:
        raise _decode_error("its text is not UTF-8") from None


def _decimal_text(value: Decimal) -> bytes:
    text = str(value).encode()
    if len(text) > MAX_DECIMAL_CHARACTERS:
        raise _encode_error(
            f"a Decimal has {len(text)} characters, and the limit is {MAX_DECIMAL_CHARACTERS}", "Send it as a str."
        )
    return text


def _encode_error(reason: str, remedy: str) -> OptionError:
    return OptionError(f"a value cannot be sent: {reason}", remedy=remedy)


def _decode_error(reason: str) -> DataFormatError:
    return DataFormatError(f"a message cannot be decoded: {reason}", remedy=_REMEDY_RECEIVE)
