"""The node of a test of queries, with the places of a query's table and checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from tests.e2e.processes import QuerySetup
from tests.nodes import remove_node


@pytest.fixture
def query_setup(aeron_dir: Path, tmp_path: Path) -> Iterator[QuerySetup]:
    """A query on a node of one test, with short terms, so that a little data has many boundaries."""
    # long timeouts, so that the tests do not fail on a machine that does not run for ten seconds
    timeouts = {"aeron.client.liveness.timeout": "30s", "aeron.publication.unblock.timeout": "40s"}
    node.start(aeron_dir, ipc_term_length="64k", term_length="64k", properties=timeouts)
    yield QuerySetup(aeron_dir, tmp_path)
    remove_node(aeron_dir)
