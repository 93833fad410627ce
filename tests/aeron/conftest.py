"""Nodes that the tests of several modules share, by the length of their terms and segments.

A test that counts, kills or fills a node uses a separate one. Each test has separate streams and recordings.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aeron_spark.node import NodeHandle
from tests.aeron.streams import own_node


@pytest.fixture(scope="session")
def node_of_64k(run_name: str) -> Iterator[NodeHandle]:
    """A node with short terms and segments, so that a little data fills many."""
    with own_node(run_name, term_length="64k", ipc_term_length="64k", segment_length="64k") as handle:
        yield handle


@pytest.fixture(scope="session")
def node_of_256k(run_name: str) -> Iterator[NodeHandle]:
    """A node with short terms in segments of the usual length."""
    with own_node(run_name) as handle:
        yield handle


@pytest.fixture(scope="session")
def node_of_16m(run_name: str) -> Iterator[NodeHandle]:
    """A node with terms for long messages, in short segments, so that a little data fills many."""
    with own_node(run_name, term_length="16m", ipc_term_length="16m", segment_length="16m") as handle:
        yield handle
