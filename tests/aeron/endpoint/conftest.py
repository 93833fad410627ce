"""Two drivers for all tests of this package, one for servers and one for clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aeron.endpoint.drivers import PROMPT, Driver, driver
from tests.nodes import new_aeron_dir


@pytest.fixture(scope="package")
def serving(run_name: str) -> Iterator[Driver]:
    with driver(new_aeron_dir(run_name), *PROMPT) as running:
        yield running


@pytest.fixture(scope="package")
def dialling(run_name: str) -> Iterator[Driver]:
    with driver(new_aeron_dir(run_name)) as running:
        yield running
