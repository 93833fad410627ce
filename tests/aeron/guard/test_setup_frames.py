"""SETUP frames of unauthenticated senders: their cost in memory with the guard and without it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.aeron.guard import GuardRules
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, guarding_driver, offer
from tests.aeron.guard.endpoints import await_connected, publication_to, send_until, subscription_on_free_port
from tests.aeron.guard.frames import KIB, frame_senders
from tests.leaks import SHARED_MEMORY

STREAM = 1001
MIB = 1024 * KIB
LOG_64K = 3 * 64 * KIB + 8 * KIB  # three terms and the log's metadata, rounded up to pages
LIMITED = GuardRules(sessions=40, sessions_per_source=4, rate=100, burst=100, total_rate=20_000)
BOUND = 40 * LOG_64K


def test_the_memory_for_a_flood_of_setups_stays_within_the_bound(driver: Driver) -> None:
    base = driver.image_bytes()
    refused = {reason: driver.drops(f"receiving: {reason}") for reason in ("term-length", "source", "total")}
    with (
        subscription_on_free_port(driver, STREAM, LIMITED) as server,
        frame_senders(60, server.port) as senders,
        publication_to(driver, f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k", STREAM) as good,
    ):
        await_connected(good)
        offer(good, b"before")
        peak = 0

        def dropped(reason: str, count: int, make: Callable[[int, int], bytes]) -> bool:
            """Send 20 SETUPs from each socket; return whether ``count`` were dropped, because UDP loses some."""
            nonlocal peak
            for one in senders:
                one.send(*(make(one.port, n) for n in range(20)))
                peak = max(peak, driver.image_bytes() - base)
            return driver.drops(f"receiving: {reason}") - refused[reason] >= count

        def large(port: int, n: int) -> bytes:
            return frames.setup(10_000 * port + n, STREAM, term_length=1024 * MIB)

        def small(port: int, n: int) -> bytes:
            return frames.setup(20_000 * port + n, STREAM)

        wait_for(lambda: dropped("term-length", 500, large), TIMEOUT_S, "drops of SETUPs with large terms")
        wait_for(lambda: dropped("total", 1, small), TIMEOUT_S, "the limit of sessions")
        wait_for(lambda: dropped("source", 10, small), TIMEOUT_S, "the limit of each address")
        peak = max(peak, driver.image_bytes() - base)
        offer(good, b"after")
        assert server.wait_for_messages(2) == [b"before", b"after"]
        assert 10 * LOG_64K < peak <= BOUND  # SETUPs were accepted, up to the limit
        # the driver frees the memory while the server still listens
        wait_for(lambda: driver.image_bytes() - base <= LOG_64K, TIMEOUT_S, "the flood's memory to be free")


def test_without_a_guard_one_setup_exceeds_the_bound(driver: Driver) -> None:
    base = driver.image_bytes()
    with subscription_on_free_port(driver, STREAM, None) as server, frame_senders(1, server.port) as (one,):
        large = frames.setup(1, STREAM, term_length=64 * MIB)
        send_until(
            one, large, lambda: driver.image_bytes() - base > 3 * 64 * MIB > 20 * BOUND, "192 MiB to be allocated"
        )


@pytest.fixture
def patient_driver(run_name: str) -> Iterator[Driver]:
    """A driver that keeps silent sessions for a minute, so that a slow machine does not free their places."""
    with guarding_driver(SHARED_MEMORY / f"{run_name}-patient", "-Daeron.image.liveness.timeout=60s") as running:
        yield running
        running.require_alive()


def test_each_reason_for_a_drop_has_a_separate_counter(patient_driver: Driver) -> None:
    driver = patient_driver
    rules = GuardRules(rate=1, burst=3, mtu_min=288, mtu_max=1408, deny=("127.0.0.4/32",), sessions_per_source=2)
    cases = [
        (0, frames.setup(1, STREAM, term_length=128 * KIB), "term-length"),
        (0, frames.setup(1, STREAM, mtu=256), "mtu"),
        (0, frames.setup(1, STREAM, mtu=1440), "mtu"),
        (0, frames.setup(1, STREAM, mtu=1400), "invalid"),  # not a multiple of 32: Aeron's conductor would throw
        (0, frames.setup(1, STREAM, term_length=60 * KIB), "invalid"),
        (0, frames.setup(1, STREAM, offset=-32), "invalid"),
        (0, frames.setup(1, STREAM, offset=64 * KIB + 32), "invalid"),
        (0, frames.setup(1, STREAM + 1), "unwanted"),
        (1, frames.setup(1, STREAM), "network"),
        (0, frames.setup(2, STREAM), None),
        (0, frames.setup(3, STREAM), None),
        (0, frames.setup(4, STREAM), "source"),
    ]
    with subscription_on_free_port(driver, STREAM, rules) as server, frame_senders(2, server.port) as senders:
        for index, frame, reason in cases:
            before = {name: driver.drops(f"receiving: {name}") for _, _, name in cases if name}
            senders[index].send(frame)
            if reason is None:
                server.wait_for_image(int.from_bytes(frame[12:16], "little"))
            else:
                wait_for(lambda: driver.drops(f"receiving: {reason}") > before[reason], TIMEOUT_S, f"{reason}")  # noqa: B023
            for name, count in before.items():
                assert driver.drops(f"receiving: {name}") == count + (name == reason), name

        def is_limited() -> bool:  # a frame at each call: more than one a second
            senders[0].send(frames.setup(5, STREAM))
            return driver.drops("receiving: rate") > 0

        assert driver.drops("receiving: rate") == 0
        wait_for(is_limited, TIMEOUT_S, "the limit of the rate")
        assert int(server.subscription.imageCount()) == 2


def test_a_publication_that_is_older_than_the_server_connects_to_it(driver: Driver) -> None:
    """The publication sends a SETUP only on request, so the guard requests it."""
    with subscription_on_free_port(driver, STREAM, GuardRules()) as first:
        channel = f"aeron:udp?endpoint=127.0.0.1:{first.port}|term-length=64k"
        with publication_to(driver, channel, STREAM) as good:
            await_connected(good)
            first.subscription.close()
            wait_for(lambda: not good.isConnected(), TIMEOUT_S, "the publication to be disconnected")
            again = driver.client.subscription(first.channel, STREAM)
            try:
                await_connected(good)
                wait_for(lambda: again.imageBySessionId(good.sessionId()), TIMEOUT_S, "its image")
            finally:
                again.close()


def test_messages_of_every_size_pass_the_guard(driver: Driver, rng: random.Random) -> None:
    """Unaligned lengths, several frames per packet, fragments, and the padding at the end of a term."""
    sizes = [*range(0, 70), 1375, 1376, 1377, 4000, *(rng.randrange(8_000) for _ in range(300))]
    with subscription_on_free_port(driver, STREAM, GuardRules()) as server:
        channel = f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k"
        before = driver.drops("receiving: invalid")
        with publication_to(driver, channel, STREAM) as good:
            await_connected(good)
            for index, size in enumerate(sizes):
                offer(good, rng.randbytes(size))
                assert len(server.wait_for_messages(index + 1)[index]) == size
            assert int(good.position()) > 8 * 64 * KIB
        assert driver.drops("receiving: invalid") == before
