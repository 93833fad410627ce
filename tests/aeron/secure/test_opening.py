"""Opening a duologue over real drivers: ways of every kind, and nothing that holds an opening up."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from typing import ClassVar

import pytest

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.errors import InUseError
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.transport.api import (
    ChannelPair,
    ChannelSettings,
    LinkIds,
    OfferResult,
    Part,
    Publication,
    ServerAddress,
)
from aeron_spark.transport.endpoint_channels import ClientPorts
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import free_ports
from tests.aeron.secure.ends import PATIENCE, World, echoes, nothing_held
from tests.ending import FOR_EVER

UNTIMED = ClientTiming(hello_ack_s=FOR_EVER, done_ack_s=FOR_EVER)  # no attempt ends because a step took long


class Slow:
    """A publication whose driver gives no room for its first messages, as a driver does that has just made it."""

    def __init__(self, inner: Publication, refusals: int) -> None:
        self._inner = inner
        self.refusals = refusals

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        if self.refusals:
            self.refusals -= 1
            return OfferResult.BACK_PRESSURED
        return self._inner.offer(*parts, timeout_s=timeout_s)


class SlowDialing(AeronClientTransport):
    """Duologues open with a slow publication; ``made`` are those of all clients."""

    made: ClassVar[list[Slow]] = []

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = super().open_link(ids, channel_settings)
        self.made.append(Slow(pair.publication, refusals=3))
        return ChannelPair(pair.token, self.made[-1])  # type: ignore[arg-type]


def test_a_first_frame_that_finds_no_room_is_sent_again(world: World) -> None:
    place = world.place()
    world.server(place)
    client = world.client(place, dial=lambda: SlowDialing(world.dialling, place))
    SlowDialing.made.clear()
    client.connect(PATIENCE)
    assert [slow.refusals for slow in SlowDialing.made] == [0]  # and not by giving up, and another attempt
    assert echoes(client, "hello")


def test_clients_of_one_address_are_not_held_up_by_those_that_left(world: World) -> None:
    """Each one has a port of its own, and is remembered as a receiver for a while: these are more than eight."""
    place = world.place()
    server = world.server(place)
    for _ in range(14):
        data, receive = free_ports()
        client = world.connected(place, ports=ClientPorts(data, receive, "127.0.0.1"))
        assert client.connected
        client.close()
    nothing_held(server)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "ipc"])
def test_row_01_and_row_22_a_connection_over_each_kind_of_way(world: World, host: str) -> None:
    place = world.place(host)
    server = world.server(place)
    client = world.connected(place)
    assert echoes(client, {"over": host})
    [connection] = server.connections
    assert connection.is_ipc == client.connection.is_ipc == (host == "ipc")
    assert connection.remote_address == ("" if host == "ipc" else host)
    client.close()
    nothing_held(server)


def test_every_duologue_has_a_port_of_its_own_with_mdc(world: World) -> None:
    place = world.place()
    first = free_ports()[0]
    server = world.server(place, reply_channel="mdc", mdc_ports=(first, 2))
    clients = [world.connected(place) for _ in range(2)]
    assert all(echoes(client, "by its own port") for client in clients)
    assert server.statistics["ports"] == 2
    clients[0].close()
    wait_for(lambda: server.statistics["ports"] == 1, PATIENCE, "the port to come back")
    assert echoes(world.connected(place), "the port of the one that left")


def test_row_02_and_row_19_listeners_at_two_places_and_on_all_addresses(world: World) -> None:
    everywhere, beside = world.place("::"), world.place()
    server = world.server(everywhere, beside)
    for host, ports in (("127.0.0.1", everywhere), ("::1", everywhere), ("127.0.0.1", beside)):
        place = ServerAddress("udp", host, ports.data_port, ports.control_port)
        client = world.connected(place)
        assert echoes(client, [host, ports.data_port])
        client.close()
    nothing_held(server)


def test_row_24_a_second_server_over_one_shared_memory_is_refused(world: World, serving: Client) -> None:
    place = world.place("ipc")
    first = world.server(place)
    with pytest.raises(InUseError, match="give this server ipc=false"):
        world.server(place)
    assert echoes(world.connected(place), "the first one serves on")
    first.close()
    world.server(place)  # and its place is free at once
    assert echoes(world.connected(place), "the next one")


def test_handshakes_one_after_another_are_prompt(world: World) -> None:
    times, server = _one_after_another(world, 100)
    _print(times)
    assert prompt(times)
    nothing_held(server)


@pytest.mark.soak
def test_a_thousand_handshakes_one_after_another(world: World) -> None:
    times, server = _one_after_another(world, 1_000)
    _print(times)
    assert prompt(times)
    nothing_held(server)


def test_listeners_of_one_client_that_never_return_hold_up_nobody_else(world: World) -> None:
    place = world.place()
    server = world.server(place)
    stuck = threading.Event()
    server.on_message(bytes, lambda connection, message: stuck.wait(FOR_EVER) if message == b"stay" else None)
    bad, good = world.connected(place), world.connected(place)
    try:
        bad.send(b"stay")
        for _ in range(200):  # more than is kept for listeners: its window fills, and it is held up
            if _refused(bad, bytes(60_000)):
                break
        for count in range(50):  # the listener returns after these, whatever time they take
            assert echoes(good, {"count": count})
        good.ping()
        assert world.connected(place).connected
        assert not stuck.is_set()
    finally:
        stuck.set()


def _refused(client: object, message: bytes) -> bool:
    try:
        client.send(message, timeout=0.05)  # type: ignore[attr-defined]
    except Exception as error:
        return type(error).__name__ == "WaitTimeout"
    return False


def prompt(times: Sequence[float]) -> bool:
    """Whether a handshake waits for no timer: a stock driver takes over 0.5 s for each, and here it is 20 to 40 ms.

    A busy machine makes some of them slow, but not one in ten as slow as a timer makes them all.
    """
    return sorted(times)[len(times) // 10] < 0.3


def _one_after_another(world: World, count: int) -> tuple[list[float], object]:
    place = world.place()
    server = world.server(place)
    times = []
    for _ in range(count):
        client = world.client(place, timing=UNTIMED)
        begun = time.monotonic()
        client.connect(PATIENCE)
        times.append(time.monotonic() - begun)
        client.close()
    return times, server  # type: ignore[return-value]


def _print(times: Sequence[float]) -> None:
    print(
        f"{len(times)} handshakes: {len(times) / sum(times):.0f} a second, "
        f"p50 {statistics.median(times) * 1e3:.1f} ms, longest {max(times) * 1e3:.0f} ms"
    )
