"""Two nodes for all tests of this package: one for servers, one for clients."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import Client
from tests.aeron.secure.endpoints import World, node_of
from tests.leaks import SHARED_MEMORY


@pytest.fixture(scope="package")
def serving(run_name: str) -> Iterator[Client]:
    with node_of(SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}") as client:
        yield client


@pytest.fixture(scope="package")
def dialling(run_name: str) -> Iterator[Client]:
    with node_of(SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}") as client:
        yield client


@pytest.fixture
def world(serving: Client, dialling: Client) -> Iterator[World]:
    with World(serving, dialling) as made:
        yield made
