"""Spark starts a process for each streaming query only to plan it: that process loads little."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.programs import ROOT

PROGRAM = """
import json, sys
import aeron_spark.direct.archive_log, aeron_spark.log.decoding, aeron_spark.log.query, aeron_spark.log_factory
print(json.dumps(list(sys.modules)))
"""
HEAVY = {"jpype", "cryptography", "pyarrow.compute", "pandas", "aeron_spark.sbe.table", "aeron_spark.stream_client"}


def test_planning_loads_no_java_and_no_heavy_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert "pyarrow" in loaded
    assert not loaded & HEAVY
