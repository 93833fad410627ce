"""A world for each test; what is left in it at its end fails the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.connection.ends import World


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()
