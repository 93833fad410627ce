"""Twenty processes start and stop a node at random: one node runs at a time, and it does not stop while it is used."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from aeron_spark import node
from tests.programs import Program, start_python

PROCESSES = 20
KILL_PROBABILITY = 0.03  # of each process in each round

# Executes commands from its input, one a line: "use DELAY HOLD" or "stop DELAY HOLD", in seconds. Prints "ok" or the
# failure.
USER_PROGRAM = """
import sys, time
from pathlib import Path
from aeron_spark import node
from aeron_spark.errors import RefusedError
from aeron_spark.node.state_files import driver_liveness

aeron_dir = sys.argv[1]
for line in sys.stdin:
    verb, delay, hold = line.split()
    result = "ok"
    time.sleep(float(delay))
    if verb == "stop":
        try:
            node.stop(aeron_dir, timeout=0.05)
        except RefusedError:
            pass
    else:
        with node.ensure(aeron_dir, linger=0.3) as handle:
            until = time.monotonic() + float(hold)
            while True:
                found = driver_liveness(Path(aeron_dir))
                if found is None or not found.alive or found.pid != handle.pid:
                    result = f"vanished: {found} instead of {handle.pid}"
                if time.monotonic() >= until:
                    break
                time.sleep(0.02)
    print(result, flush=True)
"""


def run_round(users: list[Program], rng: random.Random, commands: list[str]) -> None:
    """Send each user its command, kill some users at random and replace them; all others must print ok."""
    for user, command in zip(users, commands, strict=True):
        user.send(command)
    killed = {number for number in range(len(users)) if rng.random() < KILL_PROBABILITY}
    if killed:
        time.sleep(rng.uniform(0, 0.5))
    for number in killed:
        users[number].kill()
    for number, user in enumerate(users):
        result = user.stdout.readline()
        if number in killed:
            user.communicate(timeout=30)
            users[number] = start_python(USER_PROGRAM, user.args[-1])
        else:
            if result != "ok\n":
                user.kill()
                pytest.fail(result + user.communicate(timeout=30)[0])


def assert_nodes_do_not_overlap(events: list[str]) -> None:
    """Assert from the log of a folder's nodes that each was ready only after the previous one had stopped."""
    words = [line.split()[2].rstrip(":") for line in events]
    assert words == ["ready", "stopped"] * (len(words) // 2) + ["ready"] * (len(words) % 2), events


def node_pids(own_dir: Path) -> set[int]:
    """Return the ids of the node processes for ``own_dir``."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "aeron_spark.node.keeper" in command and any(f'"{own_dir}"' in part for part in command):
            found.add(process.pid)
    return found


def wait_until_ended(own_dir: Path) -> None:
    deadline = time.monotonic() + 30
    while node.status(own_dir).state != "absent" or node_pids(own_dir):
        assert time.monotonic() < deadline, (node.status(own_dir), node_pids(own_dir))
        time.sleep(0.05)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(20.0, marks=pytest.mark.full("twenty processes for twenty seconds, and some ten nodes")),
        pytest.param(90.0, marks=pytest.mark.soak),
    ],
)
def test_twenty_processes_share_a_node(own_dir: Path, rng: random.Random, seconds: float) -> None:
    end = time.monotonic() + seconds
    users = [start_python(USER_PROGRAM, str(own_dir)) for _ in range(PROCESSES)]
    rounds = 0
    try:
        while time.monotonic() < end or rounds < 4:
            verbs = [("stop" if rng.random() < 0.1 else "use") for _ in users]
            commands = [f"{verb} {rng.uniform(0, 0.4):.3f} {rng.uniform(0, 0.5):.3f}" for verb in verbs]
            run_round(users, rng, commands)
            if rounds % 4 == 0:  # no process uses the node for longer than the time of its idle stop
                wait_until_ended(own_dir)
            elif rounds % 4 == 1:  # some processes hold the node and others stop it: it must not stop
                holders = rng.randrange(1, 4)
                run_round(users, rng, ["use 0 2"] * holders + ["stop 0.5 0"] * (PROCESSES - holders))
            else:  # the next uses begin at about the time of the node's idle stop
                time.sleep(rng.uniform(0.2, 0.9))
            rounds += 1
    finally:
        for user in users:
            user.communicate(timeout=60)
    wait_until_ended(own_dir)
    log = node.local_node_paths(own_dir).log.read_text().splitlines()
    events = [line for line in log if "ready:" in line or line.endswith("] stopped")]
    nodes = sum("ready:" in line for line in events)
    assert nodes > 1
    assert_nodes_do_not_overlap(events)


def test_the_check_of_the_log_detects_two_nodes_that_overlap() -> None:
    with pytest.raises(AssertionError):
        assert_nodes_do_not_overlap(["t [1] ready: x", "t [2] ready: x", "t [1] stopped", "t [2] stopped"])


def test_a_running_node_process_is_found_by_its_directory(own_dir: Path) -> None:
    with node.ensure(own_dir) as handle:
        assert node_pids(own_dir) == {handle.pid}
