"""The state machines of an endpoint, which decode what a peer sends in each of their states."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any, Final

from aeron_spark.errors import RefusedError, encode_error
from aeron_spark.protocol import frames
from aeron_spark.protocol.frames import RecordKind, encode_close, encode_refused
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.session import SessionLimits
from aeron_spark.protocol.transfers import encode_failed
from tests.unit.endpoint.virtual_core import End
from tests.unit.fuzz.forms import BYTES, WORDS
from tests.unit.fuzz.fuzzing import Decoder
from tests.unit.protocol.handshakes import ADDRESS, NOW, Joined

_SLOW: Final = 64  # each input needs a handshake up to the state

# A packet at an end of the handshake. All handshakes have the same keys, so that a sample is valid in the next one.


def _at_hello(data: bytes) -> Any:
    return Joined(address=None).image.packet(data, NOW)


def _at_hello_with_cookies(data: bytes) -> Any:
    return Joined(address=ADDRESS).image.packet(data, NOW)


def _at_done(data: bytes) -> Any:
    joined = Joined(address=None)
    joined.to_done()
    return joined.image.packet(data, NOW)


def _at_hello_ack(data: bytes) -> Any:
    joined = Joined(address=None)
    joined.to_opening()
    return joined.client.packet(data, NOW)


def _at_done_ack(data: bytes) -> Any:
    joined = Joined(address=None)
    joined.to_done()
    return joined.client.packet(data, NOW)


def _at_hint(data: bytes) -> Any:
    return Joined(address=None).client.hint(data.decode("latin-1"), NOW)


def _hint(_: Random) -> bytes:
    joined = Joined(address=ADDRESS)
    return joined.image.packet(joined.hello, NOW)[0].reason.encode("latin-1")


def _packet(step: Callable[[Joined], bytes]) -> Callable[[Random], bytes]:
    packet = step(Joined(address=None))
    return lambda source: packet


# Frames at a connection that has sent one record of each kind

_LIMITS: Final = SessionLimits(buffer_bytes=20_000, max_record_bytes=300)
_KINDS: Final = tuple(sorted(kind for kind in frames.RECORD_KINDS if frames.is_sequenced(kind)))


def _end() -> End:
    end = End(_LIMITS, Times(), now=NOW)
    end.core.transfers.begin(RecordKind.CALL, bytes(301), Future(), None)
    for kind in _KINDS:
        end.push(kind, bytes(8))
    end.core.begin_ping(5.0)
    return end


def _receive(data: bytes) -> list[tuple[int, Any]]:
    """Give a connection frames of the peer: each has its length, u16, before it."""
    end, at = _end(), 0
    while at + 2 <= len(data):
        begin, at = at + 2, at + 2 + int.from_bytes(data[at : at + 2], "big")
        end.receive(data[begin:at], NOW)
    end.core.sender.check()
    end.tick(NOW + 2)
    end.core.sender.check()
    return end.new()


def _payload(kind: int, source: Random) -> bytes:
    error = RefusedError("a text", reason="limit")
    match kind:
        case RecordKind.REFUSED:
            return encode_refused(source.randrange(3), error)
        case RecordKind.TRANSFER_FAILED:
            return encode_failed(source.randrange(3), "a text", by_receiver=source.random() < 0.5, reason="limit")
        case RecordKind.CLOSE:
            return encode_close(source.random() < 0.5, source.choice((None, error)))
        case RecordKind.PING | RecordKind.PONG | RecordKind.DELIVERED | RecordKind.MESSAGE_ACK_WANTED:
            return source.randrange(4).to_bytes(8, "big")
    return encode_error(error)[: source.randrange(20)]


def _frames(source: Random) -> bytes:
    found, first = b"", 0
    for _ in range(source.randrange(1, 4)):
        kinds = source.choices((*sorted(frames.RECORD_KINDS), RecordKind.ACK), k=source.randrange(1, 5))
        records = [(kind, 0, _payload(kind, source)) for kind in kinds]
        frame = b"".join(frames.encode(source.randrange(len(_KINDS) + 1), first, records))
        first += sum(map(frames.is_sequenced, kinds))
        found += len(frame).to_bytes(2, "big") + frame
    return found


def _long_frames(size: int) -> dict[str, bytes]:
    found = {}
    for kind in RecordKind:
        payload = b"" if kind == RecordKind.BATCH else _payload(kind, Random(1))
        records = [(int(kind), 0, payload)] * min(
            frames.MAX_RECORDS, size // (len(payload) + 6), 60_000 // (len(payload) + 6)
        )
        frame = b"".join(frames.encode(0, 0, records))
        found[f"records of kind {kind.name}"] = len(frame).to_bytes(2, "big") + frame
    return found


ENDPOINT: Final = (
    Decoder("HELLO at a server", _at_hello, _packet(lambda joined: joined.hello), BYTES, (), share=_SLOW),
    Decoder(
        "HELLO at a server with cookies",
        _at_hello_with_cookies,
        _packet(lambda joined: joined.hello),
        BYTES,
        (),
        share=_SLOW,
    ),
    Decoder("DONE at a server", _at_done, _packet(Joined.to_done), BYTES, (), share=_SLOW),
    Decoder("HELLO_ACK at a client", _at_hello_ack, _packet(Joined.to_hello_ack), BYTES, (), share=_SLOW),
    Decoder(
        "DONE_ACK at a client", _at_done_ack, _packet(lambda joined: joined.to_done_ack()[0]), BYTES, (), share=_SLOW
    ),
    Decoder("hint at a client", _at_hint, _hint, WORDS, (), share=_SLOW),
    Decoder("frames of a connection", _receive, _frames, BYTES, long_samples=_long_frames, share=8),
)
