"""Wrong packets, and clients that do not follow the protocol, over real drivers."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from aeron_spark.aeron.guard import read_drops
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.client_handshake import Abandoned
from aeron_spark.protocol.handshake_payloads import ClientDone
from aeron_spark.protocol.ids import FIRST_SESSION_ID
from aeron_spark.protocol.limits import MAX_PENDING_PER_ADDRESS
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.protocol.sources import Network
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, World, await_nothing_in_use, echoes, logs, memory_of
from tests.aeron.secure.raw import raw

QUICK = ServerTiming(hello_s=1.0, admitting_s=1.0, path_s=1.0, done_s=1.0, authenticating_s=1.0)
PATIENT = ServerTiming(hello_s=30.0, admitting_s=30.0, path_s=30.0, done_s=30.0, authenticating_s=30.0)
RETRY, FAILED = "aeron-spark/1 RETRY ", "aeron-spark/1 FAILED "
RELEASE_TIMEOUT_S = 30.0  # for a driver to free the log of a rejected or closed session


def check_next_client(world: World, address: ServerAddress) -> None:
    """Check that the next client connects as fast as a later one."""
    seconds = []
    for _ in range(2):
        started = time.monotonic()
        client = world.connected(address)
        assert echoes(client, "hi")
        client.close()
        seconds.append(time.monotonic() - started)
    assert seconds[0] < 5 + 10 * seconds[1]  # both are slow on a busy machine


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(
            handshake_packets.PREFIX.pack(
                handshake_packets.MAGIC, handshake_packets.VERSION, handshake_packets.HELLO
            ).ljust(1100, b"\0"),
            id="no key",
        ),
        pytest.param(os.urandom(1152), id="random"),
    ],
)
def test_row_04_a_packet_that_is_not_a_hello_is_refused_and_the_server_continues(world: World, packet: bytes) -> None:
    address = world.free_address()
    server = world.server(address)
    with raw(world.dialling, address) as sender:
        sender.send(packet)
        assert sender.hint().startswith(FAILED + "message")
        assert server.statistics["handshakes"] == 0  # the guard refused it
    check_next_client(world, address)
    await_nothing_in_use(server)


@pytest.mark.parametrize("packet", [bytes.fromhex("deadbeef"), b""], ids=["not a packet", "empty"])
def test_row_04_a_packet_shorter_than_its_refusal_is_dropped_and_the_server_continues(
    world: World, packet: bytes
) -> None:
    address = world.free_address()
    server = world.server(address)
    before = read_drops(world.serving.aeron_dir)["receiving: budget"]
    with raw(world.dialling, address) as sender:
        sender.send(packet)
        wait_for(
            lambda: sender.poll() or read_drops(world.serving.aeron_dir)["receiving: budget"] > before,
            TIMEOUT_S, "the refusal to be dropped",
        )  # fmt: skip
        assert sender.hints == []
        assert server.statistics["handshakes"] == 0
    check_next_client(world, address)
    await_nothing_in_use(server)


def test_row_06_a_repeated_hello_makes_one_pending_handshake(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    with raw(world.dialling, address) as sender:
        hello = sender.hello_with_cookie()
        sender.send(hello)
        sender.send(hello)
        done = sender.done()
        assert server.statistics["pending"] == 1
        sender.send(done)  # after the second HELLO
        assert isinstance(
            handshake_packets.decode(sender.answer()), handshake_packets.DoneAckPacket
        )  # not a second HELLO_ACK
        assert sender.packets == []
        assert server.statistics["session_ids"] == 2


def test_row_07_done_without_hello_is_refused(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    with raw(world.dialling, address) as known, raw(world.dialling, address) as sender:
        known.send(known.hello_with_cookie())
        sender.send(known.done())
        assert sender.hint().startswith(FAILED)
        assert server.statistics["connections"] == 0
        assert server.statistics["pending"] == 1
    check_next_client(world, address)


def test_row_08_a_client_that_does_not_open_its_link_delays_no_other(world: World) -> None:
    address = world.free_address()
    server = world.server(address, setup_timeout=2.0)
    with raw(world.dialling, address) as sender:
        sender.send(sender.hello_with_cookie())
        sender.send(sender.done())
        sender.answer()  # DONE_ACK: ids are allotted, and no frame follows
        assert server.statistics["session_ids"] == 2
        check_next_client(world, address)
        await_nothing_in_use(server)  # after the set-up timeout, while the client is still connected


def test_row_09_clients_that_cannot_receive_delay_no_other(world: World) -> None:
    """They close their subscription as soon as the server has started to respond."""
    address = world.free_address()
    server = world.server(address, timing=QUICK)
    for _ in range(5):
        with raw(world.dialling, address) as sender:
            hello = sender.hello_with_cookie()
            sender.dialing.inbox.close_subscription(sender.pair.token)
            sender.send(hello)
            wait_for(lambda: server.statistics["handshakes"] > 0, TIMEOUT_S, "the handshake to begin")
            check_next_client(world, address)
    await_nothing_in_use(server)


def test_row_10_an_unfinished_handshake_releases_everything(world: World) -> None:
    address = world.free_address()
    before = logs(world.serving)
    server = world.server(address, timing=QUICK)
    with raw(world.dialling, address) as sender:
        sender.send(sender.hello_with_cookie())
        sender.answer()
        assert server.statistics["pending"] == 1
    statistics = await_nothing_in_use(server, 10)
    assert (statistics["pending"], statistics["session_ids"], statistics["stream_ids"]) == (0, 0, 0)
    wait_for(lambda: server.statistics["handshakes"] == 0, TIMEOUT_S, "the handshake to end")
    wait_for(lambda: logs(world.serving) <= before, RELEASE_TIMEOUT_S, "the driver to free the logs")


def test_row_14_a_server_without_ids_refuses_and_leaks_none(world: World) -> None:
    address = world.free_address()
    server = world.server(address, session_id_range=(FIRST_SESSION_ID, FIRST_SESSION_ID + 3), id_reuse_delay=0.0)
    two = [world.connected(address) for _ in range(2)]
    with pytest.raises(RefusedError, match="Connection error"):
        world.client(address).connect(TIMEOUT_S)
    assert server.statistics["session_ids"] == 4
    for client in two:
        client.close()
    await_nothing_in_use(server)
    assert echoes(world.connected(address), "ids are free again")


def test_row_25_filters_and_limits_by_address_do_not_apply_to_shared_memory(world: World) -> None:
    ipc, udp = world.free_address("ipc"), world.free_address()
    world.server(ipc, udp, max_connections_per_address=1, allow=(Network.parse("1.1.1.1/32"),))
    assert all(echoes(world.connected(ipc), count) for count in range(2))
    with pytest.raises(RefusedError, match="not permitted"):
        world.client(udp).connect(TIMEOUT_S)


def test_row_29_a_tag_of_33_characters_is_refused(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    with raw(world.dialling, address) as sender:
        with pytest.raises(OptionError, match="longer than 32"):
            world.client(address, tag="x" * 33)
        too_long = handshake_packets.encode_client_done(ClientDone(tag="x" * 33))
        sender.machine._done = too_long  # a client that does not check
        sender.send(sender.hello_with_cookie())
        sender.send(sender.done())
        [abandoned] = sender.machine.packet(sender.answer(), time.monotonic())
        assert isinstance(abandoned, Abandoned)
        assert isinstance(abandoned.error, RefusedError)
        assert "(tag)" in str(abandoned.error)
    assert await_nothing_in_use(server)["refused-tag"] == 1
    check_next_client(world, address)


def test_row_31_a_client_beyond_the_limit_is_refused(world: World) -> None:
    address = world.free_address()
    server = world.server(address, max_connections=2)
    two = [world.connected(address) for _ in range(2)]
    with pytest.raises(RefusedError, match="Server is full"):
        world.client(address).connect(TIMEOUT_S)
    two[0].close()
    wait_for(lambda: server.statistics["admitted"] == 1, TIMEOUT_S, "a free connection")
    assert echoes(world.connected(address), "a connection is free again")


def test_row_32_refused_clients_do_not_change_the_count_of_an_address(world: World) -> None:
    all_interfaces = world.free_address("::")
    address, elsewhere = (replace(all_interfaces, host=host) for host in ("127.0.0.1", "::1"))
    server = world.server(all_interfaces, max_connections_per_address=2)
    two = [world.connected(address) for _ in range(2)]
    for _ in range(5):
        with pytest.raises(RefusedError, match="Too many connections"):
            world.client(address).connect(TIMEOUT_S)
    assert server.statistics["admitted"] == 2
    assert echoes(world.connected(elsewhere), "from another address")
    two[0].close()
    wait_for(lambda: server.statistics["admitted"] == 2, TIMEOUT_S, "a free connection")
    assert echoes(world.connected(address), "a connection is free again")


def test_row_33_handshakes_under_way_are_limited(world: World) -> None:
    address = world.free_address()
    server = world.server(address, max_pending=3, timing=PATIENT)
    world.connected(address).close()  # half of the pending handshakes is kept for addresses that had a connection
    wait_for(lambda: server.statistics["pending"] == 0, TIMEOUT_S, "the first handshake to end")
    contexts, hints = [], []
    try:
        for _ in range(6):
            context = raw(world.dialling, address)
            sender = context.__enter__()
            contexts.append(context)
            sender.send(sender.hello_with_cookie())
            if len(contexts) <= 3:
                sender.answer()
            else:
                hints.append(sender.hint())
            assert server.statistics["pending"] <= 3
    finally:
        for context in contexts:
            context.__exit__(None, None, None)
    assert len(hints) == 3
    assert all(hint.startswith(FAILED + "pending") for hint in hints)
    await_nothing_in_use(server)
    check_next_client(world, address)


def test_a_rate_beyond_the_limit_is_refused_with_its_reason(world: World) -> None:
    address = world.free_address()
    server = world.server(
        address, handshakes_per_second=0.1, handshake_burst=2, max_pending_per_address=MAX_PENDING_PER_ADDRESS
    )
    for _ in range(2):
        world.connected(address).close()
    with raw(world.dialling, address) as sender:
        sender.send(sender.hello_with_cookie())
        assert sender.hint().startswith(FAILED + "rate")
    assert server.statistics["refused-rate"] == 1


def test_row_40_a_replayed_hello_allocates_nothing(world: World) -> None:
    """A recorded HELLO is sent again: from another address, and from its own."""
    all_interfaces = world.free_address("::")
    address, elsewhere = (replace(all_interfaces, host=host) for host in ("127.0.0.1", "::1"))
    server = world.server(all_interfaces)
    with raw(world.dialling, address) as honest:
        hello = honest.hello_with_cookie()
        honest.send(hello)
        honest.answer()
        for source in (elsewhere, address):
            with raw(world.dialling, source) as thief:
                thief.send(hello)
                hint = thief.hint()
                assert hint.startswith((RETRY, FAILED))
                thief.poll()
                assert thief.packets == []
                assert server.statistics["pending"] == 1
                assert server.statistics["session_ids"] == 0


def test_row_80_memory_for_unauthenticated_senders_is_bounded_and_released(world: World) -> None:
    address = world.free_address()
    world.server(address)
    check_next_client(world, address)
    wait_for(lambda: logs(world.serving) == 0, RELEASE_TIMEOUT_S, "the driver to free earlier logs")
    before = memory_of(world.serving)
    max_memory = 0
    for _ in range(20):
        with raw(world.dialling, address) as sender:
            sender.send(sender.hello())
            assert sender.hint().startswith(RETRY)
        max_memory = max(max_memory, memory_of(world.serving) - before)
    assert max_memory < 20 * 64 * 1024
    wait_for(lambda: memory_of(world.serving) <= before, RELEASE_TIMEOUT_S, "the memory to be released")
