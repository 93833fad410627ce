"""SETUP frames of strangers: what they may cost, with the guard and without it."""

from __future__ import annotations

import random
from collections.abc import Callable

from aeron_spark.aeron.guard import GuardRules
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, offer
from tests.aeron.guard.endpoints import connected, insist, listening, publishing
from tests.aeron.guard.frames import KIB, strangers

STREAM = 1001
MIB = 1024 * KIB
LOG_64K = 3 * 64 * KIB + 8 * KIB  # three terms and the log's metadata, rounded up to pages
LIMITED = GuardRules(sessions=40, sessions_per_source=4, rate=100, burst=100, total_rate=20_000)
BOUND = 40 * LOG_64K


def test_a_flood_of_introductions_stays_within_the_bound(driver: Driver) -> None:
    base = driver.image_bytes()
    refused = {reason: driver.drops(f"receiving: {reason}") for reason in ("term-length", "source", "total")}
    with (
        listening(driver, STREAM, LIMITED) as server,
        strangers(60, server.port) as crowd,
        publishing(driver, f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k", STREAM) as good,
    ):
        connected(good)
        offer(good, b"before")
        most = 0

        def met(reason: str, count: int, make: Callable[[int, int], bytes]) -> bool:
            """Have each of the crowd introduce itself 20 times; whether so many were refused: a socket loses some."""
            nonlocal most
            for one in crowd:
                one.send(*(make(one.port, n) for n in range(20)))
                most = max(most, driver.image_bytes() - base)
            return driver.drops(f"receiving: {reason}") - refused[reason] >= count

        def large(port: int, n: int) -> bytes:
            return frames.setup(10_000 * port + n, STREAM, term_length=1024 * MIB)

        def small(port: int, n: int) -> bytes:
            return frames.setup(20_000 * port + n, STREAM)

        wait_for(lambda: met("term-length", 500, large), TIMEOUT_S, "what is too large to be refused")
        wait_for(lambda: met("total", 1, small), TIMEOUT_S, "the limit of sessions")
        wait_for(lambda: met("source", 10, small), TIMEOUT_S, "the limit of each address")
        most = max(most, driver.image_bytes() - base)
        offer(good, b"after")
        assert server.wait_for_messages(2) == [b"before", b"after"]
        assert 10 * LOG_64K < most <= BOUND  # the crowd did get in, up to the limit
        # and it gives everything back by itself, with the server still listening
        wait_for(lambda: driver.image_bytes() - base <= LOG_64K, TIMEOUT_S, "the flood's memory to be free")


def test_the_same_frames_exceed_the_bound_where_no_guard_watches(driver: Driver) -> None:
    base = driver.image_bytes()
    with listening(driver, STREAM, None) as server, strangers(1, server.port) as (one,):
        large = frames.setup(1, STREAM, term_length=64 * MIB)
        insist(one, large, lambda: driver.image_bytes() - base > 3 * 64 * MIB > 20 * BOUND, "192 MiB to be gone")


def test_each_limit_is_counted_under_its_own_name(driver: Driver) -> None:
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
        (0, frames.setup(5, STREAM), "rate"),
    ]
    with listening(driver, STREAM, rules) as server, strangers(2, server.port) as crowd:
        for who, frame, reason in cases:
            before = {name: driver.drops(f"receiving: {name}") for _, _, name in cases if name}
            crowd[who].send(frame)
            if reason is None:
                server.wait_for_image(int.from_bytes(frame[12:16], "little"))
            else:
                wait_for(lambda: driver.drops(f"receiving: {reason}") > before[reason], TIMEOUT_S, f"{reason}")  # noqa: B023
            for name, count in before.items():
                assert driver.drops(f"receiving: {name}") == count + (name == reason), name
        assert int(server.subscription.imageCount()) == 2


def test_a_publication_that_was_there_before_the_server_finds_it(driver: Driver) -> None:
    """It sends a SETUP only when it is asked to, and the guard asks."""
    with listening(driver, STREAM, GuardRules()) as first:
        channel = f"aeron:udp?endpoint=127.0.0.1:{first.port}|term-length=64k"
        with publishing(driver, channel, STREAM) as good:
            connected(good)
            first.subscription.close()
            wait_for(lambda: not good.isConnected(), TIMEOUT_S, "the server's end to be noticed")
            again = driver.client.subscription(first.channel, STREAM)
            try:
                connected(good)
                wait_for(lambda: again.imageBySessionId(good.sessionId()), TIMEOUT_S, "its image")
            finally:
                again.close()


def test_every_size_of_message_passes_the_guard(driver: Driver, rng: random.Random) -> None:
    """Odd lengths, several frames a packet, fragments, and the padding at the end of a term."""
    sizes = [*range(0, 70), 1375, 1376, 1377, 4000, *(rng.randrange(8_000) for _ in range(300))]
    with listening(driver, STREAM, GuardRules()) as server:
        channel = f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k"
        before = driver.drops("receiving: invalid")
        with publishing(driver, channel, STREAM) as good:
            connected(good)
            for index, size in enumerate(sizes):
                offer(good, rng.randbytes(size))
                assert len(server.wait_for_messages(index + 1)[index]) == size
            assert int(good.position()) > 8 * 64 * KIB
        assert driver.drops("receiving: invalid") == before
