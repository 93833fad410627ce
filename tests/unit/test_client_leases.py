"""A process closes an Aeron client some time after its last lease has ended, unless the client is permanent."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.aeron import client as clients
from aeron_spark.process import ProcessCache


class FakeClient(clients.AeronClient):
    """A fake client without a driver."""

    def __init__(self, aeron_dir: str) -> None:
        self.aeron_dir = aeron_dir
        self.is_permanent = False
        self.leases = set()
        self.unused_since = time.monotonic()
        self.driver_is_gone = False
        self.was_closed = False

    @property
    def closed(self) -> bool:
        return self.driver_is_gone or self.was_closed

    def close(self) -> None:
        assert not self.was_closed
        self.was_closed = True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a virtual clock, in a process without clients."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(clients, "CLIENTS", ProcessCache())
    monkeypatch.setattr(clients, "AeronClient", FakeClient)
    monkeypatch.setattr(clients.time, "monotonic", lambda: clock.now)
    return clock


def test_a_client_is_closed_some_time_after_its_last_lease(clock: SimpleNamespace) -> None:
    first, second = clients.lease_client("a"), clients.lease_client("a")
    assert first.client is second.client
    first.close()
    clock.now += 10 * clients.UNUSED_TIMEOUT_S
    assert clients.close_unused() is None
    second.close()
    clock.now += clients.UNUSED_TIMEOUT_S - 1
    second.close()  # a second call has no effect
    assert clients.close_unused() == 1.0
    assert not first.client.closed
    clock.now += 1
    assert clients.close_unused() is None
    assert first.client.closed
    assert clients.lease_client("a").client is not first.client


@pytest.mark.parametrize("before", [True, False])
def test_a_permanent_client_is_never_closed_as_unused(before: bool, clock: SimpleNamespace) -> None:
    permanent: Any = clients.client_of("a") if before else None
    lease = clients.lease_client("a")
    lease.close()
    permanent = permanent or clients.client_of("a")
    clock.now += 10 * clients.UNUSED_TIMEOUT_S
    assert clients.close_unused() is None
    assert (lease.client is permanent, permanent.closed) == (True, False)


def test_a_new_lease_before_the_close_keeps_the_client(clock: SimpleNamespace) -> None:
    first = clients.lease_client("a")
    first.close()
    clock.now += 10 * clients.UNUSED_TIMEOUT_S
    again = clients.lease_client("a")
    assert clients.close_unused() is None
    assert again.client is first.client
    assert not again.client.closed


def test_a_client_without_a_driver_is_replaced_and_its_leases_do_not_keep_the_new_one(clock: SimpleNamespace) -> None:
    old = clients.lease_client("a")
    old.client.driver_is_gone = True
    new = clients.lease_client("a")
    assert new.client is not old.client
    new.close()
    clock.now += clients.UNUSED_TIMEOUT_S
    assert clients.close_unused() is None
    assert new.client.closed


def test_clients_of_several_drivers_have_separate_timeouts(clock: SimpleNamespace) -> None:
    first, second = clients.lease_client("a"), clients.lease_client("b")
    first.close()
    clock.now += 2.0
    second.close()
    clock.now += clients.UNUSED_TIMEOUT_S - 2.0
    assert clients.close_unused() == 2.0
    assert (first.client.closed, second.client.closed) == (True, False)
