"""The calls that a server's endpoint makes in each of the main sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import pytest

from aeron_spark.endpoint.endpoint_listeners import Ending
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.server_endpoint import DRAIN_SECONDS, REOPEN_SECONDS
from aeron_spark.endpoint.server_sessions import HandshakeEnded
from aeron_spark.errors import EndedError, OptionError, RefusedError, Retry, SessionLost, TransportError, UsageError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.grants import UNKNOWN_KEY, Grant
from aeron_spark.protocol.handshake_packets import RefusalHint, RetryHint, decode_hint
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.protocol.sources import Refusal, parse_source
from aeron_spark.transport.api import (
    ChannelPair,
    ImageAvailable,
    ImageUnavailable,
    LinkIds,
    MessageArrived,
    SenderUnavailable,
)
from tests.invariants import check_invariants
from tests.option_groups import options_of
from tests.unit.protocol.handshakes import NOW
from tests.unit.server.simulated_server import (
    ADDRESS,
    TOKEN,
    EndpointOfServer,
    FakeConnection,
    FakePublication,
    SimulatedClient,
    SimulatedServer,
    lost_driver,
)

SOURCE: Final = "10.0.0.1:4000"
KEYS: Final = keypair_from(b"c" * 32)
TIMES: Final = Times(expiry_seconds=4.0, setup_seconds=8.0, linger_seconds=1.0, retention_seconds=60.0)
OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {"expiry": 4.0, "setup_timeout": 8.0, "linger": 1.0, "session_timeout": 60.0, "close_timeout": 2.0}
)
DISCONNECTED: Final = ["detach", "close link", "end", "disconnect"]


def joined(**changes: object) -> tuple[SimulatedServer, SimulatedClient]:
    server = SimulatedServer(options_of(ServerOptions, {**OPTIONS, **changes}))
    return server, SimulatedClient(server, KEYS, SOURCE)


def other_client(server: SimulatedServer, number: int = 2) -> SimulatedClient:
    return SimulatedClient(server, keypair_from(bytes([number]) * 32), f"10.0.0.{number}:4000", seed=number)


def connected(**changes: object) -> tuple[SimulatedServer, SimulatedClient, FakeConnection]:
    server, client = joined(**changes)
    return server, client, client.connect()


def deciding(**changes: object) -> tuple[SimulatedServer, SimulatedClient]:
    """Return a server that must decide on a client, and the client."""
    server, client = joined(**changes)
    client.start()
    client.advance(decides=False)
    assert len(server.candidates) == 1
    return server, client


def awaiting_first_frame() -> tuple[SimulatedServer, SimulatedClient, FakeConnection]:
    """Return a server that has sent DONE_ACK and awaits the first frame, its client, and the new connection."""
    server, client = deciding()
    server.decide()
    server.open_publications()
    (connection,) = server.connections
    assert connection.attached is None
    return server, client, connection


def hint(server: SimulatedServer) -> RetryHint | RefusalHint:
    return decode_hint(server.hints[-1][1])


def test_a_server_that_does_not_listen_yet_has_no_transport() -> None:
    server = SimulatedServer()
    endpoint = EndpointOfServer(server, 7)
    assert not endpoint.is_listening
    assert endpoint.own_statistics["dropped"] == 0
    with pytest.raises(UsageError, match="does not listen yet"):
        _ = endpoint.inbox
    endpoint.close_transport()


def test_a_hello_without_a_cookie_costs_a_hint_and_nothing_else() -> None:
    server, client = joined()
    client.start()
    assert client.deliver() == []
    assert client.deliver() == ["reject", "retry"]
    assert server.handshakes == [HandshakeEnded("retry", parse_source(SOURCE), None, None, "", 0.0)]
    assert isinstance(hint(server), RetryHint)
    assert server.statistics()["handshakes"] == server.statistics()["pending"] == 0


def test_a_banned_address_is_refused_at_its_image_before_its_first_packet_is_read() -> None:
    banned_until = NOW + 60.0
    server = SimulatedServer(
        ServerOptions(**OPTIONS),
        address_refusal=lambda address: Refusal("banned", f"until {address}") if server.now < banned_until else None,
    )
    client = SimulatedClient(server, KEYS, SOURCE)
    client.start()
    assert client.deliver() == ["reject", "refused"]
    assert hint(server) == RefusalHint(Refusal("banned", "until 10.0.0.1"))
    assert client.deliver() == []  # neither a cookie nor a key is computed for it
    assert server.statistics()["handshakes"] == server.statistics()["pending"] == 0
    assert server.statistics()["refused-banned"] == 1
    client.receive_all()
    assert client.handshake is not None
    error = client.handshake.hinted_error
    assert isinstance(error, RefusedError)
    assert (error.reason, error.retry) == ("banned", Retry.NEVER)
    server.run_until(banned_until)
    client.connect()


def test_a_ban_of_addresses_does_not_apply_to_shared_memory() -> None:
    server = SimulatedServer(ServerOptions(**OPTIONS), address_refusal=lambda _: Refusal("banned", "banned"))
    SimulatedClient(server, KEYS, "aeron:ipc").connect()


def test_a_hello_with_its_cookie_is_counted_and_opens_a_path() -> None:
    server, client = joined()
    client.start()
    client.deliver_all()
    client.receive_all()
    client.deliver()  # the first image is unavailable
    assert client.deliver() == []
    assert client.deliver() == ["open path"]
    (path,) = server.paths()
    assert path.image == client.image
    assert server.statistics()["handshakes"] == server.statistics()["pending"] == 1
    assert server.work() == []
    path.connected = True
    assert server.work() == ["send"]
    assert server.work() == []
    server.end()


def test_the_calls_of_an_accepted_handshake_in_their_order() -> None:
    server, client = deciding()
    server.received = 9
    assert server.statistics()["pending"] == 1
    assert server.decide(Grant(comment="desk")) == ["make", "open link"]
    (connection,) = server.connections
    assert connection.peer == PeerInfo(KEYS.public, "t", "10.0.0.1", 4000)
    assert server.packets == []  # the connection is made before DONE_ACK is sent

    assert server.work() == []  # the link is not ready
    assert server.open_publications() == ["send", "add link", "close path", "accepted"]
    assert server.handshakes[-1] == HandshakeEnded("accepted", parse_source(SOURCE), None, KEYS.public, "t", 0.0)
    assert server.statistics()["pending"] == 0
    client.receive_all()
    assert client.ack is not None
    assert client.ack.session_in == connection.id
    assert (client.ack.received, client.ack.resumed) == (9, False)
    assert (client.ack.data_port, client.ack.control_port) == (20_000, 20_001)

    assert server.endpoint.connections == []
    assert client.send_first_frame(received=3) == ["attach", "connect"]
    assert connection.attached_with == 3
    assert server.endpoint.connections == [connection]
    assert connection.grant == Grant(comment="desk")
    server.end()


def test_a_client_that_closes_its_connection_ends_its_session() -> None:
    server, _, connection = connected()
    assert server.peer_closes(connection, keep_session=False) == DISCONNECTED
    assert server.causes == [None, Ending.CLOSED_BY_CLIENT]
    assert server.peer_closes(connection, keep_session=False) == []
    with pytest.raises(EndedError, match="is closed"):
        server.endpoint.image_of(connection)  # type: ignore[arg-type]
    server.end()


def test_a_connection_that_the_server_closes_is_drained_first() -> None:
    server, _, connection = connected()
    assert server.close_connection(connection, keep_session=False) == []
    assert server.endpoint.deadline() == server.now + 2.0
    assert not server.endpoint.is_idle(server.now)
    assert server.work() == []
    connection.is_idle = True
    assert server.work() == DISCONNECTED
    assert not server.links
    server.end()


def test_a_connection_that_does_not_drain_is_closed_at_its_deadline() -> None:
    server, _, connection = connected()
    begin = server.now
    server.close_connection(connection, keep_session=True)
    server.now += 1.0
    server.close_connection(connection, keep_session=False)
    assert server.run_until(begin + 1.9) == []
    assert server.run_until(begin + 2.0) == DISCONNECTED
    assert server.causes[-1] is Ending.CLOSED_BY_SERVER
    assert server.work() == []
    server.end()


def test_a_connection_that_is_closed_and_kept_is_detached_after_its_last_frame() -> None:
    server, client, connection = connected()
    server.close_connection(connection, keep_session=True)
    connection.is_idle = True
    assert server.work() == ["detach", "close link", "disconnect"]
    assert client.connect() is connection
    server.end()


@pytest.mark.parametrize("expired", [False, True])
def test_a_session_whose_link_is_lost_is_resumed(expired: bool) -> None:
    server, client, connection = connected()
    notices = ["disconnect"] if expired else []
    assert server.lose_link(connection, expired=expired) == ["detach", "close link", *notices]
    assert server.statistics()["admitted"] == (0 if expired else 1)
    before = client.ticket
    assert client.connect() is connection
    assert client.ack is not None
    assert client.ack.resumed
    assert client.ticket != before
    assert connection.notices == ["connect", *notices, "resume"]
    assert server.statistics()["admitted"] == 1
    server.end()


def test_a_closed_connection_whose_link_is_lost_is_closed_at_once() -> None:
    server, _, connection = connected()
    server.close_connection(connection, keep_session=False)
    assert server.lose_link(connection) == DISCONNECTED
    server.end()


def test_the_old_link_carries_a_session_until_the_first_frame_on_the_new_one() -> None:
    server, client, connection = connected()
    old = connection.attached
    client.start()
    client.advance()
    assert len(server.links) == 2
    assert connection.attached is old
    assert client.send_first_frame() == ["detach", "close link", "attach", "resume"]
    assert connection.attached is client.link() is not old
    server.end()


def test_a_session_that_is_not_resumed_disconnects_after_the_expiry_and_ends_after_the_retention() -> None:
    server, _, connection = connected()
    begin = server.now
    server.lose_link(connection)
    assert server.endpoint.deadline() == begin + 4.0
    assert not server.endpoint.is_idle(server.now)
    assert server.run_until(begin + 4.0) == ["disconnect"]
    assert server.endpoint.is_idle(server.now)
    assert server.endpoint.deadline() == begin + 60.0
    assert server.run_until(begin + 60.0) == ["end"]
    assert isinstance(connection.ended, SessionLost)
    assert server.endpoint.deadline() is None
    server.end()


def test_a_session_without_a_first_frame_releases_its_resources() -> None:
    server, _, _ = awaiting_first_frame()
    assert server.endpoint.deadline() == NOW + 8.0
    assert server.run_until(NOW + 8.0) == ["end", "close link"]
    server.end()


def test_a_session_that_is_closed_before_its_first_link_is_not_kept() -> None:
    server, client, connection = awaiting_first_frame()
    assert server.close_connection(connection, keep_session=True) == ["close link", "end"]
    client.receive_all()
    assert client.connect() is not connection  # the ticket in DONE_ACK is void
    server.end()


def test_a_session_that_is_closed_during_its_handshake_refuses_its_client() -> None:
    server, client = deciding()
    server.decide()
    (connection,) = server.connections
    called = server.close_connection(connection, keep_session=True)
    assert called == ["send", "close link", "close path", "refused", "end"]
    client.receive_all()
    assert client.ended is not None
    assert "The session ended during the handshake" in str(client.ended.error)
    server.end()


def test_a_new_session_that_its_client_closes_is_not_kept() -> None:
    server, _, connection = awaiting_first_frame()
    assert server.peer_closes(connection, keep_session=True) == ["close link", "end"]
    server.end()


def test_the_session_of_a_handshake_must_be_registered() -> None:
    server, client, connection = connected()
    server.lose_link(connection)
    client.start()
    client.advance()
    sessions = server.endpoint._sessions
    kept = sessions[connection]  # type: ignore[index]
    sessions[connection] = replace(kept)  # type: ignore[index]
    with pytest.raises(AssertionError, match=f"session of {connection.label} is not registered"):
        check_invariants(server.endpoint)


def test_a_refused_key_gets_a_failed_packet_and_is_counted() -> None:
    server, client = deciding()
    assert server.decide(UNKNOWN_KEY) == ["send", "close path", "refused"]
    client.receive_all()
    assert client.ended is not None
    assert client.ended.is_authenticated
    assert server.statistics()["refused-key"] == 1
    assert server.statistics()["pending"] == 0
    server.end()


def test_the_cause_of_a_decision_that_failed_is_reported() -> None:
    server, _ = deciding()
    cause = ValueError("an odd filter")
    called = server.decide(Refusal("server-error", "An error", cause))
    assert called == ["send", "close path", "refused", "report"]
    assert server.reported == [cause]


def test_a_connection_class_that_raises_refuses_its_client() -> None:
    server, _ = deciding()
    server.make_error = ValueError("no connection today")
    assert server.decide() == ["send", "close path", "refused", "report"]
    assert server.reported == [server.handshakes[-1].refusal.cause]  # type: ignore[union-attr]
    assert server.statistics()["sessions"] == server.statistics()["session_ids"] == 0
    server.end()


def test_a_decision_after_the_end_of_its_handshake_makes_no_connection() -> None:
    server, client = deciding()
    (path,) = server.paths()
    path.is_held = True
    assert server.feed(ImageUnavailable(TOKEN, client.image)) == ["close path", "lost"]
    assert server.decide() == []
    assert server.statistics()["sessions"] == server.statistics()["session_ids"] == 0
    server.end()


def test_a_sender_that_leaves_before_its_path_is_opened_is_lost() -> None:
    server, client = joined()
    client.start()
    client.deliver_all()
    client.receive_all()
    server.open_error = SenderUnavailable("it has left", remedy="Wait.")
    client.deliver_all()
    assert server.handshakes[-1].result == "lost"
    assert server.statistics()["handshakes"] == server.statistics()["pending"] == 0
    server.end()


def test_a_path_that_cannot_be_opened_is_lost() -> None:
    server, client = joined()
    client.start()
    for _ in range(2):
        client.deliver_all()
        client.receive_all()
    (path,) = server.paths()
    path.fail()
    assert server.work() == ["close path", "lost"]
    server.end()


def test_a_sender_that_leaves_before_its_link_is_opened_is_lost() -> None:
    server, _ = deciding()
    server.open_error = SenderUnavailable("it has left", remedy="Wait.")
    assert server.decide() == ["make", "open link", "end", "close path", "lost"]
    assert server.reported == []
    server.end()


def test_a_link_that_cannot_be_opened_refuses_its_client() -> None:
    server, _ = deciding()
    cause = server.open_error = OSError("no file is left")
    assert server.decide() == ["make", "open link", "send", "end", "close path", "refused", "report"]
    assert server.reported == [cause]
    server.end()


def test_the_room_for_logs_is_asked_with_the_links_that_open_and_those_of_the_key() -> None:
    server, client, connection = connected()
    assert server.log_space_of == [(0, 0)]
    bulk_links: Any = SimpleNamespace(opening=2, counts=lambda: Counter({id(connection): 3}), work=lambda _: False)
    server.endpoint.bulk_links = bulk_links  # type: ignore[misc]
    client.ticket = None
    client.start()
    client.advance()
    assert server.log_space_of[1:] == [(3, 4)]
    other_client(server).connect()
    assert server.log_space_of[2:] == [(4, 0)]
    assert connection.attached is not None
    connection.attached.image = 7
    other_client(server, 3).connect()
    assert server.log_space_of[3:] == [(4, 0)]
    server.end()


def test_a_link_for_whose_logs_there_is_no_room_is_refused() -> None:
    server, client = deciding()
    server.log_space_refusal = RefusedError("no room", reason="full")
    assert server.decide() == ["make", "send", "end", "close path", "refused"]
    client.receive_all()
    assert client.ended is not None
    assert "no room" in str(client.ended.error)
    server.end()


def test_a_link_that_fails_while_it_opens_refuses_its_client() -> None:
    server, _ = deciding()
    server.decide()
    (link,) = [one for one in server.publications if one.name == "link"]
    link.fail()
    assert server.work() == ["send", "end", "close link", "close path", "refused", "report"]
    assert "a link could not be opened: it failed" in str(server.reported)
    server.end()


def test_a_link_that_cannot_be_closed_keeps_no_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = deciding()
    server.decide()
    (link,) = [one for one in server.publications if one.name == "link"]

    def close() -> None:
        link.is_released = True
        raise TransportError("the driver does not answer")

    monkeypatch.setattr(link, "close", close)
    link.fail()
    with pytest.raises(TransportError, match="does not answer"):
        server.work()
    assert server.statistics()["session_ids"] == server.statistics()["pending"] == 0
    server.run_until(NOW + DRAIN_SECONDS)
    assert server.paths() == []


def test_a_done_ack_that_cannot_be_encoded_refuses_its_client() -> None:
    server, _ = deciding()
    server.received = -1
    server.decide()
    assert server.open_publications() == ["send", "end", "close link", "close path", "refused", "report"]
    assert isinstance(server.reported[0], OptionError)
    server.end()


def test_a_session_that_cannot_continue_ends_with_its_error() -> None:
    server, _, connection = connected()
    error = SessionLost("the two ends differ")
    called = server.call(
        lambda: server.endpoint.session_failed(connection, error, server.now)  # type: ignore[arg-type]
    )
    assert called == DISCONNECTED
    assert connection.ended is server.causes[-1] is error
    server.end()


def test_a_session_that_cannot_be_attached_ends_with_the_reason() -> None:
    server, client, connection = awaiting_first_frame()
    server.attach_fails = True
    client.receive_all()
    assert client.send_first_frame() == ["attach", "send", "detach", "close link", "end"]  # OPEN tells the client
    assert isinstance(connection.ended, SessionLost)
    server.end()


def test_a_path_that_does_not_drain_is_closed_at_its_deadline() -> None:
    server, _ = deciding()
    (path,) = server.paths()
    path.is_held = True
    assert server.decide(UNKNOWN_KEY) == ["refused"]
    assert server.run_until(NOW + DRAIN_SECONDS - 0.1) == []
    assert server.run_until(NOW + DRAIN_SECONDS) == ["close path"]
    assert server.work() == []
    server.end()


def test_a_path_that_drains_late_is_closed_then() -> None:
    server, client = deciding()
    (path,) = server.paths()
    path.is_held = True
    server.decide(UNKNOWN_KEY)
    assert server.endpoint.work(server.now)
    path.is_held = False
    assert server.work() == ["send", "close path"]
    assert not server.endpoint.work(server.now)
    client.receive_all()
    assert client.ended is not None
    server.end()


def test_a_handshake_that_takes_too_long_is_refused() -> None:
    server, client = joined(timing=ServerTiming(hello_s=1.0))
    client.start()
    client.deliver()
    assert server.endpoint.deadline() == NOW + 1.0
    assert server.run_until(NOW + 1.0) == ["reject", "refused"]
    found = hint(server)
    assert isinstance(found, RefusalHint)
    assert found.refusal.code == "timeout"


def test_a_source_that_is_not_an_address_is_rejected_and_reported() -> None:
    server = SimulatedServer()
    assert server.feed(ImageAvailable(TOKEN, 1, 0, "somewhere")) == ["reject", "report"]
    assert server.statistics()["handshakes"] == 0


def test_an_image_that_begins_late_is_rejected() -> None:
    server = SimulatedServer()
    assert server.feed(ImageAvailable(TOKEN, 1, 0, SOURCE, late=True)) == ["reject", "refused"]


def test_a_rejection_that_fails_is_reported_and_ends_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer()

    def reject(image: int, reason: str) -> None:
        raise TransportError("the driver is dead")

    monkeypatch.setattr(server, "reject", reject)
    assert server.feed(ImageAvailable(TOKEN, 1, 0, SOURCE, late=True)) == ["report", "refused"]
    server.end()


def test_a_limit_that_is_reached_refuses_and_takes_nothing() -> None:
    server, client, connection = connected(max_connections=1)
    other = other_client(server)
    with pytest.raises(AssertionError, match="full"):
        other.connect()
    assert server.statistics()["session_ids"] == 2
    assert (server.connections, list(server.links.values())) == ([connection], [connection])
    server.peer_closes(connection, keep_session=False)
    client.leave()
    other.connect()
    server.end()


def test_a_permit_that_was_released_during_a_resume_is_taken_again_or_the_link_is_closed() -> None:
    """Regression: a session that was reported as disconnected between DONE_ACK and first frame exceeded the limit."""
    server, client, connection = connected(max_connections=1)
    server.lose_link(connection)
    server.run_until(server.now + 3.9)
    client.start()
    client.advance()
    server.run_until(server.now + 0.2)
    assert connection.notices == ["connect", "disconnect"]
    other = other_client(server)
    other.connect()
    assert client.send_first_frame() == ["close link"]
    assert server.statistics()["admitted"] == 1
    server.end()


def test_the_link_of_a_ticket_that_another_attempt_has_replaced_is_closed_and_takes_no_permit() -> None:
    server, client, connection = connected()
    twin = SimulatedClient(server, KEYS, SOURCE, seed=9)
    twin.ticket = client.ticket
    for one in (client, twin):
        one.start()
        one.advance(decides=False)
    server.decide()
    server.decide()
    server.open_publications()
    client.receive_all()
    twin.receive_all()
    assert client.send_first_frame() == ["detach", "close link", "attach", "resume"]
    server.lose_link(connection, expired=True)
    assert twin.send_first_frame() == ["close link"]
    assert server.statistics()["admitted"] == 0
    assert client.connect() is connection
    server.end()


def test_a_second_attempt_before_the_first_frame_begins_a_new_session() -> None:
    server, client, before = awaiting_first_frame()
    client.receive_all()
    after = client.connect()
    assert before is not after
    assert server.connections == [after]
    assert before.ended is not None
    assert before.notices == []
    server.end()


def test_a_lost_driver_closes_paths_and_links_and_keeps_sessions() -> None:
    server, client, connection = connected()
    other = other_client(server)
    other.start()
    for _ in range(3):
        other.deliver_all()
        other.receive_all()
    assert len(server.paths()) == 1
    assert server.feed(lost_driver()) == ["close path", "lost", "detach", "close link", "report"]
    assert (
        str(server.reported[0])
        == "the media driver was lost: it was killed. The server connects again when a media driver runs."
    )
    assert not server.endpoint.has_driver
    assert not server.endpoint.is_idle(server.now)
    assert server.work() == ["driver back"]
    assert server.endpoint.has_driver
    client.image = 0
    assert client.connect() is connection
    server.end()


def test_a_transport_is_opened_again_at_intervals_and_each_error_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SimulatedServer()
    attempts: list[Future[object]] = []

    def submit(*_: object) -> Future[object]:
        attempts.append(Future())
        return attempts[-1]

    monkeypatch.setattr(server, "submit", submit)
    server.feed(lost_driver())
    begin, server.reported = server.now, []
    for number in range(2):
        server.now = begin + number * REOPEN_SECONDS
        assert server.work() == []
        assert len(attempts) == number + 1
        attempts[-1].set_exception(TransportError("no driver"))
        assert server.work() == ([] if number else ["report"])
        server.now += REOPEN_SECONDS * 0.9
        assert server.work() == []
        assert len(attempts) == number + 1
    assert not server.endpoint.has_driver
    server.now = begin + 2 * REOPEN_SECONDS
    server.work()
    attempts[-1].set_result((server, {TOKEN: ADDRESS}))
    assert server.work() == ["driver back"]
    assert server.endpoint.has_driver
    server.end()


@pytest.mark.parametrize("fails", [False, True])
def test_a_transport_that_is_opened_after_the_end_is_closed(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    server, closed = SimulatedServer(), []
    opening: Future[object] = Future()
    monkeypatch.setattr(server, "submit", lambda *_: opening)
    server.feed(lost_driver())
    server.work()
    server.endpoint.close_transport()
    if fails:
        opening.set_exception(TransportError("no driver"))
    else:
        opening.set_result((SimpleNamespace(close=lambda: closed.append(1)), {}))
    assert closed == ([] if fails else [1])


def test_a_server_that_shuts_down_refuses_handshakes_and_ends_sessions_without_a_link() -> None:
    server, _, connection = connected()
    away = other_client(server).connect()
    server.peer_closes(away, keep_session=True)
    pending = other_client(server, 3)
    pending.start()
    pending.deliver()
    assert server.call(lambda: server.endpoint.shut_down(server.now)) == ["reject", "refused", "end"]
    assert away.ended is not None
    assert server.feed(ImageAvailable(TOKEN, 99_999, 0, SOURCE)) == ["reject", "refused"]
    found = hint(server)
    assert isinstance(found, RefusalHint)
    assert found.refusal.code == "shutdown"
    assert (server.connections, list(server.links.values())) == ([connection], [connection])
    server.end()


def test_ids_of_bulk_links_come_from_the_same_pools() -> None:
    server = SimulatedServer(
        options_of(ServerOptions, {**OPTIONS, "session_id_range": (1000, 1003), "id_reuse_delay": 0.0})
    )
    pools = server.endpoint.pools
    server.bulk = [ids for _ in range(2) if isinstance(ids := pools.take(NOW), LinkIds)]
    assert len(server.bulk) == 2
    refused = pools.take(NOW)
    assert isinstance(refused, Refusal)
    assert refused.code == "ids"
    check_invariants(server.endpoint, server.bulk)
    server.end()


def test_a_link_of_a_server_that_sends_to_several_destinations_has_its_own_port() -> None:
    server, client, connection = connected(reply_channel="mdc", mdc_ports=(20_200, 20_200))
    assert client.ack is not None
    assert (client.ack.reply_channel, client.ack.control_port) == ("mdc", 20_200)
    with pytest.raises(AssertionError, match="No ports are left"):
        other_client(server).connect()
    assert server.statistics()["session_ids"] == 2
    server.peer_closes(connection, keep_session=False)
    assert server.statistics()["ports"] == 0
    server.end()


def test_an_event_about_an_ended_object_changes_nothing() -> None:
    server, client = deciding()
    server.decide(UNKNOWN_KEY)
    connection = FakeConnection(server, PeerInfo(KEYS.public), 7)
    pair = ChannelPair(7, FakePublication(server, "link", 7))  # type: ignore[arg-type]
    link = Link(pair, FrameEncryptor(bytes(32)), FrameDecryptor(bytes(32)), TIMES, 1 << 20, NOW)
    error = TransportError("it is cut")
    endpoint = server.endpoint
    assert server.feed(ImageUnavailable(TOKEN, client.image)) == []
    assert server.feed(MessageArrived(TOKEN, client.image, memoryview(b"x"))) == []
    assert server.call(lambda: endpoint.link_verified(link, 0, NOW)) == []
    assert server.call(lambda: endpoint.link_failed(link, error, NOW)) == []
    assert server.call(lambda: endpoint.session_failed(connection, error, NOW)) == []  # type: ignore[arg-type]
    assert server.lose_link(connection, expired=True) == []
    assert server.lose_link(connection) == []
    assert server.peer_closes(connection, keep_session=True) == []
    assert server.close_connection(connection, keep_session=False) == []
    assert endpoint.deadline() is None
    server.end()
