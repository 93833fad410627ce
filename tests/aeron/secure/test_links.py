"""Opening of links over real drivers: all kinds of channels, and slow or closed clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import ClassVar

import pytest

from aeron_spark.aeron.client import AeronClient
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
from tests.aeron.secure.endpoints import TIMEOUT_S, World, await_nothing_in_use, echoes
from tests.ending import LONG_TIMEOUT_S
from tests.ports import free_ports

UNTIMED = ClientTiming(
    hello_ack_s=LONG_TIMEOUT_S, done_ack_s=LONG_TIMEOUT_S
)  # so that no attempt ends because of a slow step


class SlowPublication:
    """A publication that refuses its first messages, as a new one may."""

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


class SlowClientTransport(AeronClientTransport):
    """Opens links with a slow publication; ``made`` has those of all clients."""

    made: ClassVar[list[SlowPublication]] = []

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = super().open_link(ids, channel_settings)
        self.made.append(SlowPublication(pair.publication, refusals=3))
        return ChannelPair(pair.token, self.made[-1])


def test_a_first_frame_without_room_is_offered_again(world: World) -> None:
    address = world.free_address()
    world.server(address)
    client = world.client(address, dial=lambda: SlowClientTransport(world.dialling, address))
    SlowClientTransport.made.clear()
    client.connect(TIMEOUT_S)
    assert [slow.refusals for slow in SlowClientTransport.made] == [0]  # in one attempt
    assert echoes(client, "hello")


def test_clients_of_one_address_are_not_delayed_by_closed_ones(world: World) -> None:
    """Aeron remembers each client, with its own port, as a receiver for some time; these are more than eight."""
    address = world.free_address()
    server = world.server(address)
    for _ in range(14):
        data, receive = free_ports()
        client = world.connected(address, ports=ClientPorts(data, receive, "127.0.0.1"))
        assert client.connected
        client.close()
    await_nothing_in_use(server)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "ipc"])
def test_row_01_and_row_22_a_connection_over_ipv4_ipv6_and_shared_memory(world: World, host: str) -> None:
    address = world.free_address(host)
    server = world.server(address)
    client = world.connected(address)
    assert echoes(client, {"over": host})
    [connection] = server.connections
    assert connection.is_ipc == client.connection.is_ipc == (host == "ipc")
    assert connection.remote_address == ("" if host == "ipc" else host)
    client.close()
    await_nothing_in_use(server)


def test_with_mdc_each_link_has_a_separate_port(world: World) -> None:
    address = world.free_address()
    first = free_ports()[0]
    server = world.server(address, reply_channel="mdc", mdc_ports=(first, first + 1))
    clients = [world.connected(address) for _ in range(2)]
    assert all(echoes(client, "by a separate port") for client in clients)
    assert server.statistics["ports"] == 2
    clients[0].close()
    wait_for(lambda: server.statistics["ports"] == 1, TIMEOUT_S, "the port to be released")
    assert echoes(world.connected(address), "the port of the closed client")


def test_row_02_and_row_19_a_server_listens_at_two_addresses_and_on_all_interfaces(world: World) -> None:
    all_interfaces, loopback = world.free_address("::"), world.free_address()
    server = world.server(all_interfaces, loopback)
    for host, ports in (("127.0.0.1", all_interfaces), ("::1", all_interfaces), ("127.0.0.1", loopback)):
        address = ServerAddress("udp", host, ports.data_port, ports.control_port)
        client = world.connected(address)
        assert echoes(client, [host, ports.data_port])
        client.close()
    await_nothing_in_use(server)


def test_row_24_a_second_server_over_the_same_shared_memory_is_refused(world: World, serving: AeronClient) -> None:
    address = world.free_address("ipc")
    first = world.server(address)
    with pytest.raises(InUseError, match="give this server ipc=never"):
        world.server(address)
    assert echoes(world.connected(address), "the first server")
    first.close()
    world.server(address)  # its address is free at once
    assert echoes(world.connected(address), "the next server")


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_many_handshakes_wait_for_no_timer(world: World, count: int) -> None:
    times, server = _one_after_another(world, count)
    assert is_prompt(times)
    await_nothing_in_use(server)


def test_a_listener_that_does_not_return_delays_no_other_client(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    released = threading.Event()
    server.on_message(bytes, lambda connection, message: released.wait(LONG_TIMEOUT_S) if message == b"block" else None)
    blocked, other = world.connected(address), world.connected(address)
    try:
        blocked.send(b"block")
        for _ in range(200):  # more than the listener queue takes: the window fills
            if _is_refused(blocked, bytes(60_000)):
                break
        for count in range(50):  # the listener returns only after these
            assert echoes(other, {"count": count})
        other.ping()
        assert world.connected(address).connected
        assert not released.is_set()
    finally:
        released.set()


def _is_refused(client: object, message: bytes) -> bool:
    try:
        client.send(message, timeout=0.05)
    except Exception as error:
        return type(error).__name__ == "WaitTimeout"
    return False


def is_prompt(times: Sequence[float]) -> bool:
    """Whether handshakes wait for no timer: with Aeron's own driver each takes over 0.5 s, with ours 20 to 40 ms.

    A busy machine makes some of them slow, but not nine in ten.
    """
    return sorted(times)[len(times) // 10] < 0.3


def _one_after_another(world: World, count: int) -> tuple[list[float], object]:
    address = world.free_address()
    server = world.server(address)
    times = []
    for _ in range(count):
        client = world.client(address, timing=UNTIMED)
        started = time.monotonic()
        client.connect(TIMEOUT_S)
        times.append(time.monotonic() - started)
        client.close()
    return times, server
