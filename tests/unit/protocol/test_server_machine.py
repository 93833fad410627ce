"""The server machine's effects for each event of the main sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import pytest

from aeron_spark.errors import OptionError, RefusedError, Retry, SessionLost, TransportError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol import server_effects as effects
from aeron_spark.protocol import server_events as events
from aeron_spark.protocol.grants import EVERYTHING, UNKNOWN_KEY, Grant
from aeron_spark.protocol.handshake_packets import RefusalHint, RetryHint, decode_hint
from aeron_spark.protocol.ids import PooledIds
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.server_effects import AuthenticatedClient, Ending
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.protocol.server_machine import DRAIN_SECONDS
from aeron_spark.protocol.sources import Refusal, parse_source
from tests.invariants import check_invariants
from tests.option_groups import options_of
from tests.unit.protocol.handshakes import NOW
from tests.unit.protocol.simulated_server import SimulatedClient, SimulatedServer

SOURCE: Final = "10.0.0.1:4000"
KEYS: Final = keypair_from(b"c" * 32)
TIMES: Final = Times(expiry_seconds=4.0, setup_seconds=8.0, linger_seconds=1.0, retention_seconds=60.0)
OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {"expiry": 4.0, "setup_timeout": 8.0, "linger": 1.0, "session_timeout": 60.0, "close_timeout": 2.0}
)


def joined(**changes: object) -> tuple[SimulatedServer, SimulatedClient]:
    server = SimulatedServer(options_of(ServerOptions, {**OPTIONS, **changes}))
    return server, SimulatedClient(server, KEYS, SOURCE)


def connected(**changes: object) -> tuple[SimulatedServer, SimulatedClient, int, int]:
    """Return a server, a connected client, the session and its link."""
    server, client = joined(**changes)
    session = client.connect()
    (link,) = server.links
    return server, client, session, link


def deciding(**changes: object) -> tuple[SimulatedServer, SimulatedClient, int]:
    """Return a server that must decide on a client, the client, and the path."""
    server, client = joined(**changes)
    client.start()
    while not any(isinstance(one, events.Decided) for one in server.results):
        while client.waiting:
            client.deliver()
        if server.results and not isinstance(server.results[0], events.Decided):
            server.feed_result()
        client.receive_all()
    (decided,) = server.results
    assert isinstance(decided, events.Decided)
    server.results.clear()
    return server, client, decided.path


def hint(server: SimulatedServer) -> RetryHint | RefusalHint:
    return decode_hint(server.hints[-1][1])


def kinds(returned: effects.ServerEffects) -> list[str]:
    return [type(effect).__name__ for effect in returned]


def test_a_hello_without_a_cookie_costs_a_hint_and_nothing_else() -> None:
    server, client = joined()
    client.start()
    available, hello = client.waiting
    assert server.feed(available) == ()
    reject, ended = server.feed(hello)
    assert isinstance(reject, effects.RejectImage)
    assert ended == effects.HandshakeEnded("retry", parse_source(SOURCE), None, None, "", 0.0)
    assert isinstance(hint(server), RetryHint)
    assert server.machine.statistics()["handshakes"] == server.machine.statistics()["pending"] == 0


def test_a_banned_address_is_refused_at_its_image_before_its_first_packet_is_read() -> None:
    banned_until = NOW + 60.0
    server = SimulatedServer(
        ServerOptions(**OPTIONS),
        address_refusal=lambda address: Refusal("banned", f"until {address}") if server.now < banned_until else None,
    )
    client = SimulatedClient(server, KEYS, SOURCE)
    client.start()
    available, hello = client.waiting
    reject, ended = server.feed(available)
    assert isinstance(reject, effects.RejectImage)
    assert isinstance(ended, effects.HandshakeEnded)
    assert ended.result == "refused"
    assert hint(server) == RefusalHint(Refusal("banned", "until 10.0.0.1"))
    assert server.feed(hello) == ()  # neither a cookie nor a key is computed for it
    assert server.machine.statistics()["handshakes"] == server.machine.statistics()["pending"] == 0
    assert server.machine.statistics()["refused-banned"] == 1
    client.receive_all()
    assert client.handshake is not None
    error = client.handshake.hinted_error
    assert isinstance(error, RefusedError)
    assert (error.reason, error.retry) == ("banned", Retry.NEVER)
    server.tick(banned_until)
    client.connect()


def test_a_ban_of_addresses_does_not_apply_to_shared_memory() -> None:
    server = SimulatedServer(ServerOptions(**OPTIONS), address_refusal=lambda _: Refusal("banned", "banned"))
    client = SimulatedClient(server, KEYS, "aeron:ipc")
    client.connect()


def test_a_hello_with_its_cookie_is_counted_and_opens_a_path() -> None:
    server, client = joined()
    client.start()
    while client.waiting:
        client.deliver()
    client.receive_all()
    _, available, hello = client.waiting
    assert server.feed(available) == ()
    (opened,) = server.feed(hello)
    assert isinstance(opened, effects.OpenPath)
    assert opened.image == client.image
    assert server.machine.statistics()["handshakes"] == server.machine.statistics()["pending"] == 1
    assert kinds(server.feed(events.PathReady(opened.path))) == ["Transmit"]
    assert server.feed(events.PathReady(opened.path)) == ()
    server.results.clear()
    server.close()


def test_the_effects_of_an_accepted_handshake_in_their_order() -> None:
    server, client, path = deciding()
    assert server.machine.statistics()["pending"] == 1
    returned = server.feed(events.Decided(path, Grant(comment="desk")))
    (made,) = returned
    assert isinstance(made, effects.MakeConnection)
    assert made.client == AuthenticatedClient(KEYS.public, "t", parse_source(SOURCE), Grant(comment="desk"))
    assert server.packets == []  # the connection object is made before DONE_ACK is sent

    (opened,) = server.feed(events.ConnectionMade(made.session))
    assert isinstance(opened, effects.OpenLink)
    assert (opened.session, opened.image, opened.ids.session_in) == (made.session, client.image, made.number)
    link = opened.link

    sent, expected, ended, drained = server.feed(events.LinkReady(link, received=9))
    assert isinstance(sent, effects.Transmit)
    assert isinstance(expected, effects.ExpectFirstFrame)
    assert (expected.link, expected.session, expected.client) == (link, made.session, made.client)
    assert ended == effects.HandshakeEnded("accepted", parse_source(SOURCE), None, KEYS.public, "t", 0.0)
    assert drained == effects.DrainPath(path)
    assert server.machine.statistics()["pending"] == 0
    assert server.feed(events.PathDrained(path)) == (effects.ClosePath(path),)
    client.receive_all()
    assert client.ack is not None
    assert (client.ack.received, client.ack.resumed) == (9, False)
    assert (client.ack.data_port, client.ack.control_port) == (20_000, 20_001)

    session = made.session
    assert server.feed(events.LinkVerified(link, 3)) == (effects.Attach(link, session, made.client, 3),)
    assert server.feed(events.LinkAttached(link)) == (effects.Notify(session, "connect"),)
    server.results.clear()
    server.close()


def test_a_client_that_closes_its_connection_ends_its_session() -> None:
    server, _, session, link = connected()
    assert server.feed(events.PeerClosed(session, keep_session=False)) == (
        effects.Detach(session),
        effects.CloseLink(link),
        effects.EndConnection(session, Ending.CLOSED_BY_CLIENT),
        effects.Notify(session, "disconnect"),
        effects.ForgetConnection(session),
    )
    assert server.feed(events.PeerClosed(session, keep_session=False)) == ()
    server.close()


def test_a_connection_that_the_server_closes_is_drained_first() -> None:
    server, _, session, link = connected()
    now = server.now
    assert server.execute(server.machine.close_connection(session, keep_session=False, now=now)) == (
        effects.DrainSession(session),
    )
    assert server.machine.deadline() == now + 2.0
    assert kinds(server.feed_result()) == ["Detach", "CloseLink", "EndConnection", "Notify", "ForgetConnection"]
    assert link not in server.links
    server.close()


def test_a_connection_that_does_not_drain_is_closed_at_its_deadline() -> None:
    server, _, session, _ = connected()
    server.execute(server.machine.close_connection(session, keep_session=True, now=server.now))
    server.execute(server.machine.close_connection(session, keep_session=False, now=server.now + 1.0))
    assert server.tick(server.now + 1.9) == ()
    returned = server.tick(server.now + 0.1)
    assert effects.EndConnection(session, Ending.CLOSED_BY_SERVER) in returned
    assert server.feed(events.SessionDrained(session)) == ()
    server.close()


@pytest.mark.parametrize("expired", [False, True])
def test_a_session_whose_link_is_lost_is_resumed(expired: bool) -> None:
    server, client, session, link = connected()
    lost = events.LinkExpired(link) if expired else events.LinkFailed(link, TransportError("it is cut"))
    returned = server.feed(lost)
    assert returned[:2] == (effects.Detach(session), effects.CloseLink(link))
    assert returned[2:] == ((effects.Notify(session, "disconnect"),) if expired else ())
    assert server.machine.statistics()["admitted"] == (0 if expired else 1)
    before = client.ticket
    assert client.connect() == session
    assert client.ack is not None
    assert client.ack.resumed
    assert client.ticket != before
    assert server.sessions[session].notices == ["connect", *(["disconnect"] if expired else []), "resume"]
    assert server.machine.statistics()["admitted"] == 1
    server.close()


def test_the_old_link_carries_a_session_until_the_first_frame_on_the_new_one() -> None:
    server, client, session, link = connected()
    client.start()
    for _ in range(6):
        while client.waiting:
            client.deliver()
        server.feed_results()
        client.receive_all()
    assert len(server.links) == 2
    (new,) = server.links.keys() - {link}
    returned = client.send_first_frame()
    assert returned[:2] == (effects.Detach(session), effects.CloseLink(link))
    assert isinstance(returned[2], effects.Attach)
    assert returned[2].link == new
    assert server.feed_result() == (effects.Notify(session, "resume"),)
    server.close()


def test_a_session_that_is_not_resumed_disconnects_after_the_expiry_and_ends_after_the_retention() -> None:
    server, _, session, link = connected()
    begun = server.now
    server.feed(events.LinkFailed(link, TransportError("it is cut")))
    assert server.machine.deadline() == begun + 4.0
    assert not server.machine.is_idle
    assert server.tick(begun + 4.0) == (effects.Notify(session, "disconnect"),)
    assert server.machine.is_idle
    assert server.machine.deadline() == begun + 60.0
    assert server.tick(begun + 60.0) == (
        effects.EndConnection(session, Ending.NOT_RESUMED),
        effects.ForgetConnection(session),
    )
    assert server.machine.deadline() is None
    server.close()


def test_a_session_without_a_first_frame_releases_its_resources() -> None:
    server, _, path = deciding()
    server.feed(events.Decided(path, EVERYTHING))
    server.feed_results()
    (session,), (link,) = server.sessions, server.links
    assert server.machine.deadline() == NOW + 8.0
    assert server.tick(NOW + 8.0) == (
        effects.CloseLink(link),
        effects.EndConnection(session, Ending.NEVER_CONNECTED),
        effects.ForgetConnection(session),
    )
    server.close()


def awaiting_first_frame() -> tuple[SimulatedServer, SimulatedClient, int, int]:
    """Return a server that has sent DONE_ACK and awaits the first frame, its client, the new session and its link."""
    server, client, path = deciding()
    server.feed(events.Decided(path, EVERYTHING))
    server.feed_results()
    (session,), (link,) = server.sessions, server.links
    return server, client, session, link


def test_a_session_that_is_closed_before_its_first_link_is_not_kept() -> None:
    server, client, session, link = awaiting_first_frame()
    returned = server.execute(server.machine.close_connection(session, keep_session=True, now=server.now))
    assert returned == (
        effects.CloseLink(link),
        effects.EndConnection(session, Ending.CLOSED_BY_SERVER),
        effects.ForgetConnection(session),
    )
    client.receive_all()
    assert client.connect() != session  # the ticket in DONE_ACK is void
    server.close()


def test_a_session_that_is_closed_during_its_handshake_refuses_its_client() -> None:
    server, client, path = deciding()
    (made,) = server.feed(events.Decided(path, EVERYTHING))
    assert isinstance(made, effects.MakeConnection)
    returned = server.execute(server.machine.close_connection(made.session, keep_session=True, now=server.now))
    assert kinds(returned) == ["Transmit", "HandshakeEnded", "DrainPath"]
    client.receive_all()
    assert client.ended is not None
    assert "The session ended during the handshake" in str(client.ended.error)
    server.feed_results()
    assert not server.sessions
    server.close()


def test_a_new_session_that_its_client_closes_is_not_kept() -> None:
    server, _, session, link = awaiting_first_frame()
    assert server.feed(events.PeerClosed(session, keep_session=True)) == (
        effects.CloseLink(link),
        effects.EndConnection(session, Ending.CLOSED_BY_CLIENT),
        effects.ForgetConnection(session),
    )
    server.close()


def test_the_session_of_a_handshake_must_be_registered() -> None:
    server, client, session, link = connected()
    server.feed(events.LinkFailed(link, TransportError("it is cut")))
    client.start()
    for _ in range(6):
        while client.waiting:
            client.deliver()
        server.feed_results()
        client.receive_all()
    sessions = server.machine._sessions
    sessions[session] = replace(sessions[session])
    with pytest.raises(AssertionError, match=f"session {session} of a handshake is not registered"):
        check_invariants(server.machine)


def test_a_refused_key_gets_a_failed_packet_and_is_counted() -> None:
    server, client, path = deciding()
    returned = server.feed(events.Decided(path, UNKNOWN_KEY))
    assert kinds(returned) == ["Transmit", "HandshakeEnded", "DrainPath"]
    client.receive_all()
    assert client.ended is not None
    assert client.ended.is_authenticated
    assert server.machine.statistics()["refused-key"] == 1
    assert server.machine.statistics()["pending"] == 0
    server.close()


def test_the_cause_of_a_decision_that_failed_is_reported() -> None:
    server, _, path = deciding()
    cause = ValueError("an odd filter")
    returned = server.feed(events.Decided(path, Refusal("server-error", "An error", cause)))
    assert kinds(returned) == ["Transmit", "HandshakeEnded", "DrainPath"]
    assert server.reported == [cause]


def test_a_connection_class_that_raises_refuses_its_client() -> None:
    server, _, path = deciding()
    (made,) = server.feed(events.Decided(path, EVERYTHING))
    assert isinstance(made, effects.MakeConnection)
    server.results.clear()
    returned = server.feed(events.ConnectionFailed(made.session, ValueError("no connection today")))
    assert kinds(returned) == ["Transmit", "HandshakeEnded", "DrainPath"]
    server.feed_results()
    server.close()


def test_a_connection_that_is_made_after_its_handshake_ended_is_ended() -> None:
    server, client, path = deciding()
    (made,) = server.feed(events.Decided(path, EVERYTHING))
    assert isinstance(made, effects.MakeConnection)
    assert kinds(server.feed(events.ImageUnavailable(client.image))) == ["HandshakeEnded", "DrainPath"]
    assert server.machine.statistics()["sessions"] == server.machine.statistics()["session_ids"] == 0
    assert server.feed(events.ConnectionMade(made.session)) == (
        effects.EndConnection(made.session, Ending.NEVER_CONNECTED),
        effects.ForgetConnection(made.session),
    )
    server.results = [one for one in server.results if not isinstance(one, events.ConnectionMade)]
    server.close()


def test_a_link_that_cannot_be_opened_refuses_its_client() -> None:
    server, _, path = deciding()
    server.feed(events.Decided(path, EVERYTHING))
    (opened,) = server.feed_result()
    assert isinstance(opened, effects.OpenLink)
    server.results.clear()
    cause = OSError("no file is left")
    returned = server.feed(events.LinkFailed(opened.link, cause))
    assert kinds(returned) == [
        "Transmit", "HandshakeEnded", "CloseLink", "EndConnection", "ForgetConnection", "DrainPath",
    ]  # fmt: skip
    assert server.reported == [cause]
    server.close()


def test_a_done_ack_that_cannot_be_encoded_refuses_its_client() -> None:
    server, _, path = deciding()
    server.feed(events.Decided(path, EVERYTHING))
    (opened,) = server.feed_result()
    assert isinstance(opened, effects.OpenLink)
    server.results.clear()
    returned = server.feed(events.LinkReady(opened.link, received=-1))
    assert kinds(returned)[:3] == ["Transmit", "HandshakeEnded", "CloseLink"]
    assert isinstance(server.reported[0], OptionError)
    server.close()


def test_a_session_that_cannot_continue_ends_with_its_error() -> None:
    server, _, session, link = connected()
    error = SessionLost("the two ends differ")
    assert server.feed(events.SessionFailed(session, error)) == (
        effects.Detach(session),
        effects.CloseLink(link),
        effects.EndConnection(session, error),
        effects.Notify(session, "disconnect"),
        effects.ForgetConnection(session),
    )
    server.close()


def test_a_path_that_does_not_drain_is_closed_at_its_deadline() -> None:
    server, _, path = deciding()
    server.feed(events.Decided(path, UNKNOWN_KEY))
    assert server.tick(NOW + DRAIN_SECONDS - 0.1) == ()
    assert server.tick(NOW + DRAIN_SECONDS) == (effects.ClosePath(path),)
    assert server.feed(events.PathDrained(path)) == ()


def test_a_handshake_that_takes_too_long_is_refused() -> None:
    server, client = joined(timing=ServerTiming(hello_s=1.0))
    client.start()
    client.deliver()
    assert server.machine.deadline() == NOW + 1.0
    assert kinds(server.tick(NOW + 1.0)) == ["RejectImage", "HandshakeEnded"]
    found = hint(server)
    assert isinstance(found, RefusalHint)
    assert found.refusal.code == "timeout"


def test_a_source_that_is_not_an_address_is_rejected_and_reported() -> None:
    server = SimulatedServer()
    returned = server.feed(events.ImageAvailable(1, "somewhere"))
    assert kinds(returned) == ["RejectImage", "Report"]
    assert server.machine.statistics()["handshakes"] == 0


def test_an_image_that_begins_late_is_rejected() -> None:
    server = SimulatedServer()
    assert kinds(server.feed(events.ImageAvailable(1, SOURCE, late=True))) == ["RejectImage", "HandshakeEnded"]


def test_a_limit_that_is_reached_refuses_and_takes_nothing() -> None:
    server, client, session, link = connected(max_connections=1)
    other = SimulatedClient(server, keypair_from(b"d" * 32), "10.0.0.2:4000", seed=5)
    with pytest.raises(AssertionError, match="full"):
        other.connect()
    server.feed_results()
    assert server.machine.statistics()["session_ids"] == 2
    assert (list(server.sessions), list(server.links)) == ([session], [link])
    server.feed(events.PeerClosed(session, keep_session=False))
    client.leave()
    other.connect()
    server.close()


def test_a_permit_that_was_released_during_a_resume_is_taken_again_or_the_link_is_closed() -> None:
    """Regression: a session that was reported as disconnected between DONE_ACK and first frame exceeded the limit."""
    server, client, session, link = connected(max_connections=1)
    server.feed(events.LinkFailed(link, TransportError("it is cut")))
    server.now += 3.9
    client.start()
    for _ in range(6):
        while client.waiting:
            client.deliver()
        server.feed_results()
        client.receive_all()
    server.tick(server.now + 0.2)
    assert server.sessions[session].notices == ["connect", "disconnect"]
    other = SimulatedClient(server, keypair_from(b"d" * 32), "10.0.0.2:4000", seed=5)
    other.connect()
    (new,) = [number for number, one in server.links.items() if one.effect.session == session]
    assert client.send_first_frame() == (effects.CloseLink(new),)
    assert server.machine.statistics()["admitted"] == 1
    server.close()


def test_a_second_attempt_before_the_first_frame_begins_a_new_session() -> None:
    server, client, path = deciding()
    server.feed(events.Decided(path, EVERYTHING))
    server.feed_results()
    client.receive_all()
    (before,) = server.sessions
    client.connect()
    (after,) = server.sessions
    assert before != after
    assert server.seen["NEVER_CONNECTED"] == 1
    server.close()


def test_a_lost_driver_closes_paths_and_links_and_keeps_sessions() -> None:
    server, client, session, link = connected()
    other = SimulatedClient(server, keypair_from(b"d" * 32), "10.0.0.2:4000", seed=5)
    other.start()
    for _ in range(3):
        while other.waiting:
            other.deliver()
        other.receive_all()
    (path,) = server.paths
    returned = server.feed(events.DriverLost("it was killed"))
    assert kinds(returned) == [
        "Report", "HandshakeEnded", "DrainPath", "ClosePath", "Detach", "CloseLink", "ReopenTransport",
    ]  # fmt: skip
    assert effects.ClosePath(path) in returned
    assert effects.CloseLink(link) in returned
    assert (
        str(server.reported[0])
        == "the media driver was lost: it was killed. The server connects again when a media driver runs."
    )
    server.results.clear()
    client.image = 0
    assert client.connect() == session
    server.close()


def test_a_server_that_shuts_down_refuses_handshakes_and_ends_sessions_without_a_link() -> None:
    server, _, session, link = connected()
    away = SimulatedClient(server, keypair_from(b"d" * 32), "10.0.0.2:4000", seed=5)
    away_session = away.connect()
    server.feed(events.PeerClosed(away_session, keep_session=True))
    pending = SimulatedClient(server, keypair_from(b"e" * 32), "10.0.0.3:4000", seed=6)
    pending.start()
    pending.deliver()
    returned = server.execute(server.machine.shut_down(server.now))
    assert kinds(returned) == ["RejectImage", "HandshakeEnded", "EndConnection", "ForgetConnection"]
    assert effects.EndConnection(away_session, Ending.CLOSED_BY_SERVER) in returned
    assert kinds(server.feed(events.ImageAvailable(99_999, SOURCE))) == ["RejectImage", "HandshakeEnded"]
    found = hint(server)
    assert isinstance(found, RefusalHint)
    assert found.refusal.code == "shutdown"
    assert (list(server.sessions), list(server.links)) == ([session], [link])
    server.close()


def test_ids_of_bulk_links_come_from_the_same_pools_and_are_released_once() -> None:
    server = SimulatedServer(
        options_of(ServerOptions, {**OPTIONS, "session_id_range": (1000, 1003), "id_reuse_delay": 0.0})
    )
    resources = server.machine.resources
    first = resources.take_bulk_ids(NOW)
    second = resources.take_bulk_ids(NOW)
    assert isinstance(first, PooledIds)
    assert isinstance(second, PooledIds)
    refused = resources.take_bulk_ids(NOW)
    assert isinstance(refused, Refusal)
    assert refused.code == "ids"
    check_invariants(server.machine)
    resources.release_bulk_ids(first, NOW)
    with pytest.raises(KeyError):
        resources.release_bulk_ids(first, NOW)
    resources.release_bulk_ids(second, NOW)
    server.close()


@pytest.mark.parametrize(
    "event",
    [
        events.ImageUnavailable(7),
        events.Packet(7, b"x"),
        events.PathReady(7),
        events.PathFailed(7),
        events.PathDrained(7),
        events.Decided(7, EVERYTHING),
        events.ConnectionFailed(7, ValueError()),
        events.LinkReady(7, 0),
        events.LinkFailed(7, ValueError()),
        events.LinkVerified(7, 0),
        events.LinkAttached(7),
        events.LinkExpired(7),
        events.SessionFailed(7, TransportError("it is cut")),
        events.SessionDrained(7),
        events.PeerClosed(7, keep_session=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_about_an_ended_object_changes_nothing(event: events.ServerEvent) -> None:
    server = SimulatedServer()
    assert server.feed(event) == ()
    assert server.execute(server.machine.close_connection(7, keep_session=False, now=NOW)) == ()
    server.close()
