"""Ten types of SBE messages go exactly once into ten Delta tables, through kills of the query and newer schemas.

Three producers in separate processes publish messages of three versions of one schema. The query begins with the first
version; its schema file is replaced twice, and it continues with the old checkpoint. Each time, messages of the newer
version are already in the stream. A row has what the schema of that moment knows of the message.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from aeron_spark.waiting import Deadline
from tests.e2e.message_tables import UNKNOWN
from tests.e2e.processes import TIMEOUT_S, Producer, QuerySetup, SparkProgram
from tests.sbe_versions import MESSAGES, VERSION_GAP, VERSIONS, message_of, number_of, row_of, schema_text, version_of
from tests.waiting import poll_until

pytestmark = pytest.mark.delta

TABLES: Final = (UNKNOWN, *(message.name for message in MESSAGES))
LIMITS: Final = {"maxRowsPerTrigger": "400"}  # of the batches in which the query is killed
MEAN_PAUSE_S: Final = 0.5  # of a producer between two groups of messages
CHEAP_DELTA: Final = {"spark.databricks.delta.snapshotPartitions": "1", "spark.databricks.delta.stats.collect": "false"}
END_TIMEOUT_S: Final = 5 * TIMEOUT_S  # of the query that reads all that is left
SOAK_KILLS: Final = int(os.environ.get("SBE_KILLS", "24"))

Key = tuple[int, int]


@dataclass
class TablesQuery:
    """The query from the stream of ``query_setup`` into a table a message type, which is killed and started again."""

    query_setup: QuerySetup
    interrupted: int = 0  # kills in a batch that some of its tables had, and others had not

    @property
    def folder(self) -> Path:
        """The folder of the tables."""
        return self.query_setup.folder / "tables"

    def replace_schema(self, version: int) -> None:
        """Put the schema of this version in the place of the query's schema file."""
        new = self.query_setup.folder / "new.xml"
        new.write_text(schema_text(version))
        new.replace(self.query_setup.folder / "schema.xml")

    def start(self, spark: SparkProgram, version: int, limits: Mapping[str, str] = LIMITS, **trigger: Any) -> None:
        """Start the query, or continue it from its checkpoint. ``version`` is that of its schema."""
        options = {**self.query_setup.options, "startingOffsets": "earliest", **limits}
        spark.request(
            "tables",
            name="q",
            options=options,
            schema=str(self.query_setup.folder / "schema.xml"),
            label=version,
            folder=str(self.folder),
            checkpoint=str(self.query_setup.checkpoint),
            **trigger,
        )

    def last_batches(self) -> dict[str, int]:
        """Return the number of the last batch that each table has."""
        return {name: _last_batch(self.folder / name) for name in TABLES}

    def kill_at_random(self, spark: SparkProgram, version: int, rng: random.Random) -> None:
        """Kill the query in its next new batch, after a random number of its tables have been written."""
        batch, written = max(self.last_batches().values()) + 1, rng.randint(1, len(MESSAGES))
        deadline = Deadline(TIMEOUT_S, f"batch {batch} in {written} tables")
        seen: Counter[str] = Counter()
        while seen.total() < written:
            failure = spark.request("state", name="q")["failure"]
            assert failure is None, failure
            time.sleep(0.1)
            deadline.idle(f"the last batches of the tables: {self.last_batches()}")
            found = Counter(name for name, last in self.last_batches().items() if last >= batch)
            if found != seen:
                deadline.progress()
                seen = found
        time.sleep(rng.uniform(0, 0.5))  # kill at a random time of the next writes
        spark.kill_group()
        last = self.last_batches()
        known = (UNKNOWN, *(message.name for message in MESSAGES if message.since <= version))
        self.interrupted += len({last[name] for name in known}) > 1

    def finish(self, spark: SparkProgram, version: int) -> None:
        """Let the query read all that is recorded, until it ends by itself."""
        self.start(spark, version, limits={}, availableNow=True)
        poll_until(
            lambda: not spark.request("state", name="q")["active"], END_TIMEOUT_S, "the query to end", interval_s=0.5
        )
        failure = spark.request("state", name="q")["failure"]
        assert failure is None, failure

    def rows(self, spark: SparkProgram, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table as Spark reads them."""
        path = self.query_setup.folder / "table.arrow"
        spark.request("export", table=str(self.folder / name), path=str(path))
        with pa.OSFile(str(path), "rb") as file:
            rows: list[dict[str, Any]] = pa.ipc.open_file(file).read_all().to_pylist()
        return rows


def _last_batch(table: Path) -> int:
    """Return the number of the last batch in a Delta table, by its log; -1 if it has none."""
    last = -1
    for commit in (table / "_delta_log").glob("*.json"):
        for line in commit.read_text().splitlines():
            last = max(last, json.loads(line).get("txn", {}).get("version", -1))
    return last


def run_with_kills(query_setup: QuerySetup, rng: random.Random, kills: int) -> None:
    """Kill the query so many times while three producers publish, and compare all tables with the archive."""
    query = TablesQuery(query_setup)
    with contextlib.ExitStack() as stack:
        producers: list[Producer] = []
        for turn in range(kills + 1):
            version = VERSIONS[len(VERSIONS) * turn // (kills + 1)]
            for newer in VERSIONS[len(producers) : version + 1]:  # a newer producer begins before the newer schema
                producers.append(stack.enter_context(producing(query_setup, rng, newer)))
                producers[-1].await_acked(1)
            query.replace_schema(version)
            spark = SparkProgram(query_setup.folder / "spark", conf=CHEAP_DELTA)
            stack.callback(spark.close)
            if turn < kills:
                query.start(spark, version)
                query.kill_at_random(spark, version, rng)
        ledgers = [producer.finish() for producer in producers]
        recorded = {at: number_of(data) for at, data in query_setup.recorded().items()}
        acked = {number for ledger in ledgers for number in ledger.acked}
        assert acked <= set(recorded.values())
        assert len(set(recorded.values())) == len(recorded)
        query.finish(spark, version)
        read_with = check_tables({name: query.rows(spark, name) for name in TABLES}, recorded)
    assert query.interrupted, "no kill was between two tables of a batch"
    # messages of each version were read with the schema before and with their own
    assert {(1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (1, 3)} <= read_with, read_with


def producing(query_setup: QuerySetup, rng: random.Random, version: int) -> Producer:
    """Publish messages of a version in a separate process until the end of the ``with`` block."""
    ledger, first, seed = query_setup.folder / f"ledger-{version}", (version - 1) * VERSION_GAP, rng.getrandbits(32)
    return Producer(query_setup.aeron_dir, ledger, first=first, seed=seed, pause=MEAN_PAUSE_S, content="sbe")


def check_tables(tables: Mapping[str, list[dict[str, Any]]], recorded: Mapping[Key, int]) -> set[tuple[int, int]]:
    """Check that each recorded message is once in the right table, with the values that the schema of its run knows.

    A message of a new type is both in ``UNKNOWN`` and in its own table if its batch was killed after the write of
    ``UNKNOWN`` and repeated with a newer schema. Return the pairs of a message's version and its reader's schema.
    """
    found: Counter[tuple[str, Key]] = Counter()
    pairs = set()
    for name, rows in tables.items():
        for row in rows:
            key = row.pop("_aeron_recordingId"), row.pop("_aeron_position")
            number, schema = recorded[key], row.pop("schema")
            expected, message = row_of(number, schema), message_of(number)
            assert (row.pop("_aeron_templateId"), row.pop("_aeron_version")) == (message.id, version_of(number))
            assert name == (UNKNOWN if expected is None else message.name)
            wanted = {} if expected is None else with_later_columns(expected, row_of(number, VERSIONS[-1]))
            assert row == wanted, (number, schema)
            found[name, key] += 1
            pairs.add((version_of(number), schema))
    lost = recorded.keys() - {key for _, key in found}
    assert not lost, f"{len(lost)} messages lost, such as {min(lost)}"
    assert not (more := [at for at, count in found.items() if count > 1]), f"{len(more)} repeated, such as {min(more)}"
    return pairs


def with_later_columns(row: Any, newest: Any) -> Any:
    """Return what an older schema reads of a message, with NULL in the columns that only the newest schema has."""
    match row, newest:
        case dict(), dict():
            return {name: with_later_columns(row.get(name), one) for name, one in newest.items()}
        case list(), list():
            return [with_later_columns(*both) for both in zip(row, newest, strict=True)]
    return row


@pytest.mark.full("a query is killed and started three times, each time with a JVM, beside three producers")
def test_ten_tables_have_each_message_once_after_kills_and_newer_schemas(
    query_setup: QuerySetup, rng: random.Random
) -> None:
    run_with_kills(query_setup, rng, 3)


@pytest.mark.soak
def test_ten_tables_have_each_message_once_after_many_kills_and_newer_schemas(
    query_setup: QuerySetup, rng: random.Random
) -> None:
    run_with_kills(query_setup, rng, SOAK_KILLS)
