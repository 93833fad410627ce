"""What a driver answers to an address that may be invented: bytes out for each byte in."""

from __future__ import annotations

import time
from contextlib import ExitStack

from aeron_spark.aeron.guard import GuardRules
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import LIVENESS, Driver
from tests.aeron.guard.endpoints import listening
from tests.aeron.guard.frames import strangers

STREAM = 1003


INTRODUCTIONS = {
    "one SETUP": [frames.setup(1, STREAM)],
    "50 SETUPs": [frames.setup(n, STREAM) for n in range(50)],
    "50 heartbeats": [frames.heartbeat(n, STREAM) for n in range(50)],
    "a SETUP, then data with a gap": [frames.setup(1, STREAM), frames.data(1, STREAM, b"x", offset=4096)],
}
# so high that no other limit hides what the budget does
PERMISSIVE = GuardRules(rate=1000, burst=1000, sessions_per_source=100)


def amplifications(driver: Driver, rules: GuardRules | None) -> dict[str, float]:
    """Send each case as somebody else would in the name of one address; return bytes that came back for each byte."""
    with ExitStack() as stack:
        victims = {}
        for name, sent in INTRODUCTIONS.items():
            server = stack.enter_context(listening(driver, STREAM, rules))
            (victims[name],) = stack.enter_context(strangers(1, server.port))
            victims[name].send(*sent)
        time.sleep(LIVENESS + 0.7)  # until the images are given up, and a little longer
        return {name: sum(map(len, one.received())) / one.sent for name, one in victims.items()}


def test_a_guarded_endpoint_never_answers_with_more_than_it_got(driver: Driver) -> None:
    withheld = driver.drops("receiving: budget")
    unguarded, guarded = amplifications(driver, None), amplifications(driver, PERMISSIVE)
    for name in INTRODUCTIONS:
        print(f"\nbytes out for a byte in, {name}: {unguarded[name]:.2f} without a guard, {guarded[name]:.2f} with it")
    assert all(0 < factor <= 1 for factor in guarded.values()), guarded
    assert all(factor > 1 for factor in unguarded.values()), unguarded
    assert driver.drops("receiving: budget") > withheld
