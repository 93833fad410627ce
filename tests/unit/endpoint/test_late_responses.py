"""A call ends at its deadline although the event loop does not turn."""

from __future__ import annotations

import threading

import pytest

from aeron_spark.errors import WaitTimeout
from tests.unit.endpoint.endpoints import World


@pytest.mark.threads
def test_a_call_and_a_ping_raise_wait_timeout_while_the_event_loop_is_blocked(
    world: World,
) -> None:
    _, client = world.pair()
    is_blocked, released = threading.Event(), threading.Event()

    def block_loop() -> None:
        is_blocked.set()
        assert released.wait(20.0)

    client._endpoint.loop.run_soon(block_loop)
    assert is_blocked.wait(20.0)
    try:
        with pytest.raises(WaitTimeout, match=r"waited 0.1 s for the response to the call of list_all\(\)") as caught:
            client.remote("streams").with_timeout(0.1).list_all()
        assert type(caught.value) is WaitTimeout
        assert caught.value.remedy
        with pytest.raises(WaitTimeout, match="to a ping"):
            client.connection.ping(0.1)
    finally:
        released.set()
