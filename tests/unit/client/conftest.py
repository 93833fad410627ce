"""A world for each test. The test fails if it leaves anything in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.endpoint.endpoints import World


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    one = World(virtual=request.node.get_closest_marker("threads") is None)
    yield one
    one.close()
