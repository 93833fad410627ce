"""Tests which links the room of a media driver's file system allows, in literal values."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from aeron_spark.endpoint.access import MEASURE_INTERVAL_S, LogSpace, link_bytes
from aeron_spark.node.paths import RESERVE_BYTES, Space, reserve_of
from aeron_spark.node.settings import MIB
from aeron_spark.transport.api import ChannelSettings

LINK: Final = 12 * MIB


@dataclass
class World:
    """A file system, and a clock."""

    free: int
    total: int = 800 * MIB
    now: float = 0.0
    measurements: int = 0
    error: OSError | None = None

    def measure(self) -> Space:
        if self.error is not None:
            raise self.error
        self.measurements += 1
        return Space("/dev/shm/driver", self.free, self.total)

    def log_space(self) -> LogSpace:
        return LogSpace(self.measure, lambda: self.now)


def reason(space: LogSpace, *, opening: int = 0, own: int = 0) -> str:
    refusal = space.take(LINK, opening=opening, own=own)
    return "" if refusal is None else refusal.reason


def test_the_reserve_of_a_small_file_system_is_an_eighth() -> None:
    assert reserve_of(Space("", 0, 800 * MIB)) == 100 * MIB
    assert reserve_of(Space("", 0, 24_000 * MIB)) == RESERVE_BYTES


def test_links_are_allowed_down_to_the_reserve() -> None:
    world = World(free=100 * MIB + 3 * LINK - 1)
    space = world.log_space()
    assert [reason(space) for _ in range(3)] == ["", "", "full"]


def test_links_since_the_measurement_count_until_the_next_one() -> None:
    world = World(free=100 * MIB + LINK)
    space = world.log_space()
    assert [reason(space), reason(space)] == ["", "full"]
    world.now = MEASURE_INTERVAL_S - 0.1
    assert reason(space) == "full"
    world.now = MEASURE_INTERVAL_S
    assert reason(space) == ""
    assert world.measurements == 2


def test_a_link_is_refused_for_now_if_the_room_cannot_be_measured() -> None:
    world = World(free=100 * MIB + LINK)
    space = world.log_space()
    world.error = OSError(errno.EMFILE, "Too many open files")
    assert reason(space) == "server-error"
    world.error = None
    assert reason(space) == ""


def test_a_link_that_opens_counts_with_the_logs_that_the_driver_has_not_made() -> None:
    space = World(free=100 * MIB + 3 * LINK).log_space()
    assert [reason(space, opening=2), reason(space, opening=3)] == ["", "full"]


def test_a_key_with_many_links_leaves_room_for_other_keys() -> None:
    space = World(free=100 * MIB + 16 * LINK).log_space()
    taken = 0
    while reason(space, own=taken) == "":
        taken += 1
    assert taken == 12, "of 16, a key leaves 4"
    assert [reason(space, own=own) for own in (12, 0, 1, 2, 3, 0)] == ["key-limit", "", "", "", "", "full"]
    large = World(free=100 * MIB + 800 * LINK).log_space()
    assert [reason(large, own=own) for own in range(702)].index("key-limit") == 700, "of 800, an eighth"


def test_the_logs_of_a_link_have_three_terms_of_either_end() -> None:
    assert link_bytes(ChannelSettings()) == LINK
    assert link_bytes(ChannelSettings(term_bytes=MIB)) == 9 * MIB, "a client may have the default terms"
    assert link_bytes(ChannelSettings(term_bytes=4 * MIB)) == 24 * MIB
