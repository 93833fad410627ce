"""Rules that hold between any two events of a server's machine."""

from __future__ import annotations

from collections.abc import Iterable

from aeron_spark.protocol.ids import PooledIds
from aeron_spark.protocol.limits import Permit
from aeron_spark.protocol.server_machine import ServerMachine
from aeron_spark.protocol.server_sessions import ServerResources, ServerSession, SessionState


def check_invariants(machine: ServerMachine) -> None:
    """Raise AssertionError unless each resource has one owner, and states fit their resources."""
    begun = [one.accepted for one in machine._handshakes.values() if one.accepted is not None]
    begun += [one.accepted for one in machine._awaiting_first_frame.values()]
    sessions = list(machine._sessions.values())
    for one in begun:
        number = one.session.number
        assert machine._sessions.get(number) is one.session, f"session {number} of a handshake is not registered"
    _check_owners(
        machine.resources,
        pending=[one.permit for one in machine._handshakes.values() if one.permit is not None],
        connected=[
            *(one.permit for one in sessions),
            *(one.permit for one in begun if one.permit is not None),
        ],
        ids=[*(one.link.ids for one in begun), *(one.link.ids for one in sessions if one.link is not None)],
        sessions=sessions,
    )
    waiting = [*machine._awaiting_connection.values(), *machine._opening_links.values()]
    assert sorted(one.path for one in waiting) == sorted(
        one.path for one in machine._handshakes.values() if one.accepted is not None
    )
    assert sorted(one.path for one in machine._by_image.values()) == sorted(machine._handshakes)
    assert machine._attached == {one.link.number: one for one in sessions if one.link is not None}
    for session in sessions:
        _check_session(session, attempts=sum(one.session is session for one in begun))


def _check_owners(
    resources: ServerResources, *, pending: Iterable[Permit], connected: Iterable[Permit], ids: Iterable[PooledIds],
    sessions: Iterable[ServerSession],
) -> None:  # fmt: skip
    """Raise AssertionError unless each taken resource has exactly one of these owners."""
    for counted, permits in ((resources.admission.pending, pending), (resources.admission.connections, connected)):
        taken = [permit for permit in permits if permit.is_taken]
        assert len({id(permit) for permit in taken}) == len(taken) == counted, (counted, taken)
    owned = [*ids, *resources._bulk]
    expected = {
        "session_ids": sorted([n for one in owned for n in (one.session_in, one.session_out)]),
        "stream_ids": sorted([n for one in owned for n in (one.stream_in, one.stream_out)]),
        "ports": sorted([one.mdc_port for one in owned if one.mdc_port is not None]),
    }
    assert {name: list(taken) for name, taken in resources.pools.taken().items()} == expected
    found = sorted(session.number for session in resources.tickets.sessions())
    assert found == sorted(session.number for session in sessions), found


def _check_session(session: ServerSession, attempts: int) -> None:
    """Raise AssertionError unless the state fits the session's resources and its number of unfinished links."""
    match session.state:
        case SessionState.ACCEPTED | SessionState.AWAITING_FIRST_FRAME:
            assert session.link is None
            assert session.permit.is_taken
            assert attempts == 1
            assert session.last_notice is None
        case SessionState.CONNECTED:
            assert session.link is not None
            assert session.permit.is_taken
            assert session.detached_at is None
        case SessionState.DETACHED:
            assert session.link is None
            assert session.closing is None
            assert session.permit.is_taken == (session.detached_at is not None)
        case SessionState.ENDED:
            raise AssertionError(f"session {session.number} has ended, and is still registered")
