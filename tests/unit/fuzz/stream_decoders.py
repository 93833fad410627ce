"""The decoders of rows and positions: messages of bulk links, the wire format, offsets and checkpoints."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError
from aeron_spark.log.api import Mark, ServerStream, canonical_channel, direct_stream
from aeron_spark.log.epochs import Epochs
from aeron_spark.log.offsets import Finished, Offset, varint
from aeron_spark.options.values import parse_offsets
from aeron_spark.spark.writer import Progress, token_of
from aeron_spark.stream_client.reader import Positions
from aeron_spark.streams.writers import Acknowledged, parse_stamp, stamp_text
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.wire import chunks as chunk
from aeron_spark.wire.bulk_messages import BulkMessageKind, decode_bulk_message, encode_bulk_head
from aeron_spark.wire.chunks import Group, Reassembler, split
from aeron_spark.wire.staged_items import StagedGroup, encode_group_item, encode_values_item, read_items
from aeron_spark.wire.values import Values, read_groups
from tests.unit.fuzz.forms import BYTES, JSON, WORDS, colliding_numbers
from tests.unit.fuzz.fuzzing import Decoder


def random_epochs(source: Random) -> Epochs:
    begins = sorted(source.sample(range(0, 6_400, 32), source.randrange(1, 4)))
    return Epochs(tuple((source.randrange(1, 2**63), begin) for begin in begins))


def _bulk(source: Random) -> bytes:
    kind = source.choice(tuple(BulkMessageKind))
    return encode_bulk_head(source.randrange(2**32), kind, 4_096) + source.randbytes(9)


def _header(source: Random, rows: int = 1) -> chunk.Header:
    content = chunk.Content.BYTES if rows == 1 else chunk.Content.ARROW
    return chunk.Header(
        content, 0, rows, published_ns=10**18, batch=source.choice((-1, 7)), writer=source.choice(("", "w-1"))
    )


def _messages(source: Random) -> list[bytes]:
    """Return the messages of some groups, also of several chunks."""
    found = []
    for _ in range(source.randrange(1, 4)):
        header = _header(source, source.choice((1, 1, 5)))
        for one in split(source.randbytes(source.choice((0, 5, 60, 200))), header, max_message_bytes=140):
            found.append(one.encode_header(0) + one.payload.to_pybytes())
    return found


def _sealed_chunk(data: bytes) -> bytes:
    crc = zlib.crc32(data[chunk.CRC_END :], zlib.crc32(data[: chunk.CRC_BEGIN]))
    return data[: chunk.CRC_BEGIN] + crc.to_bytes(4, "little") + data[chunk.CRC_END :]


_LENGTH_BYTES: Final = 2  # of a message among several


def _joined(messages: list[bytes]) -> bytes:
    return b"".join(len(one).to_bytes(_LENGTH_BYTES, "big") + one for one in messages)


def _divided(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at + _LENGTH_BYTES <= len(data):
        end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
        found.append(data[at + _LENGTH_BYTES : end])
        at = end
    return found


def _sealed_messages(data: bytes) -> bytes:
    return _joined([_sealed_chunk(one) if len(one) > chunk.CRC_END else one for one in _divided(data)])


def _read_groups(data: bytes) -> list[Values | Group]:
    messages = _divided(data)
    array = pa.array(messages, pa.binary())
    positions = pa.array(range(0, 160 * len(messages), 160), pa.int64())
    return list(read_groups(Reassembler(), array, positions))


def _long_groups(size: int) -> dict[str, bytes]:
    header = chunk.Header(chunk.Content.BYTES, 0)
    whole = chunk.encode(header, b"")
    chunks = [
        one.encode_header(0) + one.payload.to_pybytes()
        for one in split(bytes(size // 80), header, max_message_bytes=73)
    ]
    return {"values": _joined([whole] * (size // len(whole))), "chunks": _joined(chunks)}


def _long_stage(size: int) -> dict[str, bytes]:
    values = b"".join(one.to_pybytes() for one in encode_values_item(pa.array([], pa.binary())))
    group = b"".join(one.to_pybytes() for one in encode_group_item(chunk.Header(chunk.Content.BYTES, 0), b""))
    many = b"".join(one.to_pybytes() for one in encode_values_item(pa.array([b""] * (size // 4), pa.binary())))
    return {"items of values": values * (size // len(values)), "groups": group * (size // len(group)), "an item": many}


def _use_groups(groups: list[Values | Group]) -> None:
    for one in groups:
        if isinstance(one, Values):
            for array in one.fields.values():
                array.validate(full=True)
                array.to_pylist()
        else:
            assert one.payload.size == one.header.total


def _stage(source: Random) -> bytes:
    parts: list[pa.Buffer] = []
    for _ in range(source.randrange(1, 4)):
        if source.random() < 0.5:
            values: list[bytes] = [source.randbytes(source.randrange(9)) for _ in range(source.randrange(4))]
            reserved = pa.array(range(len(values)), pa.int64()) if source.random() < 0.5 else None
            parts += encode_values_item(pa.array(values, pa.binary()), reserved)
        else:
            parts += encode_group_item(_header(source, source.choice((1, 3))), source.randbytes(source.randrange(30)))
    return b"".join(one.to_pybytes() for one in parts)


def _use_items(items: list[Any]) -> None:
    for one in items:
        if isinstance(one, StagedGroup):
            encode_group_item(one.header, one.payload)
        else:
            assert 0 <= one.longest <= one.values.nbytes
            one.values.validate(full=True)
            encode_values_item(one.values, one.reserved)


def _offset(source: Random) -> bytes:
    archives = source.sample(("embedded", "host:8010", "aeron:udp?endpoint=a:1"), source.randrange(1, 3))
    recordings, prints, done, marks, epochs = {}, {}, {}, {}, {}
    for key in (f"{archive}/{number}" for archive in archives for number in range(source.randrange(3))):
        text = f"{source.randrange(2**32):08x}"
        if source.random() < 0.6:
            recordings[key], prints[key] = source.randrange(2**20) * 32, text
        else:
            done[key] = Finished(source.randrange(2**20) * 32, source.choice((0, 32)), text)
        if source.random() < 0.4:
            marks[key] = Mark(source.randrange(1, 40) * 32, source.randrange(2**32))
        if source.random() < 0.4:
            epochs[key] = random_epochs(source)
    streams = (None, direct_stream("aeron:udp?endpoint=10.0.0.7:40123", 7), ServerStream("prices", {"a:20121": "key"}))
    offset = Offset(
        recordings, prints, done, source.choice((None, dict(recordings))), source.random() < 0.3, dict(recordings),
        source.choice((None, *recordings)), source.choice(streams), epochs, {}, marks, source.choice((None, "raw")),
    )  # fmt: skip
    return json.dumps(offset.to_dict()).encode()


def _parse_offset(data: bytes) -> Offset:
    """Parse an offset as Spark gives it: Spark has parsed the JSON."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataFormatError(str(error)) from None
    return Offset.parse(value)


def _long_offsets(size: int) -> dict[str, bytes]:
    """Return offsets whose packed parts name an archive once, and many of its recordings."""
    name = size // 8
    entries = b"".join((b"\1\1" + bytes(4)) for _ in range(size // 16))
    packed = varint(name) + b"a" * name + varint(size // 16) + entries
    offset = {"done": "", "fingerprints": {}, "marks": base64.b64encode(packed).decode(), "recordings": {}, "v": 1}
    done = {
        "done": base64.b64encode(packed.replace(b"\1\1", b"\1\1\0")).decode(),
        "fingerprints": {},
        "recordings": {},
        "v": 1,
    }
    pairs = " ".join(f"{number:016x}-{number:x}" for number in range(size // 20))
    return {
        "marks of a long name": json.dumps(offset).encode(),
        "done of a long name": json.dumps(done).encode(),
        "epochs": json.dumps(offset | {"marks": "", "epochs": {"a/1": pairs}}).encode(),
        "recordings": json.dumps(
            offset | {"marks": "", "recordings": {f"a/{one}": 0 for one in range(size // 12)}}
        ).encode(),
    }


def _use_offset(offset: Offset) -> None:
    assert Offset.parse(json.loads(json.dumps(offset.to_dict()))) == offset
    offset.archives()
    offset.positions()


def _as_error(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return a decoder of a function that documents ValueError, which its caller makes an error of this package."""

    def decode(data: bytes) -> Any:
        try:
            return parse(data.decode("utf-8", "replace"))
        except ValueError as error:
            if isinstance(error, AeronSparkError):
                raise
            raise DataFormatError(str(error).encode("utf-8", "replace").decode()) from None

    return decode


def _epochs_of(data: bytes) -> Any:
    try:
        return Epochs.from_bytes(data)
    except ValueError as error:
        raise DataFormatError(str(error)) from None


def _use_epochs(epochs: Epochs) -> None:
    for position in (0, 32, 2**62):
        epochs.before(position)
        epochs.has(epochs.newest, position, 2**62)
        epochs.divergence(epochs, position, 2**62)
    assert Epochs.from_bytes(epochs.to_bytes()) == epochs


def _use_text_epochs(epochs: Epochs) -> None:
    _use_epochs(epochs)
    assert Epochs.parse(epochs.to_text()) == epochs


def _positions(source: Random) -> bytes:
    partitions = source.sample(range(8), source.randrange(4))
    epochs = {one: random_epochs(source) for one in partitions if source.random() < 0.5}
    prints = {one: "0a0b0c0d" for one in partitions if source.random() < 0.5}
    return Positions({one: source.randrange(99) * 32 for one in partitions}, epochs, prints).to_json().encode()


def _long_positions(size: int) -> dict[str, bytes]:
    positions = {str(number): 0 for number in colliding_numbers(size // 12)}
    return {
        "partitions": json.dumps(positions).encode(),
        "partitions with epochs": json.dumps({"epochs": {}, "positions": positions, "v": 1}).encode(),
    }


def _stamp(source: Random) -> bytes:
    following = source.choice((None, 7))
    return stamp_text(
        Acknowledged(source.randrange(2**64), 5, following) for _ in range(source.randrange(1, 4))
    ).encode()


def _wanted(source: Random) -> bytes:
    return source.choice((b"earliest", b"latest", b'{"embedded/7": 4096, "8": "latest"}', b'{"a/1": 0}', b"{}"))


def _progress(source: Random) -> bytes:
    servers = source.sample(("a:1", "b:2", "c:3"), source.randrange(1, 4))
    return token_of(9, "a:1", "run-1", {name: Progress(source.choice((-1, 8))) for name in servers}).encode()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _channel(source: Random) -> bytes:
    return source.choice((
        b"aeron:ipc", b"aeron:udp?endpoint=10.0.0.1:40123|interface=lo", b"aeron-spy:aeron:udp?endpoint=[::1]:1|mtu=8k",
        b"aeron:udp?control=h:1|control-mode=dynamic|alias=a", b"aeron:ipc?term-length=64k|sparse=true",
    ))  # fmt: skip


def _parse_channel(data: bytes) -> tuple[str, str]:
    text = data.decode("latin-1")
    return canonical_channel(text), str(ChannelUri.parse(text, foreign=True))


STREAM: Final = (
    Decoder("channel", _parse_channel, _channel, WORDS, (OptionError,)),
    Decoder("bulk message", lambda data: decode_bulk_message(memoryview(data)), _bulk, BYTES),
    Decoder("chunk", chunk.decode, lambda source: source.choice(_messages(source)), BYTES, seal=_sealed_chunk),
    Decoder(
        "groups",
        _read_groups,
        lambda source: _joined(_messages(source)),
        BYTES,
        use=_use_groups,
        seal=_sealed_messages,
        long_samples=_long_groups,
        share=8,
    ),
    Decoder(
        "stage", lambda data: list(read_items(data)), _stage, BYTES, use=_use_items, long_samples=_long_stage, share=4
    ),
    Decoder("offset", _parse_offset, _offset, JSON, use=_use_offset, long_samples=_long_offsets, share=4),
    Decoder("epochs as bytes", _epochs_of, lambda source: random_epochs(source).to_bytes(), BYTES, use=_use_epochs),
    Decoder(
        "epochs as text",
        _as_error(Epochs.parse),
        lambda source: random_epochs(source).to_text().encode(),
        WORDS,
        use=_use_text_epochs,
    ),
    Decoder(
        "positions",
        lambda data: Positions.from_json(_text(data)),
        _positions,
        JSON,
        (OptionError,),
        use=Positions.to_json,
        long_samples=_long_positions,
    ),
    Decoder("stamp", _as_error(parse_stamp), _stamp, WORDS, use=stamp_text),
    Decoder("wanted offsets", _as_error(lambda text: parse_offsets(text, "earliest")), _wanted, JSON),
    Decoder("progress of a query", lambda data: Progress.parse(9, _text(data)), _progress, JSON),
)
