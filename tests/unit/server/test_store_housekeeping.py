"""The housekeeper calls ``tick`` of the open store regularly, also after errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aeron_spark.errors import AeronSparkError, TransportError, UsageError
from aeron_spark.server import watch
from aeron_spark.server.watch import StoreHousekeeper
from tests.unit.endpoint.endpoints import wait_for

NO_RESPONSE = TransportError("the archive does not outcome")


class Store:
    """A store whose ``tick`` returns or raises the next of ``outcomes``, and no error after the last one."""

    def __init__(self, *outcomes: list[AeronSparkError] | Exception) -> None:
        self.ticks = 0
        self.closed = False
        self.unrecovered: dict[str, AeronSparkError] = {}
        self._answers = iter(outcomes)

    def tick(self) -> list[AeronSparkError]:
        assert not self.closed
        self.ticks += 1
        outcome = next(self._answers, [])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        self.closed = True


class Running:
    """A housekeeper of ``store``, and the errors that it reported."""

    def __init__(self, store: Any) -> None:
        self.reported: list[str] = []
        self.store = store
        self.housekeeper = StoreHousekeeper(lambda *_: store, lambda _, error: self.reported.append(str(error)))

    def await_ticks(self, number: int) -> None:
        wait_for(lambda: self.store.ticks >= number, f"tick {number}")


Start = Callable[..., Running]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that makes a housekeeper with a tick each millisecond; the fixture closes it."""
    monkeypatch.setattr(watch, "HOUSEKEEPING_INTERVAL_S", 0.001)
    started: list[Running] = []

    def one(*outcomes: list[AeronSparkError] | Exception) -> Running:
        started.append(Running(Store(*outcomes)))
        return started[-1]

    yield one
    for running in started:
        running.housekeeper.close()


def test_an_open_store_is_ticked_until_it_is_closed(start: Start) -> None:
    """No other test notices a server that never ticks its store."""
    running = start()
    assert running.store.ticks == 0
    assert running.housekeeper.store == running.store
    running.await_ticks(3)
    running.housekeeper.close()
    assert running.store.closed
    assert running.reported == []
    with pytest.raises(UsageError, match="the server is closed"):
        _ = running.housekeeper.store


def test_an_error_of_a_tick_is_reported_once_until_a_tick_succeeds(start: Start) -> None:
    running = start([NO_RESPONSE], [NO_RESPONSE], [], [NO_RESPONSE])
    _ = running.housekeeper.store
    running.await_ticks(6)
    running.housekeeper.close()
    assert running.reported == [str(NO_RESPONSE)] * 2


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), NO_RESPONSE], ids=["foreign", "own"])
def test_an_exception_of_a_tick_is_reported_and_the_ticks_continue(start: Start, error: Exception) -> None:
    """Regression: an exception of a tick ended the thread, and with it retention and expiry, without a report."""
    running = start(error)
    _ = running.housekeeper.store
    running.await_ticks(3)
    running.housekeeper.close()
    assert running.reported == [str(error)]


def test_the_error_of_opening_the_store_is_raised() -> None:
    def fail(*_: object) -> Any:
        raise NO_RESPONSE

    housekeeper = StoreHousekeeper(fail, lambda _, error: pytest.fail(str(error)))
    with pytest.raises(TransportError, match=str(NO_RESPONSE)):
        housekeeper.recover()
    housekeeper.close()


def test_the_problem_names_the_progress_of_the_recovery_and_then_a_stream_that_is_not_recovered() -> None:
    problems: list[str] = []
    store = Store()

    def recover(is_ending: Callable[[], bool], progress: Callable[[int, int], object]) -> Any:
        for done in range(3):
            progress(done, 2)
            problems.append(housekeeper.problem)
        return store

    housekeeper = StoreHousekeeper(recover, lambda _, error: pytest.fail(str(error)))
    assert housekeeper.problem == "the streams are not recovered yet"
    housekeeper.recover()
    assert problems == [f"{done} of 2 streams are recovered" for done in range(3)]
    assert housekeeper.problem == ""
    store.unrecovered["x"] = NO_RESPONSE
    assert housekeeper.problem == f"1 streams are not recovered yet, such as 'x': {NO_RESPONSE}"
    housekeeper.close()
