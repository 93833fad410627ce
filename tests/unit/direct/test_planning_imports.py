"""Spark starts a process for each streaming query only to plan it: that process loads little."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.programs import ROOT

PROGRAM = """
import json, sys
import aeron_spark.spark.source, aeron_spark.spark.reader
import aeron_spark.{}
print(json.dumps(list(sys.modules)))
"""
HEAVY = {"asyncio", "pandas", "pyarrow.compute"}
JAVA = {"jpype", "cryptography"}
OF_WRITERS = {"direct.writing", "stream_client.server_writer", "stream_client.staging", "rows"}
OF_SERVERS = {"endpoint.server_endpoint", "keys.clients_file", "options.server_options", "server"}
OF_TASKS = {"aeron.row_sources", "sbe.table"}
OF_CLIENTS = {"client", "endpoint", "keys", "msgspec", "options.endpoint_options", "protocol.grants", "stream_client"}


@pytest.mark.parametrize(
    ("log", "unwanted", "own", "most"),
    [
        ("direct.archive_log", HEAVY | JAVA | {"msgspec"}, OF_WRITERS | OF_SERVERS | OF_TASKS | OF_CLIENTS, 70),
        ("client.aeron_dialer, aeron_spark.stream_client.server_log", HEAVY, OF_WRITERS | OF_SERVERS | OF_TASKS, 150),
    ],
    ids=["direct", "server"],
)
def test_planning_loads_no_module_of_another_task(log: str, unwanted: set[str], own: set[str], most: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(log)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert "pyarrow" in loaded
    assert not loaded & (unwanted | {f"aeron_spark.{name}" for name in own})
    assert len([name for name in loaded if name.startswith("aeron_spark")]) <= most
