"""Rules that hold between any two calls of a server's endpoint."""

from __future__ import annotations

from collections.abc import Iterable

from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.endpoint.server_sessions import ServerSession
from aeron_spark.protocol.limits import Permit
from aeron_spark.transport.api import LinkIds


def check_invariants(endpoint: ServerEndpoint, bulk_ids: Iterable[LinkIds] = ()) -> None:
    """Raise AssertionError unless each resource has one owner, and states fit their resources.

    ``bulk_ids`` are those that were taken for bulk links.
    """
    handshakes, sessions = list(endpoint._handshakes.values()), list(endpoint._sessions.values())
    opening = [one.link for one in handshakes if one.link is not None]
    unverified = list(endpoint._unverified.values())
    for one in (*opening, *unverified):
        registered = endpoint._sessions.get(one.session.connection)
        assert registered is one.session, f"the session of {one.session.connection.label} is not registered"
    for one in opening:
        assert one.link is None
    links = {one.link: one for one in unverified}
    assert links == endpoint._unverified
    links |= {one.link.link: one.link for one in sessions if one.link is not None}
    assert None not in links
    assert len(links) == len(unverified) + sum(one.link is not None for one in sessions)
    _check_owners(
        endpoint,
        pending=[one.permit for one in handshakes if one.permit is not None],
        connected=[
            *(one.permit for one in sessions),
            *(one.permit for one in (*opening, *unverified) if one.permit is not None),
        ],
        ids=[*bulk_ids, *(one.ids for one in (*opening, *links.values()))],
        sessions=sessions,
    )
    assert {one.image.image: one for one in handshakes} == endpoint._handshakes
    assert {one.path: one for one in handshakes if one.path is not None} == endpoint._paths
    assert not [one for one in handshakes if one.link is not None and one.path is None]
    for closing in endpoint._closings:
        assert closing in sessions
        assert closing.link is not None
    for session in sessions:
        _check_session(session, attempts=sum(one.session is session for one in (*opening, *unverified)))
    deadline, endpoint._has_deadline = endpoint.deadline(), False
    assert deadline == endpoint.deadline(), "a step has changed the deadline and not said so"


def _check_owners(
    endpoint: ServerEndpoint, *, pending: Iterable[Permit], connected: Iterable[Permit], ids: Iterable[LinkIds],
    sessions: Iterable[ServerSession],
) -> None:  # fmt: skip
    """Raise AssertionError unless each taken resource has exactly one of these owners."""
    admission = endpoint._admission
    for counted, permits in ((admission.pending, pending), (admission.connections, connected)):
        taken = [permit for permit in permits if permit.is_taken]
        assert len({id(permit) for permit in taken}) == len(taken) == counted, (counted, taken)
    owned = list(ids)
    expected = {
        "session_ids": sorted([n for one in owned for n in (one.session_in, one.session_out)]),
        "stream_ids": sorted([n for one in owned for n in (one.stream_in, one.stream_out)]),
        "ports": sorted([one.mdc_port for one in owned if one.mdc_port is not None]),
    }
    assert {name: list(taken) for name, taken in endpoint.pools.taken().items()} == expected
    found = endpoint._tickets.sessions()
    assert len(found) == len(set(found))
    assert set(found) == set(sessions)


def _check_session(session: ServerSession, attempts: int) -> None:
    """Raise AssertionError unless a session fits its resources and its number of unfinished links."""
    assert not session.has_ended, f"{session.connection.label} has ended, and is still registered"
    if session.is_new:
        assert session.link is None
        assert session.permit.is_taken
        assert session.detached_at is None
        assert attempts == 1
    elif session.link is not None:
        assert session.permit.is_taken
        assert session.detached_at is None
    else:
        assert session.permit.is_taken == (session.detached_at is not None)
