"""The encrypted payloads of the handshake: msgpack arrays with bounded fields, and digests of message types.

Decoding is strict: it refuses unknown fields, values beyond their bounds, and every encoding except the shortest, with
DataFormatError. It allocates no more memory than the input justifies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args

import msgspec

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.message_types import Types, encode_summary
from aeron_spark.protocol.sources import Refusal

Code = Literal[
    "full",
    "address-limit",
    "key-limit",
    "not-permitted",
    "version",
    "tag",
    "message",
    "key",
    "banned",
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
MAX_TYPES: Final = 40  # message types in the handshake; more do not fit into one fragment
MAX_WANTS: Final = 8
MAX_TEXT: Final = 300  # characters of a refusal
TICKET_BYTES: Final = 32
DIGEST_BYTES: Final = 8  # of a type's schema; it detects mistakes, not attacks

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
    """In HELLO_ACK: the server's limits. The client is not authenticated yet."""

    max_message: _Count
    """Bytes of the largest message that the server accepts."""
    max_types: _Count = MAX_TYPES
    """The number of message types that the server compares."""


class ClientDone(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3, kw_only=True):
    """In DONE: the client's data, encrypted for the server that it has verified."""

    # a server decodes tags beyond MAX_TAG, so that it can refuse them with a code
    tag: Annotated[str, msgspec.Meta(max_length=128)] = ""
    types: _Types = {}
    """Type id -> digest of its schema."""
    wants: Annotated[tuple[_Want, ...], msgspec.Meta(max_length=MAX_WANTS)] = ()
    """Services of the server that the client will use."""
    ticket: _Ticket | None = None
    """To resume a session; None asks for a new session."""
    received: _Count = 0
    """Of the session to resume: the client has received all sequence numbers below."""


class DoneAck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4, kw_only=True):
    """In DONE_ACK: the ids of the link. ``in`` and ``out`` are the server's: the client publishes on ``in``."""

    session_in: _Int32
    stream_in: _Int32
    session_out: _Int32
    stream_out: _Int32
    data_port: _Port
    control_port: _Port
    reply_channel: Literal["response", "mdc"]
    expiry_ms: _Milliseconds
    """Silence after which the link is lost."""
    linger_ms: _Milliseconds
    """How long the client can resume the session without a link."""
    ticket: _Ticket
    """For the next resume. The previous ticket is valid until the first frame under the new keys arrives."""
    resumed: bool
    received: _Count
    """The server has received all sequence numbers below."""
    max_message: _Count
    types: _Types = {}


class FailedPayload(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5, kw_only=True):
    """In FAILED: an authenticated refusal."""

    code: Code
    text: _Printable


Payload = ServerHello | ClientDone | DoneAck | FailedPayload
_P = TypeVar("_P", ServerHello, ClientDone, DoneAck, FailedPayload)

_ENCODER: Final = msgspec.msgpack.Encoder()
# Made during the import, by one thread: msgspec analyses a class at its first use, and the process crashes if two
# threads do that at the same time.
_DECODERS: Final[dict[type[Payload], msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (ServerHello, ClientDone, DoneAck, FailedPayload)
}


def encode_payload(payload: Payload) -> bytes:
    """Encode a payload. Raises OptionError if ``decode_payload`` would refuse the bytes."""
    try:
        data = _ENCODER.encode(payload)
        _DECODERS[type(payload)].decode(data)
    except (msgspec.MsgspecError, OverflowError, TypeError) as error:
        raise OptionError(
            f"{type(payload).__name__} cannot be sent: {error}",
            remedy="Keep to the limits in docs/endpoint-protocol.md.",
        ) from None
    return data


def decode_payload(data: bytes, kind: type[_P]) -> _P:
    """Decode a payload of this ``kind``. Raises DataFormatError for all other bytes and for longer encodings."""
    try:
        payload: _P = _DECODERS[kind].decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _malformed(kind, str(error)) from None
    if _ENCODER.encode(payload) != data:
        raise _malformed(kind, "it is not in its shortest encoding")
    return payload


def known_code(code: str) -> Code:
    """Return ``code`` if the protocol has this code of a refusal. Raises OptionError otherwise."""
    for known in get_args(Code):
        if code == known:
            return cast(Code, known)
    raise OptionError(f"{code!r} is not a code of a refusal", remedy=f"Use one of: {', '.join(get_args(Code))}.")


def printable(text: str) -> str:
    """Return ``text`` for a refusal: at most MAX_TEXT characters, with "?" for all that are not printable ASCII."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:MAX_TEXT])


def check_tag(tag: str) -> None:
    """Raise OptionError for a tag that every server would refuse."""
    if len(tag) > MAX_TAG or not all(letter.isprintable() for letter in tag):
        raise OptionError(
            f"the tag {tag[: MAX_TAG + 1]!r} is longer than {MAX_TAG} characters, or has some that cannot be printed",
            remedy="Choose a short name, such as the program's.",
        )


def _malformed(kind: type[Payload], fault: str) -> DataFormatError:
    return DataFormatError(
        f"a payload is not a valid {kind.__name__}: {fault}",
        remedy="Use releases of aeron-spark with the same protocol version.",
    )


def type_digests(types: Types) -> dict[int, bytes]:
    """Return the digests of the registered types by id, limited to the MAX_TYPES lowest ids."""
    return {
        summary.id: hashlib.sha256(encode_summary((summary,))).digest()[:DIGEST_BYTES]
        for summary in types.summary()[:MAX_TYPES]
    }


def schema_refusal(types: Types, theirs: Mapping[int, bytes]) -> Refusal | None:
    """Return the refusal of a client whose message types contradict ours, or None.

    A type that only one end has is permitted.
    """
    mine = type_digests(types)
    names = {summary.id: summary.name for summary in types.summary()}
    for type_id in sorted(mine.keys() & theirs.keys()):
        if mine[type_id] != theirs[type_id]:
            return Refusal(
                "schema", f"Type {type_id} ({names[type_id]}) has other fields or another name at the server"
            )
    return None
