"""The directory in which a test runs a real node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node


@pytest.fixture
def node_dir(aeron_dir: Path) -> Iterator[Path]:
    """Yield the directory of a node that the test may start and kill. Afterwards stop the node."""
    yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=10)
    shutil.rmtree(aeron_dir, ignore_errors=True)
