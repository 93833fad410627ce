"""How a client leaves its connection, ends, and outlives its media driver, step by step in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aeron_spark.errors import ConnectError, EndedError
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.client_events import ClientState
from tests.unit.protocol.client_world import POLICY, ClientWorld, in_state, lose, lost_session

S = ClientState


# Closing.


@pytest.mark.parametrize("keep_session", [True, False])
@pytest.mark.parametrize("end", ["drained", "late", "lost", "closed by the server", "driver lost"])
def test_closing_waits_for_unsent_messages_until_a_deadline(keep_session: bool, end: str) -> None:
    one = in_state(S.CONNECTED)
    one.close(keep_session=keep_session)
    link = one.link
    assert link is not None
    assert one.machine.deadline() == one.now + POLICY.close_seconds
    endings: dict[str, Callable[[], None]] = {
        "drained": lambda: one.feed(e.Drained(link.number)),
        "late": lambda: one.wait(POLICY.close_seconds),
        "lost": lambda: lose(one),
        "closed by the server": lambda: one.feed(e.PeerClosed(link.number, True)),
        "driver lost": one.lose_driver,
    }
    endings[end]()
    assert one.machine.state is S.IDLE
    assert isinstance(one.machine.stopped, EndedError)
    assert (one.machine.session is not None) is keep_session
    assert one.all[0].news == ["init", "connect", "disconnect"]


@pytest.mark.parametrize(("ours", "theirs", "kept"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_session_that_both_endpoints_close_is_kept_if_both_want_that(ours: bool, theirs: bool, kept: bool) -> None:
    one = in_state(S.CONNECTED)
    one.close(keep_session=ours)
    assert one.link is not None
    one.feed(e.PeerClosed(one.link.number, theirs))
    assert (one.machine.session is not None) is kept
    again = in_state(S.CONNECTED)
    again.close(keep_session=ours)
    again.close(keep_session=theirs)
    again.advance_to(S.IDLE)
    assert (again.machine.session is not None) is kept


def test_a_connect_during_closing_starts_after_it() -> None:
    one = in_state(S.CONNECTED)
    one.close(keep_session=True)
    one.connect(10.0)
    assert one.machine.state is S.CLOSING
    one.advance_to(S.CONNECTED)
    assert one.all[0].news == ["init", "connect", "disconnect", "resume"]
    one.close()
    one.connect(POLICY.close_seconds / 2)
    one.wait(POLICY.close_seconds / 2)
    assert "was not closed yet" in str(one.outcomes[-1])


def test_a_session_that_fails_during_closing_is_not_resumed() -> None:
    one = in_state(S.CONNECTED)
    one.close(keep_session=True)
    session, ticket = one.machine.session, one.machine.ticket
    assert session is not None
    one.feed(e.SessionFailed(session.session, lost_session()))
    assert one.machine.state is S.IDLE
    assert one.machine.ticket != ticket


def test_senders_wait_during_a_reconnect_and_get_the_error_that_interrupts_it() -> None:
    one = in_state(S.CONNECTED)
    one.machine.expect_reconnect()
    one.close(keep_session=True)
    one.advance_to(S.IDLE)
    assert one.all[0].refusing is None
    interrupted = ConnectError("interrupted")
    one.do(one.machine.stop(interrupted, one.now))
    assert one.all[0].refusing is one.machine.stopped
    assert one.machine.stopped is not None
    assert one.machine.stopped.what == "interrupted"
    one.connect()
    one.advance_to(S.CONNECTED)
    assert one.all[0].news == ["init", "connect", "disconnect", "resume"]


def test_a_stop_does_nothing_to_a_connected_or_stopped_client() -> None:
    one = in_state(S.CONNECTED)
    one.do(one.machine.stop(ConnectError("interrupted"), one.now))
    assert one.machine.state is S.CONNECTED
    one.close()
    one.advance_to(S.IDLE)
    stopped = one.machine.stopped
    one.do(one.machine.stop(ConnectError("interrupted"), one.now))
    assert one.machine.stopped is stopped


@pytest.mark.parametrize("state", [state for state in ClientState if state is not S.CLOSED])
def test_a_client_can_be_shut_down_in_every_state(state: ClientState) -> None:
    one = in_state(state)
    one.shut_down()
    assert one.machine.state is S.CLOSED
    assert not one.connections
    assert one.machine.deadline() is None
    assert one.wanted == 0


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED, S.WITHOUT_DRIVER])
def test_closing_a_session_without_a_link_fails_a_pending_connect(state: ClientState) -> None:
    one = in_state(S.WITHOUT_DRIVER if state is S.WITHOUT_DRIVER else S.PAUSED)
    one.advance_to(state)
    if state is not S.PAUSED:
        one.connect()
    one.close()
    assert one.machine.state is S.IDLE
    assert state is S.PAUSED or isinstance(one.outcomes[-1], EndedError)


# The media driver.


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.CONNECTED, S.PAUSED])
def test_the_transport_is_opened_again_after_the_driver_was_lost(state: ClientState) -> None:
    one = in_state(state)
    one.lose_driver()
    assert (one.machine.state, one.reopenings) == (S.WITHOUT_DRIVER, 1)
    if one.look_ups:
        one.key_known()
    one.driver_failed()
    assert one.machine.deadline() == one.now + POLICY.reopen_seconds
    one.wait(POLICY.reopen_seconds)
    assert one.reopenings == 1
    one.driver_back()
    assert one.machine.state is S.LOOKING_UP
    one.advance_to(S.CONNECTED)


def test_an_idle_client_opens_a_lost_transport_at_its_next_connect() -> None:
    one = ClientWorld()
    one.lose_driver()
    assert (one.machine.state, one.reopenings) == (S.IDLE, 0)
    one.connect(2.0)
    assert (one.machine.state, one.reopenings) == (S.WITHOUT_DRIVER, 1)
    one.wait(2.0)
    assert one.machine.state is S.IDLE
    assert "no media driver is running" in str(one.outcomes[-1])
    one.driver_failed()
    one.connect()
    assert one.reopenings == 1
    one.do(one.machine.stop(ConnectError("interrupted"), one.now))
    one.driver_back()
    one.connect()
    assert one.machine.state is S.LOOKING_UP
