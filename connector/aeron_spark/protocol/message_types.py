"""Messages, arguments and results as bytes: MessagePack with stable type ids, nothing that could name a class.

    encoded = u16 type id (big-endian) | body

    id    type       body
    1     None       MessagePack, as all that follow but for
    2     bool
    3     int        -2^63 to 2^64 - 1
    4     float
    5     str        the text in UTF-8, as it is
    6     bytes      the bytes, as they are (bytearray and memoryview arrive as bytes)
    7     list       entries of any of these types
    8     tuple
    9     dict       keys are str or bytes
    10    datetime   with a zone: the same instant in UTC; without one: as it was
    11    UUID
    12    Decimal    at most 512 characters
    13    reference  to a remote object
    64 …  registered by the program: msgspec.Struct or dataclass, as msgspec writes it

MessagePack has no tuple, UUID or Decimal, so within a body they are extension types (``_Code``); so are values of
registered types within lists, tuples and dicts. Fields of a registered type are written as annotated: a field annotated
``Any`` may hold a remote object, but a tuple in it arrives as a list.
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
from aeron_spark.protocol.msgpack_shape import MAX_DEPTH, MAX_ITEMS, fault_of
from aeron_spark.protocol.type_schemas import TypeSummary, encode_summary, fault_of_type, summarise

FIRST_USER_ID: Final = 64
LAST_ID: Final = 2**16 - 1
MAX_BYTES: Final = 2**40  # of one message; streams and frames have narrower limits of their own
MAX_DECIMAL_CHARACTERS: Final = 512
TYPE_ID: Final = struct.Struct(">H")


class BuiltIn(IntEnum):
    """The type ids every side knows."""

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
    """Extension types within a body, beside MessagePack's own timestamp (-1). msgspec takes no enum here."""

    TUPLE: Final = 1  # a MessagePack array
    UUID: Final = 2  # 16 bytes
    DECIMAL: Final = 3  # its text in ASCII
    LOCAL_DATETIME: Final = 4  # without a zone: ISO 8601 in ASCII
    TYPED: Final = 5  # u16 type id, MessagePack
    REFERENCE: Final = 6  # u8 who has the object (0 the sender, 1 the receiver), then a MessagePack int or str


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
_AS_IT_IS: Final = frozenset({type(None), bool, int, float, str, bytes, bytearray, memoryview})
_REMEDY_SEND: Final = "Register its class as a type, send a dict or a tuple of what it holds, or bytes"
_REMEDY_RECEIVE: Final = "Register the same types on both sides, and use the same release there"

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Reference:
    """A remote object as it is written: ``target`` is a global name, or an id of this connection."""

    mine: bool  # the object lives with who wrote the reference
    target: int | str


class References(Protocol):
    """What knows the remote objects of one connection."""

    def refer(self, value: object) -> Reference | None:
        """Return how ``value`` is written if it is, or may become, a remote object or a proxy of one, else None."""

    def resolve(self, reference: Reference) -> object:
        """Return the object, or a proxy of it, that the other side's reference means. Raises DataFormatError."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value's type id and body. A ``bytes`` value is its own body: nothing was copied."""

    type_id: int
    body: Buffer

    @property
    def size(self) -> int:
        """Bytes of the whole."""
        return TYPE_ID.size + len(self.body)

    def parts(self) -> tuple[bytes, Buffer]:
        """The two pieces to send one after the other."""
        return TYPE_ID.pack(self.type_id), self.body

    def __bytes__(self) -> bytes:
        return b"".join(self.parts())


class Types:
    """The types one side sends and understands. Both sides register the same classes under the same ids."""

    def __init__(self, *, max_depth: int = MAX_DEPTH, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self.max_depth = max_depth
        self.max_items = max_items
        self.max_bytes = max_bytes
        self._classes: dict[int, type] = {}
        self._ids: dict[type, int] = {}

    def register(self, cls: type, type_id: int) -> None:
        """Give ``cls``, a msgspec.Struct or dataclass, its id, 64 to 65535. Raises OptionError, and changes nothing.

        For one thread of the process at a time, also with several ``Types``: see ``fault_of_type``.
        """
        if not isinstance(cls, type) or (fault := fault_of_type(cls)):
            why = fault if isinstance(cls, type) else "it is not a class"
            raise OptionError(
                f"{cls!r} cannot be registered as a message type: {why}",
                remedy="Use a msgspec.Struct or a dataclass of plain fields; annotate remote objects as Any",
            )
        if type(type_id) is not int or not FIRST_USER_ID <= type_id <= LAST_ID:
            raise OptionError(
                f"the type id {type_id!r} of {cls.__name__} is not a number from {FIRST_USER_ID} to {LAST_ID}",
                remedy="Choose one and keep it: both sides know the type by it",
            )
        if type_id in self._classes or cls in self._ids:
            other = self._classes.get(type_id, cls)
            raise OptionError(
                f"{other.__name__} is registered already, as {self._ids[other]}",
                remedy="Give each class one id, and each id one class",
            )
        self._classes[type_id] = cls
        self._ids[cls] = type_id

    def summary(self) -> tuple[TypeSummary, ...]:
        """What the other side needs to find differences, by rising id."""
        return tuple(summarise(type_id, self._classes[type_id]) for type_id in sorted(self._classes))

    def encoded_summary(self) -> bytes:
        """The summary as bytes; its SHA-256 is what a handshake compares."""
        return encode_summary(self.summary())

    def id_of(self, value: object) -> int | None:
        """The type id of a value, without encoding it; None if it is neither built in nor registered."""
        return self._ids.get(type(value)) or _BUILT_IN.get(type(value))

    def encode(self, value: object, references: References | None = None) -> Encoded:
        """Return ``value`` as type id and body. Raises OptionError for what cannot be sent, naming it."""
        cls = type(value)
        type_id = self._ids.get(cls)
        if type_id is not None:
            encoded = Encoded(type_id, self._encoded(lambda hook: msgpack.encode(value, enc_hook=hook), references))
        elif isinstance(value, str) and cls is str:
            encoded = Encoded(BuiltIn.STR, _utf8(value))
        elif isinstance(value, bytes | bytearray | memoryview):
            encoded = Encoded(BuiltIn.BYTES, value.cast("B") if isinstance(value, memoryview) else value)
        else:
            known = _BUILT_IN.get(cls, BuiltIn.REFERENCE)
            encoded = Encoded(known, self.encode_plain(value, references))
        if encoded.size > self.max_bytes:
            raise _unsendable(f"the message has {encoded.size} bytes, more than {self.max_bytes}", "Send a file")
        return encoded

    def decode(self, data: Buffer, references: References | None = None) -> object:
        """Return the value of an encoded message. Raises DataFormatError, whatever ``data`` is."""
        if len(data) < _TYPE_BYTES:
            raise _broken("it is shorter than its type id")
        (type_id,) = TYPE_ID.unpack_from(data)
        if type_id == _BYTES:  # most messages of those who send many
            return bytes(data[_TYPE_BYTES:])
        return self.decode_body(type_id, memoryview(data)[_TYPE_BYTES:], references)

    def decode_body(self, type_id: int, body: Buffer, references: References | None = None) -> object:
        """Return the value of a body whose type id is known already. Raises DataFormatError."""
        if type_id == BuiltIn.BYTES:
            return bytes(body)
        if type_id == BuiltIn.STR:
            return _text(body)
        cls = self._classes.get(type_id)
        if cls is not None:
            return self._decoded(body, cls, references)
        value = self.decode_plain(body, references) if type_id in _BUILT_IN_IDS else None
        if type_id == BuiltIn.REFERENCE and type(value) not in _BUILT_IN:
            return value
        if type_id not in _BUILT_IN_IDS or _BUILT_IN.get(type(value)) != type_id:
            raise self._unknown(type_id)
        return value

    def encode_plain(self, value: object, references: References | None = None) -> bytes:
        """Return a value as MessagePack alone: for arguments and results. Raises OptionError."""
        return self._encoded(lambda hook: msgpack.encode(self._packed(value, references), enc_hook=hook), references)

    def decode_plain(self, body: Buffer, references: References | None = None) -> object:
        """Return what ``encode_plain`` wrote. Raises DataFormatError."""
        return self._decoded(body, Any, references)

    def _encoded(self, encode: Callable[[Callable[[object], object]], bytes], references: References | None) -> bytes:
        try:
            body = encode(lambda value: self._packed(value, references))
        except RecursionError:
            raise _unsendable("the value is nested too deep, or holds itself", _REMEDY_SEND) from None
        except OverflowError:
            raise _unsendable("an int is beyond 64 bits", "Send it as a str or a Decimal") from None
        except UnicodeEncodeError:
            raise _unsendable("a str has lone surrogates, which UTF-8 cannot say", "Send it as bytes") from None
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, AeronSparkError):
                raise
            raise _unsendable(f"it cannot be encoded: {error}", _REMEDY_SEND) from error
        fault = fault_of(body, nested=_NESTED, max_depth=self.max_depth, max_items=self.max_items)
        if fault:
            raise _unsendable(f"the other side would refuse it: {fault}", _REMEDY_SEND)
        return body

    def _packed(self, value: object, references: References | None) -> object:
        """``value`` in what msgspec writes without loss: extension types stand for what MessagePack does not have."""
        cls = type(value)
        if cls in _AS_IT_IS:
            return value
        if isinstance(value, list) and cls is list:
            if _AS_IT_IS.issuperset(map(type, value)):
                return value
            return [self._packed(entry, references) for entry in value]
        if isinstance(value, dict) and cls is dict:
            for key in value:
                if type(key) is not str and type(key) is not bytes:
                    raise _unsendable(
                        f"a dict has the key {key!r:.80}", "Use str or bytes as keys, or send a list of tuples"
                    )
            return {key: self._packed(entry, references) for key, entry in value.items()}
        if isinstance(value, tuple) and cls is tuple:
            return msgpack.Ext(_Code.TUPLE, msgpack.encode([self._packed(entry, references) for entry in value]))
        if isinstance(value, datetime) and cls is datetime:
            naive = value.utcoffset() is None
            return msgpack.Ext(_Code.LOCAL_DATETIME, value.isoformat().encode()) if naive else value
        if isinstance(value, UUID) and cls is UUID:
            return msgpack.Ext(_Code.UUID, value.bytes)
        if isinstance(value, Decimal) and cls is Decimal:
            return msgpack.Ext(_Code.DECIMAL, _decimal_text(value))
        return self._packed_object(value, references)

    def _packed_object(self, value: object, references: References | None) -> object:
        type_id = self._ids.get(type(value))
        if type_id is not None:
            body = msgpack.encode(value, enc_hook=lambda inner: self._packed(inner, references))
            return msgpack.Ext(_Code.TYPED, TYPE_ID.pack(type_id) + body)
        if isinstance(value, Reference):
            reference: Reference | None = value
        else:
            reference = references.refer(value) if references is not None else None
        if reference is None:
            known = ", ".join(sorted({cls.__name__ for cls in _BUILT_IN} | {cls.__name__ for cls in self._ids}))
            raise _unsendable(f"a {type(value).__qualname__} is none of {known}", _REMEDY_SEND)
        return msgpack.Ext(_Code.REFERENCE, bytes([not reference.mine]) + msgpack.encode(reference.target))

    def _decoded(self, body: Buffer, cls: Any, references: References | None) -> object:
        data = body if isinstance(body, bytes) else memoryview(body)
        if len(data) > self.max_bytes:
            raise _broken(f"it has {len(data)} bytes, more than {self.max_bytes}")
        fault = fault_of(data, nested=_NESTED, max_depth=self.max_depth, max_items=self.max_items)
        if fault:
            raise _broken(fault)
        try:
            return self._read(data, cls, references)
        except AeronSparkError:
            raise
        except Exception as error:  # a registered class may check its fields, and raise what it likes
            raise _broken(str(error)[:200] or type(error).__name__) from error

    def _read(self, data: Buffer, cls: Any, references: References | None) -> Any:
        def extension(code: int, payload: memoryview) -> object:
            return self._unpacked(code, payload, references)

        return msgpack.decode(data, type=cls, ext_hook=extension)

    def _unpacked(self, code: int, payload: memoryview, references: References | None) -> object:
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
                raise self._unknown(type_id)
            return self._read(payload[TYPE_ID.size :], self._classes[type_id], references)
        if code == _Code.REFERENCE and references is not None and payload[0] <= 1:
            target = msgpack.decode(payload[1:], type=int | str)
            return references.resolve(Reference(mine=payload[0] == 0, target=target))
        raise _broken(f"it has an extension of the type {code}")

    def _unknown(self, type_id: int) -> DataFormatError:
        if type_id in _BUILT_IN_IDS:
            return _broken(f"its body is not the {BuiltIn(type_id).name.lower()} that its type id {type_id} says")
        known = ", ".join(f"{known} ({cls.__name__})" for known, cls in sorted(self._classes.items())[:20])
        return DataFormatError(
            f"a message has the type id {type_id}, which is not registered here; known are {known or 'none'}",
            remedy=_REMEDY_RECEIVE,
        )


_BUILT_IN_IDS: Final = frozenset(int(one) for one in BuiltIn)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _unsendable("a str has lone surrogates, which UTF-8 cannot say", "Send it as bytes") from None


def _text(body: Buffer) -> str:
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError:
        raise _broken("its text is not UTF-8") from None


def _decimal_text(value: Decimal) -> bytes:
    text = str(value).encode()
    if len(text) > MAX_DECIMAL_CHARACTERS:
        raise _unsendable(f"a Decimal has {len(text)} characters", f"At most {MAX_DECIMAL_CHARACTERS} are sent")
    return text


def _unsendable(why: str, remedy: str) -> OptionError:
    return OptionError(f"this value cannot be sent: {why}", remedy=remedy)


def _broken(why: str) -> DataFormatError:
    return DataFormatError(f"a message cannot be decoded: {why}", remedy=_REMEDY_RECEIVE)
