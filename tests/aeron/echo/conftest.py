"""A driver for the servers and one for the clients, as on two machines; ports that no other test run has."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import Client
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.wires import own_driver

PORTS = 200  # in a row, for a server of many clients


@pytest.fixture(scope="module")
def here(run_name: str) -> Iterator[Client]:
    """The server's side."""
    with own_driver(run_name) as client:
        yield client


@pytest.fixture(scope="module")
def there(run_name: str) -> Iterator[Client]:
    """The clients' side."""
    with own_driver(run_name) as client:
        yield client


@pytest.fixture
def listen() -> HostPort:
    """Where a server may listen: the ports from there on are free, too."""
    while True:
        base = 20_000 + secrets.randbelow(12_000)  # below what the system hands out
        if all(_free(port) for port in (base, base + 1, base + 10, base + PORTS)):
            return HostPort("127.0.0.1", base)


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
