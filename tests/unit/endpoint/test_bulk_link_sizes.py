"""Bulk links whose first frames prove the size of their packets, on a simulated network."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

import pytest

from aeron_spark.endpoint import bulk_opening, packet_watch
from aeron_spark.endpoint.bulk_links import MAX_RECEIVED_BYTES, BulkLink
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.packet_watch import ALIVE_SECONDS, PacketWatch, RecentMtus
from aeron_spark.errors import DataFormatError, RemoteError, TransportError, WaitTimeout
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.transport.api import MTU_BYTES, ChannelPair, ChannelSettings, LinkIds
from aeron_spark.transport.packet_sizes import NetworkPath, PacketSizes
from tests.internals import core_of
from tests.memory_transport import MemoryPublication
from tests.unit.endpoint.endpoints import ADDRESS, World, wait_for


class Network:
    """The sizes that each machine believes in, and the largest packet that passes."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client, self.server, self.passes = 8_960, 8_960, 65_536
        self.messages: list[int] = []
        world.network.change = self._change
        monkeypatch.setattr(bulk_opening, "network_path", self._path)
        monkeypatch.setattr(packet_watch, "RECENT", RecentMtus(lambda host: NetworkPath("own", host, self.client)))
        monkeypatch.setattr(bulk_opening, "SIZES", PacketSizes())
        monkeypatch.setattr(bulk_opening, "ANSWER_S", 0.2)

    def _path(self, host: str) -> NetworkPath:
        return NetworkPath("own", host, self.client if host == ADDRESS.host else self.server)

    def _change(self, publication: MemoryPublication, message: bytes) -> Iterable[bytes]:
        self.messages.append(len(message))
        return (message,) if len(message) + 32 <= self.passes else ()


@pytest.fixture
def network(world: World, monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(world, monkeypatch)


def mtu_of(bulk_link: BulkLink) -> int:
    return MTU_BYTES if bulk_link.watch is None else bulk_link.watch.mtu_bytes


def ends_of(world: World, **changes: Any) -> tuple[BulkLink, BulkLink]:
    server, client = world.pair(**changes)
    bulk_link = client.bulk_link(5.0)
    (connection,) = server.connections
    return bulk_link, server._endpoint.bulk_links.of(core_of(connection), bulk_link.number)


@pytest.mark.parametrize(
    ("client", "server", "found"), [(8_960, 8_960, 8_960), (8_960, 1_472, 1_472), (1_472, 8_960, 1_472)]
)
def test_both_ends_use_the_smaller_of_their_sizes_and_fill_a_packet_first(
    world: World, network: Network, client: int, server: int, found: int
) -> None:
    network.client, network.server = client, server
    mine, theirs = ends_of(world)
    assert (mtu_of(mine), mtu_of(theirs)) == (found, found)
    assert network.messages.count(found - 32) == 2
    for one in (mine, theirs):
        assert one.link.keep_alive.deadline() <= world.clock() + ALIVE_SECONDS, "the other end listens for it"
    mine.send(b"to the server", timeout=5.0)
    theirs.send(b"to the client", timeout=5.0)
    assert (theirs.receive(5.0), mine.receive(5.0)) == (b"to the server", b"to the client")


@pytest.mark.parametrize(("passes", "found"), [(8_959, 8_192), (1_472, 1_408), (1_400, MTU_BYTES)])
def test_packets_that_do_not_arrive_are_replaced_by_smaller_ones_and_remembered(
    world: World, network: Network, passes: int, found: int
) -> None:
    network.passes = passes
    server, client = world.pair()
    assert mtu_of(client.bulk_link(5.0)) == found
    start = world.clock()
    assert mtu_of(client.bulk_link(5.0)) == found
    assert world.clock() - start < bulk_opening.ANSWER_S
    wait_for(lambda: len(server._endpoint.bulk_links) == 2, "the ends of the links that were given up to close")


def test_a_network_that_carries_nothing_ends_the_wait_in_time(world: World, network: Network) -> None:
    _, client = world.pair()
    network.passes = 600
    start = world.clock()
    with pytest.raises(WaitTimeout):
        client.bulk_link(1.0)
    assert 1.0 <= world.clock() - start < 10.0


def test_a_wait_that_ends_early_says_nothing_about_sizes(world: World, network: Network) -> None:
    _, client = world.pair()
    network.passes = 600
    with pytest.raises(WaitTimeout):
        client.bulk_link(bulk_opening.ANSWER_S / 2)
    network.passes = 65_536
    assert mtu_of(client.bulk_link(5.0)) == 8_960


def test_a_media_driver_that_refuses_large_packets_gets_smaller_ones(
    world: World, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = world.pair()
    transport = client._endpoint.transport
    open_link = transport.open_link

    def refuse(ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = open_link(ids, channel_settings)
        if channel_settings.mtu_bytes > 4_096:
            pair.publication.failure = "MTU greater than SO_SNDBUF"  # type: ignore[misc]
        return pair

    monkeypatch.setattr(transport, "open_link", refuse)
    assert mtu_of(client.bulk_link(5.0)) == 1_408


def test_a_connection_that_ends_meanwhile_says_nothing_about_sizes(
    world: World, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = world.pair()
    ended = TransportError("the bulk link ended with its connection")

    def fail(bulk_link: BulkLink, *arguments: float) -> None:
        raise ended

    with monkeypatch.context() as patch:
        patch.setattr(BulkLink, "wait_open", fail)
        with pytest.raises(TransportError, match="ended with its connection"):
            client.bulk_link(5.0)
    assert mtu_of(client.bulk_link(5.0)) == 8_960


def test_a_report_of_a_router_while_it_opens_leads_to_a_smaller_size(
    world: World, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_open = BulkLink.wait_open

    def reported(bulk_link: BulkLink, *arguments: float) -> None:
        wait_open(bulk_link, *arguments)
        network.client = 1_472

    monkeypatch.setattr(BulkLink, "wait_open", reported)
    mine, theirs = ends_of(world)
    assert (mtu_of(mine), mtu_of(theirs)) == (1_472, 1_472)


def test_a_network_whose_size_goes_up_and_down_ends_the_wait_in_time(
    world: World, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = world.pair()
    sizes = itertools.cycle([8_960, 1_472])  # chosen for each bulk link, and found when it is open
    monkeypatch.setattr(
        bulk_opening,
        "network_path",
        lambda host: NetworkPath("own", host, next(sizes) if host == ADDRESS.host else network.server),
    )
    for timeout_s in (0.05, 0.0):
        with pytest.raises(WaitTimeout, match=rf"waited {timeout_s:g} s for a bulk link .* whose packets pass"):
            client.bulk_link(timeout_s)
    wait_for(lambda: not len(client._endpoint.bulk_links), "the client's bulk links to close")


def test_a_fixed_size_is_not_changed(world: World, network: Network) -> None:
    fixed = ChannelSettings(mtu_bytes=2_048, finds_mtu=False)
    mine, theirs = ends_of(world, channel=fixed)
    assert (mine.watch, theirs.watch) == (None, None)
    assert network.messages.count(2_048 - 32) == 2


@pytest.mark.parametrize("fills", [False, True])
def test_only_a_link_that_fills_its_open_up_takes_one_with_zeros(fills: bool) -> None:
    key = bytes(32)

    def ends(open_bytes: int) -> Link:
        unused: Any = None  # nothing is sent
        return Link(
            ChannelPair(1, unused),
            FrameEncryptor(key),
            FrameDecryptor(key),
            Times(),
            1 << 17,
            0.0,
            open_bytes=open_bytes,
        )

    sender, receiver = ends(2_048), ends(1_184 if fills else 0)
    sender.prepare_open(7)
    frame = sender._unsent_frame
    assert frame is not None
    assert frame.nbytes == 2_048
    if fills:
        assert receiver.verify(frame) == 7
    else:
        with pytest.raises(DataFormatError, match="not OPEN alone"):
            receiver.verify(frame)


def test_a_server_of_an_older_release_gets_links_as_before(
    world: World, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_opening, "METHODS", ("open",))
    mine, theirs = ends_of(world)
    assert (mine.watch, theirs.watch) == (None, None)
    assert max(network.messages) < 1_400, "handshakes have the largest messages"
    mine.send(b"rows", timeout=5.0)
    assert theirs.receive(5.0) == b"rows"


def test_a_client_of_an_older_release_opens_links_as_before(
    world: World, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(connection: Any, size: int, timeout_s: float) -> bulk_opening._Response:
        part = bytes(32)
        return bulk_opening._Response(connection.for_program.remote(FIRST_SERVICE).open(part), part, None)

    monkeypatch.setattr(bulk_opening, "_request", request)
    mine, theirs = ends_of(world)
    assert (mine.watch, theirs.watch) == (None, None)


@pytest.mark.parametrize("wrong", ["8960", None, 8_960.0])
def test_an_mtu_that_is_no_number_is_refused(world: World, network: Network, wrong: object) -> None:
    _, client = world.pair()
    with pytest.raises(RemoteError, match="expected a whole number"):
        client.remote(FIRST_SERVICE).open_with_mtu(bytes(32), wrong)


@pytest.mark.parametrize(("asked", "given"), [((1 << 63) - 1, 8_960), (-5, MTU_BYTES), (1_500, 1_472)])
def test_the_server_bounds_the_size_that_a_client_asks_for(
    world: World, network: Network, asked: int, given: int
) -> None:
    _, client = world.pair()
    assert client.remote(FIRST_SERVICE).open_with_mtu(bytes(32), asked)["mtu"] == given


def test_all_bulk_links_of_a_connection_end_when_its_network_carries_less(world: World, network: Network) -> None:
    mine, theirs = ends_of(world)
    network.client = 1_472
    wait_for(lambda: mine.closed and theirs.closed, "both ends to close")
    errors = [str(one.error) for one in (mine, theirs)]
    assert any("the network carries packets of 1472 bytes now, and no more of 8960" in error for error in errors)


def test_the_idle_bulk_links_of_a_connection_end_with_the_one_whose_packets_are_lost(
    world: World, network: Network
) -> None:
    _, client = world.pair()
    idle, used = client.bulk_link(5.0), client.bulk_link(5.0)
    used.watch = RecordingWatch()
    used.watch.error = TransportError("nothing arrived")
    wait_for(lambda: used.closed and idle.closed, "both to end")
    assert "nothing arrived" in str(idle.error)


class RecordingWatch(PacketWatch):
    """Records whether the bulk link reads. ``error`` is what it finds."""

    error: TransportError | None = None

    def __init__(self) -> None:
        super().__init__(8_960, lambda: 8_960, time.monotonic())
        self.is_reading: bool | None = None

    def check(self, received_bytes: int, now: float, *, is_reading: bool) -> TransportError | None:
        self.is_reading = is_reading
        return self.error


def test_a_bulk_link_does_not_read_while_its_program_is_slow_or_its_endpoint_holds_it(
    world: World, network: Network
) -> None:
    mine, theirs = ends_of(world)
    world.network.change = None
    watch = mine.watch = RecordingWatch()
    wait_for(lambda: watch.is_reading is True, "a check while it reads")
    for _ in range(MAX_RECEIVED_BYTES // theirs.room + 1):
        theirs.send(bytes(theirs.room), timeout=5.0)
    wait_for(lambda: watch.is_reading is False, "a check while too much is received")
    while mine.receive(0.1) is not None:
        pass
    wait_for(lambda: watch.is_reading is True, "a check after the program has caught up")
    mine._owner.hold(mine.connection, True)
    wait_for(lambda: watch.is_reading is False, "a check while the endpoint reads nothing")
