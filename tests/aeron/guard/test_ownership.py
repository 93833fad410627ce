"""Frames from another address than the session's, and sessions that only a registered owner may open."""

from __future__ import annotations

import time

import pytest

from aeron_spark.aeron.guard import GuardRules, Registration, SessionOwner, register
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import Driver
from tests.aeron.guard.endpoints import CollectingSubscription, send_until, subscription_on_free_port
from tests.aeron.guard.frames import frame_senders

STREAM = 1002
OPEN = 999
STRICT = GuardRules(streams=(OPEN,))


def register_owner(server: CollectingSubscription, session: int, address: str, port: int = 0) -> Registration:
    return register(server.driver.client, SessionOwner("received", server.port, session, STREAM, address, port))


@pytest.mark.parametrize("guard", [True, False])
def test_a_forged_frame_reaches_the_reader_only_without_a_guard(driver: Driver, guard: bool) -> None:
    before = driver.drops("receiving: foreign")
    with (
        subscription_on_free_port(driver, STREAM, GuardRules() if guard else None) as server,
        frame_senders(2, server.port) as (owner, other),
    ):
        send_until(owner, frames.setup(5, STREAM), lambda: server.image(5), "the session's image")
        image = server.image(5)
        forged = frames.data(5, STREAM, b"forged")
        if guard:
            send_until(other, forged, lambda: driver.drops("receiving: foreign") > before, "the forged frame's refusal")
            before = driver.drops("receiving: foreign")
            end = frames.heartbeat(5, STREAM, flags=frames.END_OF_STREAM)
            send_until(other, end, lambda: driver.drops("receiving: foreign") > before, "the forged end's refusal")
            send_until(owner, frames.data(5, STREAM, b"true"), server.poll, "the owner's message")
        else:
            send_until(other, forged, server.poll, "the forged message")
        assert server.poll() == [b"true" if guard else b"forged"]
        assert not image.isClosed()


def test_a_session_of_a_stream_that_is_not_open_needs_a_registered_owner(driver: Driver) -> None:
    with subscription_on_free_port(driver, STREAM, STRICT) as server, frame_senders(2, server.port) as (owner, other):
        unowned, foreign = driver.drops("receiving: unowned"), driver.drops("receiving: foreign")
        setup = frames.setup(6, STREAM)
        send_until(owner, setup, lambda: driver.drops("receiving: unowned") > unowned, "the refusal")
        registered = register_owner(server, 6, "127.0.0.3")
        send_until(
            other, setup, lambda: driver.drops("receiving: foreign") > foreign, "the refusal of the other sender"
        )
        # sessions with an owner may have longer terms
        send_until(owner, frames.setup(6, STREAM, term_length=16 << 20), lambda: server.image(6), "the owner's image")
        send_until(owner, frames.data(6, STREAM, b"mine"), server.poll, "the owner's message")
        assert server.poll() == [b"mine"]
        registered.close()
        # the guard may know a removed owner for ten milliseconds more, and accept its repeated frame once
        unowned, again = driver.drops("receiving: unowned"), frames.data(6, STREAM, b"mine")
        send_until(owner, again, lambda: driver.drops("receiving: unowned") > unowned, "the refusal after the end")
        unowned, late = driver.drops("receiving: unowned"), frames.data(6, STREAM, b"late", offset=64)
        send_until(owner, late, lambda: driver.drops("receiving: unowned") > unowned, "the refusal of a new frame")
        assert server.poll() == [b"mine"]


def test_an_owner_can_be_limited_to_a_port(driver: Driver) -> None:
    with subscription_on_free_port(driver, STREAM, STRICT) as server, frame_senders(1, server.port) as (owner,):
        foreign = driver.drops("receiving: foreign")
        wrong = register_owner(server, 7, "127.0.0.3", owner.port + 1)
        setup = frames.setup(7, STREAM)
        send_until(owner, setup, lambda: driver.drops("receiving: foreign") > foreign, "the refusal")
        right = register_owner(server, 7, "127.0.0.3", owner.port)  # a second owner beside the first
        send_until(owner, setup, lambda: server.image(7), "the image")
        wrong.close()
        right.close()


def test_registering_an_owner_does_not_wait_for_the_drivers_timers(driver: Driver) -> None:
    with subscription_on_free_port(driver, STREAM, STRICT) as server:
        durations, owners = [], []
        for number in range(50):
            begin = time.monotonic()
            owners.append(register_owner(server, 100 + number, "127.0.0.3"))
            durations.append(time.monotonic() - begin)
        for one in owners:
            one.close()
        assert min(durations) < 0.1  # a driver's timers take at least 200 ms on a machine of any speed
