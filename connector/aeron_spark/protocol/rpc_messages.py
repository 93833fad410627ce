"""The records of remote calls: what asks, and what answers.

    CALL     u64 call id (0: one-way, nobody answers), then encode_plain of
                 [target, method, [arguments], {names: arguments}]
    OBJECT   u64 call id (0 with GONE), u8 kind, then encode_plain of
                 1 CREATE  [factory, [arguments], {names: arguments}]    answered by a reference
                 2 DELETE  [object id]                                   answered by None
                 3 GONE    [object id]                                   the sender's object ended
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
from aeron_spark.protocol.message_types import Buffer, References, Types

Target = int | str

ONE_WAY: Final = 0
MAX_ARGUMENTS: Final = 255
MAX_NAME_CHARACTERS: Final = 255  # of a method, a factory, a global object, an argument
MAX_CODE_CHARACTERS: Final = 100
MAX_TEXT_CHARACTERS: Final = 1000  # of an error: a reason, not a report
MAX_ID_BYTES: Final = 16  # of an encoded list of one object id; msgspec writes 10 at most

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


# Made at import: a decoder that two threads build at the same time crashes the process. Raw leaves arguments undecoded.
_CALL_HEAD: Final = msgpack.Decoder(tuple[int | str, str, Raw, Raw])
_CREATE_HEAD: Final = msgpack.Decoder(tuple[str, Raw, Raw])


class ObjectKind(IntEnum):
    """What an OBJECT record asks."""

    CREATE = 1
    DELETE = 2
    GONE = 3


class Status(IntEnum):
    """How a call ended."""

    VALUE = 0
    ERROR = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method."""

    target: Target
    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """A wish for a new object, from the factory of this name."""

    factory: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The end of an object the other side has."""

    object_id: int


@dataclass(frozen=True, slots=True)
class ObjectEnded:
    """The news that the sender's object ended."""

    object_id: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed, as it is told."""

    code: str
    text: str


Request = Call | Create | Delete


def encode_call(call_id: int, call: Call, types: Types, references: References | None) -> bytes:
    """Return a CALL record. Raises OptionError for arguments that cannot be sent."""
    _check_arguments(call.args, call.kwargs)
    body = [call.target, call.method, list(call.args), call.kwargs or {}]
    return CALL.pack(call_id) + types.encode_plain(body, references)


def encode_object(
    call_id: int, request: Create | Delete | ObjectEnded, types: Types, references: References | None
) -> bytes:
    """Return an OBJECT record. Raises OptionError for arguments that cannot be sent."""
    if isinstance(request, Create):
        _check_arguments(request.args, request.kwargs)
        body: list[Any] = [request.factory, list(request.args), request.kwargs or {}]
        return OBJECT.pack(call_id, ObjectKind.CREATE) + types.encode_plain(body, references)
    kind = ObjectKind.DELETE if isinstance(request, Delete) else ObjectKind.GONE
    return OBJECT.pack(call_id, kind) + types.encode_plain([request.object_id])


def encode_value(call_id: int, value: object, types: Types, references: References | None) -> bytes:
    """Return the RETURN record of a call that succeeded. Raises OptionError for a result that cannot be sent."""
    return RETURN.pack(call_id, Status.VALUE) + types.encode_plain(value, references)


def encode_failure(call_id: int, failure: Failure, types: Types) -> bytes:
    """Return the RETURN record of a call that failed. Whatever the text is, it can be sent."""
    text = failure.text[:MAX_TEXT_CHARACTERS].encode("utf-8", "replace").decode()
    return RETURN.pack(call_id, Status.ERROR) + types.encode_plain([failure.code[:MAX_CODE_CHARACTERS], text])


def call_id_of(payload: Buffer) -> int:
    """The call id every one of these records begins with. Raises DataFormatError."""
    if len(payload) < CALL.size:
        raise broken("it is shorter than its call id")
    (call_id,) = CALL.unpack_from(payload)
    return int(call_id)


def decode_call_head(payload: Buffer) -> tuple[Target, str]:
    """Read the target and the method of a CALL record, not its arguments. Raises DataFormatError."""
    try:
        target, method, _, _ = _CALL_HEAD.decode(memoryview(payload)[CALL.size :])
    except (MsgspecError, ValueError, RecursionError):
        raise broken("it is not a target, a method and arguments") from None
    if not _is_target(target) or not 0 < len(method) <= MAX_NAME_CHARACTERS:
        raise broken("its target or its method is not a name")
    return target, method


def decode_creation_head(payload: Buffer) -> str | None:
    """Read the factory of an OBJECT record, not the arguments; None for a record of another kind.

    Raises DataFormatError.
    """
    if len(payload) < OBJECT.size:
        raise broken("it is shorter than its head")
    if payload[OBJECT.size - 1] != ObjectKind.CREATE:
        return None
    try:
        factory, _, _ = _CREATE_HEAD.decode(memoryview(payload)[OBJECT.size :])
    except (MsgspecError, ValueError, RecursionError):
        raise broken("it is not a factory and arguments") from None
    if not 0 < len(factory) <= MAX_NAME_CHARACTERS:
        raise broken("its factory is not a name")
    return factory


def decode_call(payload: Buffer, types: Types, references: References | None) -> Call:
    """Read a CALL record. Raises DataFormatError."""
    call_id_of(payload)
    match types.decode_plain(memoryview(payload)[CALL.size :], references):
        case [int() | str() as target, str(method), list(args), dict(kwargs)] if _are_arguments(args, kwargs):
            if _is_target(target) and 0 < len(method) <= MAX_NAME_CHARACTERS:
                return Call(target, method, tuple(args), kwargs)
    raise broken("it is not a target, a method and arguments")


def decode_object(payload: Buffer, types: Types, references: References | None) -> Create | Delete | ObjectEnded:
    """Read an OBJECT record. Raises DataFormatError."""
    if len(payload) < OBJECT.size:
        raise broken("it is shorter than its head")
    _, kind = OBJECT.unpack_from(payload)
    if kind != ObjectKind.CREATE and len(payload) > OBJECT.size + MAX_ID_BYTES:
        raise broken(f"its kind is {kind}, and {len(payload) - OBJECT.size} bytes are no object id")
    match kind, types.decode_plain(memoryview(payload)[OBJECT.size :], references):
        case ObjectKind.CREATE, [str(factory), list(args), dict(kwargs)] if _are_arguments(args, kwargs):
            if 0 < len(factory) <= MAX_NAME_CHARACTERS:
                return Create(factory, tuple(args), kwargs)
        case ObjectKind.DELETE, [int(object_id)] if _is_target(object_id):
            return Delete(object_id)
        case ObjectKind.GONE, [int(object_id)] if _is_target(object_id):
            return ObjectEnded(object_id)
    raise broken(f"its kind is {kind}, and what follows does not belong to it")


def decode_return(payload: Buffer, types: Types, references: References | None) -> object | Failure:
    """Read a RETURN record: the result, or why there is none. Raises DataFormatError."""
    if len(payload) < RETURN.size:
        raise broken("it is shorter than its head")
    _, status = RETURN.unpack_from(payload)
    value = types.decode_plain(memoryview(payload)[RETURN.size :], references)
    if status == Status.VALUE:
        return value
    match value:
        case [str(code), str(text)] if status == Status.ERROR:
            return Failure(code[:MAX_CODE_CHARACTERS], text[:MAX_TEXT_CHARACTERS])
    raise broken(f"its status is {status}, and what follows does not belong to it")


def named(request: Request) -> str:
    """Return the request as errors and the log call it."""
    if isinstance(request, Call):
        target = repr(request.target) if isinstance(request.target, str) else f"object {request.target}"
        return f"the call of {request.method}() of {target}"
    if isinstance(request, Delete):
        return f"the deletion of object {request.object_id}"
    return f"the creation by {request.factory!r}"


def call_name(connection: int, call_id: int) -> str:
    """Return the name of a call in errors and logs: both ends know the connection and the call by these numbers."""
    return f"{connection & 0xFFFFFFFF:08x}-{call_id}"


def broken(why: str) -> DataFormatError:
    """The error for a record of a remote call that is not as it should be."""
    return DataFormatError(
        f"a record of a remote call cannot be read: {why}", remedy="Use the same release of aeron-spark on both sides"
    )


def check_timeout(timeout: float | None) -> float | None:
    """Seconds a call may take; None (as 0) for as long as the connection lives. Raises OptionError."""
    if timeout is None or timeout == 0:
        return None
    if not timeout > 0:
        raise OptionError(
            f"a call's time-out is {timeout} seconds", remedy="Give seconds above 0; 0 or None waits without limit"
        )
    return timeout


def text_of(error: BaseException) -> str:
    """What an exception says, as short as it may be sent, whatever its ``__str__`` does."""
    try:
        return str(error.what if isinstance(error, AeronSparkError) else error)[:MAX_TEXT_CHARACTERS]
    except Exception:
        return "(its text cannot be had)"


def _check_arguments(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    if not _are_arguments(args, kwargs or {}):
        raise OptionError(
            f"a remote call has {len(args) + len(kwargs or {})} arguments",
            remedy=f"Give at most {MAX_ARGUMENTS}; a list of any length counts as one",
        )


def _are_arguments(args: list[Any] | tuple[Any, ...], kwargs: dict[Any, Any]) -> bool:
    return len(args) + len(kwargs) <= MAX_ARGUMENTS and all(
        type(name) is str and len(name) <= MAX_NAME_CHARACTERS for name in kwargs
    )


def _is_target(target: object) -> bool:
    if type(target) is str:
        return 0 < len(target) <= MAX_NAME_CHARACTERS
    return type(target) is int and target > 0
