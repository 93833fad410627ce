"""Nodes with small segments: one for the tests of a module, and others on restored archives."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark import node as nodes
from aeron_spark.node import NodeHandle
from tests.aeron.streams import close_client, own_node
from tests.leaks import SHARED_MEMORY

SETTINGS: Final[dict[str, Any]] = {"term_length": "1m", "ipc_term_length": "1m", "segment_length": "1m"}


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name, **SETTINGS) as handle:
        yield handle


@pytest.fixture
def another_dir(run_name: str) -> Iterator[Path]:
    """The directory of a node that the test may start on a restored archive; it is stopped and removed afterwards."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    yield aeron_dir
    close_client(aeron_dir)
    nodes.stop(aeron_dir, force=True, timeout=30)
    shutil.rmtree(aeron_dir, ignore_errors=True)
    shutil.rmtree(nodes.local_node_paths(aeron_dir).folder, ignore_errors=True)
