"""The server's handshake: every state with every event, deadlines, and the release of resources."""

from __future__ import annotations

from itertools import product

import pytest

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.handshake_packets import FailedPacket, HelloPacket, RetryHint, decode, decode_hint, encode
from aeron_spark.protocol.handshake_payloads import CODES
from aeron_spark.protocol.server_handshake import (
    PROGRAM_EVENTS,
    TRANSITIONS,
    Action,
    Admit,
    Authenticate,
    ClientAccepted,
    Event,
    Ignored,
    OpenPath,
    Reject,
    Release,
    Send,
    ServerHandshake,
    State,
)
from aeron_spark.protocol.sources import Refusal
from tests.unit.protocol.handshakes import ACK, ADDRESS, NOW, Joined, make_server, one, refusal_of

LATER = NOW + 1000.0
FULL = Refusal("full", "Server is full")


def at(state: State) -> Joined:
    """Return a server's image in this state, with its client."""
    joined = Joined(address=None)  # over IPC without RETRY, so that its HELLO is valid in every state
    match state:
        case State.ADMITTING:
            joined.to_admitting()
        case State.OPENING_PATH:
            joined.to_opening()
        case State.AWAIT_DONE:
            joined.to_hello_ack()
        case State.AUTHENTICATING:
            joined.to_authenticating()
        case State.CONNECTED:
            joined.to_done_ack()
        case State.ENDED:
            joined.image.close(NOW)
        case State.AWAIT_HELLO:
            pass
    return joined


DONE = Joined(address=None).to_done()  # equal for all clients above, because they have the same entropy


def fire(joined: Joined, event: Event) -> tuple[Action, ...]:
    image = joined.image
    match event:
        case Event.HELLO_MISSED:
            return image.hello_missed(NOW)
        case Event.HELLO:
            return image.packet(joined.hello, NOW)
        case Event.DONE:
            return image.packet(DONE, NOW)
        case Event.UNEXPECTED:
            return image.packet(b"deadbeef", NOW)
        case Event.OTHER_VERSION:
            return image.packet(b"AS\x02\x01", NOW)
        case Event.ADMITTED:
            return image.admitted(NOW)
        case Event.PATH_READY:
            return image.path_ready(NOW)
        case Event.ACCEPTED:
            return image.accept(ACK, NOW)
        case Event.REFUSED:
            return image.refuse(FULL, NOW)
        case Event.DEADLINE:
            return image.tick(LATER)
        case Event.PATH_LOST:
            return image.path_lost(NOW)
        case Event.CLOSE:
            return image.close(NOW)


REJECTED = (State.ENDED, (Reject, Release))
FAILED = (State.ENDED, (Send, Release))
GONE = (State.ENDED, (Release,))
# next state and actions, by state and event; other pairs are ignored, or raise for an event of the program
EXPECTED: dict[tuple[State, Event], tuple[State, tuple[type, ...]]] = {
    (State.AWAIT_HELLO, Event.HELLO_MISSED): REJECTED,
    (State.AWAIT_HELLO, Event.HELLO): (State.ADMITTING, (Admit,)),
    (State.AWAIT_HELLO, Event.DONE): REJECTED,
    (State.AWAIT_HELLO, Event.UNEXPECTED): REJECTED,
    (State.AWAIT_HELLO, Event.OTHER_VERSION): REJECTED,
    (State.AWAIT_HELLO, Event.REFUSED): REJECTED,
    (State.AWAIT_HELLO, Event.DEADLINE): REJECTED,
    (State.AWAIT_HELLO, Event.PATH_LOST): GONE,
    (State.AWAIT_HELLO, Event.CLOSE): REJECTED,
    (State.ADMITTING, Event.ADMITTED): (State.OPENING_PATH, (OpenPath,)),
    (State.ADMITTING, Event.REFUSED): REJECTED,
    (State.ADMITTING, Event.DEADLINE): REJECTED,
    (State.ADMITTING, Event.PATH_LOST): GONE,
    (State.ADMITTING, Event.CLOSE): REJECTED,
    (State.OPENING_PATH, Event.PATH_READY): (State.AWAIT_DONE, (Send,)),
    (State.OPENING_PATH, Event.REFUSED): REJECTED,
    (State.OPENING_PATH, Event.DEADLINE): REJECTED,
    (State.OPENING_PATH, Event.PATH_LOST): GONE,
    (State.OPENING_PATH, Event.CLOSE): REJECTED,
    (State.AWAIT_DONE, Event.DONE): (State.AUTHENTICATING, (Authenticate,)),
    (State.AWAIT_DONE, Event.DEADLINE): REJECTED,
    (State.AWAIT_DONE, Event.PATH_LOST): GONE,
    (State.AWAIT_DONE, Event.CLOSE): REJECTED,
    (State.AUTHENTICATING, Event.ACCEPTED): (State.CONNECTED, (Send, ClientAccepted)),
    (State.AUTHENTICATING, Event.REFUSED): FAILED,
    (State.AUTHENTICATING, Event.DEADLINE): FAILED,
    (State.AUTHENTICATING, Event.PATH_LOST): GONE,
    (State.AUTHENTICATING, Event.CLOSE): FAILED,
}
OVER = {State.CONNECTED, State.ENDED}


def test_the_table_has_the_rows_that_are_tested() -> None:
    assert set(TRANSITIONS) == set(EXPECTED)
    for pair, (after, _) in EXPECTED.items():
        assert after in TRANSITIONS[pair].to


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)), ids=lambda word: word.name)
def test_every_state_with_every_event(state: State, event: Event) -> None:
    joined = at(state)
    image = joined.image
    assert image.state is state
    expected = EXPECTED.get((state, event))
    if expected is None and event in PROGRAM_EVENTS:
        with pytest.raises(UsageError, match=f"does not expect {event.name} in state {state.name}"):
            fire(joined, event)
        assert image.state is state
        return
    actions = fire(joined, event)
    if expected is not None:
        assert (image.state, tuple(type(action) for action in actions)) == expected
    elif event is Event.DEADLINE:
        assert actions == ()  # this state has no deadline
    else:
        assert actions == (Ignored(f"{event.name} in {state.name}"),)
    if expected is None:
        assert image.state is state
    assert (image.deadline is None) is (image.state in OVER)


def test_every_handshake_that_ends_without_a_connection_is_released() -> None:
    for (state, event), (after, kinds) in EXPECTED.items():
        if after is not State.ENDED:
            continue
        assert kinds[-1] is Release
        release = one(fire(at(state), event), Release)
        assert (release.refusal is None) is (event is Event.PATH_LOST)


@pytest.mark.parametrize(
    ("state", "seconds", "awaited"),
    [
        (State.AWAIT_HELLO, 5, "The server waited 5 s for the client's HELLO"),
        (State.ADMITTING, 5, "The server waited 5 s for its own limits"),
        (State.OPENING_PATH, 10, "The server waited 10 s for the path to the client"),
        (State.AWAIT_DONE, 10, "The server waited 10 s for the client's DONE"),
    ],
)
def test_row_10_every_step_has_a_deadline_that_names_it_and_releases_its_resources(
    state: State, seconds: float, awaited: str
) -> None:
    image = at(state).image
    assert image.tick(NOW + seconds - 0.001) == ()
    assert refusal_of(image.tick(NOW + seconds)) == Refusal("timeout", awaited)
    assert image.tick(NOW + 100) == ()


def test_row_10_the_servers_decision_has_a_deadline() -> None:
    joined = at(State.AUTHENTICATING)
    send, release = joined.image.tick(NOW + 10)
    assert isinstance(send, Send)
    assert isinstance(decode(send.packet), FailedPacket)
    assert release == Release(
        "The server waited 10 s for its own decision",
        Refusal("timeout", "The server waited 10 s for its own decision"),
    )


def test_nothing_is_requested_before_a_cookie_is_valid() -> None:
    joined = Joined()
    reject, release = joined.image.packet(joined.hello, NOW)
    assert isinstance(reject, Reject)
    hint = decode_hint(reject.reason)
    assert isinstance(hint, RetryHint)
    assert release == Release("HELLO without a valid cookie")
    hello = decode(joined.hello)
    assert isinstance(hello, HelloPacket)
    # the cookie of another HELLO, a random one, and the right one from another address
    for address, cookie in ((ADDRESS, b"c" * 17), ("10.0.0.2", hint.cookie)):
        image = ServerHandshake(joined.identity, address, NOW)
        packet = encode(HelloPacket(hello.connect_key, hello.message, cookie))
        assert isinstance(image.packet(packet, NOW)[0], Reject)
        assert image.state is State.ENDED
    good = ServerHandshake(joined.identity, ADDRESS, NOW)
    packet = encode(HelloPacket(hello.connect_key, hello.message, hint.cookie))
    assert good.packet(packet, NOW) == (Admit(ADDRESS, joined.client.key_hash),)


def test_over_ipc_a_cookie_is_neither_required_nor_accepted() -> None:
    joined = Joined(address=None)
    hello = decode(joined.hello)
    assert isinstance(hello, HelloPacket)
    with_cookie = encode(HelloPacket(hello.connect_key, hello.message, b"c" * 17))
    assert refusal_of(joined.image.packet(with_cookie, NOW)).code == "message"
    joined.image = joined.new_image()
    assert joined.image.packet(joined.hello, NOW) == (Admit(None, joined.client.key_hash),)


def test_no_entropy_is_used_before_the_path_is_open() -> None:
    asked: list[int] = []
    identity = make_server()
    real = identity.entropy

    def counted(length: int) -> bytes:
        asked.append(length)
        return real(length)

    joined = Joined(type(identity)(identity.keys, identity.hello, identity.cookies, counted))
    joined.to_opening()
    assert asked == []
    joined.image.path_ready(NOW)
    assert asked == [32]


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("state", [State.ADMITTING, State.OPENING_PATH])
def test_row_31_every_refusal_before_done_is_a_hint(code: str, state: State) -> None:
    assert refusal_of(at(state).image.refuse(Refusal(code, "why"), NOW)) == Refusal(code, "why")


@pytest.mark.parametrize("state", [State.ADMITTING, State.OPENING_PATH, State.AUTHENTICATING])
def test_an_unknown_code_raises_and_changes_nothing(state: State) -> None:
    image = at(state).image
    with pytest.raises(OptionError, match="'fool' is not a code of a refusal"):
        image.refuse(Refusal("fool", ""), NOW)
    assert image.state is state


def test_the_error_of_a_filter_is_not_sent_to_the_client() -> None:
    secret = Refusal("not-permitted", "Connection was not permitted!", ValueError("a secret of the server"))
    reject = one(at(State.ADMITTING).image.refuse(secret, NOW), Reject)
    assert "secret" not in reject.reason


def test_another_version_is_refused_with_the_servers_version() -> None:
    image = at(State.AWAIT_HELLO).image
    refusal = refusal_of(image.packet(b"AS\x07\x01" + bytes(500), NOW))
    assert refusal == Refusal("version", "This server speaks version 1")


def test_packets_that_only_servers_send_are_refused() -> None:
    joined = Joined(address=None)
    ack = joined.to_hello_ack()
    assert refusal_of(joined.new_image().packet(ack, NOW)).code == "message"
