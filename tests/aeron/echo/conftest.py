"""A media driver for servers and one for clients, as on two machines; ports that no other test run uses."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.manual_peers import own_driver

PORTS = 200  # consecutive ports, for a server of many clients


@pytest.fixture(scope="module")
def server_aeron(run_name: str) -> Iterator[AeronClient]:
    """The Aeron client in which a test's server runs."""
    with own_driver(run_name) as client:
        yield client


@pytest.fixture(scope="module")
def client_aeron(run_name: str) -> Iterator[AeronClient]:
    """The Aeron client of a test's Echo clients, on another media driver."""
    with own_driver(run_name) as client:
        yield client


@pytest.fixture
def listen() -> HostPort:
    """An address for a server; its port and the following ones are free."""
    while True:
        base = 20_000 + secrets.randbelow(12_000)  # below the ephemeral ports of the system
        if all(_free(port) for port in (base, base + 1, base + 10, base + PORTS)):
            return HostPort("127.0.0.1", base)


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
