"""Frames of another address than a session's, and sessions that only a registered owner may open."""

from __future__ import annotations

import time

import pytest

from aeron_spark.aeron.guard import GuardRules, Ownership, register
from aeron_spark.transport.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import PATIENCE, Driver
from tests.aeron.guard.endpoints import Listening, listening
from tests.aeron.guard.frames import strangers

STREAM = 1002
OPEN = 999
STRICT = GuardRules(streams=(OPEN,))


def owned(server: Listening, session: int, address: str, port: int = 0) -> Ownership:
    return register(
        server.driver.client,
        "received",
        port=server.port,
        session_id=session,
        stream_id=STREAM,
        address=address,
        address_port=port,
    )


@pytest.mark.parametrize("guard", [True, False])
def test_a_forged_frame_reaches_the_reader_only_without_a_guard(driver: Driver, guard: bool) -> None:
    before = driver.drops("receiving: foreign")
    with (
        listening(driver, STREAM, GuardRules() if guard else None) as server,
        strangers(2, server.port) as (owner, thief),
    ):
        owner.send(frames.setup(5, STREAM))
        image = server.wait_for_image(5)
        thief.send(frames.data(5, STREAM, b"forged"))
        if guard:
            wait_for(lambda: driver.drops("receiving: foreign") > before, PATIENCE, "the forged frame")
            thief.send(frames.heartbeat(5, STREAM, flags=frames.END_OF_STREAM))
            wait_for(lambda: driver.drops("receiving: foreign") > before + 1, PATIENCE, "the forged end")
            owner.send(frames.data(5, STREAM, b"true"))
        assert server.wait_for_messages(1) == [b"true" if guard else b"forged"]
        assert not image.isClosed()


def test_a_stream_that_is_not_open_needs_an_owner(driver: Driver) -> None:
    with listening(driver, STREAM, STRICT) as server, strangers(2, server.port) as (owner, thief):
        unowned, foreign = driver.drops("receiving: unowned"), driver.drops("receiving: foreign")
        owner.send(frames.setup(6, STREAM))
        wait_for(lambda: driver.drops("receiving: unowned") > unowned, PATIENCE, "the refusal")
        registered = owned(server, 6, "127.0.0.3")
        thief.send(frames.setup(6, STREAM))
        wait_for(lambda: driver.drops("receiving: foreign") > foreign, PATIENCE, "the thief's refusal")
        owner.send(frames.setup(6, STREAM, term_length=16 << 20))  # proven ones may have longer terms
        server.wait_for_image(6)
        owner.send(frames.data(6, STREAM, b"mine"))
        assert server.wait_for_messages(1) == [b"mine"]
        registered.close()
        time.sleep(0.05)
        unowned = driver.drops("receiving: unowned")
        owner.send(frames.data(6, STREAM, b"late", offset=64))
        wait_for(lambda: driver.drops("receiving: unowned") > unowned, PATIENCE, "the refusal after the end")
        assert server.poll() == [b"mine"]


def test_an_owner_can_be_held_to_a_port(driver: Driver) -> None:
    with listening(driver, STREAM, STRICT) as server, strangers(1, server.port) as (owner,):
        foreign = driver.drops("receiving: foreign")
        wrong = owned(server, 7, "127.0.0.3", owner.port + 1)
        owner.send(frames.setup(7, STREAM))
        wait_for(lambda: driver.drops("receiving: foreign") > foreign, PATIENCE, "the refusal")
        right = owned(server, 7, "127.0.0.3", owner.port)  # a second owner beside the first
        owner.send(frames.setup(7, STREAM))
        server.wait_for_image(7)
        wrong.close()
        right.close()


def test_registering_takes_milliseconds(driver: Driver) -> None:
    with listening(driver, STREAM, STRICT) as server:
        begin = time.monotonic()
        held = [owned(server, 100 + n, "127.0.0.3") for n in range(50)]
        taken = (time.monotonic() - begin) / 50
        print(f"\nregistering an owner: {taken * 1000:.2f} ms")
        for one in held:
            one.close()
        assert taken < 0.1
