"""A running query waits out a restart of its archive: each call is repeated, and no message comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import pyarrow as pa
import pytest

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataLossError,
    EndedError,
    RefusedError,
    SessionLost,
    TransportError,
    WaitTimeout,
)
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.restarts import PAUSE_S, OutageLimit, RestartableLog
from aeron_spark.wire.values import Rows
from tests.unit.log.fake_log import FakeLog

LIMIT = OutageLimit("the archive embedded", 60.0, "archiveTimeout")
WHOLE = Range("embedded/0", "00000000", 0, 640, 640, 65536)


class Archive:
    """An archive with ten messages of 64 bytes, and the time of this test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.back_at = 0.0  # until then it is away
        self.away: Callable[[str], AeronSparkError] = TransportError
        self.calls = 0
        self.down_after = -1  # read messages, until it is away for 6 s

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def ask(self) -> None:
        self.calls += 1
        if self.now < self.back_at:
            raise self.away("the archive's session is closed")

    def open(self) -> Log:
        return cast("Log", ArchiveLog(self))

    def log(self, *, is_running: bool = True) -> RestartableLog:
        return RestartableLog(
            self.open, LIMIT, is_running=is_running, clock=lambda: self.now, sleep=self.sleep
        )  # fmt: skip


class ArchiveLog(FakeLog):
    """A session with the archive. A restart closes it for good."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, archive: Archive) -> None:
        super().__init__({"embedded/0": [(64, 1)] * 10})
        archive.ask()
        self.archive = archive
        self.opened_at = archive.now

    def states(self) -> list[RecordingState]:
        if self.archive.back_at > self.opened_at:
            raise self.archive.away("the archive's session is closed")
        self.archive.ask()
        return super().states()

    def read(self, wanted: Range) -> Iterator[Rows]:
        for at in range(wanted.start, wanted.end, 192):
            self.states()
            positions = pa.array(range(at, min(at + 192, wanted.end), 64), pa.int64())
            yield Rows(positions.cast(pa.string()).cast(pa.binary()), positions, positions)
            if self.archive.down_after == at:
                self.archive.down_after, self.archive.back_at = -1, self.archive.now + 6


@pytest.mark.parametrize(
    "away",
    [
        *(ConnectError, EndedError, SessionLost, TransportError, WaitTimeout),
        *(partial(RefusedError, reason=reason) for reason in ("draining", "shutdown")),
    ],
)
def test_a_call_is_repeated_until_the_archive_is_back(away: Callable[[str], AeronSparkError]) -> None:
    archive = Archive()
    log = archive.log()
    log.states()
    archive.back_at, archive.away = 6.0, away
    assert [state.end for state in log.states()] == [640]
    assert 6.0 <= archive.now < 6.0 + 2 * PAUSE_S


def test_after_the_timeout_the_error_has_the_archive_and_the_time() -> None:
    archive = Archive()
    log = archive.log()
    log.states()
    archive.back_at = 1_000.0
    with pytest.raises(ConnectError, match=r"the archive embedded was away for 60 s: .*session is closed") as error:
        log.states()
    assert "archiveTimeout" in error.value.remedy
    assert LIMIT.timeout_s <= archive.now < LIMIT.timeout_s + 1


def test_the_first_connection_is_not_waited_for() -> None:
    archive = Archive()
    archive.back_at = 6.0
    log = archive.log(is_running=False)
    with pytest.raises(TransportError, match="closed"):
        log.states()
    assert archive.now == 0


@pytest.mark.parametrize("broken", [0, 192, 384])
def test_a_read_continues_after_the_last_message_that_it_has_yielded(broken: int) -> None:
    archive = Archive()
    archive.down_after = broken
    found = [value for rows in archive.log().read(WHOLE) for value in rows.values.to_pylist()]
    assert found == [str(at).encode() for at in range(0, 640, 64)]
    assert archive.now >= 6.0


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(TransportError("a checksum is wrong"), 2), (DataLossError("purged"), 1), (ConnectError("no subscriber"), 2)],
)
def test_an_error_of_an_archive_that_is_there_is_raised(error: AeronSparkError, attempts: int) -> None:
    archive = Archive()
    made: list[int] = []

    def fail(*_: object) -> None:
        made.append(1)
        raise error

    log = archive.log()
    calls: list[Callable[[], object]] = [
        lambda: log.boundary("embedded/0", 0, 64, 64, None),
        lambda: list(log.read(WHOLE)),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArchiveLog, "boundary", fail)
        patch.setattr(ArchiveLog, "read", fail)
        for call in calls:
            made.clear()
            with pytest.raises(type(error), match=error.what):
                call()
            assert len(made) == attempts
    assert archive.now == 0
