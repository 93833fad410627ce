"""One driver with the guard for all tests of this package; it has guarded and unguarded channels."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.aeron.guard.drivers import Driver, guarding_driver
from tests.leaks import SHARED_MEMORY


@pytest.fixture(scope="package")
def driver(run_name: str) -> Iterator[Driver]:
    with guarding_driver(SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}") as running:
        yield running
        running.require_alive()
