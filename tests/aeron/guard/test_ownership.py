"""Frames of another address than a session's, and sessions that only a registered owner may open."""

from __future__ import annotations

import time

import pytest

from aeron_spark.aeron.guard import GuardRules, Ownership, register
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import Driver
from tests.aeron.guard.endpoints import Listening, insist, listening
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
        insist(owner, frames.setup(5, STREAM), lambda: server.image(5), "the session's image")
        image = server.image(5)
        forged = frames.data(5, STREAM, b"forged")
        if guard:
            insist(thief, forged, lambda: driver.drops("receiving: foreign") > before, "the forged frame's refusal")
            before = driver.drops("receiving: foreign")
            end = frames.heartbeat(5, STREAM, flags=frames.END_OF_STREAM)
            insist(thief, end, lambda: driver.drops("receiving: foreign") > before, "the forged end's refusal")
            insist(owner, frames.data(5, STREAM, b"true"), server.poll, "the owner's message")
        else:
            insist(thief, forged, server.poll, "the forged message")
        assert server.poll() == [b"true" if guard else b"forged"]
        assert not image.isClosed()


def test_a_stream_that_is_not_open_needs_an_owner(driver: Driver) -> None:
    with listening(driver, STREAM, STRICT) as server, strangers(2, server.port) as (owner, thief):
        unowned, foreign = driver.drops("receiving: unowned"), driver.drops("receiving: foreign")
        setup = frames.setup(6, STREAM)
        insist(owner, setup, lambda: driver.drops("receiving: unowned") > unowned, "the refusal")
        registered = owned(server, 6, "127.0.0.3")
        insist(thief, setup, lambda: driver.drops("receiving: foreign") > foreign, "the thief's refusal")
        # proven ones may have longer terms
        insist(owner, frames.setup(6, STREAM, term_length=16 << 20), lambda: server.image(6), "the owner's image")
        insist(owner, frames.data(6, STREAM, b"mine"), server.poll, "the owner's message")
        assert server.poll() == [b"mine"]
        registered.close()
        # an owner that was removed may still be known for ten milliseconds: what it repeats by then is read, once
        unowned, again = driver.drops("receiving: unowned"), frames.data(6, STREAM, b"mine")
        insist(owner, again, lambda: driver.drops("receiving: unowned") > unowned, "the refusal after the end")
        unowned, late = driver.drops("receiving: unowned"), frames.data(6, STREAM, b"late", offset=64)
        insist(owner, late, lambda: driver.drops("receiving: unowned") > unowned, "the refusal of what is new")
        assert server.poll() == [b"mine"]


def test_an_owner_can_be_held_to_a_port(driver: Driver) -> None:
    with listening(driver, STREAM, STRICT) as server, strangers(1, server.port) as (owner,):
        foreign = driver.drops("receiving: foreign")
        wrong = owned(server, 7, "127.0.0.3", owner.port + 1)
        setup = frames.setup(7, STREAM)
        insist(owner, setup, lambda: driver.drops("receiving: foreign") > foreign, "the refusal")
        right = owned(server, 7, "127.0.0.3", owner.port)  # a second owner beside the first
        insist(owner, setup, lambda: server.image(7), "the image")
        wrong.close()
        right.close()


def test_registering_does_not_wait_for_the_drivers_timers(driver: Driver) -> None:
    with listening(driver, STREAM, STRICT) as server:
        taken, held = [], []
        for number in range(50):
            begin = time.monotonic()
            held.append(owned(server, 100 + number, "127.0.0.3"))
            taken.append(time.monotonic() - begin)
        for one in held:
            one.close()
        assert min(taken) < 0.1  # a driver's timers are of 200 ms and more, on a machine of any speed
