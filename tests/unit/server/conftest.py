"""A world (network, server, clients) for each test. Its ``close`` fails a test that leaves resources in use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.connection.endpoints import World


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()
