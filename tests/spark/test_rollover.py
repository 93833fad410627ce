"""When a publication reaches its maximum position, the sink continues with a new one; no row is lost or repeated."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import make_batch, read_table, save

TERM: Final = 64 << 10
LAST_TERM: Final = 2**31 - 1  # terms are counted in 31 bits
INITIAL_TERM_IDS: Final = (0, -7, 2**31 - 1)  # the term ids after the last one wrap around


def make_channel_near_its_end(initial: int, remaining: int) -> str:
    """Return a channel whose publication starts ``remaining`` bytes before its maximum position, in its last term."""
    term_id = (initial + LAST_TERM + 2**31) % 2**32 - 2**31
    return f"aeron:ipc?term-length=64k|init-term-id={initial}|term-id={term_id}|term-offset={TERM - remaining}"


def make_cases(*payloads: str) -> list[Any]:
    """Return all pairs of payload and initial term id; `make test` runs one of each, as they are independent."""
    more = pytest.mark.full("the same with other initial term ids")
    return [
        pytest.param(payload, initial, marks=() if initial == INITIAL_TERM_IDS[index] else more)
        for index, payload in enumerate(payloads)
        for initial in INITIAL_TERM_IDS
    ]


@pytest.mark.parametrize(("payload", "initial"), make_cases("raw", "framed", "arrow"))
def test_small_rows_continue_in_a_new_publication(stream: Stream, payload: str, initial: int) -> None:
    values = [value.decode() for value in numbered(0, 600, 300)]
    options = {**stream.options, "channel": make_channel_near_its_end(initial, 16 << 10), "payload": payload}
    options["maxMessageBytes"] = "4k"  # so that arrow, too, writes several messages before the end
    save(options, [make_batch(*values)])
    found = read_table(stream.options, payload="auto", includeMetadata=True)
    assert Counter(texts(found)) == Counter(values)
    rows = Counter(found["recordingId" if payload == "raw" else "_aeron_recordingId"].to_pylist())
    assert len(rows) == 2, f"expected one publication up to the maximum position and one after it: {rows}"
    assert min(rows.values()) > 10
    first = stream.archive.recording(min(rows))
    assert first.start_position == (LAST_TERM * TERM) + TERM - (16 << 10)


@pytest.mark.parametrize(("payload", "initial"), make_cases("framed", "arrow"))
def test_a_group_of_chunks_that_reaches_the_maximum_position_is_written_again(
    stream: Stream, payload: str, initial: int
) -> None:
    values = [value.decode() for value in numbered(0, 3, 40_000)]
    options = {**stream.options, "channel": make_channel_near_its_end(initial, 60 << 10), "payload": payload}
    options["maxMessageBytes"] = "4k"
    save(options, [make_batch(*values)])
    found = read_table(stream.options, payload="auto", includeMetadata=True)
    assert sorted(texts(found)) == values
    # 60 KiB hold one group and a part of the next one, which is complete only in the second recording.
    assert sorted(Counter(found["_aeron_recordingId"].to_pylist()).values()) == [1, 2]
    first_chunks = [value for value in read_table(stream.options)["value"].to_pylist() if value[6] & 1]
    assert len(first_chunks) == 4, "the second group must begin twice"


def texts(table: pa.Table) -> list[str]:
    """Return the values of a table, which are bytes or texts, as texts."""
    return [str(value) for value in table["value"].cast(pa.string()).to_pylist()]
