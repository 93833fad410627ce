"""The decoders of packets, frames, records and calls, which any peer of an endpoint can send."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import inspect

from aeron_spark.echo import texts
from aeron_spark.errors import (
    REFUSALS,
    AeronSparkError,
    DataFormatError,
    RefusedError,
    TamperedError,
    decode_error,
    encode_error,
)
from aeron_spark.protocol import admin_messages, frames, handshake_packets, handshake_payloads, rpc_messages, transfers
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_packets import RefusalHint, RetryHint, decode_hint, encode_hint
from aeron_spark.protocol.message_types import (
    Reference,
    Types,
)
from aeron_spark.protocol.sources import Refusal, parse_source
from tests.unit.fuzz.forms import BYTES, JSON, WORDS, messagepack
from tests.unit.fuzz.fuzzing import Decoder
from tests.unit.fuzz.values import random_value


class Trade(msgspec.Struct):
    """A registered message with each kind of field."""

    symbol: str
    price: float
    parts: list[int] = []
    attributes: dict[str, bytes] = {}
    other: Any = None


@dataclass
class Note:
    text: str
    at: datetime | None = None


class _References:
    """Passes references through."""

    def refer(self, value: object) -> Reference | None:
        return value if isinstance(value, Reference) else None

    def resolve(self, reference: Reference) -> object:
        return Reference(not reference.mine, reference.target)


TYPES: Final = Types()
TYPES.register(Trade, 64)
TYPES.register(Note, 65)
REFERENCES: Final = _References()


def _plain(source: Random, depth: int = 3) -> Any:
    simple = (
        None, True, 0, -1, 2**63, 2**64 - 1, 0.5, "", "a text", b"", b"bytes",
        datetime(2024, 2, 29, tzinfo=timezone.utc), datetime(2024, 2, 29, 23, 59), UUID(int=7), Decimal("1.50"),
        Decimal("NaN"), Reference(True, 7),
        Reference(False, "prices"), Trade("A", 1.5, [1, 2], {"k": b"v"}), Note("n"),
    )  # fmt: skip
    kind = source.randrange(8) if depth else 7
    if kind == 0:
        return [_plain(source, depth - 1) for _ in range(source.randrange(4))]
    if kind == 1:
        return tuple(_plain(source, depth - 1) for _ in range(source.randrange(4)))
    if kind == 2:
        return {source.choice(("a", "b", b"c", "")): _plain(source, depth - 1) for _ in range(source.randrange(4))}
    return source.choice(simple)


def _arguments(source: Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
    names = source.sample(("limit", "name", "start"), source.randrange(3))
    return tuple(_plain(source) for _ in range(source.randrange(4))), {name: _plain(source, 1) for name in names}


def _call(source: Random) -> bytes:
    args, kwargs = _arguments(source)
    call = rpc_messages.Call(source.choice(("prices", 7, 2**62 + 2)), "handle", args, kwargs)
    return rpc_messages.encode_call(source.randrange(2**32), call, TYPES, REFERENCES)


def _object(source: Random) -> bytes:
    args, kwargs = _arguments(source)
    requests = (rpc_messages.Create("book", args, kwargs), rpc_messages.Delete(7), rpc_messages.ObjectEnded(9))
    return rpc_messages.encode_object(source.randrange(2**32), source.choice(requests), TYPES, REFERENCES)


def _return(source: Random) -> bytes:
    if source.random() < 0.2:
        return rpc_messages.encode_failure(3, rpc_messages.Failure("OptionError", "a text"), TYPES)
    return rpc_messages.encode_value(3, _plain(source), TYPES, REFERENCES)


def _use_call(call: rpc_messages.Call) -> None:
    rpc_messages.describe_request(call)
    rpc_messages.encode_call(1, call, TYPES, REFERENCES)


def _use_object(request: Any) -> None:
    if not isinstance(request, rpc_messages.ObjectEnded):
        rpc_messages.describe_request(request)
    rpc_messages.encode_object(1, request, TYPES, REFERENCES)


def _use_return(value: Any) -> None:
    if isinstance(value, rpc_messages.Failure):
        rpc_messages.encode_failure(1, value, TYPES)
    else:
        rpc_messages.encode_value(1, value, TYPES, REFERENCES)


def _frame(source: Random) -> bytes:
    kinds = (*sorted(frames.RECORD_KINDS), 1, 1, 3)
    records = []
    for _ in range(source.randrange(1, 5)):
        kind, count = source.choice(kinds), source.choice((1, 1, 2, 8, 12))
        records += [(kind, 0, source.randbytes(source.choice((0, 1, 8, 30))))] * count
    return b"".join(frames.encode(7, source.randrange(9), records))


def _long_frames(size: int) -> dict[str, bytes]:
    head = frames.FRAME_HEAD.pack(0, 0)
    batch = frames.BATCH_HEAD.pack(1, bytes(3), 1) + bytes(4)
    records = {
        "empty records": frames.RECORD_HEAD.pack(1, 0, 0),
        "small records": frames.RECORD_HEAD.pack(66, 0, 1) + b"a",
        "batches of one": frames.RECORD_HEAD.pack(frames.RecordKind.BATCH, 0, len(batch)) + batch,
    }
    found = {name: head + record * (size // len(record)) for name, record in records.items()}
    count = min(size // 4, frames.MAX_RECORDS)
    found["a batch"] = b"".join(frames.encode(0, 0, [(1, 0, b"")] * count))
    return found


def _use_frame(frame: frames.Frame) -> None:
    assert sum(frames.is_sequenced(kind) for kind, _, _ in frame.records) == frame.sequenced
    b"".join(frames.encode(frame.ack, frame.first, frame.records))


_KEY: Final = bytes(range(32))


def _sealed_frame(source: Random) -> bytes:
    return bytes(FrameEncryptor(_KEY).encrypt(source.randbytes(source.choice((0, 1, 40)))))


def _packet(source: Random) -> bytes:
    name = source.randbytes(16)
    packets = (
        handshake_packets.HelloPacket(b"k" + name[1:], source.randbytes(32)),
        handshake_packets.HelloPacket(b"k" + name[1:], source.randbytes(48), source.randbytes(17)),
        handshake_packets.HelloAckPacket(name, source.randbytes(120)),
        handshake_packets.DonePacket(name, source.randbytes(1_080)),
        handshake_packets.DoneAckPacket(name, source.randbytes(200)),
        handshake_packets.FailedPacket(name, source.randbytes(60)),
    )
    return handshake_packets.encode(source.choice(packets))


def _use_packet(packet: Any) -> None:
    if not isinstance(packet, handshake_packets.OtherVersion):
        handshake_packets.encode(packet)


_PAYLOADS: Final[dict[type[Any], inspect.Type]] = {
    kind: inspect.type_info(kind)
    for kind in (
        handshake_payloads.ServerHello, handshake_payloads.ClientDone, handshake_payloads.DoneAck,
        handshake_payloads.FailedPayload,
    )
}  # fmt: skip
_WANTS: Final = {
    "wants": lambda source: source.choice(((), ("streams",), ("a", "b-1"))),
    "types": lambda source: {source.randrange(70): source.randbytes(8) for _ in range(source.randrange(3))},
    "text": lambda source: source.choice(("", "no room")),
}


def _payload(kind: type[Any]) -> Callable[[Random], bytes]:
    return lambda source: handshake_payloads.encode_payload(random_value(_PAYLOADS[kind], source, _WANTS))


def _payload_decoder(kind: type[Any]) -> Decoder:
    return Decoder(
        f"handshake payload {kind.__name__}",
        lambda data: handshake_payloads.decode_payload(data, kind),
        _payload(kind),
        messagepack(),
        use=handshake_payloads.encode_payload,
    )


def _client_done(source: Random) -> bytes:
    return handshake_packets.encode_client_done(random_value(_PAYLOADS[handshake_payloads.ClientDone], source, _WANTS))


def _hint(source: Random) -> bytes:
    refusal = Refusal(source.choice(sorted(handshake_payloads.CODES)), "a text")
    return encode_hint(source.choice((RetryHint(source.randbytes(17)), RefusalHint(refusal)))).encode("latin-1")


def _error(source: Random) -> bytes:
    return encode_error(
        RefusedError("the text\nof an error", remedy="a remedy", reason=source.choice(sorted(REFUSALS)))
    )


def _use_error(error: AeronSparkError) -> None:
    str(error).encode()
    encode_error(error)


def _admin_request(source: Random) -> bytes:
    arguments: dict[str, Any] = {"key": "a", "seconds": 1.5, "names": ["x", 1, None]}
    names = source.sample(sorted(arguments), source.randrange(4))
    return admin_messages.encode_request(source.choice(("status", "ban")), {name: arguments[name] for name in names})


def _admin_response(source: Random) -> bytes:
    if source.random() < 0.3:
        return admin_messages.encode_response(RefusedError("x", reason="busy"))
    return admin_messages.encode_response({"a": [1, {"b": None}]}, has_more=True)


def _use_admin_response(response: tuple[Mapping[str, Any] | AeronSparkError | None, bool]) -> None:
    outcome, has_more = response
    if isinstance(outcome, AeronSparkError):
        _use_error(outcome)
    admin_messages.encode_response(outcome, has_more=has_more)


# Records of transfers, one after the other: kind, length (u16), payload
_RECORD: Final = struct.Struct(">BH")


def _transfers(source: Random) -> bytes:
    found = b""
    for number in range(source.randrange(1, 4)):
        content = source.randbytes(source.choice((0, 3, 50)))
        start = transfers.TransferStart(number, source.choice(tuple(transfers.Purpose)), len(content), 64, "name.csv")
        for kind, payload in transfers.send_buffer(start, content, chunk_bytes=20):
            found += _RECORD.pack(kind, len(payload)) + payload
    failed = transfers.encode_failed(1, "a text", by_receiver=source.random() < 0.5, reason="limit")
    return found + _RECORD.pack(transfers.TransferRecord.FAILED, len(failed)) + failed


def _start(source: Random) -> bytes:
    purpose = source.choice(tuple(transfers.Purpose))
    return transfers.encode_start(transfers.TransferStart(source.randrange(99), purpose, 2**40, 64, "name.csv"))


def _long_transfers(size: int) -> dict[str, bytes]:
    starts = b"".join(
        _RECORD.pack(1, 18) + transfers.START.pack(number, transfers.Purpose.FILE, 0, 2**60)[:18].ljust(18, b"\0")
        for number in range(size // 22)
    )
    return {"many starts": starts}


class _Sink:
    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> None:
        self.size += len(data)

    def close(self) -> int:
        return self.size

    def discard(self) -> None:
        pass


def _assemble(data: bytes) -> list[Any]:
    """Give each record to an assembly; an error of one record does not end it."""
    assembly = transfers.TransferAssembly(lambda start: _Sink(), memory_limit=40, max_memory_bytes=60)
    steps = {1: assembly.start, 2: assembly.add_data, 3: assembly.finish, 4: assembly.fail}
    found, at = [], 0
    while at + _RECORD.size <= len(data):
        kind, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        try:
            found.append(steps[kind % 4 + 1](data[at : at + length]))
        except (DataFormatError, RefusedError):
            found.append(None)
        at += length
    assert assembly.memory_bytes <= 60
    found += assembly.close()
    assert not assembly.memory_bytes
    return [one for one in found if one is not None]


def _use_failed(failed: transfers.TransferFailed) -> None:
    _use_error(failed.error)
    transfers.encode_failed(failed.transfer_id, failed.text, by_receiver=failed.by_receiver, reason=failed.reason)


def _source(source: Random) -> bytes:
    return source.choice(
        (b"10.0.0.1:4000", b"[fe80::1%eth0]:4000", b"aeron:ipc", b"[::ffff:10.0.0.1]:65535", b"[2001:db8::1]:1")
    )


def _echo(source: Random) -> bytes:
    address = texts.EchoAddress(4_000, 4_001, 77)
    return source.choice((
        texts.encode_hello_1(4_000), texts.encode_hello_2(0xAB), texts.encode_connect(-5, 0xAB, address),
        texts.encode_refusal(-5, "server full"), texts.encode_echo(b"hello"), texts.encode_error("bad message"),
    ))  # fmt: skip


def _decode_echo(data: bytes) -> tuple[Any, ...]:
    return (
        texts.decode_hello_1(data), texts.decode_hello_2(data), texts.decode_response(data, -5, 0xAB),
        texts.decode_reply(data), str(texts.Unreadable(data)),
    )  # fmt: skip


PROTOCOL: Final = (
    Decoder("call head", rpc_messages.decode_call_head, _call, messagepack(8)),
    Decoder("creation head", rpc_messages.decode_creation_head, _object, messagepack(9)),
    Decoder(
        "call",
        lambda data: rpc_messages.decode_call(data, TYPES, REFERENCES),
        _call,
        messagepack(8),
        use=_use_call,
        any_number=True,
    ),
    Decoder(
        "object",
        lambda data: rpc_messages.decode_object(data, TYPES, REFERENCES),
        _object,
        messagepack(9),
        use=_use_object,
        any_number=True,
    ),
    Decoder(
        "return",
        lambda data: rpc_messages.decode_return(data, TYPES, REFERENCES),
        _return,
        messagepack(9),
        use=_use_return,
        any_number=True,
    ),
    Decoder(
        "message",
        lambda data: TYPES.decode(data, REFERENCES),
        lambda source: bytes(TYPES.encode(_plain(source), REFERENCES)),
        messagepack(2),
        use=lambda value: TYPES.encode(value, REFERENCES),
        any_number=True,
    ),
    Decoder("frame", frames.decode, _frame, BYTES, use=_use_frame, long_samples=_long_frames),
    Decoder(
        "encrypted frame",
        lambda data: FrameDecryptor(_KEY).decrypt(data),
        _sealed_frame,
        BYTES,
        (TamperedError,),
        share=4,
    ),
    Decoder("handshake packet", handshake_packets.decode, _packet, BYTES, use=_use_packet),
    Decoder(
        "client done",
        handshake_packets.decode_client_done,
        _client_done,
        messagepack(2),
        use=handshake_packets.encode_client_done,
        seal=lambda data: data[: handshake_packets.DONE_PAYLOAD_BYTES].ljust(
            handshake_packets.DONE_PAYLOAD_BYTES, b"\0"
        ),
    ),
    *map(_payload_decoder, _PAYLOADS),
    Decoder("hint", lambda data: decode_hint(data.decode("latin-1")), _hint, WORDS, use=encode_hint),
    Decoder("error", decode_error, _error, JSON, use=_use_error),
    Decoder(
        "admin request",
        admin_messages.decode_request,
        _admin_request,
        JSON,
        use=lambda request: admin_messages.encode_request(*request),
        any_number=True,
    ),
    Decoder(
        "admin response",
        admin_messages.decode_response,
        _admin_response,
        JSON,
        use=_use_admin_response,
        any_number=True,
    ),
    Decoder("transfer start", transfers.decode_start, _start, BYTES, use=transfers.encode_start),
    Decoder(
        "transfer failed",
        transfers.decode_failed,
        lambda source: transfers.encode_failed(1, "a text", reason="limit"),
        BYTES,
        use=_use_failed,
    ),
    Decoder("transfers", _assemble, _transfers, BYTES, (), long_samples=_long_transfers),
    Decoder("source", lambda data: parse_source(data.decode("latin-1")), _source, WORDS, use=str),
    Decoder("echo message", _decode_echo, _echo, WORDS, ()),
)
