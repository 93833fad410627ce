"""The decoders of Arrow payloads and schemas. They run in a process of their own: wrong bytes can end the process.

``python -m tests.unit.fuzz.arrow_decoders SEED COUNT FILE`` gives each decoder inputs, prints its faults, and writes
each input to FILE before a decoder gets it, so that the input after which the process ended is known.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError, OptionError, RefusedError
from aeron_spark.streams.schema_changes import merge
from aeron_spark.wire.arrow import decode_batches, encode_batch
from tests.unit.fuzz.forms import EXTREMES, Form, Part
from tests.unit.fuzz.fuzzing import Decoder, run

MAX_INPUT_BYTES: Final = 64 << 10
MAX_ALLOCATED_BYTES: Final = 24 << 20  # for an input of some KiB: 256 times its bytes, and 16 MiB
_WORD_BYTES: Final = 4


def _parts(data: bytes) -> list[Part]:
    """Return the words of an IPC stream, whose metadata and buffers are aligned to them."""
    return [(at, at + _WORD_BYTES) for at in range(0, len(data) - _WORD_BYTES + 1, _WORD_BYTES)]


def _values() -> tuple[bytes, ...]:
    numbers = (1, 2, 3, 4, 7, 8, 9, 16, 24, 31, 32, 64, 100, 255, 256, 1_000, 65_536, 1 << 24, (1 << 31) - 8, 1 << 30)
    words = [(sign * number).to_bytes(_WORD_BYTES, "little", signed=True) for number in numbers for sign in (1, -1)]
    return (*words, *(one for one in EXTREMES if len(one) == _WORD_BYTES))


def _no_long_values(_: int) -> dict[str, bytes]:
    return {}


ARROW: Final = Form(_parts, _values(), _no_long_values)

_COLUMNS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "int": (pa.int64(), [1, None, -3, 2**62]),
    "text": (pa.string(), ["a", None, "", "longer text ü"]),
    "large_text": (pa.large_string(), ["a", "b", None, "c"]),
    "bytes": (pa.binary(), [b"\0", b"", None, b"abc"]),
    "view": (pa.string_view(), ["a", None, "a text that is longer than twelve bytes", ""]),
    "flag": (pa.bool_(), [True, False, None, True]),
    "list": (pa.list_(pa.int32()), [[1, 2], [], None, [3]]),
    "fixed": (pa.list_(pa.int8(), 2), [[1, 2], None, [3, 4], [5, 6]]),
    "struct": (
        pa.struct([("x", pa.int16()), ("y", pa.string())]),
        [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {}],
    ),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [], None, [("b", None), ("c", 3)]]),
    "coded": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None, "a"]),
    "time": (pa.timestamp("us", "UTC"), [0, 10**15, None, -1]),
    "decimal": (pa.decimal128(10, 2), ["1.00", None, "-3.25", "0.00"]),
    "nothing": (pa.null(), [None] * 4),
    "lists": (pa.large_list(pa.list_(pa.string())), [[["a"], None], None, [], [[]]]),
}


def _column(name: str) -> pa.Array[Any]:
    kind, values = _COLUMNS[name]
    if pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)


def _batch(source: Random) -> pa.RecordBatch:
    names = source.sample(sorted(_COLUMNS), source.randrange(1, 5))
    return pa.RecordBatch.from_arrays([_column(name) for name in names], names=names).slice(0, source.randrange(5))


def _payload(source: Random) -> bytes:
    batch = _batch(source)
    if source.random() < 0.7:
        return encode_batch(batch).to_pybytes()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=source.choice(("lz4", "zstd")))
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _schema(source: Random) -> bytes:
    return _batch(source).schema.serialize().to_pybytes()


def _use_batches(batches: list[pa.RecordBatch]) -> None:
    for batch in batches:
        batch.validate(full=True)
        with suppress(OverflowError, LookupError):  # a time or a time zone that Python does not have
            batch.to_pylist()
        encode_batch(batch)
        str(batch.schema)


class _Bounded:
    """Runs a decoder, and refuses that it allocates much; the input is in ``memory`` before."""

    def __init__(self, decode: Callable[[bytes], Any], memory: mmap.mmap | None = None) -> None:
        self._decode = decode
        self._memory = memory

    def __call__(self, data: bytes) -> Any:
        if self._memory is not None:
            self._memory[: 4 + len(data)] = len(data).to_bytes(4, "little") + data
        pool = pa.default_memory_pool()
        before = pool.max_memory() or 0
        try:
            return self._decode(data)
        finally:
            allocated = pool.max_memory() or 0
            if allocated > max(before, pool.bytes_allocated() + MAX_ALLOCATED_BYTES):
                raise AssertionError(f"allocates {allocated >> 20} MiB for {len(data)} bytes")


_WANTED: Final = pa.schema([pa.field(name, kind) for name, (kind, _) in _COLUMNS.items()])
_KNOWN: Final = pa.schema([("int", pa.int64()), ("text", pa.string())]).serialize().to_pybytes()


def arrow_decoders(memory: mmap.mmap | None = None) -> tuple[Decoder, ...]:
    """Return the decoders, which write each input to ``memory`` first."""

    def bounded(decode: Callable[[bytes], Any]) -> _Bounded:
        return _Bounded(decode, memory)

    refused = (DataFormatError, RefusedError, OptionError)
    return (
        Decoder("arrow payload", bounded(lambda data: list(decode_batches(data))), _payload, ARROW, use=_use_batches),
        Decoder(
            "arrow payload of a schema", bounded(lambda data: list(decode_batches(data, None, _WANTED))), _payload,
            ARROW, use=_use_batches,
        ),
        Decoder("arrow schema", bounded(lambda data: merge(None, data)), _schema, ARROW, refused),
        Decoder("arrow schema of a stream", bounded(lambda data: merge(_KNOWN, data)), _schema, ARROW, refused),
    )  # fmt: skip


def main() -> int:
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    path.write_bytes(bytes(4 + MAX_INPUT_BYTES))
    failed = False
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for decoder in arrow_decoders(memory):
            outcome = run(decoder, seed, count)
            print(f"{decoder}: {outcome.accepted} accepted, slowest {1_000 * outcome.slowest_s:.2f} ms", flush=True)
            for fault in outcome.faults:
                failed = True
                print(f"FAULT {fault}", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
