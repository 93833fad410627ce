"""Floods of hostile packets beside a client that behaves: what it notices, and what they cost."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from aeron_spark.aeron.guard import read_drops
from aeron_spark.client.client import Client
from aeron_spark.server.server import TransportServer
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, ServerAddress, TransportEvent
from aeron_spark.waiting import wait_for
from tests.aeron.guard.frames import KIB, SEND_SETUP, setup, status_message, strangers
from tests.aeron.secure.ends import World, echoes, logs, memory_of, nothing_held
from tests.aeron.secure.raw import Raw

MIB: Final = 1024 * KIB
MEMORY_BOUND: Final = 64 * MIB  # of the server's process, Python and JVM
SHM_BOUND: Final = 128 * MIB  # of the server's driver; 4,000 sessions of 12 KiB are 48 MiB
STALL: Final = 1.0  # seconds of a round trip: less is noise on a machine that does other things
ROOT: Final = Path(__file__).resolve().parents[3]
FREED: Final = 45.0  # seconds for a driver to free the logs of sessions that are silent or were rejected
ADDRESSES: Final = 40
IDLE_SECONDS: Final = 3.0
RESTING_POLLS: Final = 200  # a second, at the most; a thread that does not rest polls thousands of times


class Watch:
    """The round trips of a good client, what the server's process takes, and what its driver takes of /dev/shm."""

    def __init__(self, world: World, client: Client) -> None:
        self.client = client
        self.driver = world.serving
        self.quiet = self._round_trips(3.0)
        self.before, self.shm_before = _resident(), memory_of(self.driver)
        self.most = self.shm_most = 0
        self.busy: list[float] = []

    def _round_trips(self, seconds: float) -> list[float]:
        end, times = time.monotonic() + seconds, []
        while time.monotonic() < end:
            times.append(self.client.ping())
            time.sleep(0.002)
        return times

    @contextmanager
    def during(self) -> Iterator[None]:
        """Watch while the block runs."""
        ended = threading.Event()

        def watch() -> None:
            looked = 0.0
            while not ended.is_set():
                self.busy.append(self.client.ping())
                ended.wait(0.002)
                if time.monotonic() - looked > 0.25:
                    looked = time.monotonic()
                    self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(60)

    def look(self) -> None:
        self.most = max(self.most, _resident() - self.before)
        self.shm_most = max(self.shm_most, memory_of(self.driver) - self.shm_before)

    def judge(self, what: str) -> None:
        """The client noticed nothing, and the memory stayed within its bounds."""
        quiet, busy = _p99(self.quiet), _p99(self.busy)
        print(
            f"{what}: p99 round trip {quiet * 1e3:.2f} ms quiet, {busy * 1e3:.2f} ms meanwhile (p50 "
            f"{statistics.median(self.busy) * 1e3:.2f}, {len(self.busy)} of them); server +{self.most / MIB:.1f} MiB, "
            f"/dev/shm +{self.shm_most / MIB:.1f} MiB"
        )
        assert busy <= max(3 * quiet, STALL), (quiet, busy)
        assert self.most < MEMORY_BOUND
        assert self.shm_most < SHM_BOUND


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_hostile_hellos_cost_little_and_a_good_client_notices_nothing(
    world: World, rng: random.Random, count: int
) -> None:
    place = world.place()
    server, client, before = _quiet_server(world, place)
    recorded = Raw(world.dialling, place)
    hello = recorded.hello_with_cookie()  # good once, from this address; and it is not used up
    watch = Watch(world, client)
    with watch.during():  # from another process: what the flood costs its sender is no business of ours
        subprocess.run(
            [sys.executable, "-m", "tests.aeron.secure.flood", str(place.data_port), hello.hex(), str(count),
             str(rng.randrange(2**31))],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "connector"), str(ROOT)])},
            check=True, timeout=300,
        )  # fmt: skip
    watch.look()
    watch.judge(f"{count} hostile HELLOs")
    assert server.statistics["session_ids"] == 2  # the good client's
    assert server.statistics.get("refused-message", 0) > 0  # some did get through the guard; how many is its business
    recorded.close()
    assert echoes(client, "still here")
    _back_to_base(world, server, client, before)


def test_floods_of_setups_and_status_messages_cost_little_and_a_good_client_notices_nothing(
    world: World, rng: random.Random
) -> None:
    place = world.place()
    server, client, before = _quiet_server(world, place)
    watch = Watch(world, client)
    drops = read_drops(world.serving.aeron_dir)
    [connection] = server.connections
    with strangers(ADDRESSES, place.data_port) as to_data, strangers(ADDRESSES, place.control_port, 60) as to_control:
        with watch.during():
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
        watch.look()
    watch.judge("3 floods of SETUPs, 2 of status messages")
    assert watch.shm_most < 8 * MIB  # of what 4,800 SETUPs asked for, nothing
    dropped = read_drops(world.serving.aeron_dir)
    assert dropped["receiving: term-length"] - drops["receiving: term-length"] > 500
    assert dropped["sending: unwanted"] - drops.get("sending: unwanted", 0) > 500
    assert server.statistics["handshakes"] <= 1
    _back_to_base(world, server, client, before)


def test_row_81_server_and_client_are_idle_after_traffic(world: World) -> None:
    place = world.place()
    server = world.server(place)
    client = world.connected(place)
    for number in range(50):
        assert echoes(client, {"number": number})
    polls = {end: counted_polls(end) for end in (server, client)}
    time.sleep(1.0)
    before = {end: counted() for end, counted in polls.items()}
    time.sleep(IDLE_SECONDS)
    for end, counted in polls.items():
        # each poll of an idle end rests until something comes, or until its next look at its timers
        assert counted() - before[end] < RESTING_POLLS * IDLE_SECONDS, f"{type(end).__name__} does not rest"
    assert client.connected


def counted_polls(end: TransportServer | Client) -> Callable[[], int]:
    """Count how often the thread of a server or client looks for something to do."""
    agent, polls = end._runtime.loop, [0]
    poll = agent._poll

    def counting(timeout: float) -> list[TransportEvent]:
        polls[0] += 1
        return poll(timeout)

    agent._poll = counting  # type: ignore[method-assign]
    return lambda: polls[0]


def _quiet_server(world: World, place: ServerAddress) -> tuple[TransportServer, Client, int]:
    wait_for(lambda: logs(world.serving) == 0, FREED, "the server's driver to be as it was")
    before = memory_of(world.serving)
    server = world.server(place)
    client = world.connected(place)
    for number in range(200):  # what is compiled and allocated once is there
        assert echoes(client, number)
    return server, client, before


def _back_to_base(world: World, server: TransportServer, client: Client, before: int) -> None:
    client.close()
    nothing_held(server)
    server.close()
    begun = time.monotonic()
    wait_for(lambda: logs(world.serving) == 0, FREED, "the driver to free the logs")
    print(f"the driver's memory was back after {time.monotonic() - begun:.1f} s")
    assert memory_of(world.serving) <= before + MIB  # its own counters and error log
