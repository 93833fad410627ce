"""What the sealed parts of the handshake say: msgpack arrays, bounded field by field, with one spelling each.

A payload is decoded strictly: unknown fields, values beyond their bounds, and any spelling but the shortest are refused
with DataFormatError. Nothing is allocated that the input does not hold.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args

import msgspec

from aeron_spark.errors import DataFormatError, OptionError

Code = Literal[
    "full",
    "address-limit",
    "not-permitted",
    "version",
    "tag",
    "message",
    "key",
    "proof",
    "ids",
    "shutdown",
    "rate",
    "pending",
    "schema",
    "session-lost",
    "timeout",
    "server-error",
]
CODES: Final[frozenset[str]] = frozenset(get_args(Code))

MAX_TAG: Final = 32  # characters, as in dorkbox Network
MAX_TYPES: Final = 40  # message types in the handshake: what is left in one fragment beside the rest
MAX_WANTS: Final = 8
MAX_TEXT: Final = 300  # characters of a refusal
TICKET_BYTES: Final = 32
DIGEST_BYTES: Final = 8  # of a type's schema; it finds mistakes, it defends nothing

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_TypeId = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
_Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
_Ticket = Annotated[bytes, msgspec.Meta(min_length=TICKET_BYTES, max_length=TICKET_BYTES)]
_Types = Annotated[dict[_TypeId, _Digest], msgspec.Meta(max_length=MAX_TYPES)]
_Want = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9-]{0,31}\Z")]
_Printable = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"\A[ -~]*\Z")]


class ServerHello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2, kw_only=True):
    """In HELLO_ACK: the server's limits, before the client has said who it is."""

    max_message: _Count
    """Bytes of the largest message it takes."""
    max_types: _Count = MAX_TYPES
    """How many message types it compares."""


class ClientDone(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3, kw_only=True):
    """In DONE: what the client says once it knows the server, sealed for nobody else."""

    # longer than MAX_TAG is understood, so that it can be answered
    tag: Annotated[str, msgspec.Meta(max_length=128)] = ""
    types: _Types = {}
    """Type id -> digest of its schema."""
    wants: Annotated[tuple[_Want, ...], msgspec.Meta(max_length=MAX_WANTS)] = ()
    """Services of the server it will use."""
    ticket: _Ticket | None = None
    """To come back to a session; None for a new one."""
    received: _Count = 0
    """Of a session it comes back to: all sequence numbers below were received."""


class DoneAck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4, kw_only=True):
    """In DONE_ACK: where the duologue is. ``in`` and ``out`` are the server's: the client publishes on ``in``."""

    session_in: _Int32
    stream_in: _Int32
    session_out: _Int32
    stream_out: _Int32
    data_port: _Port
    control_port: _Port
    reply_channel: Literal["response", "mdc"]
    expiry_ms: _Milliseconds
    """Silence after which the connection counts as lost."""
    linger_ms: _Milliseconds
    """How long a lost session can be resumed."""
    ticket: _Ticket
    """For the next resume; the one before stays good until the first message under the new keys."""
    resumed: bool
    received: _Count
    """All the client's sequence numbers below were received."""
    max_message: _Count
    types: _Types = {}


class FailedPayload(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5, kw_only=True):
    """In FAILED: why the server refuses, for certain."""

    code: Code
    text: _Printable


Payload = ServerHello | ClientDone | DoneAck | FailedPayload
_P = TypeVar("_P", ServerHello, ClientDone, DoneAck, FailedPayload)

_ENCODER: Final = msgspec.msgpack.Encoder()
# Built while this module is imported, by one thread: msgspec builds what it knows of a class at the class's first use,
# and a second thread that comes in the midst of that crashes the process.
_DECODERS: Final[dict[type[Payload], msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (ServerHello, ClientDone, DoneAck, FailedPayload)
}


def encode_payload(payload: Payload) -> bytes:
    """Encode a payload. Raises OptionError for one that ``decode_payload`` would refuse."""
    try:
        data = _ENCODER.encode(payload)
        _DECODERS[type(payload)].decode(data)
    except (msgspec.MsgspecError, OverflowError, TypeError) as error:
        raise OptionError(
            f"{type(payload).__name__} cannot be sent: {error}",
            remedy="Keep to the limits in docs/endpoint-protocol.md",
        ) from None
    return data


def decode_payload(data: bytes, kind: type[_P]) -> _P:
    """Decode a payload of this ``kind``. Raises DataFormatError if it is none, or not in its one spelling."""
    try:
        payload: _P = _DECODERS[kind].decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _broken(kind, str(error)) from None
    if _ENCODER.encode(payload) != data:
        raise _broken(kind, "it is not in its shortest spelling")
    return payload


def known_code(code: str) -> Code:
    """Return the code of a refusal. Raises OptionError for one that the protocol does not have."""
    for known in get_args(Code):
        if code == known:
            return cast(Code, known)
    raise OptionError(f"{code!r} is no code of a refusal", remedy=f"Use one of {', '.join(get_args(Code))}")


def printable(text: str) -> str:
    """``text`` as it may stand in a refusal: printable ASCII, cut to MAX_TEXT. It may have come from anywhere."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:MAX_TEXT])


def check_tag(tag: str) -> None:
    """Raise OptionError for a tag that every server refuses."""
    if len(tag) > MAX_TAG or not all(letter.isprintable() for letter in tag):
        raise OptionError(
            f"the tag {tag[: MAX_TAG + 1]!r} is longer than {MAX_TAG} characters, or has some that cannot be printed",
            remedy="Choose a short name, such as the program's",
        )


def _broken(kind: type[Payload], why: str) -> DataFormatError:
    return DataFormatError(
        f"what should be {kind.__name__} is not: {why}",
        remedy="Use releases of aeron-spark that speak the same version of the protocol",
    )
