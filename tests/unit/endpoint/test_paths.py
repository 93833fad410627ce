"""Paths: packets wait for Aeron, and a client's next publication takes the place of a rejected one."""

from __future__ import annotations

import pytest

from aeron_spark.endpoint.links import LOOK_SHARE, ClientPath, Path, ServerPath
from aeron_spark.errors import TransportError
from aeron_spark.transport.api import HANDSHAKE_TERM_BYTES, ChannelPair, ChannelSettings, MessageArrived, OfferResult
from tests.memory_transport import MemoryClientTransport, MemoryNetwork, MemoryPublication, MemoryServerTransport
from tests.unit.endpoint.endpoints import ADDRESS

TOO_LONG = bytes(HANDSHAKE_TERM_BYTES)
TURN_S = 0.005  # of the event loop
PATH_S = 10.0  # until a server gives up a path
PATHS = 128  # of addresses that are not known


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
def server(network: MemoryNetwork) -> MemoryServerTransport:
    server = MemoryServerTransport(network)
    server.listen(ADDRESS, ChannelSettings())
    return server


def client_path(network: MemoryNetwork, server: MemoryServerTransport) -> tuple[ClientPath, MemoryClientTransport]:
    transport = MemoryClientTransport(network, ADDRESS)
    return ClientPath(transport), transport


def received(server: MemoryServerTransport) -> list[bytes]:
    return [bytes(event.payload) for event in server.inbox.poll(0.0) if isinstance(event, MessageArrived)]


def memory(path: Path) -> MemoryPublication:
    assert isinstance(path.publication, MemoryPublication)
    return path.publication


def test_a_packet_waits_until_its_publication_has_room(network: MemoryNetwork, server: MemoryServerTransport) -> None:
    path, _ = client_path(network, server)
    memory(path).held = True
    path.send(b"one")
    path.send(b"two")
    assert path.flush()
    assert not path.is_drained
    memory(path).held = False
    assert not path.flush()
    assert path.is_drained
    assert received(server) == [b"one", b"two"]


def test_a_packet_waits_without_a_busy_loop_until_its_publication_is_connected(network: MemoryNetwork) -> None:
    path = ClientPath(MemoryClientTransport(network, ADDRESS))
    path.send(b"one")
    assert not path.flush()
    assert not path.is_drained


def test_a_packet_that_is_too_long_does_not_delay_others(network: MemoryNetwork, server: MemoryServerTransport) -> None:
    path, _ = client_path(network, server)
    path.send(TOO_LONG)
    path.send(b"one")
    assert received(server) == [b"one"]


def test_the_next_publication_takes_the_place_of_the_first(
    network: MemoryNetwork, server: MemoryServerTransport
) -> None:
    path, _ = client_path(network, server)
    first = memory(path)
    path.open_next()
    path.replace_publication()
    path.send(b"one")
    assert first.closed
    assert path.publications == (path.publication,)
    assert received(server) == [b"one"]
    path.replace_publication()  # without one that was opened in advance
    assert not memory(path).closed


def test_unsent_packets_are_dropped_with_their_publication(
    network: MemoryNetwork, server: MemoryServerTransport
) -> None:
    path, _ = client_path(network, server)
    memory(path).held = True
    path.send(b"one")
    path.replace_publication()
    path.send(b"two")
    assert received(server) == [b"two"]


@pytest.mark.parametrize("how", ["rejected", "failed"])
def test_a_next_publication_that_is_lost_is_closed(
    network: MemoryNetwork, server: MemoryServerTransport, how: str
) -> None:
    path, _ = client_path(network, server)
    path.open_next()
    lost = path.publications[1]
    assert isinstance(lost, MemoryPublication)
    if how == "rejected":
        assert not path.is_rejected(lost.session_id)
    else:
        lost.failure = "no socket"
        path.flush()
    assert path.publications == (path.publication,)
    assert path.is_rejected(path.publication.session_id)
    assert not path.is_rejected(lost.session_id)


def test_errors_of_the_transport_are_those_of_the_package(
    network: MemoryNetwork, server: MemoryServerTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, transport = client_path(network, server)

    def fail(*_: object) -> ChannelPair:
        raise OSError("no memory")

    monkeypatch.setattr(transport, "open_path", fail)
    monkeypatch.setattr(transport, "reopen_path", fail)
    with pytest.raises(TransportError, match="no memory"):
        ClientPath(transport)
    path.open_next()
    assert path.publications == (path.publication,)
    with pytest.raises(TransportError, match="no memory"):
        path.replace_publication()


def test_a_closed_path_leaves_nothing(network: MemoryNetwork, server: MemoryServerTransport) -> None:
    path, transport = client_path(network, server)
    path.open_next()
    path.close()
    assert not network.publications
    assert not transport.inbox.subscriptions
    assert not path.flush()


class UnconnectedPublication:
    """A response publication that counts the looks at it."""

    session_id, max_message, ready, failure, local_address = 1, 1152, True, "", ""

    def __init__(self) -> None:
        self.looks = 0
        self.is_connected = self.closed = False

    @property
    def connected(self) -> bool:
        self.looks += 1
        return self.is_connected

    def offer(self, *parts: object, timeout_s: float = 0.0) -> OfferResult | None:
        return None

    def stop_waiting(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_paths_that_never_connect_are_looked_at_ever_less_often() -> None:
    publications = [UnconnectedPublication() for _ in range(PATHS)]
    paths = [ServerPath(publication, 0.0) for publication in publications]
    turns = int(PATH_S / TURN_S)
    for turn in range(turns):
        assert not any(path.look(turn * TURN_S) for path in paths)
    assert max(publication.looks for publication in publications) < turns / 25


def test_a_path_that_connects_late_is_noticed_soon() -> None:
    for connected_at in (0.0, 0.01, 0.1, 1.0, 8.0):
        publication, now = UnconnectedPublication(), 0.0
        path = ServerPath(publication, now)
        while not path.look(now):
            now += TURN_S
            publication.is_connected = now >= connected_at
        assert path.is_ready
        assert now <= connected_at * (1 + 1 / LOOK_SHARE) + 2 * TURN_S


def test_a_path_whose_publication_fails_is_noticed() -> None:
    publication = UnconnectedPublication()
    path = ServerPath(publication, 0.0)
    publication.closed = True
    assert path.look(0.0)
    assert not path.is_ready
