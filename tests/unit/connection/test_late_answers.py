"""Finding C10: a call that the event loop does not end at its deadline ends with WaitTimeout."""

from __future__ import annotations

import threading

import pytest

from aeron_spark.connection import connection, rpc
from aeron_spark.errors import WaitTimeout
from tests.unit.connection.ends import World


def test_finding_c10_a_call_and_a_ping_beside_an_event_loop_that_is_held_up_end_with_a_wait_time_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "GRACE", 0.05)
    monkeypatch.setattr(connection, "GRACE", 0.05)
    _, client = world.pair()
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go_on.wait(20.0)

    client._runtime.run_on_loop(hold)
    assert held.wait(20.0)
    try:
        with pytest.raises(WaitTimeout, match=r"waited 0.15 s for the answer to the call of list_all\(\)") as caught:
            client.remote("streams").with_timeout(0.1).list_all()
        assert type(caught.value) is WaitTimeout
        assert caught.value.remedy
        with pytest.raises(WaitTimeout, match="to a ping"):
            client.connection.ping(0.1)
    finally:
        go_on.set()
