"""Spark starts a process for each streaming query only to plan it: its JVM starts with its quick compiler only."""

from __future__ import annotations

import pytest

from aeron_spark.aeron import jvm
from aeron_spark.options import ReadOptions
from aeron_spark.protocol.keypair import keypair_from, public_text
from aeron_spark.spark.reader import AeronStreamReader, Task
from aeron_spark.spark.row_values import FRAMED

DIRECT = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": "/nowhere"}
SERVER = {
    "server": "host:20121",
    "stream": "prices",
    "serverKey": public_text(keypair_from(bytes(range(32))).public),
    "aeronDir": "/nowhere",
}


@pytest.mark.parametrize(
    ("options", "is_short"),
    [
        (SERVER, True),
        (SERVER | {"maxRowsPerTrigger": "5"}, True),
        (DIRECT, True),
        (DIRECT | {"maxRowsPerTrigger": "5"}, False),  # it counts the rows of each batch
    ],
)
def test_a_planner_expects_a_short_use_of_java_unless_it_counts_rows(
    options: dict[str, str], is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[None] = []
    monkeypatch.setattr(jvm, "expect_short_use", lambda: expected.append(None))
    monkeypatch.setattr(Task, "stream", lambda task: _Unused())
    reader = AeronStreamReader(Task(ReadOptions.parse(options, streaming=True), "framed", FRAMED, "this host"))
    for _ in range(2):
        assert reader.reportLatestOffset() is None
    assert len(expected) == is_short


class _Unused:
    """A planner that has listed no recording."""

    def ends(self) -> dict[str, int]:
        return {}

    def lag(self) -> None:
        return None
