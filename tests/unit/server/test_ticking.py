"""A server looks after its open store by itself, whatever goes wrong with that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aeron_spark.errors import AeronSparkError, TransportError, UsageError
from aeron_spark.server import stream_service
from aeron_spark.server.stream_service import StreamKeeper
from tests.unit.connection.ends import wait_for

GONE = TransportError("the archive does not answer")


class Store:
    """Each call of ``tick`` does what the next one of ``answers`` says: returns it, or raises it; then all is well."""

    def __init__(self, *answers: list[AeronSparkError] | Exception) -> None:
        self.ticks = 0
        self.closed = False
        self._answers = iter(answers)

    def tick(self) -> list[AeronSparkError]:
        assert not self.closed
        self.ticks += 1
        answer = next(self._answers, [])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


class Kept:
    """A keeper of ``store``, and the errors that it reported."""

    def __init__(self, store: Any) -> None:
        self.reported: list[str] = []
        self.store = store
        self.keeper = StreamKeeper(lambda ending: store, lambda _, error: self.reported.append(str(error)))

    def await_ticks(self, number: int) -> None:
        wait_for(lambda: self.store.ticks >= number, f"tick {number}")


Keep = Callable[..., Kept]


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    """Make a keeper, which ticks without a wait and is closed at the end."""
    monkeypatch.setattr(stream_service, "HOUSEKEEPING_INTERVAL_S", 0.001)
    made: list[Kept] = []

    def one(*answers: list[AeronSparkError] | Exception) -> Kept:
        made.append(Kept(Store(*answers)))
        return made[-1]

    yield one
    for kept in made:
        kept.keeper.close()


def test_an_open_store_is_ticked_until_it_is_closed(keep: Keep) -> None:
    """Finding: no test noticed a server that never ticks its store."""
    kept = keep()
    assert kept.store.ticks == 0
    assert kept.keeper.store is kept.store
    kept.await_ticks(3)
    kept.keeper.close()
    assert kept.store.closed
    assert kept.reported == []
    with pytest.raises(UsageError, match="the server is closed"):
        _ = kept.keeper.store


def test_an_error_of_a_tick_is_reported_once_until_a_tick_succeeds_and_the_ticks_go_on(keep: Keep) -> None:
    kept = keep([GONE], [GONE], [], [GONE])
    _ = kept.keeper.store
    kept.await_ticks(6)
    kept.keeper.close()
    assert kept.reported == [str(GONE)] * 2


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), GONE], ids=["foreign", "own"])
def test_a_tick_that_raises_is_reported_and_the_ticks_go_on(keep: Keep, error: Exception) -> None:
    """Finding: an exception out of a tick ended the thread, and with it retention and expiry, without a word."""
    kept = keep(error)
    _ = kept.keeper.store
    kept.await_ticks(3)
    kept.keeper.close()
    assert kept.reported == [str(error)]


def test_a_store_that_cannot_be_opened_in_the_background_is_reported() -> None:
    reported: list[BaseException] = []

    def fail(ending: Callable[[], bool]) -> Any:
        raise GONE

    keeper = StreamKeeper(fail, lambda _, error: reported.append(error))
    keeper.open_soon()
    wait_for(lambda: reported, "the report")
    assert reported == [GONE]
    keeper.close()
