"""Real nodes, each in a separate directory that is removed after the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node


@pytest.fixture
def own(aeron_dir: Path) -> Iterator[Path]:
    """Yield the directory of a node that the test may start and kill; the fixture stops the node."""
    yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=10)
    shutil.rmtree(aeron_dir, ignore_errors=True)
