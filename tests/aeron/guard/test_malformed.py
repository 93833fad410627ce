"""Malformed frames: the driver survives them, and other publications are not disturbed."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from aeron_spark.aeron.counters import read_errors
from aeron_spark.aeron.guard import GuardRules, guarded
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, guarding_driver, offer
from tests.aeron.guard.endpoints import (
    CollectingSubscription,
    await_connected,
    publication_to,
    send_until,
    subscription_on_free_port,
    subscription_to,
)
from tests.aeron.guard.frames import KIB, frame_senders
from tests.ports import free_port

STREAM = 1004
MANY = GuardRules(sessions=30, sessions_per_source=20, rate=10_000, burst=10_000, total_rate=10_000)


def errors(driver: Driver) -> int:
    return sum(error.observations for error in read_errors(str(driver.aeron_dir)))


def check_survival(driver: Driver, server: CollectingSubscription, *sent: bytes) -> None:
    """Send malformed frames beside a good publication; check that its messages arrive and the driver has no error."""
    before = errors(driver)
    channel = f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k"
    with publication_to(driver, channel, STREAM) as good, frame_senders(1, server.port, first=40) as (sender,):
        await_connected(good)
        offer(good, b"before")
        sender.send(*sent)
        time.sleep(0.2)
        offer(good, b"after")
        assert server.wait_for_messages(2) == [b"before", b"after"]
    driver.require_alive()
    assert errors(driver) == before


def test_the_driver_survives_a_setup_with_any_flipped_bit(driver: Driver) -> None:
    good = frames.setup(77, STREAM)
    flipped = []
    for bit in range(8 * len(good)):
        frame = bytearray(good)
        frame[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(frame))
    with subscription_on_free_port(driver, STREAM, MANY) as server:
        check_survival(driver, server, *flipped)


@pytest.mark.parametrize(
    "impossible",
    [
        pytest.param({"mtu": 32 * KIB + 32}, id="MTU of more than half a term"),
        pytest.param({"mtu": 65_536, "term_length": 1024 * KIB}, id="MTU longer than a datagram"),
        pytest.param({"mtu": 32}, id="MTU of a header"),
        pytest.param({"mtu": 1400}, id="MTU not aligned"),
        pytest.param({"term_length": 32 * KIB}, id="term too short"),
        pytest.param({"term_length": 96 * KIB}, id="term not a power of two"),
    ],
)
def test_a_setup_with_an_impossible_mtu_or_term_is_dropped_and_its_session_id_stays_usable(
    driver: Driver, impossible: dict[str, int]
) -> None:
    any_mtu = GuardRules(mtu_min=1, mtu_max=1024 * KIB, term_length=1024 * KIB)
    before = errors(driver)
    with subscription_on_free_port(driver, STREAM, any_mtu) as server, frame_senders(1, server.port) as (attacker,):
        dropped = driver.drops("receiving: invalid")
        send_until(
            attacker, frames.setup(80, STREAM, **impossible),
            lambda: driver.drops("receiving: invalid") > dropped, "the drop of the SETUP",
        )  # fmt: skip
        channel = f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k|session-id=80"
        with publication_to(driver, channel, STREAM) as good:
            await_connected(good)
            offer(good, b"first")
            assert server.wait_for_messages(1) == [b"first"]
    assert errors(driver) == before


def test_the_driver_survives_truncated_setups_and_random_bytes(driver: Driver, rng: random.Random) -> None:
    truncated = [frames.setup(78, STREAM)[:length] for length in range(40)]
    noise = [rng.randbytes(rng.randrange(1, 2000)) for _ in range(300)]
    with_header = [
        frames.header(rng.randrange(200), rng.randrange(12)) + rng.randbytes(rng.randrange(100)) for _ in range(300)
    ]
    with subscription_on_free_port(driver, STREAM, MANY) as server:
        before = driver.drops("receiving: invalid")
        check_survival(driver, server, *truncated, *noise, *with_header)
        assert driver.drops("receiving: invalid") - before >= 300  # of 640, because a busy socket loses some


def malformed_data(session: int) -> list[bytes]:
    """Return data packets of the session's owner that would corrupt a log or a reader."""
    value = b"x" * 96
    good = frames.data(session, STREAM, value)

    def second(frame: bytes, offset: int = 128) -> bytes:
        return good + frame

    return [
        frames.data(session, STREAM, value, offset=64 * KIB - 64),  # beyond the term
        frames.data(session, STREAM, value, offset=64 * KIB),
        frames.data(session, STREAM, value, offset=1 << 30),
        frames.data(session, STREAM, value, offset=-128, term=8),  # before the term
        # positions in the window, with invalid terms and offsets: Aeron writes at the offset
        frames.data(session, STREAM, value, offset=-64 * KIB, term=8),
        frames.data(session, STREAM, value, offset=-1600 * 64 * KIB, term=7 + 1600),
        frames.data(session, STREAM, value, offset=1600 * 64 * KIB, term=7 - 1600),
        frames.data(session, STREAM, value, offset=16),  # between two frames
        frames.data(session, STREAM, value, term=6),  # before the first term
        frames.data(session, STREAM, b"x" * 1500),  # longer than the MTU
        frames.header(1 << 30, frames.DATA) + good[8:],  # frame longer than its packet
        frames.header(64, frames.DATA) + good[8:],  # a packet with more bytes after the frame
        frames.header(-1, frames.DATA) + good[8:],
        frames.header(0, frames.DATA) + good[8:],  # a heartbeat with content
        frames.header(1 << 20, frames.PAD) + good[8:32],  # padding beyond the term
        frames.header(128, frames.PAD) + good[8:],  # padding with content
        second(frames.data(session, STREAM, b"y", offset=160)),  # positions missing within the packet
        second(frames.data(session + 1, STREAM, b"y", offset=128)),  # another session within
        second(frames.data(session, STREAM + 1, b"y", offset=128)),
        second(frames.data(session, STREAM, b"y", offset=128, term=8)),
        second(frames.header(1 << 20, frames.DATA) + frames.data(session, STREAM, b"y", offset=128)[8:]),
        second(frames.header(0, frames.DATA) + frames.data(session, STREAM, b"y", offset=128)[8:]),
        second(struct.pack("<8i", 32, 5 << 16, 128, session, STREAM, 7, 0, 0)),  # a SETUP within
        second(frames.header(32, frames.DATA, version=1) + frames.data(session, STREAM, b"", offset=128)[8:]),
    ]


def test_data_that_would_corrupt_a_log_is_dropped(driver: Driver) -> None:
    with subscription_on_free_port(driver, STREAM, MANY) as server, frame_senders(1, server.port) as (owner,):
        setup = frames.setup(79, STREAM)  # sent again each time, because the driver closes a silent image
        for index, frame in enumerate(malformed_data(79)):
            send_until(owner, setup, lambda: server.image(79), "the session's image")
            before = driver.drops("receiving: invalid")
            dropped = lambda before=before: driver.drops("receiving: invalid") > before  # noqa: E731
            send_until(owner, frame, dropped, f"frame {index} to be dropped", after=setup)
        good = frames.data(79, STREAM, b"x" * 96) + frames.data(79, STREAM, b"second", offset=128)
        send_until(owner, good, lambda: len(server.poll()) >= 2, "the messages", after=setup)
        assert server.poll() == [b"x" * 96, b"second"]
    driver.require_alive()


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
def test_packets_with_invalid_offsets_crash_only_a_driver_without_a_guard(
    aeron_dir: Path, tmp_path: Path, guard: bool
) -> None:
    """Without Agrona's bounds checks, as in this package's JVMs, Aeron writes at any offset."""
    terms = [count for size in range(500, 32_000, 500) for count in (size, -size)]
    wild = [frames.data(79, STREAM, b"x", offset=-count * 64 * KIB, term=7 + count) for count in terms]
    with guarding_driver(aeron_dir, f"-XX:ErrorFile={tmp_path}/crash.log") as own:
        port = free_port()
        channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
        with (
            subscription_to(own, guarded(channel, MANY) if guard else channel, STREAM, port) as server,
            frame_senders(1, port) as (sender,),
        ):
            setup = frames.setup(79, STREAM)
            send_until(sender, setup, lambda: server.image(79), "the session's image")

            def send_and_check(until: Callable[[], bool]) -> bool:
                with suppress(ConnectionError):  # the port is closed after the driver has ended
                    sender.send(setup, *wild)
                return until()

            if guard:
                drops = lambda: own.drops("receiving: invalid") >= len(wild) // 2  # noqa: E731
                wait_for(lambda: send_and_check(drops), TIMEOUT_S, "the drops")
                own.require_alive()
            else:
                wait_for(lambda: send_and_check(lambda: own.process.poll() is not None), TIMEOUT_S, "the driver's end")
                own.client.close()
