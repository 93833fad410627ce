"""Nodes with small segments: one for the tests of a module, and others on restored archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark.node import NodeHandle
from tests.aeron.streams import own_node
from tests.nodes import new_aeron_dir, remove_node

SETTINGS: Final[dict[str, Any]] = {"term_length": "1m", "ipc_term_length": "1m", "segment_length": "1m"}


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name, **SETTINGS) as handle:
        yield handle


@pytest.fixture
def another_dir(run_name: str) -> Iterator[Path]:
    """The directory of a node that the test may start on a restored archive; it is stopped and removed afterwards."""
    aeron_dir = new_aeron_dir(run_name)
    yield aeron_dir
    remove_node(aeron_dir)
