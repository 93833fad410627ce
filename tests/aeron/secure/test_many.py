"""Many clients in several processes with separate media drivers; suspended and killed clients."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.protocol.liveness import RETENTION_SECONDS
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import RecordedEvents, World, await_nothing_in_use, echoes, logs, memory_of, node_of
from tests.nodes import new_aeron_dir, remove_node
from tests.programs import Program, start_module
from tests.waiting import suspend

TIMEOUT_S: Final = 90.0  # for 200 clients and four drivers on a busy machine
SESSION_END_TIMEOUT_S: Final = (
    RETENTION_SECONDS + TIMEOUT_S
)  # a session whose client's last word was lost waits so long for it
REPLY_TIMEOUT_S: Final = 300.0  # longer than the timeouts of the process with the clients
RELEASE_TIMEOUT_S: Final = 30.0  # for a driver to free the logs of closed clients


@pytest.fixture(scope="module")
def serving(run_name: str) -> Iterator[AeronClient]:
    """A separate node for the servers of these tests."""
    with node_of(new_aeron_dir(run_name)) as client:
        yield client


@contextmanager
def clients(run_name: str, address: ServerAddress, count: int) -> Iterator[Program]:
    """Start a process with ``count`` clients and its own media driver."""
    aeron_dir = new_aeron_dir(run_name)
    arguments = (address.host, address.data_port, address.control_port, aeron_dir, count)
    process = start_module("tests.aeron.secure.clients", *map(str, arguments))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        remove_node(aeron_dir)


def read_reply(process: Program, word: str) -> list[str]:
    ready, _, _ = select.select([process.stdout], [], [], REPLY_TIMEOUT_S)
    assert ready, f"no reply {word!r} within {REPLY_TIMEOUT_S:g} s"
    line = process.stdout.readline()
    assert line.startswith(word), line
    return line.split()


@pytest.mark.full("four media drivers beside the server's")
@pytest.mark.parametrize("each", [5, *(pytest.param(more, marks=pytest.mark.soak) for more in (10, 50))])
def test_row_13_and_row_78_many_clients_connect_send_and_close_and_everything_is_released(
    world: World, run_name: str, each: int
) -> None:
    count = 4 * each
    address = world.free_address()
    wait_for(lambda: logs(world.serving) == 0, RELEASE_TIMEOUT_S, "the server's driver to free earlier logs")
    before = memory_of(world.serving)
    server = world.server(address)
    recorded = RecordedEvents(server)
    with ExitStack() as stack:
        processes = [stack.enter_context(clients(run_name, address, each)) for _ in range(4)]
        for process in processes:
            read_reply(process, "connected")
        statistics_now = server.statistics
        assert statistics_now["connections"] == count
        assert statistics_now["session_ids"] == statistics_now["stream_ids"] == 2 * count
        sessions = {connection.id for connection in server.connections}
        assert len(sessions) == count
        assert 0 not in sessions
        for process in processes:
            process.send("send")
        for process in processes:
            read_reply(process, "sent")
        for process in processes:
            process.send("close")
        for process in processes:
            read_reply(process, "closed")
        await_nothing_in_use(server, SESSION_END_TIMEOUT_S)
        wait_for(lambda: recorded.count("disconnect") >= count, TIMEOUT_S, "the disconnect listeners")
        # on a busy machine an attempt may fail after the server has accepted it: the next one resumes its session
        assert recorded.count("init") == recorded.count("connect") == count
        # a client that was silent for its expiry time is disconnected, resumes, and is disconnected again at the end
        assert count <= recorded.count("disconnect") <= count + recorded.count("resume")
        server.close()
        wait_for(lambda: logs(world.serving) == 0, RELEASE_TIMEOUT_S, "the driver to free the logs")
        assert memory_of(world.serving) <= before + (1 << 20)  # its own counters and error log


@pytest.mark.sampled
def test_a_suspended_client_delays_no_other_client_and_continues_later(world: World, run_name: str) -> None:
    address = world.free_address()
    server = world.server(address)
    recorded = RecordedEvents(server)
    good = world.connected(address)
    with clients(run_name, address, 1) as suspended:
        read_reply(suspended, "connected")
        [bad] = [connection for connection in server.connections if connection.tag]
        suspend(suspended.pid)
        try:
            for number in range(30):  # the client continues after these
                bad.send(bytes(60_000), timeout=0.0) if number < 10 else None
                assert echoes(good, {"number": number})
            time.sleep(3.0)  # shorter than any timeout
        finally:
            os.kill(suspended.pid, signal.SIGCONT)
        suspended.send("send")
        read_reply(suspended, "sent")
        assert recorded.count("disconnect") == recorded.count("resume") == 0
        suspended.send("close")
        read_reply(suspended, "closed")


@pytest.mark.full("three media drivers for a quarter of a minute")
def test_row_51_and_row_77_a_killed_client_is_disconnected_and_disturbs_no_other(world: World, run_name: str) -> None:
    address = world.free_address()
    server = world.server(address)
    recorded = RecordedEvents(server)
    with clients(run_name, address, 1) as killed, clients(run_name, address, 1) as other:
        read_reply(killed, "connected")
        read_reply(other, "connected")
        started = time.monotonic()
        killed.kill()
        killed.wait()
        delay_s = last = 0.0
        while not recorded.count("disconnect"):
            last = time.monotonic()
            assert last - started < 60, "the server did not notice"
            time.sleep(0.05)
            delay_s = max(delay_s, time.monotonic() - last - 0.05)
        seconds = recorded.first_time("disconnect") - started
        # its driver drops it 10 s after its last keep-alive, of two a second; then the expiry passes
        assert 10 - 1 + 4 <= seconds <= 10 + 4 + 2 + 10 * delay_s  # three processes may be late
        other.send("send")
        read_reply(other, "sent")
        assert (recorded.count("connect"), recorded.count("disconnect"), recorded.count("resume")) == (2, 1, 0)
        other.send("close")
        read_reply(other, "closed")
