"""A producer in a separate process, which keeps a ledger of the offered and the acknowledged rows.

    python -m tests.e2e.producer AERON_DIR STREAM_ID LEDGER FIRST_ID SEED PAUSE CONTENT

It publishes rows with ids that are never used again until its standard input ends. CONTENT is ``text``, or ``sbe`` for
the messages of :mod:`tests.sbe_versions`. Each line of the ledger is

    offered FIRST COUNT          written before the rows are published
    acked FIRST COUNT            the archive has recorded all rows
    failed FIRST COUNT ERROR     all, some or none of the rows may be recorded; they are not published again
"""

from __future__ import annotations

import random
import select
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa

from aeron_spark.direct.writing import DirectAppender
from aeron_spark.errors import AeronSparkError
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from tests.sbe_versions import encode_message

MAX_ROWS: Final = 16  # of one acknowledgement
MAX_PADDING: Final = 2500  # bytes; some rows are longer than a frame


def value_of(row: int) -> bytes:
    """Return the bytes of a row: its number, and padding that depends on the number."""
    checksum = zlib.crc32(row.to_bytes(8, "little"))
    length = checksum % 100 if checksum % 7 else checksum % MAX_PADDING
    return f"{row}:".encode() + bytes([97 + checksum % 26]) * length


def row_of(value: bytes) -> int:
    """Return the number of a row, after a check of all its bytes."""
    row = int(value.partition(b":")[0])
    assert value == value_of(row), f"row {row} was changed"
    return row


@dataclass(frozen=True)
class Ledger:
    """The content of a producer's ledger."""

    offered: frozenset[int]
    acked: frozenset[int]
    failures: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read the complete lines of the file."""
        offered: set[int] = set()
        acked: set[int] = set()
        failures = []
        text = path.read_text() if path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            event, first, count, *rest = line.split(" ", 3)
            rows = range(int(first), int(first) + int(count))
            if event == "offered":
                offered.update(rows)
            elif event == "acked":
                acked.update(rows)
            else:
                failures.append(rest[0])
        return cls(frozenset(offered), frozenset(acked), tuple(failures))


def options_of(aeron_dir: str, stream_id: str) -> WriteOptions:
    """Return the options with which rows are published and recorded."""
    return WriteOptions.parse(
        {
            "channel": "aeron:ipc",
            "streamId": stream_id,
            "aeronDir": aeron_dir,
            "ack": "archive",
            "record": "auto",
            "offerTimeout": "10s",
        },
        streaming=False,
    )


CONTENTS: Final[dict[str, Callable[[int], bytes]]] = {"text": value_of, "sbe": encode_message}


def publish(options: WriteOptions, encode: Callable[[int], bytes], first: int, count: int, out: TextIO) -> None:
    """Publish rows; write them to the ledger before, and the result after it."""
    print(f"offered {first} {count}", file=out)
    try:
        appender = DirectAppender(options, Source("producer"))
        appender.raw(pa.array([encode(one) for one in range(first, first + count)], pa.binary()))
        appender.finish()
        print(f"acked {first} {count}", file=out)
    except AeronSparkError as error:
        print(f"failed {first} {count} {type(error).__name__}: {' '.join(str(error).split())}", file=out)


def main(aeron_dir: str, stream_id: str, ledger: str, first: str, seed: str, pause: str, content: str) -> None:
    """Publish until standard input ends."""
    rng = random.Random(int(seed))
    options = options_of(aeron_dir, stream_id)
    row = int(first)
    with open(ledger, "a", buffering=1, encoding="utf-8") as out:
        while not select.select([sys.stdin], [], [], rng.uniform(0, 2 * float(pause)))[0]:
            count = rng.randint(1, MAX_ROWS)
            publish(options, CONTENTS[content], row, count, out)
            row += count


if __name__ == "__main__":
    main(*sys.argv[1:])
