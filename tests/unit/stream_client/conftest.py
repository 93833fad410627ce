"""A server and a connection to it in the process of the test, without Aeron."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stream_client.joined import World, world_with_stream


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with a stream ``s`` of two partitions."""
    with world_with_stream(tmp_path / "streams", monkeypatch, 2) as made:
        yield made
