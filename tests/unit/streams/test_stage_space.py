"""Tests of the limit of the space for stages."""

from __future__ import annotations

from threading import Thread

import pytest

from aeron_spark.errors import RefusedError, UsageError
from aeron_spark.streams.stage_files import StageSpace


def test_bytes_up_to_the_limit_are_reserved_and_no_more() -> None:
    space = StageSpace(10)
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
    space = StageSpace(0)
    space.reserve(1 << 60)
    assert space.reserved == 1 << 60


def test_threads_share_the_space() -> None:
    space = StageSpace(1000)

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
