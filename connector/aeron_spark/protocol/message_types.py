"""Encodes messages, arguments and results as MessagePack with stable type ids. The bytes never name a class.

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

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final, Protocol
from uuid import UUID

from msgspec import msgpack

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError
from aeron_spark.protocol.msgpack_shape import MESSAGE_SHAPE, ShapeLimits, fault_of
from aeron_spark.protocol.type_schemas import TypeSummary, encode_summary, fault_of_type, summarise

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

    def encoded_summary(self) -> bytes:
        """Return the encoded summaries."""
        return encode_summary(self.summary())

    def id_of(self, value: object) -> int | None:
        """Return the type id of a value without encoding it, or None if its type is neither built in nor registered."""
        return self._ids.get(type(value)) or _BUILT_IN.get(type(value))

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
        self, encode: Callable[[Callable[[object], object]], bytes], references: References | None,
        shape: ShapeLimits | None = None,
    ) -> bytes:  # fmt: skip
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
