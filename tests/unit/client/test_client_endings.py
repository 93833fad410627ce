"""The client's endpoint in virtual time: closing, shutting down, and the loss of the media driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aeron_spark.endpoint.client_states import ClientState
from aeron_spark.errors import EndedError, SetupError
from tests.unit.client.client_world import OPTIONS, REOPEN_SECONDS, ClientWorld, end_link, in_state, lost_session

S = ClientState


# Closing


@pytest.mark.parametrize("keep_session", [True, False])
@pytest.mark.parametrize("end", ["drained", "late", "lost", "closed by the server", "driver lost"])
def test_closing_waits_for_unsent_messages_until_a_deadline(keep_session: bool, end: str) -> None:
    world = in_state(S.CONNECTED)
    world.close(keep_session=keep_session)
    link = world.link
    assert link is not None
    assert world.client.deadline() == world.now + OPTIONS.close_timeout
    endings: dict[str, Callable[[], None]] = {
        "drained": lambda: world.drained(),
        "late": lambda: world.wait(OPTIONS.close_timeout),
        "lost": lambda: end_link(world),
        "closed by the server": lambda: world.server_closes(keep_session=True),
        "driver lost": world.lose_driver,
    }
    endings[end]()
    assert world.client.state is S.IDLE
    assert isinstance(world.client.stopped, EndedError)
    assert (world.client.session is not None) is keep_session
    assert world.all[0].notices == ["init", "connect", "disconnect"]


@pytest.mark.parametrize(
    ("ours", "theirs", "is_kept"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_session_that_both_endpoints_close_is_kept_if_both_want_that(ours: bool, theirs: bool, is_kept: bool) -> None:
    world = in_state(S.CONNECTED)
    world.close(keep_session=ours)
    assert world.link is not None
    world.server_closes(keep_session=theirs)
    assert (world.client.session is not None) is is_kept
    again = in_state(S.CONNECTED)
    again.close(keep_session=ours)
    again.close(keep_session=theirs)
    again.advance_to(S.IDLE)
    assert (again.client.session is not None) is is_kept


def test_a_connect_during_closing_starts_after_it() -> None:
    world = in_state(S.CONNECTED)
    world.close(keep_session=True)
    world.connect(10.0)
    assert world.client.state is S.CLOSING
    world.advance_to(S.CONNECTED)
    assert world.all[0].notices == ["init", "connect", "disconnect", "resume"]
    world.close()
    world.connect(OPTIONS.close_timeout / 2)
    world.wait(OPTIONS.close_timeout / 2)
    assert "was not closed yet" in str(world.outcomes[-1])


def test_a_session_that_fails_during_closing_is_not_resumed() -> None:
    world = in_state(S.CONNECTED)
    world.close(keep_session=True)
    session, ticket = world.client.session, world.client.ticket
    assert session is not None
    world.fail_session(lost_session())
    assert world.client.state is S.IDLE
    assert world.client.ticket != ticket


def test_senders_wait_during_a_reconnect_and_get_the_error_that_interrupts_it() -> None:
    world = in_state(S.CONNECTED)
    world.client.expect_reconnect()
    world.close(keep_session=True)
    world.advance_to(S.IDLE)
    assert world.all[0].send_error is None
    world.stop()
    assert world.all[0].send_error is world.client.stopped
    assert world.client.stopped is not None
    assert "interrupted" in world.client.stopped.what
    world.connect()
    world.advance_to(S.CONNECTED)
    assert world.all[0].notices == ["init", "connect", "disconnect", "resume"]


def test_a_stop_does_nothing_to_a_connected_or_stopped_client() -> None:
    world = in_state(S.CONNECTED)
    world.stop()
    assert world.client.state is S.CONNECTED
    world.close()
    world.advance_to(S.IDLE)
    stopped = world.client.stopped
    world.stop()
    assert world.client.stopped is stopped


@pytest.mark.parametrize("state", [state for state in ClientState if state is not S.CLOSED])
def test_a_client_can_be_shut_down_in_every_state(state: ClientState) -> None:
    world = in_state(state)
    world.shut_down()
    assert world.client.state is S.CLOSED
    assert not world.connections
    assert world.client.deadline() is None
    assert world.pending_connects == 0


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED, S.WITHOUT_DRIVER])
def test_closing_a_session_without_a_link_fails_a_pending_connect(state: ClientState) -> None:
    world = in_state(S.WITHOUT_DRIVER if state is S.WITHOUT_DRIVER else S.PAUSED)
    world.advance_to(state)
    if state is not S.PAUSED:
        world.connect()
    world.close()
    assert world.client.state is S.IDLE
    assert state is S.PAUSED or isinstance(world.outcomes[-1], EndedError)


# The media driver


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.CONNECTED, S.PAUSED])
def test_the_transport_is_opened_again_after_the_driver_was_lost(state: ClientState) -> None:
    world = in_state(state)
    world.lose_driver()
    assert (world.client.state, world.reopenings) == (S.WITHOUT_DRIVER, 1)
    if world.lookups:
        world.key_known()
    world.driver_failed()
    assert world.client.deadline() == world.now + REOPEN_SECONDS
    world.wait(REOPEN_SECONDS)
    assert world.reopenings == 1
    world.driver_back()
    assert world.client.state is S.LOOKING_UP
    world.advance_to(S.CONNECTED)


def test_the_first_connect_opens_the_transport() -> None:
    world = ClientWorld(has_driver=False)
    assert world.reopenings == 0
    world.connect(10.0)
    assert (world.client.state, world.reopenings) == (S.WITHOUT_DRIVER, 1)
    world.driver_failed()
    assert world.client.is_connect_pending
    world.wait(REOPEN_SECONDS)
    world.driver_back()
    world.advance_to(S.CONNECTED)


@pytest.mark.parametrize("seconds", [10.0, None])
def test_an_error_that_only_the_user_can_correct_ends_the_connect(seconds: float | None) -> None:
    world = ClientWorld(has_driver=False)
    world.connect(seconds)
    world.driver_failed(SetupError("no Java was found"))
    assert world.client.state is S.IDLE
    assert isinstance(world.outcomes[-1], SetupError)
    world.connect(seconds)
    world.wait(REOPEN_SECONDS)
    world.driver_back()
    world.advance_to(S.CONNECTED)


def test_such_an_error_does_not_end_a_session_that_reconnects_by_itself() -> None:
    world = in_state(S.CONNECTED)
    world.lose_driver()
    world.driver_failed(SetupError("no space is left"))
    assert world.client.state is S.WITHOUT_DRIVER
    world.wait(REOPEN_SECONDS)
    world.driver_back()
    world.advance_to(S.CONNECTED)


def test_an_idle_client_opens_a_lost_transport_at_its_next_connect() -> None:
    world = ClientWorld()
    world.lose_driver()
    assert (world.client.state, world.reopenings) == (S.IDLE, 0)
    world.connect(2.0)
    assert (world.client.state, world.reopenings) == (S.WITHOUT_DRIVER, 1)
    world.wait(2.0)
    assert world.client.state is S.IDLE
    assert "no media driver is running" in str(world.outcomes[-1])
    world.driver_failed()
    world.connect()
    assert world.reopenings == 1
    world.stop()
    world.driver_back()
    world.connect()
    assert world.client.state is S.LOOKING_UP
