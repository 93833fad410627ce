"""With damaged messages and random schemas, the decoder does what the slow decoder of the tests does.

It never crashes, and never reads outside a message.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import OnMalformed, SbeSettings, TimeColumns
from aeron_spark.sbe.table import MessageColumns
from tests.aeron.sbe.decoding import decode_rows
from tests.conftest import SEED
from tests.programs import ROOT
from tests.sbe_random import RandomSchema, mutations
from tests.sbe_reference import Malformed, Other, Reference
from tests.sbe_vectors import FOLDER, MISSING, as_row, read_set, same, set_names

SETTINGS: Final = SbeSettings(
    messages=("*",), others="keep", mode=OnMalformed.PERMISSIVE, times=TimeColumns(explicit=False)
)
SETS: Final = ("car", "car-extension", "market", "market-be", "group-with-data", "nested-groups", "header-extra")


class Comparison:
    """The decoder and the reference of one schema."""

    def __init__(self, schema: Path | str) -> None:
        columns = MessageColumns(load_schema(str(schema)), SETTINGS)
        self._table = columns.table()
        self._structs = {column.name: column for column in columns.columns}
        self._reference = Reference(schema)
        self.counts = {"ok": 0, "malformed": 0, "other": 0}

    def wanted(self, data: bytes) -> dict[str, Any]:
        """Return the row of a message by the reference."""
        row: dict[str, Any] = dict.fromkeys(self._structs)
        try:
            found = self._reference.decode(data)
        except Malformed:
            self.counts["malformed"] += 1
            return row | {"_corrupt_record": data}
        except Other:
            self.counts["other"] += 1
            return row
        self.counts["ok"] += 1
        name = found["message"]
        return row | {"message": name, name: as_row(self._structs[name].children, found["body"])}

    def check(self, messages: list[bytes]) -> None:
        """Compare the rows of messages, which are decoded in one batch."""
        for data, row in zip(messages, decode_rows(self._table, messages), strict=True):
            assert _same_texts(row, self.wanted(data)), data.hex()


def _same_texts(left: Any, right: Any) -> bool:
    """Whether two rows are equal, if any number of U+FFFD counts as one: how many there are differs by library."""
    return same(_shortened(left), _shortened(right))


def _shortened(value: Any) -> Any:
    match value:
        case dict():
            return {name: _shortened(one) for name, one in value.items()}
        case list():
            return [_shortened(one) for one in value]
        case str():
            return re.sub("\ufffd+", "\ufffd", value)
    return value


@pytest.mark.skipif(not set_names(), reason=MISSING)
@pytest.mark.parametrize("name", SETS)
def test_damaged_public_messages_decode_as_the_reference_decodes_them(name: str) -> None:
    comparison = Comparison(FOLDER / name / "schema.xml")
    seed = random.Random(name)
    vectors = [vector.data for vector in read_set(name) if 0 < len(vector.data) < 1_000]
    for data in seed.sample(vectors, 8):
        comparison.check([data, *mutations(data, seed, 150)])
    assert min(comparison.counts["ok"], comparison.counts["malformed"]) > 50, comparison.counts


@pytest.mark.skipif(not set_names(), reason=MISSING)
@pytest.mark.full("every cut and every bit of 200 messages: half a million")
def test_every_cut_and_every_bit_of_200_public_messages() -> None:
    seed = random.Random(1)
    for name in SETS:
        comparison = Comparison(FOLDER / name / "schema.xml")
        vectors = [one.data for one in read_set(name) if one.expected["status"] == "ok" and len(one.data) < 600]
        for data in seed.sample(vectors, min(len(vectors), 40)):
            cut = [data[:length] for length in range(len(data))]
            comparison.check(cut + [_flipped(data, bit) for bit in range(8 * len(data))])


def _flipped(data: bytes, bit: int) -> bytes:
    copy = bytearray(data)
    copy[bit // 8] ^= 1 << bit % 8
    return bytes(copy)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_random_messages_of_random_schemas_decode_as_the_reference_decodes_them(seed: int) -> None:
    check_random_schema(seed)


@pytest.mark.soak
def test_a_million_messages_of_random_schemas_decode_as_the_reference_decodes_them_soak() -> None:
    first = int(os.environ.get(SEED, "1")) * 100_000
    for seed in range(first, first + 22_000):  # 45 messages of each
        try:
            check_random_schema(seed)
        except Exception as error:
            raise AssertionError(f"check_random_schema({seed}) failed") from error


def check_random_schema(seed: int, *, alone: bool = False) -> None:
    """Compare messages and damaged messages of a random schema; ``alone``: each in a batch and memory of its own."""
    source = random.Random(seed)
    schema = RandomSchema(source)
    comparison = Comparison(schema.text)
    messages = [schema.message() for _ in range(5)]
    for message in messages:
        comparison.wanted(message)
    assert comparison.counts["ok"] == 5, "the encoder made a message that the reference refuses"
    damaged = [copy for message in messages for copy in mutations(message, source, 8)]
    for batch in [[one] for one in messages + damaged] if alone else [messages + damaged]:
        comparison.check(batch)


def test_no_byte_outside_a_message_is_read() -> None:
    """In a JVM that checks each access, and in which a message is all of the memory, such a read fails."""
    program = """
import random
from aeron_spark.aeron import jvm
jvm.start("-Dagrona.disable.bounds.checks=false")
buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
assert buffer.SHOULD_BOUNDS_CHECK
from tests.aeron.sbe.test_fuzzing import check_random_schema
for seed in range(40):
    check_random_schema(seed, alone=True)
from tests.aeron.sbe.test_counts import NEWER, check_damaged
for part in NEWER:
    check_damaged(part, alone=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
