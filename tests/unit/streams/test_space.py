"""Room that is shared: never more than there is, and what is given back can be taken again."""

from __future__ import annotations

from threading import Thread

import pytest

from aeron_spark.errors import RefusedError, UsageError
from aeron_spark.streams.stage_files import StageSpace


def test_the_last_byte_fits_and_no_more() -> None:
    space = StageSpace(10)
    space.take(10)
    with pytest.raises(RefusedError, match="10 of 10 bytes are taken, and 1 more"):
        space.take(1)
    space.give(4)
    space.take(4)
    space.take(5, force=True)
    assert space.taken == 15
    with pytest.raises(UsageError, match="16 bytes are given back"):
        space.give(16)


def test_no_limit_is_no_limit() -> None:
    space = StageSpace(0)
    space.take(1 << 60)
    assert space.taken == 1 << 60


def test_threads_share_it() -> None:
    space = StageSpace(1000)

    def take_and_give() -> None:
        for _ in range(2000):
            space.take(100)
            space.give(100)

    threads = [Thread(target=take_and_give) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert space.taken == 0
