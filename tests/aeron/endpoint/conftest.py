"""Two drivers for all tests of this package, one for servers and one for clients."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.aeron.endpoint.drivers import PROMPT, Driver, driver
from tests.leaks import SHARED_MEMORY


@pytest.fixture(scope="package")
def serving(run_name: str) -> Iterator[Driver]:
    with driver(SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}", *PROMPT) as running:
        yield running


@pytest.fixture(scope="package")
def dialling(run_name: str) -> Iterator[Driver]:
    with driver(SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}") as running:
        yield running
