"""One driver with the guard for all tests of this package; it has guarded and unguarded channels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aeron.guard.drivers import Driver, guarding_driver
from tests.nodes import new_aeron_dir


@pytest.fixture(scope="package")
def driver(run_name: str) -> Iterator[Driver]:
    with guarding_driver(new_aeron_dir(run_name)) as running:
        yield running
        running.require_alive()
