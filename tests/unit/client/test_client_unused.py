"""The client's endpoint in virtual time: a client without use does not connect again, and opens no transport."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aeron_spark.endpoint.client_states import ClientState
from aeron_spark.errors import RefusedError, TransportError
from tests.unit.client.client_world import ClientWorld, end_link, in_state

S = ClientState
LONG_S = 300.0


def close_at_server(world: ClientWorld, reason: str) -> None:
    assert world.link is not None
    world.lose_link()
    world.server_closes(keep_session=False, error=RefusedError("no", reason=reason))


LOSSES: dict[str, Callable[[ClientWorld], None]] = {
    "link": end_link,
    "driver": ClientWorld.lose_driver,
    "shutdown of the server": lambda world: close_at_server(world, "shutdown"),
    "refusal": lambda world: close_at_server(world, "key"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_client_that_loses_its_link_without_use_stops_and_reports_it_once(
    loss: Callable[[ClientWorld], None],
) -> None:
    world = in_state(S.CONNECTED)
    world.is_in_use = False
    loss(world)
    assert (world.client.state, world.client.session, world.unused) == (S.IDLE, None, 1)
    assert [connection.notices for connection in world.all] == [["init", "connect", "disconnect"]]
    assert world.client.stopped is not None
    world.wait(LONG_S)
    assert (world.client.state, world.lookups, world.reopenings, world.unused) == (S.IDLE, 0, 0, 1)


def test_after_a_shutdown_without_use_a_call_gets_an_error_after_which_it_can_be_repeated() -> None:
    world = in_state(S.CONNECTED)
    world.is_in_use = False
    close_at_server(world, "shutdown")
    assert isinstance(world.all[0].ended, TransportError)
    assert isinstance(world.client.stopped, TransportError)


@pytest.mark.parametrize("loss", [end_link, lambda world: close_at_server(world, "shutdown")])
def test_a_client_whose_use_ends_during_a_pause_makes_no_further_attempt(loss: Callable[[ClientWorld], None]) -> None:
    world = in_state(S.CONNECTED)
    loss(world)
    assert world.client.state is S.PAUSED
    world.is_in_use = False
    world.wait(LONG_S)
    assert (world.client.state, world.client.session, world.lookups, world.unused) == (S.IDLE, None, 0, 1)


@pytest.mark.parametrize("opened", [True, False])
def test_a_client_whose_use_ends_while_it_has_no_driver_opens_no_transport(opened: bool) -> None:
    world = in_state(S.WITHOUT_DRIVER)
    assert world.reopenings == 1
    world.is_in_use = False
    if opened:
        world.driver_back()
    else:
        world.driver_failed()
        world.wait(LONG_S)
    assert (world.client.state, world.client.session, world.reopenings, world.unused) == (S.IDLE, None, 0, 1)


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED])
def test_a_client_that_loses_the_driver_during_an_unused_attempt_stops(state: ClientState) -> None:
    world = in_state(S.PAUSED)
    world.advance_to(state)
    world.is_in_use = False
    world.lose_driver()
    assert (world.client.state, world.client.session, world.reopenings, world.unused) == (S.IDLE, None, 0, 1)


def test_a_connect_that_waits_continues_without_use() -> None:
    world = in_state(S.IDLE)
    world.is_in_use = False
    world.lose_driver()
    world.connect()
    world.driver_failed()
    world.advance_to(S.PAUSED, S.WITHOUT_DRIVER)
    world.advance_to(S.CONNECTED)
    assert world.unused == 0


def test_a_client_that_stopped_without_use_connects_at_the_next_connect() -> None:
    world = in_state(S.CONNECTED)
    world.is_in_use = False
    end_link(world)
    world.connect()
    world.advance_to(S.CONNECTED)
    assert world.client.stopped is None
