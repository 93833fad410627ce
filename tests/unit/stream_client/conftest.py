"""A server and a connection to it in the process of the test, without Aeron."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stream_client.joined import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with a stream ``s`` of two partitions."""
    made = World(tmp_path / "streams", monkeypatch)
    assert made.server is not None
    made.server.store.create("s", 2, term_bytes=1 << 16)
    yield made
    made.close()
