"""Attacks of one client on a server: the response times of another client before, during and after an attack.

The medians and 99th percentiles of the good client are printed. `make test` attacks for some seconds and bounds what a
busy machine cannot explain. `make soak` attacks for half a minute, on a quiet machine, with the bounds that the server
promises: three times the 99th percentile without an attack, and 5 ms.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from aeron_spark import node
from tests.aeron.attacks.attacked import MIB, AttackedServer, Timings
from tests.aeron.attacks.attacker import ATTACKS
from tests.leaks import SHARED_MEMORY

SHORT_S: Final = 1.5
LONG_S: Final = 30.0
SHORT_EXCESS_S: Final = 5.0  # calls that waited for an attacker's calls timed out after 30 s; less is a busy machine
RECOVERY_S: Final = 5.0
MEMORY_BOUND: Final = {"large_calls": 40 * MIB}  # of one attacker; of the other attacks, DEFAULT_BOUND
DEFAULT_BOUND: Final = 64 * MIB
MEMORY_TIMEOUT_S: Final = 60.0


@pytest.fixture(scope="module")
def server(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    directories = [SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}" for _ in range(3)]
    with ExitStack() as stack:
        nodes = [stack.enter_context(node.ensure(directory)) for directory in directories]
        attacked = AttackedServer(*nodes, tmp_path_factory.mktemp("attacked"))
        try:
            yield attacked
        finally:
            attacked.close()
    for directory in directories:
        node.stop(directory, force=True, timeout=20)


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_an_attack_does_not_stop_another_client(server: AttackedServer, attack: str) -> None:
    alone, during, _ = measured(server, attack, SHORT_S)
    for name in alone.seconds:
        assert during.p99(name) <= 3 * alone.p99(name) + SHORT_EXCESS_S, name


@pytest.mark.soak
@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_another_client_keeps_its_times_during_a_long_attack(server: AttackedServer, attack: str) -> None:
    alone, during, after = measured(server, attack, LONG_S)
    for name in alone.seconds:
        assert during.p99(name) <= 3 * alone.p99(name) + 0.005, name
        assert after.p99(name) <= 1.2 * alone.p99(name) + 0.005, name


def measured(server: AttackedServer, attack: str, seconds: float) -> tuple[Timings, Timings, Timings]:
    """Measure the good client alone, during the attack and after it; check its errors and the server's memory."""
    alone, before = server.good.measure(seconds), server.memory()
    with server.attacked_by(attack) as report:
        during, largest = server.good.measure(seconds), server.memory()
    time.sleep(RECOVERY_S if seconds > SHORT_S else 0)
    after = server.good.measure(seconds)
    print(
        f"\n{attack}: {report}\n  alone  {alone}\n  during {during}\n  after  {after}\n"
        f"  memory {before / MIB:.0f} {largest / MIB:.0f} {server.memory() / MIB:.0f} MiB"
    )
    assert report["sent"] > 0
    assert [str(error) for timings in (alone, during, after) for error in timings.errors] == []
    assert largest - before <= MEMORY_BOUND.get(attack, DEFAULT_BOUND)
    return alone, during, after
