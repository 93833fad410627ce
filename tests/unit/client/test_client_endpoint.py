"""The client's endpoint in virtual time: its steps in each state, and the order of its calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.client_states import TRANSITIONS, ClientEvent, ClientState
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    IdentityError,
    RefusedError,
    ServerKeyChanged,
    SessionLost,
    SetupError,
    TamperedError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.handshake_packets import RefusalHint, encode_hint
from aeron_spark.protocol.sources import Refusal, may_retry
from aeron_spark.transport.api import MessageArrived
from tests.unit.client.client_world import LOST, OPTIONS, ClientWorld, end_link, in_state, lost_session
from tests.unit.protocol.handshakes import NOW, SERVER_KEYS

S = ClientState
REFUSED_FOR_GOOD = Refusal("not-permitted", "no")


def facts(world: ClientWorld) -> dict[str, object]:
    return {name: repr(value) for name, value in vars(world.client).items()}


@pytest.mark.parametrize("state", list(ClientState))
@pytest.mark.parametrize("event", list(ClientEvent))
def test_an_event_without_a_row_raises_and_changes_nothing(state: ClientState, event: ClientEvent) -> None:
    if (state, event) in TRANSITIONS:
        return
    world = in_state(state)
    assert world.client.state is state
    before = facts(world)
    with pytest.raises(UsageError, match=f"does not expect {event.name} in state {state.name}"):
        world.client._step(event, world.now)
    assert facts(world) == before


def test_each_step_of_the_table_is_a_method_and_each_such_method_a_step() -> None:
    methods = {name.removeprefix("_on_") for name in vars(ClientEndpoint) if name.startswith("_on_")}
    assert {row.step for row in TRANSITIONS.values()} == methods


def test_the_table_has_no_row_for_a_client_that_has_ended() -> None:
    assert S.CLOSED not in {state for state, _ in TRANSITIONS}
    assert {state for state, _ in TRANSITIONS} == set(ClientState) - {S.CLOSED}
    assert {event for _, event in TRANSITIONS} == set(ClientEvent)


def test_a_client_connects_notifies_its_program_and_stores_the_servers_key() -> None:
    world = in_state(S.CONNECTED)
    assert [connection.notices for connection in world.all] == [["init", "connect"]]
    assert world.outcomes == world.connections
    assert world.trusted == [SERVER_KEYS.public]


# Attempts and deadlines


def test_the_pauses_between_attempts_double_up_to_the_longest() -> None:
    world = ClientWorld()
    world.connect()
    pauses = []
    for _ in range(8):
        world.look_up_failed(TransportError("the store fails"))
        assert world.client.state is S.PAUSED
        deadline = world.client.deadline()
        assert deadline is not None
        pauses.append(round(deadline - world.now, 6))
        world.wait(deadline - world.now)
        assert world.client.state is S.LOOKING_UP
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    world.advance_to(S.CONNECTED)
    end_link(world)
    world.advance_to(S.LOOKING_UP)
    world.look_up_failed(TransportError("the store fails"))
    assert world.client.deadline() == pytest.approx(world.now + 0.1)


def test_a_key_store_that_its_user_must_correct_ends_a_connect_but_not_the_attempts_after_a_loss() -> None:
    world = ClientWorld()
    world.connect()
    world.look_up_failed(SetupError("the store fails"))
    assert world.client.state is S.IDLE
    world = in_state(S.CONNECTED)
    end_link(world)
    world.advance_to(S.LOOKING_UP)
    world.look_up_failed(SetupError("the store fails"))
    assert world.client.state is S.PAUSED


def test_an_attempt_that_waited_long_for_an_absent_server_is_repeated_at_once() -> None:
    """Regression: after a long outage a client stood still for up to longestPause while its server was ready again."""
    world = ClientWorld()
    world.connect()
    for _ in range(8):
        world.advance_to(S.HANDSHAKING)
        deadline = world.client.deadline()
        assert deadline is not None
        assert deadline - world.now == pytest.approx(world.options.setup_timeout)
        world.wait(deadline - world.now)  # the path was not connected
        assert world.client.state is S.PAUSED
        deadline = world.client.deadline()
        assert deadline == pytest.approx(world.now + 0.1)
        world.wait(0.1)


def test_a_lost_link_is_replaced_at_once_unless_it_was_just_opened() -> None:
    world = in_state(S.CONNECTED)
    end_link(world)
    assert world.client.deadline() == pytest.approx(NOW + OPTIONS.first_pause)
    world.advance_to(S.CONNECTED)
    world.wait(60.0)
    end_link(world)
    assert world.client.deadline() == world.now


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (S.LOOKING_UP, "within 3 s: the look-up in the key store has not ended"),
        (S.HANDSHAKING, r"within 3 s: it waited for 10\.0\.0\.9:20000 to respond"),
        (S.OPENING_LINK, r"within 3 s: it waited for the link with 10\.0\.0\.9:20000 to open"),
    ],
)
def test_a_connect_at_its_deadline_fails_with_the_step_it_waited_for(state: ClientState, expected: str) -> None:
    world = ClientWorld()
    world.connect(3.0)
    world.advance_to(state)
    world.wait(3.0)
    assert world.client.state is S.IDLE
    (error,) = world.outcomes
    assert isinstance(error, WaitTimeout)
    with pytest.raises(WaitTimeout, match=expected):
        raise error
    assert world.client.stopped is not None
    assert world.client.stopped.remedy.endswith("client.connect() tries again")


def test_a_connect_that_begins_after_its_deadline_waited_no_negative_time() -> None:
    world = ClientWorld()
    world.connect(-0.02)
    world.wait(0.0)
    (error,) = world.outcomes
    assert isinstance(error, WaitTimeout)
    assert "within 0 s" in error.what


def test_a_connect_fails_at_once_if_the_next_attempt_is_after_its_deadline() -> None:
    world = ClientWorld(replace(OPTIONS, first_pause=5.0))
    world.connect(3.0)
    failed = TransportError("the store fails")
    world.look_up_failed(failed)
    assert world.outcomes == [failed]
    assert world.client.state is S.IDLE


@pytest.mark.parametrize("reconnecting", [False, True])
def test_a_client_with_a_session_continues_after_the_connects_deadline_unless_it_reconnects(reconnecting: bool) -> None:
    world = in_state(S.PAUSED)
    world.connect(3.0, reconnecting=reconnecting)
    world.wait(3.0)
    assert isinstance(world.outcomes[-1], WaitTimeout)
    assert world.client.state is (S.IDLE if reconnecting else S.LOOKING_UP)


def test_a_client_whose_server_ended_its_session_to_restart_continues_after_the_connects_deadline() -> None:
    """Else a call with a short timeout ended the attempts, for the other users of the client, too."""
    world = in_state(S.CONNECTED)
    link = world.link
    assert link is not None
    restarting = RefusedError("the server is shutting down", reason="shutdown")
    world.server_closes(keep_session=False, error=restarting)
    assert not world.connections
    world.connect(0.5)
    world.wait(0.5)
    assert isinstance(world.outcomes[-1], WaitTimeout)
    assert world.client.state is not S.IDLE
    assert not world.stops
    world.advance_to(S.CONNECTED)


def test_a_path_or_link_that_does_not_open_in_time_is_closed() -> None:
    world = ClientWorld()
    for state, expected in ((S.HANDSHAKING, "to respond"), (S.OPENING_LINK, "the link with")):
        if not world.pending_connects:
            world.connect()
        world.advance_to(state)
        deadline = world.client.deadline()
        assert deadline == world.now + OPTIONS.setup_timeout
        world.wait(OPTIONS.setup_timeout)
        assert world.client.state is S.PAUSED
        assert expected in str(world.client.failure)


def test_data_that_does_not_fit_into_done_fails_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = dict.fromkeys(range(99), b"too short")
    monkeypatch.setattr("aeron_spark.endpoint.client_endpoint.type_digests", lambda types: digests)
    world = ClientWorld()
    world.connect()
    world.key_known()
    assert world.client.state is S.PAUSED


# The key store


def test_a_slow_key_store_gets_one_look_up_and_its_late_result_is_not_used() -> None:
    world = ClientWorld()
    world.connect(1.0)
    world.wait(1.0)
    assert world.client.state is S.IDLE
    world.connect()
    assert (world.client.state, world.lookups) == (S.LOOKING_UP, 1)
    world.stop()
    world.key_known(b"x" * 32)
    world.connect()
    assert world.lookups == 1
    world.advance_to(S.CONNECTED)  # with the key that the store has now


@pytest.mark.parametrize("has_session", [False, True])
def test_another_key_of_the_server_ends_all_attempts_and_the_session(has_session: bool) -> None:
    world = in_state(S.PAUSED if has_session else S.IDLE)
    if not has_session:
        world.connect()
    world.advance_to(S.LOOKING_UP)
    world.key_known(b"x" * 32)
    world.advance_to(S.IDLE)
    assert isinstance(world.client.stopped, ServerKeyChanged)
    assert not world.connections
    assert not world.trusted or has_session


def test_the_key_of_a_known_server_is_not_stored_again() -> None:
    world = ClientWorld()
    world.connect()
    world.key_known(SERVER_KEYS.public)
    world.advance_to(S.CONNECTED)
    assert world.trusted == []
    assert world.client.server_key == SERVER_KEYS.public


# Paths


def test_the_publication_for_the_cookie_opens_while_the_first_hello_is_under_way() -> None:
    world = in_state(S.HANDSHAKING)
    world.path_ready()
    assert world.path is not None
    first, spare = world.path.publications
    assert [publication for publication, _ in world.to_server] == [first]
    world.deliver_to_server()
    world.deliver_to_client()
    assert world.path.publications == [spare]
    assert [publication for publication, _ in world.to_server] == [spare]


@pytest.mark.parametrize("how", ["rejected", "failed"])
def test_a_lost_publication_for_the_cookie_is_opened_again_when_the_cookie_arrives(how: str) -> None:
    world = in_state(S.HANDSHAKING)
    world.path_ready()
    assert world.path is not None
    first, spare = world.path.publications
    if how == "rejected":
        world.reject(spare, "no")
    else:
        world.publication_fails(-1)
    assert world.path.publications == [first]
    world.advance_to(S.CONNECTED)


def test_over_ipc_no_publication_for_a_cookie_is_opened() -> None:
    world = ClientWorld()
    world.transport.is_ipc = True
    world.connect()
    world.advance_to(S.HANDSHAKING)
    world.path_ready()
    assert world.path is not None
    assert len(world.path.publications) == 1


def test_events_of_the_path_after_the_acceptance_change_nothing() -> None:
    world = in_state(S.OPENING_LINK)
    path, link = world.path, world.link
    assert path is not None
    world.client.handle_event(MessageArrived(path.token, 1, memoryview(b"AS")), world.now)
    world.path_lost()
    world.path_fails_late()
    world.reject(path.publications[0], "no")
    world.publication_fails(0)
    assert (world.client.state, world.path, world.link) == (S.OPENING_LINK, path, link)
    world.advance_to(S.CONNECTED)


# Refusals


@pytest.mark.parametrize(
    ("error", "is_awaited", "is_authenticated", "retries"),
    [
        (RefusedError("", reason="rate"), True, False, True),
        (RefusedError("", reason="rate"), True, True, True),
        (RefusedError("", reason="full"), True, True, False),
        (RefusedError("", reason="full"), False, True, True),
        (RefusedError("", reason="key"), True, False, False),
        (RefusedError("", reason="key"), False, True, False),
        (RefusedError("", reason="key"), False, False, True),
        (RefusedError("", reason="a code of another release"), False, True, False),
        (TamperedError(""), True, False, False),
        (TamperedError(""), False, False, True),
        (IdentityError(""), False, False, False),
        (ServerKeyChanged(""), True, False, False),
        (ConnectError(""), True, False, True),
        (WaitTimeout(""), True, False, True),
        (SetupError(""), True, False, True),
    ],
)
def test_the_error_of_an_attempt_decides_whether_another_follows(
    error: AeronSparkError, is_awaited: bool, is_authenticated: bool, retries: bool
) -> None:
    assert may_retry(error, is_awaited=is_awaited, is_authenticated=is_authenticated) is retries


@pytest.mark.parametrize(
    ("code", "while_waiting", "in_background"),
    [
        ("rate", S.PAUSED, S.PAUSED),
        ("server-error", S.PAUSED, S.PAUSED),
        ("full", S.IDLE, S.PAUSED),
        ("ids", S.IDLE, S.PAUSED),
        ("key", S.IDLE, S.IDLE),
        ("not-permitted", S.IDLE, S.IDLE),
    ],
)
def test_a_refusal_that_is_authenticated_ends_a_connect_or_all_attempts(
    code: str, while_waiting: ClientState, in_background: ClientState
) -> None:
    for state, expected in ((S.IDLE, while_waiting), (S.PAUSED, in_background)):
        world = in_state(state)
        world.server.refusal, world.server.at = Refusal(code, "no"), "authenticate"
        if state is S.IDLE:
            world.connect()
        world.advance_to(S.HANDSHAKING)
        world.advance_to(S.PAUSED, S.IDLE)
        assert world.client.state is expected
        assert isinstance(world.client.failure, RefusedError)
        assert world.pending_connects == (1 if state is S.IDLE and expected is S.PAUSED else 0)
        if expected is S.IDLE:
            assert isinstance(world.client.stopped, RefusedError)
            assert world.client.stopped.reason == code


def test_a_hint_does_not_stop_the_attempts_if_no_thread_waits_for_the_connection() -> None:
    world = in_state(S.PAUSED)
    world.advance_to(S.HANDSHAKING)
    world.path_ready()
    assert world.path is not None
    hint = encode_hint(RefusalHint(REFUSED_FOR_GOOD))
    world.reject(world.path.publications[0], hint)
    world.to_server.clear()
    world.wait(OPTIONS.timing.hello_ack_s)
    assert world.client.state is S.PAUSED


def test_a_connect_at_its_deadline_fails_with_the_refusal_of_the_last_attempt() -> None:
    world = ClientWorld()
    world.connect(3.0)
    world.server.refusal, world.server.at = Refusal("server-error", "no"), "authenticate"
    world.advance_to(S.PAUSED)
    world.advance_to(S.HANDSHAKING)
    world.wait(3.0)
    (error,) = world.outcomes
    assert isinstance(error, RefusedError)
    assert error.reason == "server-error"


# Sessions


def test_a_session_is_resumed_after_each_outage_and_the_program_is_notified_once_each() -> None:
    world = in_state(S.CONNECTED)
    end_link(world)
    world.advance_to(S.CONNECTED)
    end_link(world)
    world.wait(OPTIONS.expiry)
    world.advance_to(S.CONNECTED)
    end_link(world, silent=True)
    world.advance_to(S.CONNECTED)
    (connection,) = world.all
    assert connection.notices == ["init", "connect", "resume", "disconnect", "resume", "disconnect", "resume"]
    assert world.reconnects == [True, True, True]
    assert len(world.outcomes) == 1


def test_a_lost_first_frame_leaves_one_session_with_one_number() -> None:
    world = in_state(S.OPENING_LINK)
    link = world.link
    assert link is not None
    world.server.tickets.confirm(
        world.server.links[link.ids.session_in].ticket
    )  # the server has received the client's first frame
    world.lose_link()
    world.fail_link(LOST)
    world.advance_to(S.CONNECTED)
    assert [connection.notices for connection in world.all] == [[], ["init", "connect"]]
    assert {connection.id for connection in world.all} == {link.ids.session_in}


def test_a_client_begins_a_new_session_if_the_server_has_lost_the_old_one() -> None:
    world = in_state(S.CONNECTED)
    end_link(world)
    world.server.restart()
    world.advance_to(S.OPENING_LINK)
    assert world.all[0].ended is None  # until the new session is attached
    world.advance_to(S.CONNECTED)
    assert [connection.notices for connection in world.all] == [["init", "connect", "disconnect"], ["init", "connect"]]
    assert isinstance(world.all[0].ended, SessionLost)
    assert [type(error) for error in world.reports] == [SessionLost]
    assert world.reconnects == [False]
    end_link(world)
    world.advance_to(S.CONNECTED)
    assert world.reconnects == [False, True]


def test_the_first_session_after_the_programs_own_close_is_no_reconnect() -> None:
    world = in_state(S.CONNECTED)
    world.close()
    world.advance_to(S.IDLE)
    world.connect(10.0)
    world.advance_to(S.CONNECTED)
    assert len(world.all) == 2
    assert world.reconnects == []
    assert world.stops == []


def test_a_client_gives_up_once_and_again_after_another_connect() -> None:
    world = in_state(S.CONNECTED)
    end_link(world)
    for _ in range(2):
        world.connect(1.0, reconnecting=True)
        world.wait(2.0)
        assert world.client.state is S.IDLE
        world.close(keep_session=True)  # the client has stopped already
    assert [type(error) for error in world.stops] == [WaitTimeout, WaitTimeout]


def test_the_old_session_ends_before_the_program_learns_of_the_new_one() -> None:
    world = in_state(S.PAUSED)
    world.server.restart()
    world.advance_to(S.OPENING_LINK)
    world.log.clear()
    world.verify_link()
    assert world.log == ["trust", "attach", "path closed", "end", "disconnect", "report", "init", "connect"]


def test_a_session_on_which_the_endpoints_disagree_is_replaced() -> None:
    world = in_state(S.PAUSED)
    world.attach_fails = True
    world.advance_to(S.OPENING_LINK)
    world.verify_link()
    assert world.client.state is S.PAUSED
    assert not world.connections
    world.advance_to(S.CONNECTED)
    assert [connection.notices for connection in world.all] == [["init", "connect", "disconnect"], ["init", "connect"]]


def test_a_connection_without_a_connect_notification_gets_no_disconnect() -> None:
    world = in_state(S.OPENING_LINK)
    world.attach_fails = True
    world.verify_link()
    assert [connection.notices for connection in world.all] == [[]]


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED, S.WITHOUT_DRIVER])
def test_a_session_that_fails_without_a_link_is_replaced(state: ClientState) -> None:
    world = in_state(S.WITHOUT_DRIVER if state is S.WITHOUT_DRIVER else S.PAUSED)
    world.advance_to(state)
    session, ticket = world.client.session, world.client.ticket
    assert session is not None
    world.fail_session(lost_session())
    assert world.client.session is None
    assert world.client.ticket != ticket
    world.advance_to(S.CONNECTED)
    assert [connection.notices for connection in world.all] == [["init", "connect", "disconnect"], ["init", "connect"]]


def test_too_many_altered_frames_end_the_session_and_the_attempts() -> None:
    world = in_state(S.CONNECTED)
    session = world.client.session
    assert session is not None
    world.fail_session(TamperedError("mangled"))
    assert world.client.state is S.IDLE
    assert isinstance(world.client.stopped, TamperedError)


@pytest.mark.parametrize("how", ["link", "driver"])
def test_without_reconnecting_a_lost_link_ends_the_session(how: str) -> None:
    world = in_state(S.CONNECTED, replace(OPTIONS, reconnect=False))
    if how == "link":
        end_link(world)
    else:
        world.lose_driver()
    assert world.client.state is S.IDLE
    assert world.all[0].notices == ["init", "connect", "disconnect"]
    world.connect()
    world.advance_to(S.CONNECTED)


def test_a_connection_class_that_fails_ends_the_attempts() -> None:
    world = ClientWorld()
    world.class_fails = True
    world.connect()
    world.advance_to(S.IDLE)
    assert isinstance(world.outcomes[-1], UsageError)
    world.class_fails = False
    world.connect()
    world.advance_to(S.CONNECTED)


@pytest.mark.parametrize("has_session", [False, True])
def test_after_a_connection_class_failed_only_a_client_with_a_session_keeps_its_ticket(has_session: bool) -> None:
    """By the same ticket, a client without one would get the session of the failed class at the server."""
    world = in_state(S.PAUSED) if has_session else ClientWorld()
    world.server.restart()
    world.class_fails = True
    ticket = world.client.ticket
    world.connect()
    world.advance_to(S.IDLE)
    assert (world.client.ticket == ticket) is has_session
