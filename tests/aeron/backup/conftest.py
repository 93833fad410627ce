"""Nodes with small segments: one for the tests of a module, and others on restored archives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from aeron_spark.node import NodeHandle
from tests.aeron.streams import own_node

SETTINGS: Final[dict[str, Any]] = {"term_length": "1m", "ipc_term_length": "1m", "segment_length": "1m"}


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name, **SETTINGS) as handle:
        yield handle
