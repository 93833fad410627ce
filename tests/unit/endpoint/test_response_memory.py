"""The memory of large responses: all that are sent at the same time have a limit together."""

from __future__ import annotations

import pytest

from aeron_spark.endpoint.usage import ResponseMemory
from aeron_spark.errors import RefusedError
from tests.unit.endpoint.endpoints import World, server_options


def test_responses_have_a_limit_together() -> None:
    memory = ResponseMemory(lambda: 100, assured=10)
    assert memory.hold(1, 60)
    assert not memory.hold(2, 60)
    assert memory.hold(3, 40)
    assert not memory.hold(4, 11)
    memory.release(1)
    assert memory.hold(2, 60)
    for number in (2, 3, 4):
        memory.release(number)
    assert len(memory) == 0


def test_a_response_may_take_more_in_the_place_of_what_it_has() -> None:
    memory = ResponseMemory(lambda: 100, assured=10)
    assert memory.hold(1, 30)
    assert memory.hold(2, 30)
    assert memory.hold(1, 70)
    assert not memory.hold(1, 71)
    memory.release(2)
    assert memory.hold(1, 100)


def test_small_responses_do_not_count_and_0_is_no_limit() -> None:
    memory = ResponseMemory(lambda: 100, assured=10)
    assert memory.hold(1, 100)
    assert memory.hold(2, 10)
    assert len(memory) == 1
    unlimited = ResponseMemory(lambda: 0)
    assert unlimited.hold(1, 1 << 40)
    assert unlimited.hold(2, 1 << 40)
    assert len(unlimited) == 0


class Blobs:
    def make(self, size: int) -> bytes:
        return bytes(size)

    def count(self, size: int) -> list[int]:
        return list(range(size))


@pytest.mark.parametrize("method", ["make", "count"])
def test_large_responses_at_the_same_time_have_a_quarter_of_the_memory_limit_together(
    world: World, method: str
) -> None:
    """Regression: 64 workers could send responses of a quarter of the limit each, 16 times the limit."""
    server = world.server(server_options(memory_limit=4 << 20))
    server.register("blobs", Blobs(), ["make", "count"])
    call = getattr(world.client().remote("blobs"), method)
    memory, size = server.endpoint.response_memory, 600_000 if method == "make" else 200_000
    assert len(call(size)) == size
    assert len(memory) == 0
    assert memory.hold(1, 600_000)  # as a response does that is being sent
    with pytest.raises(RefusedError, match=r"leave no room for \d+ more bytes \(a quarter of memoryLimit\)") as refused:
        call(size)
    assert refused.value.reason == "busy"
    assert len(call(1_000)) == 1_000
    memory.release(1)
    assert len(call(size)) == size
    assert len(memory) == 0
