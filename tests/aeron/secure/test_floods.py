"""Floods of hostile packets: their cost for the server, and their effect on another client."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import psutil
import pytest

from aeron_spark.aeron.endpoint_transport import AeronPublication, AeronServerTransport
from aeron_spark.aeron.guard import read_drops
from aeron_spark.client.client import Client
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.liveness import Times
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, ServerAddress, TransportEvent
from aeron_spark.waiting import wait_for
from tests.aeron.guard.frames import KIB, SEND_SETUP, frame_senders, setup, status_message
from tests.aeron.secure.endpoints import TIMEOUT_S, World, await_nothing_in_use, echoes, logs, memory_of
from tests.aeron.secure.raw import Raw
from tests.budget import raised_limit, slowness
from tests.message_server import MessageServer
from tests.programs import Program, python_environ, start_module

MIB: Final = 1024 * KIB
MEMORY_BOUND: Final = 64 * MIB  # of the server's process, Python and JVM
SHM_BOUND: Final = 128 * MIB  # of the server's driver; 4,000 sessions of 12 KiB are 48 MiB
MAX_ROUND_TRIP_S: Final = 1.0  # less is noise on a busy machine
RELEASE_TIMEOUT_S: Final = 45.0  # for a driver to free the logs of silent or rejected sessions
ADDRESSES: Final = 40
IDLE_SECONDS: Final = 3.0
SETUPS_PER_SECOND: Final = 2_000
MAX_CONNECT_S: Final = 3.0  # on an idle machine; the flood itself uses most of a busy one
SESSION_TIMEOUT_S: Final = 20.0  # much less than TIMEOUT_S, unlike the default
MAX_LOOKS: Final = 100  # at a path in some seconds, while the event loop turns a hundred times a second or more
MAX_IDLE_POLLS: Final = 200  # per second; a thread that does not wait polls thousands of times


class Measurement:
    """Measures the round trips of a client, the memory of the server's process, and its driver's use of /dev/shm."""

    def __init__(self, world: World, client: Client) -> None:
        self.client = client
        self.driver = world.serving
        self.idle_s = self._round_trips(3.0)
        self.before, self.shm_before = _resident(), memory_of(self.driver)
        self.max_memory = self.max_shm = 0
        self.flooded_s: list[float] = []

    def _round_trips(self, seconds: float) -> list[float]:
        end, times = time.monotonic() + seconds, []
        while time.monotonic() < end:
            times.append(self.client.ping())
            time.sleep(0.002)
        return times

    @contextmanager
    def during(self) -> Iterator[None]:
        """Measure while the block runs."""
        ended = threading.Event()

        def measure() -> None:
            measured = 0.0
            while not ended.is_set():
                self.flooded_s.append(self.client.ping())
                ended.wait(0.002)
                if time.monotonic() - measured > 0.25:
                    measured = time.monotonic()
                    self.measure_memory()

        thread = threading.Thread(target=measure, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(60)

    def measure_memory(self) -> None:
        self.max_memory = max(self.max_memory, _resident() - self.before)
        self.max_shm = max(self.max_shm, memory_of(self.driver) - self.shm_before)

    def check(self, what: str) -> None:
        """Check that round trips and memory stayed within their bounds."""
        idle_s, flooded_s = _p99(self.idle_s), _p99(self.flooded_s)
        assert flooded_s <= max(3 * idle_s, MAX_ROUND_TRIP_S), (what, idle_s, flooded_s)
        assert self.max_memory < MEMORY_BOUND, what
        assert self.max_shm < SHM_BOUND, what


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


@pytest.mark.sampled
@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_flood_of_hostile_hellos_costs_little_and_does_not_disturb_a_client(
    world: World, rng: random.Random, count: int
) -> None:
    address = world.free_address()
    server, client, before = _idle_server(world, address)
    recorded = Raw(world.dialling, address)
    hello = recorded.hello_with_cookie()  # valid once from this address, and not used
    measurement = Measurement(world, client)
    drops = read_drops(world.serving.aeron_dir)["receiving: no-cookie"]
    with measurement.during():  # from another process: the sender's own cost does not count
        subprocess.run(
            [sys.executable, "-m", "tests.aeron.secure.flood", str(address.data_port), hello.hex(), str(count),
             str(rng.randrange(2**31))],
            env=python_environ(),
            check=True, timeout=300,
        )  # fmt: skip
    measurement.measure_memory()
    measurement.check(f"{count} hostile HELLOs")
    assert server.statistics["session_ids"] == 2  # of the measured client
    assert measurement.max_shm < MIB  # no sender had returned a cookie, so no image was made
    assert read_drops(world.serving.aeron_dir)["receiving: no-cookie"] - drops > count // 4
    recorded.close()
    assert echoes(client, "still connected")
    _check_released(world, server, client, before)


@pytest.mark.sampled
def test_floods_of_setups_and_status_messages_cost_little_and_do_not_disturb_a_client(
    world: World, rng: random.Random
) -> None:
    address = world.free_address()
    server, client, before = _idle_server(world, address)
    measurement = Measurement(world, client)
    drops = read_drops(world.serving.aeron_dir)
    [connection] = server.connections
    with (
        frame_senders(ADDRESSES, address.data_port) as to_data,
        frame_senders(ADDRESSES, address.control_port, 60) as to_control,
    ):
        with measurement.during():
            for _ in range(40):
                for sender in to_data:
                    session, large = rng.randrange(1, 2**31), rng.choice([64 * MIB, 1024 * MIB, 128 * KIB])
                    sender.send(
                        setup(session, HANDSHAKE_STREAM_ID, term_length=large),
                        setup(session, rng.randrange(1, 2**31)),
                        setup(connection.id, HANDSHAKE_STREAM_ID + 7),
                    )
                for sender in to_control:
                    session, stream = rng.randrange(1, 2**31), rng.choice([HANDSHAKE_STREAM_ID, 77])
                    sender.send(
                        status_message(session, stream, 7, term=0, flags=SEND_SETUP),
                        status_message(session, stream, rng.randrange(2**40), term=7, window=0),
                    )
                time.sleep(0.05)
        measurement.measure_memory()
    measurement.check("3 floods of SETUPs, 2 of status messages")
    assert measurement.max_shm < 8 * MIB  # the 4,800 SETUPs allocated nothing
    dropped = read_drops(world.serving.aeron_dir)
    assert dropped["receiving: term-length"] - drops["receiving: term-length"] > 500
    assert dropped["sending: unwanted"] - drops.get("sending: unwanted", 0) > 500
    assert server.statistics["handshakes"] <= 1
    _check_released(world, server, client, before)


@contextmanager
def attackers(port: int, *, setups: int, half_open: int, addresses: int) -> Iterator[Program]:
    """Flood a data port from another process, from its first second on; the yielded process can be asked to end."""
    process = start_module("tests.aeron.secure.attackers", *map(str, (port, setups, half_open, addresses)))
    try:
        assert process.stdout.readline() == "flooding\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.sampled
@pytest.mark.parametrize("newcomers", [10, pytest.param(60, marks=pytest.mark.soak)])
def test_new_clients_connect_during_a_flood_of_setups_and_half_open_handshakes(world: World, newcomers: int) -> None:
    """The server has never heard of any address, so the first new client gets no better room than the attackers."""
    address = world.free_address()
    # If the flood displaces the CLOSE of a client, the session ends only after the session timeout.
    times = Times(retention_seconds=SESSION_TIMEOUT_S, min_retention_seconds=SESSION_TIMEOUT_S)
    session = replace(
        ServerOptions().session_limits, retention_seconds=SESSION_TIMEOUT_S, buffer_seconds=SESSION_TIMEOUT_S
    )
    server = world.server(address, admission=Limits(), times=times, session_limits=session)
    with attackers(address.data_port, setups=SETUPS_PER_SECOND, half_open=40, addresses=ADDRESSES) as flood:
        drops = read_drops(world.serving.aeron_dir)["receiving: no-cookie"]
        wait_for(
            lambda: read_drops(world.serving.aeron_dir)["receiving: no-cookie"] - drops > SETUPS_PER_SECOND,
            TIMEOUT_S, "the SETUPs to arrive",
        )  # fmt: skip
        wait_for(lambda: server.statistics["pending"] > ADDRESSES, TIMEOUT_S, "the half-open handshakes")
        seconds = []
        for _ in range(newcomers):
            begun = time.monotonic()
            client = world.client(address)
            client.connect(TIMEOUT_S)
            seconds.append(time.monotonic() - begun)
            client.close()
        flood.stdin.close()
        _, sent, received = flood.stdout.readline().split()
    assert int(received) < int(sent)
    assert _p99(seconds) <= raised_limit(MAX_CONNECT_S, 0.0, slowness), seconds
    await_nothing_in_use(server)


@pytest.mark.sampled
def test_half_open_handshakes_of_many_addresses_cost_a_server_little(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[AeronPublication] = []
    looks: Counter[str] = Counter()  # each is a call of Java
    respond, is_connected, is_closed = AeronServerTransport.respond, AeronPublication.connected, AeronPublication.closed

    def responding(transport: AeronServerTransport, image: int) -> AeronPublication:
        paths.append(respond(transport, image))
        return paths[-1]

    def looking(publication: AeronPublication, name: str, property_: Any) -> bool:
        looks[name] += publication in paths
        return bool(property_.fget(publication))

    monkeypatch.setattr(AeronServerTransport, "respond", responding)
    monkeypatch.setattr(AeronPublication, "connected", property(lambda self: looking(self, "connected", is_connected)))
    monkeypatch.setattr(AeronPublication, "closed", property(lambda self: looking(self, "closed", is_closed)))
    address = world.free_address()
    limits = Limits(pending=40)  # the default is 128: on a busy machine so many come only while others expire
    server = world.server(address, admission=limits)
    client = world.connected(address)
    measurement = Measurement(world, client)
    with attackers(address.data_port, setups=0, half_open=70, addresses=200):
        wait_for(lambda: server.statistics.get("refused-pending", 0) > 0, TIMEOUT_S, "as many as the server permits")
        with measurement.during():
            refused = server.statistics["refused-pending"]
            wait_for(lambda: server.statistics["refused-pending"] > refused + 100, TIMEOUT_S, "further refusals")
        pending = server.statistics["pending"]
    measurement.check("70 half-open handshakes a second from 200 addresses")
    assert pending == limits.pending // 2  # known addresses have the other half
    assert looks["connected"] < MAX_LOOKS * len(paths)
    assert looks["closed"] < looks["connected"] + 8 * len(paths)  # a new path does not look at all the others
    assert echoes(client, "still connected")


def test_row_81_server_and_client_are_idle_after_traffic(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    client = world.connected(address)
    for number in range(50):
        assert echoes(client, {"number": number})
    polls = {end: counted_polls(end) for end in (server, client)}
    time.sleep(1.0)
    before = {end: counted() for end, counted in polls.items()}
    time.sleep(IDLE_SECONDS)
    for end, counted in polls.items():
        # each poll of an idle endpoint waits for an event or for its next timer
        assert counted() - before[end] < MAX_IDLE_POLLS * IDLE_SECONDS, f"{type(end).__name__} does not wait"
    assert client.connected


def counted_polls(end: MessageServer | Client) -> Callable[[], int]:
    """Count the polls of an endpoint's event loop."""
    loop, polls = end._endpoint.loop, [0]
    poll = loop._poll

    def counting(timeout: float) -> list[TransportEvent]:
        polls[0] += 1
        return poll(timeout)

    loop._poll = counting
    return lambda: polls[0]


def _idle_server(world: World, address: ServerAddress) -> tuple[MessageServer, Client, int]:
    wait_for(lambda: logs(world.serving) == 0, RELEASE_TIMEOUT_S, "the server's driver to free earlier logs")
    before = memory_of(world.serving)
    server = world.server(address)
    client = world.connected(address)
    for number in range(200):  # warm up
        assert echoes(client, number)
    return server, client, before


def _check_released(world: World, server: MessageServer, client: Client, before: int) -> None:
    client.close()
    await_nothing_in_use(server)
    server.close()
    wait_for(lambda: logs(world.serving) == 0, RELEASE_TIMEOUT_S, "the driver to free the logs")
    assert memory_of(world.serving) <= before + MIB  # the driver's counters and error log
