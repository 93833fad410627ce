"""Tests of the limit of the space for stages."""

from __future__ import annotations

from threading import Thread

import pytest

from aeron_spark.errors import RefusedError, Retry, UsageError
from aeron_spark.streams.stage_files import MAX_GROWING, MAX_STAGES, StageSpace


def test_bytes_up_to_the_limit_are_reserved_and_no_more() -> None:
    space = StageSpace(lambda: 10)
    space.reserve(10)
    with pytest.raises(RefusedError, match="10 of 10 bytes are in use, 1 more"):
        space.reserve(1)
    space.release(4)
    space.reserve(4)
    space.reserve(5, force=True)
    assert space.reserved == 15
    with pytest.raises(UsageError, match="16 bytes are released"):
        space.release(16)


def test_limit_0_is_no_limit() -> None:
    space = StageSpace(lambda: 0)
    space.reserve(1 << 60)
    assert space.reserved == 1 << 60


def test_threads_share_the_space() -> None:
    space = StageSpace(lambda: 1000)

    def reserve_and_release() -> None:
        for _ in range(2000):
            space.reserve(100)
            space.release(100)

    threads = [Thread(target=reserve_and_release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert space.reserved == 0


def test_an_owner_has_its_own_limit_and_leaves_room_for_others() -> None:
    space = StageSpace(lambda: 100)
    own, other, program = space.share("own", 30), space.share("other", 30), space.share()
    own.reserve(30)
    with pytest.raises(
        RefusedError, match=r"your key's space .*30 of 30 bytes are in use, 1 more.*stageBytesPerKey"
    ) as full:
        own.reserve(1)
    assert (full.value.reason, full.value.retry) == ("stage-full", Retry.WHEN_FREED)
    other.reserve(30)
    program.reserve(40)
    with pytest.raises(RefusedError, match=r"the server's space .*100 of 100 bytes") as full:
        program.reserve(1)
    assert full.value.reason == "stage-full"
    own.release(30)
    space.share("own", 30).reserve(30)  # all shares of an owner count together
    with pytest.raises(RefusedError, match="your key's space"):
        own.reserve(1)
    own.reserve(50, force=True)
    own.release(80)
    other.release(30)
    program.release(40)
    assert space.reserved == 0


def test_an_owner_has_a_limit_of_stages_and_one_of_those_that_grow() -> None:
    space = StageSpace(lambda: 0)
    for _ in range(MAX_GROWING):
        space.add_stage("own")
    with pytest.raises(RefusedError, match=f"your key has {MAX_GROWING} stages that are not finished") as full:
        space.add_stage("own")
    assert (full.value.reason, full.value.retry) == ("stage-full", Retry.WHEN_FREED)
    space.add_stage("other")
    for _ in range(MAX_GROWING + 1):
        space.add_stage("")  # the server's own program has no limit
    space.end_growth("own")
    for _ in range(MAX_STAGES - MAX_GROWING):
        space.add_stage("own")
        space.end_growth("own")
    with pytest.raises(RefusedError, match=f"your key has {MAX_STAGES} stages, which is the limit"):
        space.add_stage("own")
    space.remove_stage("own")
    space.add_stage("own")
