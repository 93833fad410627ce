"""Twenty processes start and stop a node at random: never two, never none while one is in use, nobody loses it."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from aeron_spark import node
from tests.aeron.node.programs import python

PROCESSES = 20
SHORT, LONG = 20.0, 90.0  # seconds
KILL = 0.03  # how likely a user is to be killed in a round, wherever it is then

# Does what it is told, a line at a time: "use DELAY HOLD" or "stop". Answers "ok", or says what went wrong.
USER = """
import sys, time
from pathlib import Path
from aeron_spark import node
from aeron_spark.errors import RefusedError
from aeron_spark.node.liveness import driver_liveness

aeron_dir = sys.argv[1]
for line in sys.stdin:
    verb, delay, hold = line.split()
    answer = "ok"
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
                    answer = f"vanished: {found} instead of {handle.pid}"
                if time.monotonic() >= until:
                    break
                time.sleep(0.02)
    print(answer, flush=True)
"""

User = subprocess.Popen[str]


def tell(user: User, text: str) -> None:
    assert user.stdin
    user.stdin.write(f"{text}\n")
    user.stdin.flush()


def busy_round(users: list[User], rng: random.Random, orders: list[str]) -> None:
    """Give each user its order, kill some wherever they are, and replace those; everybody else must say ok."""
    for user, order in zip(users, orders, strict=True):
        tell(user, order)
    killed = {number for number in range(len(users)) if rng.random() < KILL}
    if killed:
        time.sleep(rng.uniform(0, 0.5))
    for number in killed:
        users[number].kill()
    for number, user in enumerate(users):
        assert user.stdout
        answer = user.stdout.readline()
        if number in killed:
            user.communicate(timeout=30)
            users[number] = python(USER, user.args[-1])  # type: ignore[index]
        else:
            if answer != "ok\n":
                user.kill()
                pytest.fail(answer + user.communicate(timeout=30)[0])


def churn(own: Path, rng: random.Random, seconds: float) -> None:
    end = time.monotonic() + seconds
    users = [python(USER, str(own)) for _ in range(PROCESSES)]
    served = rounds = 0
    try:
        while time.monotonic() < end or rounds < 4:
            verbs = [("stop" if rng.random() < 0.1 else "use") for _ in users]
            orders = [f"{verb} {rng.uniform(0, 0.4):.3f} {rng.uniform(0, 0.5):.3f}" for verb in verbs]
            busy_round(users, rng, orders)
            if rounds % 4 == 0:  # everybody is away for long enough
                wait_until_absent(own)
            elif rounds % 4 == 1:  # a few hold on with no sign of life but their lock: it must not stop now
                silent = rng.randrange(1, 4)
                busy_round(users, rng, ["use 0 2"] * silent + ["stop 0.5 0"] * (PROCESSES - silent))
            else:  # some come back just as it stops
                time.sleep(rng.uniform(0.2, 0.9))
            rounds += 1
            served += verbs.count("use")
    finally:
        for user in users:
            user.communicate(timeout=60)
    wait_until_absent(own)
    log = node.paths_here(own).log.read_text().splitlines()
    serving = [line for line in log if "ready:" in line or line.endswith("] stopped")]
    nodes = sum("ready:" in line for line in serving)
    print(f"{served} uses in {rounds} rounds of {nodes} nodes")
    assert nodes > 1
    assert_one_at_a_time(serving)


def assert_one_at_a_time(serving: list[str]) -> None:
    """By the log that all keepers of a folder write: each is ready only after the one before has stopped."""
    words = [line.split()[2].rstrip(":") for line in serving]
    assert words == ["ready", "stopped"] * (len(words) // 2) + ["ready"] * (len(words) % 2), serving


def keepers_of(own: Path) -> set[int]:
    """Return the processes that hold a driver in ``own`` mapped and are its keeper."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "aeron_spark.node.keeper" in command and any(f'"{own}"' in part for part in command):
            found.add(process.pid)
    return found


def wait_until_absent(own: Path) -> None:
    deadline = time.monotonic() + 30
    while node.status(own).state != "absent" or keepers_of(own):
        assert time.monotonic() < deadline, (node.status(own), keepers_of(own))
        time.sleep(0.05)


@pytest.mark.full("twenty processes for twenty seconds, and some ten nodes")
def test_twenty_processes_share_a_node(own: Path, rng: random.Random) -> None:
    churn(own, rng, SHORT)


@pytest.mark.soak
def test_twenty_processes_share_a_node_for_long(own: Path, rng: random.Random) -> None:
    churn(own, rng, LONG)


def test_the_check_of_the_log_sees_two_at_a_time() -> None:
    with pytest.raises(AssertionError):
        assert_one_at_a_time(["t [1] ready: x", "t [2] ready: x", "t [1] stopped", "t [2] stopped"])


def test_a_keeper_is_seen_by_the_count(own: Path) -> None:
    with node.ensure(own) as handle:
        assert keepers_of(own) == {handle.pid}
