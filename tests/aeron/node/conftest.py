"""Real nodes, each in a directory of its own that is gone afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node


@pytest.fixture
def own(aeron_dir: Path) -> Iterator[Path]:
    """The directory of a node that the test may start, kill and forget."""
    yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=10)
    shutil.rmtree(aeron_dir, ignore_errors=True)
