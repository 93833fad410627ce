"""One client, step by step in virtual time: what it does in each state, when, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    IdentityError,
    RefusedError,
    ServerKeyChanged,
    SessionLost,
    SetupError,
    TamperedError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.client_events import ClientEvent, ClientState
from aeron_spark.protocol.client_machine import TRANSITIONS
from aeron_spark.protocol.refusals import Refusal, may_retry
from aeron_spark.protocol.retry_cookies import RefusalHint, encode_hint
from tests.unit.protocol.client_world import LOST, POLICY, ClientWorld, in_state, lose, lost_session
from tests.unit.protocol.handshakes import NOW, SERVER_KEYS

S = ClientState
REFUSED_FOR_GOOD = Refusal("not-permitted", "no")


def an_event(kind: type[Any]) -> ClientEvent:
    """Return some event of this class."""
    values = {"error": LOST, "until": None, "key": None, "types": {}, "reason": "", "data": b"", "keep_session": False}
    names = [name for name in kind.__slots__ if name not in ("silent", "reconnecting")]
    return kind(**{name: values.get(name, 1) for name in names})  # type: ignore[no-any-return]


def facts(one: ClientWorld) -> dict[str, object]:
    return {name: repr(value) for name, value in vars(one.machine._steps).items()}


@pytest.mark.parametrize("state", list(ClientState))
@pytest.mark.parametrize("kind", get_args(ClientEvent))
def test_an_event_without_a_row_raises_and_changes_nothing(state: ClientState, kind: type[Any]) -> None:
    if (state, kind) in TRANSITIONS:
        return
    one = in_state(state)
    assert one.machine.state is state
    before = facts(one)
    with pytest.raises(UsageError, match=f"does not expect {kind.__name__} in state {state.name}"):
        one.machine.handle(an_event(kind), one.now)
    assert facts(one) == before


def test_the_table_has_no_row_for_a_client_that_has_ended() -> None:
    assert S.CLOSED not in {state for state, _ in TRANSITIONS}
    assert {state for state, _ in TRANSITIONS} == set(ClientState) - {S.CLOSED}
    assert {kind for _, kind in TRANSITIONS} == set(get_args(ClientEvent))


def test_a_client_connects_notifies_its_program_and_stores_the_servers_key() -> None:
    one = in_state(S.CONNECTED)
    assert [told.news for told in one.all] == [["init", "connect"]]
    assert one.outcomes == list(one.connections)
    assert one.trusted == [SERVER_KEYS.public]


# Attempts and their times.


def test_the_pauses_between_attempts_double_up_to_the_longest() -> None:
    one = ClientWorld()
    one.connect()
    pauses = []
    for _ in range(8):
        one.look_up_failed(SetupError("the store fails"))
        assert one.machine.state is S.PAUSED
        deadline = one.machine.deadline()
        assert deadline is not None
        pauses.append(round(deadline - one.now, 6))
        one.wait(deadline - one.now)
        assert one.machine.state is S.LOOKING_UP
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    one.advance_to(S.CONNECTED)
    lose(one)
    one.advance_to(S.LOOKING_UP)
    one.look_up_failed(SetupError("the store fails"))
    assert one.machine.deadline() == pytest.approx(one.now + 0.1)


def test_a_lost_link_is_replaced_at_once_unless_it_was_just_opened() -> None:
    one = in_state(S.CONNECTED)
    lose(one)
    assert one.machine.deadline() == pytest.approx(NOW + POLICY.first_pause)
    one.advance_to(S.CONNECTED)
    one.wait(60.0)
    lose(one)
    assert one.machine.deadline() == one.now


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (S.LOOKING_UP, "within 3 s: the look-up in the key store has not ended"),
        (S.HANDSHAKING, r"within 3 s: it waited for 10\.0\.0\.9:20000 to respond"),
        (S.OPENING_LINK, r"within 3 s: it waited for the link with 10\.0\.0\.9:20000 to open"),
    ],
)
def test_a_connect_at_its_deadline_fails_with_the_step_it_waited_for(state: ClientState, says: str) -> None:
    one = ClientWorld()
    one.connect(3.0)
    one.advance_to(state)
    one.wait(3.0)
    assert one.machine.state is S.IDLE
    (error,) = one.outcomes
    assert isinstance(error, WaitTimeout)
    with pytest.raises(WaitTimeout, match=says):
        raise error
    assert one.machine.stopped is not None
    assert one.machine.stopped.remedy.endswith("client.connect() tries again")


def test_a_connect_fails_at_once_if_the_next_attempt_is_after_its_deadline() -> None:
    one = ClientWorld(replace(POLICY, first_pause=5.0))
    one.connect(3.0)
    failed = SetupError("the store fails")
    one.look_up_failed(failed)
    assert one.outcomes == [failed]
    assert one.machine.state is S.IDLE


@pytest.mark.parametrize("reconnecting", [False, True])
def test_a_client_with_a_session_continues_after_the_connects_deadline_unless_it_reconnects(reconnecting: bool) -> None:
    one = in_state(S.PAUSED)
    one.connect(3.0, reconnecting=reconnecting)
    one.wait(3.0)
    assert isinstance(one.outcomes[-1], WaitTimeout)
    assert one.machine.state is (S.IDLE if reconnecting else S.LOOKING_UP)


def test_a_path_or_link_that_does_not_open_in_time_is_closed() -> None:
    one = ClientWorld()
    for state, says in ((S.HANDSHAKING, "to respond"), (S.OPENING_LINK, "the link with")):
        if not one.wanted:
            one.connect()
        one.advance_to(state)
        deadline = one.machine.deadline()
        assert deadline == one.now + POLICY.setup_seconds
        one.wait(POLICY.setup_seconds)
        assert one.machine.state is S.PAUSED
        assert says in str(one.machine.failure)


def test_data_that_does_not_fit_into_done_fails_the_attempt() -> None:
    one = ClientWorld()
    one.connect()
    one.look_ups = 0
    one.feed(e.KeyKnown(None, 0, dict.fromkeys(range(99), b"too short")))
    assert one.machine.state is S.PAUSED


# The key store.


def test_a_slow_key_store_gets_one_look_up_and_its_late_result_is_not_used() -> None:
    one = ClientWorld()
    one.connect(1.0)
    one.wait(1.0)
    assert one.machine.state is S.IDLE
    one.connect()
    assert (one.machine.state, one.look_ups) == (S.LOOKING_UP, 1)
    one.do(one.machine.stop(ConnectError("interrupted"), one.now))
    one.key_known(b"x" * 32)
    one.connect()
    assert one.look_ups == 1
    one.advance_to(S.CONNECTED)  # by what the store says now


@pytest.mark.parametrize("has_session", [False, True])
def test_another_key_of_the_server_ends_all_attempts_and_the_session(has_session: bool) -> None:
    one = in_state(S.PAUSED if has_session else S.IDLE)
    if not has_session:
        one.connect()
    one.advance_to(S.LOOKING_UP)
    one.key_known(b"x" * 32)
    one.advance_to(S.IDLE)
    assert isinstance(one.machine.stopped, ServerKeyChanged)
    assert not one.connections
    assert not one.trusted or has_session


def test_the_key_of_a_known_server_is_not_stored_again() -> None:
    one = ClientWorld()
    one.connect()
    one.key_known(SERVER_KEYS.public)
    one.advance_to(S.CONNECTED)
    assert one.trusted == []
    assert one.machine.server_key == SERVER_KEYS.public


# Paths.


def test_the_publication_for_the_cookie_opens_while_the_first_hello_is_under_way() -> None:
    one = in_state(S.HANDSHAKING)
    one.path_ready()
    assert one.path is not None
    first, spare = one.path.publications
    assert [publication for publication, _ in one.to_server] == [first]
    one.deliver_to_server()
    one.deliver_to_client()
    assert one.path.publications == [spare]
    assert [publication for publication, _ in one.to_server] == [spare]


@pytest.mark.parametrize("how", ["rejected", "failed"])
def test_a_lost_publication_for_the_cookie_is_opened_again_when_the_cookie_arrives(how: str) -> None:
    one = in_state(S.HANDSHAKING)
    one.path_ready()
    assert one.path is not None
    first, spare = one.path.publications
    lost: ClientEvent = (
        e.PublicationRejected(one.path.number, spare, "no")
        if how == "rejected"
        else e.PublicationFailed(one.path.number, spare, LOST)
    )
    one.feed(lost)
    assert one.path.publications == [first]
    one.advance_to(S.CONNECTED)


def test_over_ipc_no_publication_for_a_cookie_is_opened() -> None:
    one = in_state(S.HANDSHAKING, replace(POLICY, expects_retry=False))
    one.path_ready()
    assert one.path is not None
    assert len(one.path.publications) == 1


def test_events_of_the_path_after_the_acceptance_change_nothing() -> None:
    one = in_state(S.OPENING_LINK)
    path, link = one.path, one.link
    assert path is not None
    publication = path.publications[0]
    for event in (
        e.Packet(path.number, b"AS"), e.PathLost(path.number), e.PathFailed(path.number, LOST),
        e.PublicationFailed(path.number, publication, LOST), e.PublicationRejected(path.number, publication, "no"),
    ):  # fmt: skip
        one.feed(event)
    assert (one.machine.state, one.path, one.link) == (S.OPENING_LINK, path, link)
    one.advance_to(S.CONNECTED)


# Refusals.


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
        one = in_state(state)
        one.server.refusal, one.server.at = Refusal(code, "no"), "authenticate"
        if state is S.IDLE:
            one.connect()
        one.advance_to(S.HANDSHAKING)
        one.advance_to(S.PAUSED, S.IDLE)
        assert one.machine.state is expected
        assert isinstance(one.machine.failure, RefusedError)
        assert one.wanted == (1 if state is S.IDLE and expected is S.PAUSED else 0)
        if expected is S.IDLE:
            assert isinstance(one.machine.stopped, RefusedError)
            assert one.machine.stopped.reason == code


def test_a_hint_does_not_stop_the_attempts_if_no_thread_waits_for_the_connection() -> None:
    one = in_state(S.PAUSED)
    one.advance_to(S.HANDSHAKING)
    one.path_ready()
    assert one.path is not None
    hint = encode_hint(RefusalHint(REFUSED_FOR_GOOD))
    one.feed(e.PublicationRejected(one.path.number, one.path.publications[0], hint))
    one.to_server.clear()
    one.wait(POLICY.timing.hello_ack_s)
    assert one.machine.state is S.PAUSED


def test_a_connect_at_its_deadline_fails_with_the_refusal_of_the_last_attempt() -> None:
    one = ClientWorld()
    one.connect(3.0)
    one.server.refusal, one.server.at = Refusal("server-error", "no"), "authenticate"
    one.advance_to(S.PAUSED)
    one.advance_to(S.HANDSHAKING)
    one.wait(3.0)
    (error,) = one.outcomes
    assert isinstance(error, RefusedError)
    assert error.reason == "server-error"


# Sessions.


def test_a_session_is_resumed_after_each_outage_and_the_program_is_notified_once_each() -> None:
    one = in_state(S.CONNECTED)
    lose(one)
    one.advance_to(S.CONNECTED)
    lose(one)
    one.wait(POLICY.expiry_seconds)
    one.advance_to(S.CONNECTED)
    lose(one, silent=True)
    one.advance_to(S.CONNECTED)
    (told,) = one.all
    assert told.news == ["init", "connect", "resume", "disconnect", "resume", "disconnect", "resume"]
    assert len(one.outcomes) == 1


def test_a_lost_first_frame_leaves_one_session_with_one_number() -> None:
    one = in_state(S.OPENING_LINK)
    link = one.link
    assert link is not None
    one.server.tickets.confirm(one.server.links[link.ack.session_in][2])  # the server had ours
    one.lose_link()
    one.feed(e.LinkFailed(link.number, LOST))
    one.advance_to(S.CONNECTED)
    assert [told.news for told in one.all] == [[], ["init", "connect"]]
    assert {told.number for told in one.all} == {link.ack.session_in}


def test_a_client_begins_a_new_session_if_the_server_has_lost_the_old_one() -> None:
    one = in_state(S.CONNECTED)
    lose(one)
    one.server.restart()
    one.advance_to(S.OPENING_LINK)
    assert one.all[0].ended is None  # until the new one is there
    one.advance_to(S.CONNECTED)
    assert [told.news for told in one.all] == [["init", "connect", "disconnect"], ["init", "connect"]]
    assert isinstance(one.all[0].ended, SessionLost)
    assert [type(error) for error in one.reports] == [SessionLost]


def test_the_old_session_ends_before_the_new_one_is_attached() -> None:
    one = in_state(S.PAUSED)
    one.server.restart()
    one.advance_to(S.OPENING_LINK)
    link = one.link
    assert link is not None
    kinds = [type(effect) for effect in one.machine.handle(e.LinkVerified(link.number, 0), one.now)]
    assert kinds == [
        e.RememberKey, e.ClosePath, e.EndConnection, e.Notify, e.Report, e.ForgetConnection, e.Attach,
    ]  # fmt: skip


def test_a_session_on_which_the_endpoints_disagree_is_replaced() -> None:
    one = in_state(S.PAUSED)
    one.attach_fails = True
    one.advance_to(S.OPENING_LINK)
    one.verify_link()
    assert one.machine.state is S.PAUSED
    assert not one.connections
    one.advance_to(S.CONNECTED)
    assert [told.news for told in one.all] == [["init", "connect", "disconnect"], ["init", "connect"]]


def test_a_connection_without_a_connect_notification_gets_no_disconnect() -> None:
    one = in_state(S.OPENING_LINK)
    one.attach_fails = True
    one.verify_link()
    assert [told.news for told in one.all] == [[]]


@pytest.mark.parametrize("state", [S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED, S.WITHOUT_DRIVER])
def test_a_session_that_fails_without_a_link_is_replaced(state: ClientState) -> None:
    one = in_state(S.WITHOUT_DRIVER if state is S.WITHOUT_DRIVER else S.PAUSED)
    one.advance_to(state)
    session, ticket = one.machine.session, one.machine.ticket
    assert session is not None
    one.feed(e.SessionFailed(session.session, lost_session()))
    assert one.machine.session is None
    assert one.machine.ticket != ticket
    one.advance_to(S.CONNECTED)
    assert [told.news for told in one.all] == [["init", "connect", "disconnect"], ["init", "connect"]]


def test_too_many_altered_frames_end_the_session_and_the_attempts() -> None:
    one = in_state(S.CONNECTED)
    session = one.machine.session
    assert session is not None
    one.feed(e.SessionFailed(session.session, TamperedError("mangled")))
    assert one.machine.state is S.IDLE
    assert isinstance(one.machine.stopped, TamperedError)


@pytest.mark.parametrize("how", ["link", "driver"])
def test_without_reconnecting_a_lost_link_ends_the_session(how: str) -> None:
    one = in_state(S.CONNECTED, replace(POLICY, reconnect=False))
    if how == "link":
        lose(one)
    else:
        one.lose_driver()
    assert one.machine.state is S.IDLE
    assert one.all[0].news == ["init", "connect", "disconnect"]
    one.connect()
    one.advance_to(S.CONNECTED)


def test_a_connection_class_that_fails_ends_the_attempts() -> None:
    one = ClientWorld()
    one.class_fails = True
    one.connect()
    one.advance_to(S.IDLE)
    assert isinstance(one.outcomes[-1], UsageError)
    one.class_fails = False
    one.connect()
    one.advance_to(S.CONNECTED)
