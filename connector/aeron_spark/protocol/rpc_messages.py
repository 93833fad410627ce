"""Encodes and decodes the records of remote calls: requests and responses.

    CALL     u64 call id (0: one-way, without a response), then encode_plain of
                 [target, method, [arguments], {names: arguments}]
    OBJECT   u64 call id (0 with GONE), u8 kind, then encode_plain of
                 1 CREATE  [factory, [arguments], {names: arguments}]    the response is a reference
                 2 DELETE  [object id]                                   the response is None
                 3 GONE    [object id]                                   the sender's object has ended
    RETURN   u64 call id, u8 status, then encode_plain of
                 0 VALUE   the result
                 1 ERROR   [code, text]

Numbers are big-endian. A target is a global name (str) or the id of an object of this connection (int).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from msgspec import MsgspecError, Raw, msgpack

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError
from aeron_spark.protocol.message_types import Buffer, References, ShapeLimits, Types

Target = int | str

ONE_WAY: Final = 0
FIRST_SERVICE: Final = 2**62  # first number of the endpoint's own services, which check grants themselves
MAX_ARGUMENTS: Final = 255
MAX_NAME_CHARACTERS: Final = 255  # of a method, a factory, a global object, an argument
MAX_CODE_CHARACTERS: Final = 100
MAX_TEXT_CHARACTERS: Final = 1000  # of an error
# A worker that decodes arguments holds the interpreter's lock, so this bounds the delay of the event loop.
ARGUMENTS_SHAPE: Final = ShapeLimits(depth=32, items=10_000)
MAX_ID_BYTES: Final = 16  # of an encoded list with one object id; msgspec writes at most 10

CALL: Final = struct.Struct(">Q")
OBJECT: Final = struct.Struct(
    ">"
    "Q"  # call id
    "B"  # kind
)
RETURN: Final = struct.Struct(
    ">"
    "Q"  # call id
    "B"  # status
)


# Created at import, because the process crashes if two threads create one decoder at once. Raw: not decoded here.
_CALL_HEAD: Final = msgpack.Decoder(tuple[int | str, str, Raw, Raw])
_DATA_CALL: Final = msgpack.Decoder(tuple[int, str, tuple[memoryview], dict[str, Raw]])
_CREATE_HEAD: Final = msgpack.Decoder(tuple[str, Raw, Raw])


class ObjectKind(IntEnum):
    """The kind of an OBJECT record."""

    CREATE = 1
    DELETE = 2
    GONE = 3


class Status(IntEnum):
    """How a call ended."""

    VALUE = 0
    ERROR = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A request to call a method."""

    target: Target
    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """A request to create an object with the factory of this name."""

    factory: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A request to delete an object of the peer."""

    object_id: int


@dataclass(frozen=True, slots=True)
class ObjectEnded:
    """A notice that an object of the sender has ended."""

    object_id: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The code and the text of a failed call, as in its response."""

    code: str
    text: str


Request = Call | Create | Delete


def encode_call(call_id: int, call: Call, types: Types, references: References | None) -> bytes:
    """Encode a CALL record. Raises OptionError for arguments that cannot be sent."""
    _check_arguments(call.args, call.kwargs)
    body = [call.target, call.method, list(call.args), call.kwargs or {}]
    return CALL.pack(call_id) + types.encode_plain(body, references, ARGUMENTS_SHAPE)


def encode_object(
    call_id: int, request: Create | Delete | ObjectEnded, types: Types, references: References | None
) -> bytes:
    """Encode an OBJECT record. Raises OptionError for arguments that cannot be sent."""
    if isinstance(request, Create):
        _check_arguments(request.args, request.kwargs)
        body: list[Any] = [request.factory, list(request.args), request.kwargs or {}]
        return OBJECT.pack(call_id, ObjectKind.CREATE) + types.encode_plain(body, references, ARGUMENTS_SHAPE)
    kind = ObjectKind.DELETE if isinstance(request, Delete) else ObjectKind.GONE
    return OBJECT.pack(call_id, kind) + types.encode_plain([request.object_id])


def encode_value(call_id: int, value: object, types: Types, references: References | None) -> bytes:
    """Encode the RETURN record of a successful call. Raises OptionError for a result that cannot be sent."""
    return RETURN.pack(call_id, Status.VALUE) + types.encode_plain(value, references)


def encode_failure(call_id: int, failure: Failure, types: Types) -> bytes:
    """Encode the RETURN record of a failed call. Truncates its code and text."""
    text = failure.text[:MAX_TEXT_CHARACTERS].encode("utf-8", "replace").decode()
    return RETURN.pack(call_id, Status.ERROR) + types.encode_plain([failure.code[:MAX_CODE_CHARACTERS], text])


def call_id_of(payload: Buffer) -> int:
    """Return the call id, with which all of these records begin. Raises DataFormatError."""
    if len(payload) < CALL.size:
        raise format_error("it is shorter than its call id")
    (call_id,) = CALL.unpack_from(payload)
    return int(call_id)


def decode_call_head(payload: Buffer) -> tuple[Target, str]:
    """Decode the target and the method of a CALL record, without its arguments. Raises DataFormatError."""
    try:
        target, method, _, _ = _CALL_HEAD.decode(memoryview(payload)[CALL.size :])
    except (MsgspecError, ValueError, RecursionError):
        raise format_error("it does not consist of a target, a method and arguments") from None
    if not _is_target(target) or not 0 < len(method) <= MAX_NAME_CHARACTERS:
        raise format_error("its target or its method is invalid")
    return target, method


def decode_creation_head(payload: Buffer) -> str | None:
    """Decode the factory of a CREATE record, without the arguments; None for a record of another kind.

    Raises DataFormatError.
    """
    if len(payload) < OBJECT.size:
        raise format_error("it is shorter than its head")
    if payload[OBJECT.size - 1] != ObjectKind.CREATE:
        return None
    try:
        factory, _, _ = _CREATE_HEAD.decode(memoryview(payload)[OBJECT.size :])
    except (MsgspecError, ValueError, RecursionError):
        raise format_error("it does not consist of a factory and arguments") from None
    if not 0 < len(factory) <= MAX_NAME_CHARACTERS:
        raise format_error("the name of its factory is invalid")
    return factory


def decode_call(payload: Buffer, types: Types, references: References | None) -> Call:
    """Decode a CALL record. Raises DataFormatError."""
    call_id_of(payload)
    match types.decode_plain(memoryview(payload)[CALL.size :], references, ARGUMENTS_SHAPE):
        case [int() | str() as target, str(method), list(args), dict(kwargs)] if _are_arguments(args, kwargs):
            if _is_target(target) and 0 < len(method) <= MAX_NAME_CHARACTERS:
                return Call(target, method, tuple(args), kwargs)
    raise format_error("it does not consist of a target, a method and arguments")


def decode_data_call(payload: Buffer) -> memoryview:
    """Return the one argument of a CALL record whose argument is bytes, without a copy. Raises DataFormatError."""
    try:
        _, _, (data,), kwargs = _DATA_CALL.decode(memoryview(payload)[CALL.size :])
    except (MsgspecError, ValueError, RecursionError):
        raise format_error("it does not have one argument of type bytes") from None
    if kwargs:
        raise format_error("it has named arguments")
    return data


def decode_object(payload: Buffer, types: Types, references: References | None) -> Create | Delete | ObjectEnded:
    """Decode an OBJECT record. Raises DataFormatError."""
    if len(payload) < OBJECT.size:
        raise format_error("it is shorter than its head")
    _, kind = OBJECT.unpack_from(payload)
    if kind != ObjectKind.CREATE and len(payload) > OBJECT.size + MAX_ID_BYTES:
        raise format_error(f"its kind is {kind}, and its object id has {len(payload) - OBJECT.size} bytes")
    match kind, types.decode_plain(memoryview(payload)[OBJECT.size :], references, ARGUMENTS_SHAPE):
        case ObjectKind.CREATE, [str(factory), list(args), dict(kwargs)] if _are_arguments(args, kwargs):
            if 0 < len(factory) <= MAX_NAME_CHARACTERS:
                return Create(factory, tuple(args), kwargs)
        case ObjectKind.DELETE, [int(object_id)] if _is_target(object_id):
            return Delete(object_id)
        case ObjectKind.GONE, [int(object_id)] if _is_target(object_id):
            return ObjectEnded(object_id)
    raise format_error(f"its body does not match its kind {kind}")


def decode_return(payload: Buffer, types: Types, references: References | None) -> object | Failure:
    """Decode a RETURN record: the result or a Failure. Raises DataFormatError."""
    if len(payload) < RETURN.size:
        raise format_error("it is shorter than its head")
    _, status = RETURN.unpack_from(payload)
    value = types.decode_plain(memoryview(payload)[RETURN.size :], references)
    if status == Status.VALUE:
        return value
    match value:
        case [str(code), str(text)] if status == Status.ERROR:
            return Failure(code[:MAX_CODE_CHARACTERS], text[:MAX_TEXT_CHARACTERS])
    raise format_error(f"its body does not match its status {status}")


def describe_request(request: Request) -> str:
    """Return a description of the request for errors and the log."""
    if isinstance(request, Call):
        return f"the call of {request.method}() of {_target_text(request.target)}"
    if isinstance(request, Delete):
        return f"the deletion of object {request.object_id}"
    return f"the creation by factory {request.factory!r}"


def _target_text(target: Target) -> str:
    if isinstance(target, str):
        return repr(target)
    return f"object {target}" if target < FIRST_SERVICE else "the peer's own service"


def call_name(connection: int, call_id: int) -> str:
    """Return the name of a call in errors and logs. It is the same at both ends."""
    return f"{connection & 0xFFFFFFFF:08x}-{call_id}"


def format_error(reason: str) -> DataFormatError:
    """Return the error for an invalid record of a remote call."""
    return DataFormatError(
        f"a record of a remote call is invalid: {reason}", remedy="Use the same release of aeron-spark at both ends."
    )


def check_timeout(timeout: float | None) -> float | None:
    """Return a call's timeout in seconds, or None (no limit) for 0 and None. Raises OptionError if it is invalid."""
    if timeout is None or timeout == 0:
        return None
    if not timeout > 0:
        raise OptionError(
            f"invalid timeout of a call: {timeout} s", remedy="Use a value above 0, or None for no limit."
        )
    return timeout


def text_of(error: BaseException) -> str:
    """Return the text of an exception, truncated, also if its ``__str__`` raises."""
    try:
        return str(error.what if isinstance(error, AeronSparkError) else error)[:MAX_TEXT_CHARACTERS]
    except Exception:
        return "(the exception has no text)"


def _check_arguments(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    if not _are_arguments(args, kwargs or {}):
        raise OptionError(
            f"a remote call has {len(args) + len(kwargs or {})} arguments, and the limit is {MAX_ARGUMENTS}",
            remedy="Pass a list as one argument.",
        )


def _are_arguments(args: list[Any] | tuple[Any, ...], kwargs: dict[Any, Any]) -> bool:
    return len(args) + len(kwargs) <= MAX_ARGUMENTS and all(
        type(name) is str and len(name) <= MAX_NAME_CHARACTERS for name in kwargs
    )


def _is_target(target: object) -> bool:
    if type(target) is str:
        return 0 < len(target) <= MAX_NAME_CHARACTERS
    return type(target) is int and target > 0
