"""``receive`` waits for an archive that is restarted, until a signal comes."""

from __future__ import annotations

import signal
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.cli.rows import receive_rows
from aeron_spark.cli.signals import StopRequest
from aeron_spark.direct.command_rows import DirectSource
from aeron_spark.errors import ConnectError, TransportError
from aeron_spark.log.api import RecordingState, StreamContent
from aeron_spark.options import ReadOptions
from tests.unit.log.fake_log import FakeLog

KEY = "embedded/0"


class Archive(FakeLog):
    """The log of an archive with one message. It is away after that was received; then ``stopped`` gets a signal."""

    archives = ("embedded",)
    framed = False

    def __init__(self, stopped: StopRequest | None = None) -> None:
        super().__init__({KEY: [(64, 1)]})
        self._stopped = stopped
        self.is_away = False
        self.values: list[bytes] = []

    def states(self) -> list[RecordingState]:
        if self.is_away:
            if self._stopped is not None:
                self._stopped.handle(signal.SIGINT, None)
            raise TransportError("the archive's session is closed")
        return super().states()

    def state(self, key: str) -> RecordingState:
        return self.states()[0]

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        pass

    def content(self, states: list[RecordingState]) -> StreamContent:
        return StreamContent("raw")

    def write(self, payload: str, batch: pa.RecordBatch) -> None:
        self.values += batch["value"].to_pylist()
        self.is_away = True

    def close(self, schema: pa.Schema) -> None:
        pass


def receive(archive: Archive, stopped: StopRequest) -> Any:
    given = {
        "channel": "aeron:ipc", "streamId": "1", "payload": "raw", "startingOffsets": "earliest",
        "archiveTimeout": "300ms",
    }  # fmt: skip
    options = ReadOptions.parse(given, streaming=True)
    return receive_rows(DirectSource(options, lambda *_: archive, follow=True), archive, None, stopped)


def test_a_signal_ends_receive_while_the_archive_is_away() -> None:
    stopped = StopRequest(60.0)
    archive = Archive(stopped)
    assert receive(archive, stopped) == (1, True)
    assert archive.values == [KEY.encode()]


def test_receive_fails_after_the_timeout_with_the_archive_and_the_option() -> None:
    with pytest.raises(ConnectError, match=r"the archive embedded of stream 1 .* was away for 0\.3 s") as error:
        receive(Archive(), StopRequest(60.0))
    assert "option 'archiveTimeout'" in error.value.remedy


def test_an_archive_that_has_not_answered_is_not_waited_for() -> None:
    archive = Archive()
    archive.is_away = True
    with pytest.raises(TransportError, match="the archive's session is closed"):
        receive(archive, StopRequest(60.0))
