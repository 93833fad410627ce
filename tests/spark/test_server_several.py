"""A stream that lives on two servers: micro-batches take turns, and a reader has all of it, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aeron_spark.endpoint.keypair import public_text
from aeron_spark.node import NodeHandle
from tests.aeron.streams import number
from tests.spark.queries import read_stream
from tests.spark.served import Served, numbered_rows, read, serving, write
from tests.spark.test_server_exactly_once import copy, forget_last_commit


@pytest.fixture(scope="module")
def second(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A second server on the module's node, with streams of its own."""
    folder = tmp_path_factory.mktemp("second")
    with serving(node, folder, ipc=False, streams_dir=str(folder / "streams")) as one:
        yield one


def test_micro_batches_are_spread_over_two_servers_and_read_once(
    spark: SparkSession, served: Served, second: Served, tmp_path: Path
) -> None:
    source = served.stream()
    write(numbered_rows(spark, 200, 1), served.options(source))
    parts = [one.server.streams.create("spread", 2) for one in (served, second)]
    both = served.options(
        "spread",
        server=",".join(one.server.addresses[0] for one in (served, second)),
        serverKey=",".join(public_text(one.server.public_key) for one in (served, second)),
    )
    frame = read_stream(spark, served.options(source), maxRowsPerTrigger=40).select("value")
    query = copy(frame, both, tmp_path / "c")
    lasts = sorted(part.last(str(query.id)) for part in parts)
    assert lasts[1] - lasts[0] == 1  # each took every second batch
    assert all(any(state.end for state in part.states()) for part in parts)
    before = [part.states() for part in parts]
    forget_last_commit(tmp_path / "c")
    copy(frame, both, tmp_path / "c")
    assert [part.states() for part in parts] == before
    found = read(spark, both, payload="raw").collect()
    assert sorted(number(row.value) for row in found) == list(range(200))
    alone = [read(spark, {**both, "server": one.server.addresses[0], "serverKey": public_text(one.server.public_key)},
                  payload="raw").count() for one in (served, second)]  # fmt: skip
    assert sum(alone) == 200
    assert min(alone) > 0
