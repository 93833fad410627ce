"""The client's table: every state with every event, every deadline, every hint."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from aeron_spark.errors import ConnectError, OptionError, RefusedError, Retry, UsageError, WaitTimeout
from aeron_spark.protocol.client_handshake import (
    MAX_RETRIES,
    PROGRAM_EVENTS,
    TRANSITIONS,
    Abandoned,
    Action,
    ClientHandshake,
    ClientTiming,
    Event,
    HandshakeAccepted,
    Ignored,
    Reopen,
    Send,
    State,
)
from aeron_spark.protocol.handshake_packets import HelloPacket, RetryHint, decode, encode_hint
from aeron_spark.protocol.handshake_payloads import CODES, ClientDone
from aeron_spark.protocol.server_handshake import Send as ServerSend
from aeron_spark.protocol.sources import Refusal
from aeron_spark.protocol.transitions import Row, step
from tests.unit.protocol.handshakes import ACK, CLIENT_KEYS, NOW, Joined, error_of, make_client, one

LATER = NOW + 1000.0
RETRY = encode_hint(RetryHint(b"c" * 17))
REFUSAL = "aeron-spark/1 FAILED full Server is full"


def at(state: State) -> Joined:
    """Return a client in this state, with a server in the corresponding state."""
    if state is State.NEW:
        joined = Joined()
        joined.client = make_client()
        return joined
    joined = Joined()
    if state is State.AWAIT_DONE_ACK:
        joined.to_authenticating()
    elif state is State.CONNECTED:
        joined.to_connected()
    elif state is State.ENDED:
        joined.client.close(NOW)
    return joined


def packets() -> dict[Event, bytes]:
    """Return the server's packet for a client with the same entropy, in any state."""
    joined, refusing = Joined(), Joined()
    ack = joined.to_hello_ack()
    joined.image.packet(one(joined.client.packet(ack, NOW), Send).packet, NOW)
    refusing.to_authenticating()
    return {
        Event.HELLO_ACK: ack,
        Event.DONE_ACK: one(joined.image.accept(ACK, NOW), ServerSend).packet,
        Event.FAILED: one(refusing.image.refuse(Refusal("ids", "none left"), NOW), ServerSend).packet,
    }


PACKETS = packets()


def fire(client: ClientHandshake, event: Event) -> tuple[Action, ...]:
    match event:
        case Event.START:
            return client.start(LATER)
        case Event.RETRY:
            return client.hint(RETRY, NOW)
        case Event.REFUSAL:
            return client.hint(REFUSAL, NOW)
        case Event.HELLO_ACK | Event.DONE_ACK | Event.FAILED:
            return client.packet(PACKETS[event], NOW)
        case Event.DEADLINE:
            return client.tick(LATER)
        case Event.PATH_LOST:
            return client.path_lost(NOW)
        case Event.CLOSE:
            return client.close(NOW)


# next state and actions, by state and event; other pairs are ignored, or raise for an event of the program
EXPECTED: dict[tuple[State, Event], tuple[State, tuple[type, ...]]] = {
    (State.NEW, Event.START): (State.AWAIT_HELLO_ACK, (Send,)),
    (State.NEW, Event.CLOSE): (State.ENDED, ()),
    (State.AWAIT_HELLO_ACK, Event.RETRY): (State.AWAIT_HELLO_ACK, (Reopen, Send)),
    (State.AWAIT_HELLO_ACK, Event.REFUSAL): (State.AWAIT_HELLO_ACK, ()),
    (State.AWAIT_HELLO_ACK, Event.HELLO_ACK): (State.AWAIT_DONE_ACK, (Send,)),
    (State.AWAIT_HELLO_ACK, Event.PATH_LOST): (State.AWAIT_HELLO_ACK, ()),
    (State.AWAIT_HELLO_ACK, Event.DEADLINE): (State.ENDED, (Abandoned,)),
    (State.AWAIT_HELLO_ACK, Event.CLOSE): (State.ENDED, ()),
    (State.AWAIT_DONE_ACK, Event.REFUSAL): (State.AWAIT_DONE_ACK, ()),
    (State.AWAIT_DONE_ACK, Event.DONE_ACK): (State.CONNECTED, (HandshakeAccepted,)),
    (State.AWAIT_DONE_ACK, Event.FAILED): (State.ENDED, (Abandoned,)),
    (State.AWAIT_DONE_ACK, Event.PATH_LOST): (State.AWAIT_DONE_ACK, ()),
    (State.AWAIT_DONE_ACK, Event.DEADLINE): (State.ENDED, (Abandoned,)),
    (State.AWAIT_DONE_ACK, Event.CLOSE): (State.ENDED, ()),
}
OVER = {State.CONNECTED, State.ENDED}


def test_the_table_has_the_rows_that_are_tested() -> None:
    assert set(TRANSITIONS) == set(EXPECTED)
    for pair, (after, _) in EXPECTED.items():
        assert after in TRANSITIONS[pair].to


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)), ids=lambda word: word.name)
def test_every_state_with_every_event(state: State, event: Event) -> None:
    client = at(state).client
    # the packets above are for the same HELLO, so only the state decides
    assert client.state is state
    expected = EXPECTED.get((state, event))
    if expected is None and event in PROGRAM_EVENTS:
        with pytest.raises(UsageError, match=f"does not expect {event.name} in state {state.name}"):
            fire(client, event)
        assert client.state is state
        return
    actions = fire(client, event)
    if expected is not None:
        assert (client.state, tuple(type(action) for action in actions)) == expected
    elif event is Event.DEADLINE:
        assert actions == ()  # this state has no deadline
    else:
        assert actions == (Ignored(f"{event.name} in {state.name}"),)
    if expected is None:
        assert client.state is state
    assert (client.deadline is None) is (client.state in OVER | {State.NEW})


@pytest.mark.parametrize(
    ("advance", "packet", "seconds"),
    [(lambda joined: None, "HELLO_ACK", 3), (Joined.to_done, "DONE_ACK", 7)],
)
def test_row_96_every_step_has_a_deadline_whose_error_names_it(
    advance: Callable[[Joined], object], packet: str, seconds: float
) -> None:
    client = make_client(timing=ClientTiming(hello_ack_s=3, done_ack_s=7))
    joined = Joined(client=client)
    advance(joined)
    assert client.deadline == NOW + seconds
    assert client.tick(NOW + seconds - 0.001) == ()
    error = error_of(client.tick(NOW + seconds))
    assert isinstance(error, WaitTimeout)
    assert error.what == f"waited {seconds:g} s for the server's {packet} (10.0.0.9:20000)"
    assert error.remedy
    assert client.tick(NOW + 100) == ()


@pytest.mark.parametrize("state", [State.AWAIT_HELLO_ACK, State.AWAIT_DONE_ACK])
def test_a_lost_path_shortens_the_deadline(state: State) -> None:
    client = at(state).client
    client.path_lost(NOW + 2)
    client.path_lost(NOW + 2.5)
    assert client.deadline == NOW + 3
    assert client.tick(NOW + 2.999) == ()
    error = error_of(client.tick(NOW + 3))
    assert isinstance(error, ConnectError)
    assert error.retriable
    assert "the path to it was lost" in str(error)


def test_a_hint_after_a_lost_path_is_the_error() -> None:
    client = at(State.AWAIT_DONE_ACK).client
    client.path_lost(NOW)
    client.hint(REFUSAL, NOW)
    client.hint("aeron-spark/1 FAILED rate a second hint says less than the first", NOW)
    error = error_of(client.tick(LATER))
    assert isinstance(error, RefusedError)
    assert "refused the connection by a response that is not authenticated: Server is full (full)" in str(error)


@pytest.mark.parametrize("state", [State.AWAIT_HELLO_ACK, State.AWAIT_DONE_ACK])
@pytest.mark.parametrize("code", sorted(CODES))
def test_only_a_hint_with_the_advice_soon_shortens_the_deadline(state: State, code: str) -> None:
    client = at(state).client
    before = client.deadline
    assert before is not None
    assert client.hint(f"aeron-spark/1 FAILED {code} not now", NOW + 2) == ()
    passing = code in {"rate", "pending", "shutdown", "timeout", "server-error"}
    assert client.deadline == (NOW + 3 if passing else before)
    client.hint(f"aeron-spark/1 FAILED {code} not now", NOW + 2.5)
    assert client.deadline == (NOW + 3 if passing else before)  # repeating the hint does not prolong the attempt
    assert client.tick(client.deadline - 0.001) == ()
    (abandoned,) = client.tick(client.deadline)
    assert isinstance(abandoned, Abandoned)
    assert isinstance(abandoned.error, RefusedError)
    assert abandoned.may_pass is passing


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_authenticated_refusal_may_pass_as_its_code_says_like_a_hint(code: str) -> None:
    joined = at(State.AWAIT_DONE_ACK)
    failed = one(joined.image.refuse(Refusal(code, "not now"), NOW), ServerSend).packet
    (abandoned,) = joined.client.packet(failed, NOW)
    assert isinstance(abandoned, Abandoned)
    assert isinstance(abandoned.error, RefusedError)
    assert (abandoned.may_pass, abandoned.is_authenticated) == (abandoned.error.retry is Retry.SOON, True)


@pytest.mark.parametrize("state", [State.AWAIT_HELLO_ACK, State.AWAIT_DONE_ACK])
def test_a_late_hint_does_not_prolong_the_attempt(state: State) -> None:
    client = at(state).client
    before = client.deadline
    assert before is not None
    client.hint("aeron-spark/1 FAILED rate not now", before - 0.5)
    assert client.deadline == before


def test_the_error_of_a_hint_says_that_it_is_not_authenticated() -> None:
    hinted, proved = at(State.AWAIT_HELLO_ACK).client, at(State.AWAIT_DONE_ACK).client
    assert hinted.hinted_error is None
    hinted.hint("aeron-spark/1 FAILED rate not now", NOW)
    error = error_of(hinted.tick(LATER))
    expected = (
        "the server 10.0.0.9:20000 refused the connection by a response that is not authenticated: not now (rate)"
    )
    assert error.what == expected
    assert str(hinted.hinted_error) == str(error)
    certain = error_of(proved.packet(PACKETS[Event.FAILED], NOW))
    assert certain.what == "the server 10.0.0.9:20000 refused the connection: none left (ids)"


def test_a_hint_is_dropped_when_the_server_responds() -> None:
    client = at(State.AWAIT_HELLO_ACK).client
    client.hint("aeron-spark/1 FAILED rate not now", NOW)
    one(client.packet(PACKETS[Event.HELLO_ACK], NOW + 0.5), Send)
    assert client.hinted_error is None
    assert client.deadline == NOW + 10.5
    assert isinstance(error_of(client.tick(LATER)), WaitTimeout)


def test_a_retry_after_a_lost_path_restores_the_deadline() -> None:
    client = at(State.AWAIT_HELLO_ACK).client
    before = client.deadline
    client.path_lost(NOW)
    client.hint(RETRY, NOW)
    assert client.deadline == before
    assert isinstance(error_of(client.tick(LATER)), WaitTimeout)


def test_a_retry_sends_the_same_hello_with_the_cookie() -> None:
    client = make_client()
    first = decode(one(client.start(NOW), Send).packet)
    reopen, send = client.hint(RETRY, NOW + 1)
    assert isinstance(reopen, Reopen)
    assert isinstance(send, Send)
    second = decode(send.packet)
    assert isinstance(first, HelloPacket)
    assert second == HelloPacket(first.connect_key, first.message, b"c" * 17)
    # all of them share the step's deadline
    assert client.deadline == NOW + 10


def test_a_few_retries_are_followed_and_each_cookie_only_once() -> None:
    client = make_client()
    client.start(NOW)
    for number in range(MAX_RETRIES):
        hint = encode_hint(RetryHint(bytes([number]) * 17))
        assert len(client.hint(hint, NOW)) == 2
        assert client.hint(hint, NOW) == ()
    assert client.hint(encode_hint(RetryHint(b"x" * 17)), NOW) == ()
    assert client.state is State.AWAIT_HELLO_ACK


@pytest.mark.parametrize("followed", [1, MAX_RETRIES])
def test_a_retry_that_is_not_followed_ends_the_attempt_soon(followed: int) -> None:
    """Regression: the server had forgotten the session whose cookie it had accepted, and the client waited for it."""
    client = make_client()
    client.start(NOW)
    hints = [encode_hint(RetryHint(bytes([number]) * 17)) for number in range(followed)]
    for hint in hints:
        client.hint(hint, NOW)
    assert client.deadline == NOW + 10
    client.hint(hints[-1] if followed < MAX_RETRIES else encode_hint(RetryHint(b"x" * 17)), NOW)
    assert client.deadline == NOW + 1
    assert isinstance(error_of(client.tick(NOW + 1)), ConnectError)


@pytest.mark.parametrize("reason", ["", "Unavailable image", "aeron-spark/1 RETRY !", "aeron-spark/2 FAILED full x"])
def test_a_rejection_in_another_format_is_ignored(reason: str) -> None:
    client = at(State.AWAIT_HELLO_ACK).client
    (ignored,) = client.hint(reason, NOW)
    assert isinstance(ignored, Ignored)
    assert isinstance(error_of(client.tick(LATER)), WaitTimeout)


def test_packets_that_no_server_sends_are_ignored() -> None:
    client = at(State.AWAIT_HELLO_ACK).client
    joined = Joined()
    done = joined.to_done()
    for packet in (joined.hello, done, b"AS\x02\x02" + bytes(100), b"deadbeef", b""):
        (ignored,) = client.packet(packet, NOW)
        assert isinstance(ignored, Ignored)
    assert client.state is State.AWAIT_HELLO_ACK


def test_an_authenticated_failure_is_final() -> None:
    client = at(State.AWAIT_DONE_ACK).client
    error = error_of(client.packet(PACKETS[Event.FAILED], NOW))
    assert isinstance(error, RefusedError)
    assert "none left (ids)" in str(error)
    assert client.packet(PACKETS[Event.DONE_ACK], NOW) == (Ignored("DONE_ACK in ENDED"),)


def test_a_client_whose_data_does_not_fit_into_done_starts_no_attempt() -> None:
    with pytest.raises(OptionError, match="cannot be sent"):
        make_client(done=ClientDone(types=dict.fromkeys(range(100), b"digest-1")))


def test_a_handler_that_leaves_its_row_raises() -> None:
    table = {(State.NEW, Event.START): Row((State.ENDED,), lambda _m, _g, _n: (State.CONNECTED, ()), "wrong")}
    with pytest.raises(UsageError, match="does not allow CONNECTED after NEW and START"):
        step(table, None, State.NEW, Event.START, None, NOW)


def test_no_repr_contains_a_private_key() -> None:
    joined = Joined()
    accepted, server_accepted = joined.to_connected()
    for thing in (joined.client, joined.identity, joined.image, accepted, server_accepted):
        assert CLIENT_KEYS.private.hex() not in repr(thing)
        assert repr(CLIENT_KEYS.private)[2:-1] not in repr(thing)
        assert repr(joined.identity.keys.private)[2:-1] not in repr(thing)
