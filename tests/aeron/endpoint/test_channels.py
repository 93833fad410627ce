"""Channels of real drivers: ports, sockets, memory, lost drivers, and the duration of an opening."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.aeron.inbox import CLIENT_ENDING, first_address
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import InUseError, OptionError
from aeron_spark.transport.api import (
    ChannelSettings,
    DriverLost,
    LinkIds,
    OfferResult,
    PublicationRejected,
    SenderUnavailable,
    ServerAddress,
)
from aeron_spark.transport.endpoint_channels import ClientPorts
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import OPTIONS, PROMPT, AeronWorld, Driver, driver, driver_process
from tests.nodes import new_aeron_dir
from tests.ports import free_ports
from tests.programs import JAR
from tests.transport_contract import SETTINGS, Open, Reading, send, some_ids, until


@pytest.fixture
def world(serving: Driver, dialling: Driver) -> AeronWorld:
    return AeronWorld(serving, dialling, "127.0.0.1")


def sockets(process: int) -> dict[tuple[str, int], int]:
    """Return the number of UDP sockets of a process by table of the address family and local port."""
    found: dict[tuple[str, int], int] = {}
    inodes = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except FileNotFoundError:
            continue
    for table in ("udp", "udp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in inodes:
                key = table, int(fields[1].rpartition(":")[2], 16)
                found[key] = found.get(key, 0) + 1
    return found


def test_row_02_two_server_ports_and_one_receive_port_carry_twenty_connections(world: AeronWorld) -> None:
    before_server, before_client = sockets(world.server.process.pid), sockets(world.client.process.pid)
    first = Open(world)
    dialings, pairs = [], []
    for _ in range(19):
        dialing = world.client_transport()
        dialing.open_path()
        seen = len(first.server.available(first.handshake))
        until(lambda n=seen: len(first.server.available(first.handshake)) > n, first.server)
        ids = some_ids()
        image = first.server.available(first.handshake)[-1].image
        mine = first.server_transport.open_link(image, ids, SETTINGS)
        until(lambda p=mine: first.server_transport.inbox.ready(p.token) and p.publication.ready, first.server)
        theirs = dialing.open_link(ids, SETTINGS)
        until(lambda p=mine, q=theirs: p.publication.connected and q.publication.connected, first.server)
        dialings.append(dialing)
        pairs.append((mine, theirs))
    ports = {port for _, port in sockets(world.server.process.pid).keys() - before_server.keys()}
    assert ports == {world.address.data_port, world.address.control_port}
    receiving = {
        first_address(dialing.inbox.subscription(pair[1].token)) for dialing, pair in zip(dialings, pairs, strict=True)
    }
    assert len(receiving) == 1
    assert len(sockets(world.client.process.pid).keys() - before_client.keys()) == 2  # one to send from, one to receive
    for dialing in dialings:
        dialing.close()
    first.close()


def test_row_19_one_listener_on_all_addresses_serves_both_families(serving: Driver, dialling: Driver) -> None:
    data, control = free_ports("::")
    listening = AeronServerTransport(serving.client)
    server = Reading(listening.inbox)
    token = listening.listen(ServerAddress("udp", "::", data, control), SETTINGS)
    for number, host in enumerate(("127.0.0.1", "::1"), 1):
        dialing = AeronClientTransport(dialling.client, ServerAddress("udp", host, data, control))
        client = Reading(dialing.inbox)
        open_path = dialing.open_path()
        until(lambda n=number: len(server.available(token)) == n, server, client)
        image = server.available(token)[-1]
        assert image.source == open_path.publication.local_address
        send(listening.respond(image.image), b"hello", reading=(server, client))
        until(lambda c=client: c.messages, client)
        dialing.close()
    listening.close()


def test_row_19_a_listener_on_ipv4_receives_nothing_over_ipv6(serving: Driver, dialling: Driver) -> None:
    data, control = free_ports("::")
    listening = AeronServerTransport(serving.client)
    listening.listen(ServerAddress("udp", "0.0.0.0", data, control), SETTINGS)
    dialing = AeronClientTransport(dialling.client, ServerAddress("udp", "::1", data, control))
    open_path = dialing.open_path()
    time.sleep(1.0)
    assert not open_path.publication.connected
    dialing.close()
    listening.close()


def test_a_port_in_use_is_named(serving: Driver, dialling: Driver, world: AeronWorld) -> None:
    first, second = world.server_transport(), AeronServerTransport(dialling.client)
    first.listen(world.address, SETTINGS)
    with pytest.raises(InUseError, match=f"127.0.0.1:{world.address.data_port}: the address is in use"):
        second.listen(world.address, SETTINGS)
    second.close()
    first.close()


def test_row_21_a_client_sends_from_its_port_and_receives_on_the_next(world: AeronWorld) -> None:
    send_port, receive_port = free_ports()
    listening = world.server_transport()
    server = Reading(listening.inbox)
    token = listening.listen(world.address, SETTINGS)
    dialing = AeronClientTransport(world.client.client, world.address, ports=ClientPorts(send_port, receive_port))
    client = Reading(dialing.inbox)
    open_path = dialing.open_path()
    until(lambda: server.available(token), server, client)
    assert server.available(token)[0].source == f"127.0.0.1:{send_port}"
    assert first_address(dialing.inbox.subscription(open_path.token)) == f"0.0.0.0:{receive_port}"
    image, ids = server.available(token)[0].image, some_ids()
    mine = listening.open_link(image, ids, SETTINGS)
    until(lambda: listening.inbox.ready(mine.token) and mine.publication.ready, server)
    theirs = dialing.open_link(ids, SETTINGS)
    until(lambda: mine.publication.connected and theirs.publication.connected, server, client)
    until(lambda: server.available(mine.token), server)
    assert server.available(mine.token)[0].source == f"127.0.0.1:{send_port}"
    dialing.close()
    listening.close()


def test_row_22_shared_memory_sends_no_packets(serving: Driver) -> None:
    before = sockets(serving.process.pid)
    opened = Open(AeronWorld(serving, serving, "ipc"))
    send(opened.at_client.publication, b"through memory", reading=(opened.server,))
    until(lambda: opened.server.of(opened.at_server.token) == [b"through memory"], opened.server)
    assert opened.image.source == "aeron:ipc"
    assert opened.at_client.publication.local_address == ""
    assert not sockets(serving.process.pid).keys() - before.keys()
    opened.close()


def test_a_link_with_mdc_has_a_separate_control_port(world: AeronWorld) -> None:
    port = free_ports()[0]
    ids = some_ids()
    opened = Open(world, LinkIds(ids.session_in, ids.stream_in, ids.session_out, ids.stream_out, port))
    assert opened.at_server.publication.local_address == f"127.0.0.1:{port}"
    send(opened.at_server.publication, b"by mdc", reading=(opened.client,))
    until(lambda: opened.client.of(opened.at_client.token) == [b"by mdc"], opened.client)
    opened.close()


@pytest.mark.parametrize(("mtu", "term"), [(1184, 65_536), (1184, 1 << 20), (8192, 1 << 22), (65_504, 1 << 24)])
def test_messages_arrive_with_each_mtu_and_term_length(world: AeronWorld, mtu: int, term: int) -> None:
    opened = Open(world, channel_settings=ChannelSettings(mtu_bytes=mtu, term_bytes=term))
    longest = opened.at_client.publication.max_message
    assert term // 8 - (mtu - 32) < longest <= term // 8
    assert longest % (mtu - 32) == 0, "the last packet is not full"
    most = min(longest, 128 * 1024)
    for size in (mtu - 33, mtu - 32, mtu - 31, most):
        send(opened.at_client.publication, bytes(min(size, most)), reading=(opened.server,))
    until(lambda: len(opened.server.of(opened.at_server.token)) == 4, opened.server)
    assert [len(one) for one in opened.server.of(opened.at_server.token)] == [
        min(size, most) for size in (mtu - 33, mtu - 32, mtu - 31, most)
    ]
    opened.close()


def test_a_message_longer_than_max_message_is_dropped_and_the_next_arrives(world: AeronWorld) -> None:
    opened = Open(world, channel_settings=ChannelSettings(max_message=5_000))
    send(opened.at_client.publication, bytes(5_001), reading=(opened.server,))
    send(opened.at_client.publication, bytes(5_000), reading=(opened.server,))
    until(lambda: opened.server.of(opened.at_server.token), opened.server)
    assert [len(one) for one in opened.server.of(opened.at_server.token)] == [5_000]
    assert opened.server_transport.inbox.dropped == 1
    opened.close()


def test_a_client_that_requested_its_set_up_too_early_repeats_the_request(world: AeronWorld) -> None:
    listening, dialing = world.server_transport(), world.client_transport()
    server, client = Reading(listening.inbox), Reading(dialing.inbox)
    token = listening.listen(world.address, SETTINGS)
    dialing.open_path()
    until(lambda: server.available(token), server, client)
    ids = some_ids()
    theirs = dialing.open_link(ids, SETTINGS)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        client.poll(0.01)
    mine = listening.open_link(server.available(token)[0].image, ids, SETTINGS)
    until(lambda: mine.publication.connected and theirs.publication.connected, server, client)
    until(lambda: client.available(theirs.token), server, client)  # available after the publication
    assert len(client.available(theirs.token)) == 1
    dialing.close()
    listening.close()


def test_rejections_and_responses_do_not_wait_for_a_status_message(world: AeronWorld) -> None:
    listening = world.server_transport()
    server = Reading(listening.inbox)
    token = listening.listen(world.address, SETTINGS)
    rejected, answered = [], []
    for _ in range(15):
        dialing = world.client_transport()
        client = Reading(dialing.inbox)
        pair = dialing.open_path()
        seen = len(server.available(token))
        until(lambda n=seen: len(server.available(token)) > n, server, client)
        begin = time.monotonic()
        listening.inbox.reject(server.available(token)[-1].image, "again")
        until(lambda c=client: any(isinstance(one, PublicationRejected) for one in c.events), server, client)
        rejected.append(time.monotonic() - begin)
        dialing.reopen_path(pair)
        until(lambda n=seen: len(server.available(token)) > n + 1, server, client)
        begin = time.monotonic()
        send(listening.respond(server.available(token)[-1].image), b"answer", reading=(server, client))
        until(lambda c=client: c.messages, server, client)
        answered.append(time.monotonic() - begin)
        dialing.close()
    # Aeron's own endpoints wait for a timer each time: never less than 200 ms for the first and 300 ms for the second.
    assert min(rejected) < 0.2
    assert min(answered) < 0.3
    listening.close()


def test_a_link_opens_with_a_driver_without_the_handshake_extensions(dialling: Driver) -> None:
    opened = Open(AeronWorld(dialling, dialling, "127.0.0.1"))
    send(opened.at_server.publication, b"in time", reading=(opened.client,))
    until(lambda: opened.client.of(opened.at_client.token) == [b"in time"], opened.client)
    opened.close()


def test_the_logs_of_closed_publications_and_images_are_released(world: AeronWorld) -> None:
    wait_for(lambda: world.client.logs("publications") + world.server.logs("publications") == 0, 30.0, "earlier logs")
    opened = Open(world)
    assert world.client.logs("publications") == 2
    opened.close()
    logs = (world.server, "publications"), (world.client, "publications"), (world.client, "images")
    wait_for(lambda: sum(at.logs(folder) for at, folder in logs) == 0, 15.0, "the logs to be freed")


def test_the_server_forgets_the_senders_of_a_closed_link_and_of_a_client_that_left(world: AeronWorld) -> None:
    """Regression: each connection left two entries in the server's process, because no event follows its close."""
    opened = Open(world)
    until(lambda: opened.server.available(opened.at_server.token), opened.server, opened.client)
    link = opened.server.available(opened.at_server.token)[0].image
    inbox = opened.server_transport.inbox
    assert link in inbox.senders
    inbox.close_subscription(opened.at_server.token)
    assert link not in inbox.senders
    with pytest.raises(SenderUnavailable):
        opened.server_transport.open_link(link, some_ids(), SETTINGS)
    assert inbox.senders  # of the client's handshake
    opened.client_transport.close()
    until(lambda: not inbox.senders, opened.server)
    opened.close()


def test_a_driver_that_died_is_reported_once_and_closes_everything(dialling: Driver, run_name: str) -> None:
    aeron_dir = new_aeron_dir(run_name)
    with driver(aeron_dir, *PROMPT) as serving:
        opened = Open(AeronWorld(serving, dialling, "127.0.0.1"))
        serving.process.kill()
        serving.process.wait()
        shutil.rmtree(aeron_dir)
        # as a node does: the directory is new, the old client cannot know
        with driver_process(aeron_dir, *OPTIONS, *PROMPT):
            until(
                lambda: any(isinstance(one, DriverLost) for one in opened.server.events),
                opened.server,
                awaited="the driver's loss",
            )
            assert opened.server_transport.inbox.closed
            losses = [one for one in opened.server.events if isinstance(one, DriverLost)]
            assert len(losses) == 1
            assert opened.at_server.publication.offer(b"x") is OfferResult.CLOSED
            opened.server.poll(0)
            assert [one for one in opened.server.events if isinstance(one, DriverLost)] == losses
            opened.close()
            serving.client.close()


def test_an_inbox_of_an_ending_client_returns_nothing_and_other_errors_are_raised(serving: Driver) -> None:
    """An Aeron client ends so when its process did not run for ten seconds; a later poll closes it."""
    with zipfile.ZipFile(JAR) as aeron:
        assert CLIENT_ENDING.encode() in aeron.read("io/aeron/ClientConductor.class")
    exception = jclass("io.aeron.exceptions.AeronException")

    def poll(_timeout: int) -> int:
        raise exception(text)

    with closing(AeronServerTransport(serving.client)) as listening:
        listening.inbox._poll = poll
        text = f"ERROR - {CLIENT_ENDING}"
        assert listening.inbox.poll(0) == []
        text = "something else"
        with pytest.raises(exception, match=text):
            listening.inbox.poll(0)


def test_an_unknown_idle_strategy_is_refused_with_the_valid_ones(serving: Driver) -> None:
    with pytest.raises(OptionError, match="busy-spin, yielding, backoff, sleeping"):
        AeronServerTransport(serving.client, idle="lazy")


@pytest.mark.parametrize("idle", ["busy-spin", "yielding", "backoff", "sleeping"])
def test_each_idle_strategy_waits_and_wakes(serving: Driver, idle: str) -> None:
    listening = AeronServerTransport(serving.client, idle=idle)
    begin = time.monotonic()
    assert listening.inbox.poll(0.05) == []
    assert 0.04 < time.monotonic() - begin < 5
    listening.close()
