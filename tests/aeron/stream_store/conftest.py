"""One node for all tests of a module, and a store on it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.direct.archives import embedded
from aeron_spark.node import NodeHandle
from aeron_spark.streams.store import StreamStore
from tests.aeron.stream_store.rows import SETTINGS, delete_streams
from tests.aeron.streams import own_node


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with short segments."""
    with own_node(run_name, term_length="16m", ipc_term_length="16m", segment_length="16m") as handle:
        yield handle


@pytest.fixture
def streams(node: NodeHandle, tmp_path: Path) -> Iterator[StreamStore]:
    """A store for one test, whose streams are deleted afterwards."""
    with StreamStore(tmp_path / "streams", embedded(node), SETTINGS) as store:
        yield store
    delete_streams(store, node)
