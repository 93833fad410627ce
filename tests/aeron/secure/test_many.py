"""Many clients in several processes, on media drivers of their own; clients that are frozen or killed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import Client
from aeron_spark.protocol.liveness import RETENTION_SECONDS
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.ends import Heard, World, echoes, logs, memory_of, node_of, nothing_held
from tests.leaks import SHARED_MEMORY

ROOT: Final = Path(__file__).resolve().parents[3]
PATIENCE: Final = 90.0  # seconds: 200 clients and four drivers on a machine that is busy with other things
GONE: Final = RETENTION_SECONDS + PATIENCE  # a session whose client's last word was lost waits so long for it
FREED: Final = 30.0  # seconds for a driver to free the logs of those who left


@pytest.fixture(scope="module")
def serving(run_name: str) -> Iterator[Client]:
    """The servers' node, made for many clients."""
    with node_of(SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}") as client:
        yield client


@contextmanager
def clients(run_name: str, place: ServerAddress, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process with so many clients, and a media driver of its own."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    path = os.pathsep.join([str(ROOT / "connector"), str(ROOT)])
    process = subprocess.Popen(
        [
            sys.executable, "-m", "tests.aeron.secure.clients", place.host, str(place.data_port),
            str(place.control_port), str(aeron_dir), str(count),
        ],
        env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        node.stop(aeron_dir, force=True, timeout=20)
        shutil.rmtree(aeron_dir, ignore_errors=True)


def say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(word), line
    return line.split()


@pytest.mark.full("four media drivers beside the server's")
@pytest.mark.parametrize("each", [5, *(pytest.param(more, marks=pytest.mark.soak) for more in (10, 50))])
def test_row_13_and_row_78_many_clients_connect_talk_and_leave_and_all_is_given_back(
    world: World, run_name: str, each: int
) -> None:
    count = 4 * each
    place = world.place()
    wait_for(lambda: logs(world.serving) == 0, FREED, "the server's driver to be as it was")
    before = memory_of(world.serving)
    server = world.server(place)
    heard = Heard(server)
    with ExitStack() as stack:
        processes = [stack.enter_context(clients(run_name, place, each)) for _ in range(4)]
        seconds = [float(hear(process, "connected")[2]) for process in processes]
        print(f"{count} clients of four processes connected in {max(seconds):.1f} s; "
              f"{memory_of(world.serving) - before >> 20} MiB of shared memory")  # fmt: skip
        statistics_now = server.statistics
        assert statistics_now["connections"] == count
        assert statistics_now["session_ids"] == statistics_now["stream_ids"] == 2 * count
        sessions = {connection.id for connection in server.connections}
        assert len(sessions) == count
        assert 0 not in sessions
        for process in processes:
            say(process, "talk")
        for process in processes:
            hear(process, "talked")
        for process in processes:
            say(process, "leave")
        for process in processes:
            hear(process, "left")
        begun = time.monotonic()
        nothing_held(server, GONE)
        print(f"the server held nothing for anybody {time.monotonic() - begun:.1f} s after they had left")
        wait_for(lambda: heard.count("disconnect") >= count, PATIENCE, "the listeners to hear of each end")
        # an attempt may fail on a busy machine when the server has told of it: the next one goes on with its session
        assert heard.count("init") == heard.count("connect") == count
        # and one that was away for longer than its expiry is told gone, then back, and gone once more in the end
        assert count <= heard.count("disconnect") <= count + heard.count("resume")
        server.close()
        begun = time.monotonic()
        wait_for(lambda: logs(world.serving) == 0, FREED, "the driver to free the logs")
        print(f"all of the driver's memory was back after {time.monotonic() - begun:.1f} s")
        assert memory_of(world.serving) <= before + (1 << 20)  # its own counters and error log


def test_a_client_that_is_frozen_holds_up_nobody_else_and_goes_on(world: World, run_name: str) -> None:
    place = world.place()
    server = world.server(place)
    heard = Heard(server)
    good = world.connected(place)
    with clients(run_name, place, 1) as frozen:
        hear(frozen, "connected")
        [bad] = [connection for connection in server.connections if connection.tag]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            for number in range(30):  # it goes on after these, whatever time they take
                bad.send(bytes(60_000), timeout=0.0) if number < 10 else None
                assert echoes(good, {"number": number})
            time.sleep(3.0)  # shorter than any time-out
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        say(frozen, "talk")
        hear(frozen, "talked")
        assert heard.count("disconnect") == heard.count("resume") == 0
        say(frozen, "leave")
        hear(frozen, "left")


@pytest.mark.full("three media drivers for a quarter of a minute")
def test_row_51_and_row_77_a_killed_client_is_noticed_in_time_and_disturbs_nobody(world: World, run_name: str) -> None:
    place = world.place()
    server = world.server(place)
    heard = Heard(server)
    with clients(run_name, place, 1) as killed, clients(run_name, place, 1) as other:
        hear(killed, "connected")
        hear(other, "connected")
        begun = time.monotonic()
        killed.kill()
        killed.wait()
        late = last = 0.0
        while not heard.count("disconnect"):
            last = time.monotonic()
            assert last - begun < 60, "the server did not notice"
            time.sleep(0.05)
            late = max(late, time.monotonic() - last - 0.05)
        seconds = heard.when("disconnect") - begun
        print(f"a killed client was noticed after {seconds:.1f} s, on a machine that was up to {late:.2f} s late")
        # its driver, which lives, gives it up 10 s after its last sign of life, one of two a second; then the expiry
        assert 10 - 1 + 4 <= seconds <= 10 + 4 + 2 + 10 * late  # three processes have a part in it
        say(other, "talk")
        hear(other, "talked")
        assert (heard.count("connect"), heard.count("disconnect"), heard.count("resume")) == (2, 1, 0)
        say(other, "leave")
        hear(other, "left")
