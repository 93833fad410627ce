"""The node of the tests of stores and servers in one worker of pytest, and the check of ended endpoints.

Workers do not share the node, because two stores of one archive would take the same stream ids.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.node import NodeHandle
from tests.aeron.ended import check_ended_endpoints, ended_endpoints
from tests.aeron.streams import Stream, open_stream, own_node

__all__ = ["check_ended_endpoints", "ended_endpoints"]


@pytest.fixture(scope="session")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with short segments. A module whose tests need another one overrides this fixture."""
    with own_node(run_name, term_length="16m", ipc_term_length="16m", segment_length="16m") as handle:
        yield handle


@pytest.fixture
def stream(node_of_64k: NodeHandle) -> Iterator[Stream]:
    """A recorded stream of one test, with short terms and segments."""
    for one in open_stream(node_of_64k):
        yield one.record()


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """Mount and yield a file system of 64 MiB, the size of /dev/shm in a container."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
