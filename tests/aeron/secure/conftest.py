"""Two nodes for all tests of this package: one for servers, one for clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import AeronClient
from tests.aeron.secure.endpoints import World, node_of
from tests.nodes import new_aeron_dir


@pytest.fixture(scope="package")
def serving(run_name: str) -> Iterator[AeronClient]:
    with node_of(new_aeron_dir(run_name)) as client:
        yield client


@pytest.fixture(scope="package")
def dialling(run_name: str) -> Iterator[AeronClient]:
    with node_of(new_aeron_dir(run_name)) as client:
        yield client


@pytest.fixture
def world(serving: AeronClient, dialling: AeronClient) -> Iterator[World]:
    with World(serving, dialling) as made:
        yield made
