"""Tests that low disks, low shared memory, much memory and new errors of the media driver are reported once each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from aeron_spark.errors import ConnectError
from aeron_spark.facts import Bus
from aeron_spark.node import paths
from aeron_spark.node.paths import RESERVE_BYTES
from aeron_spark.server.event_log import EventLog, EventReported
from aeron_spark.server.watch import EventWatch


@dataclass
class Space:
    free: int


@dataclass
class Error:
    text: str
    observations: int = 1


def shared_memory(free: int) -> paths.Space:
    return paths.Space("/dev/shm/driver", free, 100 * RESERVE_BYTES)


@dataclass
class World:
    """The values that the watch sees, and the events that it reports."""

    volumes: dict[str, Space] = field(default_factory=lambda: {"store": Space(500)})
    shared_memory: paths.Space = field(default_factory=lambda: shared_memory(RESERVE_BYTES))
    memory: tuple[int, int] = (0, 1000)
    errors: list[Error] = field(default_factory=list)
    is_driver_lost: bool = False
    is_driver_damaged: bool = False
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def watch(self) -> EventWatch:
        facts = Bus()
        facts.on(EventReported, lambda event: self.seen.append((event.name, dict(event.fields))))
        return EventWatch(
            EventLog(facts), lambda: self.volumes, lambda: 100, lambda: self.shared_memory, lambda: self.memory,
            self._read, lambda: None,
        )  # fmt: skip

    def _read(self) -> list[Error]:
        if self.is_driver_lost:
            raise ConnectError("no media driver")
        if self.is_driver_damaged:
            raise ValueError("unpack requires a buffer of 8 bytes")
        return self.errors


@pytest.fixture
def world() -> World:
    return World()


def test_a_disk_below_the_reserve_is_reported_once_until_it_has_room_again(world: World) -> None:
    watch = world.watch()
    for free in (99, 50, 100, 99):
        world.volumes["store"] = Space(free)
        watch.check()
    assert world.seen == [
        ("disk_low", {"volume": "store", "free_bytes": 99, "reserve_bytes": 100}),
        ("disk_low", {"volume": "store", "free_bytes": 99, "reserve_bytes": 100}),
    ]


def test_low_shared_memory_and_much_memory_of_clients_are_reported_once(world: World) -> None:
    watch = world.watch()
    world.shared_memory, world.memory = shared_memory(RESERVE_BYTES - 1), (800, 1000)
    watch.check()
    watch.check()
    assert world.seen == [
        ("shm_low", {"free_bytes": RESERVE_BYTES - 1, "reserve_bytes": RESERVE_BYTES}),
        ("memory_high", {"used_bytes": 800, "limit_bytes": 1000}),
    ]


def test_without_a_memory_limit_no_memory_is_high(world: World) -> None:
    world.memory = (10**12, 0)
    world.watch().check()
    assert world.seen == []


def test_each_new_error_of_the_driver_is_reported_by_its_first_line(world: World) -> None:
    world.errors = [Error("old")]
    watch = world.watch()
    watch.check()
    world.errors += [Error("\nio.aeron.X: no room\n\tat java", 3)]
    watch.check()
    watch.check()
    assert world.seen == [("driver_error", {"error": "io.aeron.X: no room", "count": 3})]


def test_answers_to_handshakes_of_clients_on_the_same_driver_are_no_errors(world: World) -> None:
    watch = world.watch()
    watch.check()
    event = "io.aeron.exceptions.AeronEvent: WARN - onPublicationError: registrationId=23, errorCode=13, errorMessage="
    world.errors = [Error(f"{event}aeron-spark/1 RETRY sGW0bK"), Error(f"{event}other text")]
    watch.check()
    assert world.seen == [("driver_error", {"error": f"{event}other text", "count": 1})]


def test_a_lost_driver_does_not_end_the_watch(world: World) -> None:
    watch = world.watch()
    world.is_driver_lost = True
    world.volumes["store"] = Space(1)
    watch.check()
    assert [name for name, _ in world.seen] == ["disk_low"]


def test_an_unexpected_failure_is_reported_and_the_other_states_are_watched(world: World) -> None:
    watch = world.watch()
    world.is_driver_damaged = True
    watch.check()
    [(name, fields)] = world.seen
    assert (name, fields["error_type"], fields["error"]) == (
        "error", "ValueError", "unpack requires a buffer of 8 bytes",
    )  # fmt: skip
    world.volumes["store"] = Space(1)
    watch.check()
    assert [name for name, _ in world.seen] == ["error", "disk_low", "error"]
