"""Paths: packets wait for Aeron, and a client's next publication takes the place of a rejected one."""

from __future__ import annotations

import pytest

from aeron_spark.connection.links import ClientPath, Path
from aeron_spark.errors import TransportError
from aeron_spark.transport.api import HANDSHAKE_TERM_BYTES, ChannelPair, ChannelSettings, MessageArrived
from tests.memory_transport import MemoryClientTransport, MemoryNetwork, MemoryPublication, MemoryServerTransport
from tests.unit.connection.endpoints import ADDRESS

TOO_LONG = bytes(HANDSHAKE_TERM_BYTES)


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
