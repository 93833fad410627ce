"""Amplification: the bytes that a driver sends to a possibly forged address for each byte from it."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from aeron_spark.aeron.guard import GuardRules
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import LIVENESS_TIMEOUT_S, TIMEOUT_S, Driver
from tests.aeron.guard.endpoints import subscription_on_free_port
from tests.aeron.guard.frames import ERR, SM, frame_senders

STREAM = 1003


INTRODUCTIONS = {
    "one SETUP": [frames.setup(1, STREAM)],
    "50 SETUPs": [frames.setup(n, STREAM) for n in range(50)],
    "50 heartbeats": [frames.heartbeat(n, STREAM) for n in range(50)],
    "a SETUP, then data with a gap": [frames.setup(1, STREAM), frames.data(1, STREAM, b"x", offset=4096)],
}
# limits so high that only the budget has an effect
PERMISSIVE = GuardRules(rate=1000, burst=1000, sessions_per_source=100)


def amplifications(driver: Driver, rules: GuardRules | None) -> dict[str, float]:
    """Send the frames of each case from one address; return the received bytes per sent byte."""
    with ExitStack() as stack:
        senders = {}
        for name, sent in INTRODUCTIONS.items():
            server = stack.enter_context(subscription_on_free_port(driver, STREAM, rules))
            (senders[name],) = stack.enter_context(frame_senders(1, server.port))
            senders[name].send(*sent)
        time.sleep(LIVENESS_TIMEOUT_S + 0.7)  # until the driver has closed the images
        return {name: sum(map(len, one.received())) / one.sent for name, one in senders.items()}


def test_a_guarded_endpoint_never_sends_more_bytes_than_it_received(driver: Driver) -> None:
    withheld = driver.drops("receiving: budget")
    unguarded, guarded = amplifications(driver, None), amplifications(driver, PERMISSIVE)
    assert all(0 < factor <= 1 for factor in guarded.values()), guarded
    assert all(factor > 1 for factor in unguarded.values()), unguarded
    assert driver.drops("receiving: budget") > withheld


@pytest.mark.parametrize("kind", ["heartbeats", "SETUPs"])
def test_the_source_of_an_unknown_session_is_told_so_in_fewer_bytes_than_it_sent(driver: Driver, kind: str) -> None:
    """A client whose server has another media driver now need not wait for Aeron's timeouts."""
    frame = frames.setup(1, STREAM + 1) if kind == "SETUPs" else frames.heartbeat(1, STREAM + 1)
    answers: list[bytes] = []
    with subscription_on_free_port(driver, STREAM, PERMISSIVE) as server, frame_senders(1, server.port) as (sender,):

        def is_told() -> bool:
            sender.send(frame)
            answers.extend(sender.received(0.02))
            return any(one[6] == ERR for one in answers)

        wait_for(is_told, TIMEOUT_S, "the error frame")
        answers.extend(sender.received(0.1))
        assert sum(map(len, answers)) <= sender.sent
    # A publication ignores the error of a receiver of which it has no status message.
    assert [one[6] for one in answers[:2]] == [SM, ERR]
    assert answers[1].endswith(b"FAILED unknown-session")


def test_the_source_of_an_unknown_session_that_has_ended_is_not_answered(driver: Driver) -> None:
    """Its client has closed the publication, and its driver would log the answer as an error."""
    unwanted = driver.drops("receiving: unwanted")
    frame = frames.heartbeat(1, STREAM + 1, flags=frames.BEGIN_END | frames.END_OF_STREAM)
    with subscription_on_free_port(driver, STREAM, PERMISSIVE) as server, frame_senders(1, server.port) as (sender,):

        def has_come() -> bool:
            sender.send(frame)
            return driver.drops("receiving: unwanted") - unwanted >= 10

        wait_for(has_come, TIMEOUT_S, "ten of the frames")
        assert sender.received(0.1) == []
