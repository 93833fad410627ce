"""Aeron keeps the contract of all transports: over IPv4, IPv6 and shared memory."""

from __future__ import annotations

import pytest

from tests.aeron.endpoint.drivers import AeronWorld, Driver
from tests.transport_contract import TransportContract


@pytest.fixture(params=["127.0.0.1", "::1", "ipc"])
def world(request: pytest.FixtureRequest, serving: Driver, dialling: Driver) -> AeronWorld:
    return AeronWorld(serving, serving if request.param == "ipc" else dialling, request.param)


class TestAeron(TransportContract):
    """The contract."""
