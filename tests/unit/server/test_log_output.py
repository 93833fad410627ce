"""Tests how a server writes its log to standard error."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.server.log_output import PACKAGE_LOG, ServerLogOutput
from tests.unit.endpoint.endpoints import wait_for

LOG = logging.getLogger("aeron_spark.test_log_output")


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    before = (PACKAGE_LOG.level, PACKAGE_LOG.propagate, tuple(PACKAGE_LOG.handlers))
    yield io.StringIO()
    assert (PACKAGE_LOG.level, PACKAGE_LOG.propagate, tuple(PACKAGE_LOG.handlers)) == before


def test_a_change_of_format_and_level_applies_to_the_next_line(output: io.StringIO) -> None:
    live = LiveOptions(ServerOptions(log_format="text"))
    log = ServerLogOutput(live, output)
    live.on_replaced = log.apply
    log.open()
    LOG.info("first")
    live.replace(ServerOptions(log_format="json", log_level="warning"))
    LOG.info("not logged")
    LOG.warning("second")
    live.replace(ServerOptions(log_format="text", log_level="info"))
    LOG.info("third")
    log.close()
    first, second, third = output.getvalue().splitlines()
    assert first.endswith('INFO log logger="aeron_spark.test_log_output" message="first"')
    assert json.loads(second)["message"] == "second"
    assert third.endswith('message="third"')


def test_a_log_without_a_format_is_not_written_until_a_change_gives_it_one(output: io.StringIO) -> None:
    live = LiveOptions(ServerOptions())
    log = ServerLogOutput(live, output)
    live.on_replaced = log.apply
    live.replace(ServerOptions(log_format="json", log_level="info"))
    LOG.warning("before the start")
    live.replace(ServerOptions())
    log.open()
    LOG.warning("without a format")
    live.replace(ServerOptions(log_format="text", log_level="info"))
    LOG.warning("with a format")
    live.replace(ServerOptions())
    LOG.warning("again without")
    log.close()
    [line] = output.getvalue().splitlines()
    assert 'message="with a format"' in line


class SlowReader(io.StringIO):
    """Takes a line when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = threading.Semaphore(0)
        self.waiting = threading.Event()

    def write(self, text: str) -> int:
        self.waiting.set()
        assert self.turns.acquire(timeout=20), "the test did not let the reader take a line"
        return super().write(text)


def test_lines_that_a_slow_reader_does_not_take_are_counted_and_reported_before_the_next_line() -> None:
    reader = SlowReader()
    log = ServerLogOutput(LiveOptions(ServerOptions(log_format="text")), reader, max_lines=2)
    log.open()
    LOG.info("being written")
    assert reader.waiting.wait(20), "the log has written no line"
    for number in range(5):
        LOG.info("line %d", number)
    assert log.dropped_total == 3
    for _ in range(10):
        reader.turns.release()
    wait_for(lambda: "line 1" in reader.getvalue(), "the waiting lines")
    log.close()
    events = [line.partition(" ")[2] for line in reader.getvalue().splitlines()]
    assert events == [
        'INFO log logger="aeron_spark.test_log_output" message="being written"',
        "WARNING log_dropped count=3",
        'INFO log logger="aeron_spark.test_log_output" message="line 0"',
        'INFO log logger="aeron_spark.test_log_output" message="line 1"',
    ]


def test_lines_after_the_reader_has_gone_are_counted(output: io.StringIO) -> None:
    output.close()
    log = ServerLogOutput(LiveOptions(ServerOptions(log_format="text")), output)
    log.open()
    LOG.info("first")
    LOG.info("second")
    log.close()
    assert log.dropped_total == 2


class AbsentReader(io.StringIO):
    """Takes no line before it has refused some."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self._refusals = refusals

    def write(self, text: str) -> int:
        if self._refusals:
            self._refusals -= 1
            raise BrokenPipeError
        return super().write(text)


def test_a_report_that_the_reader_does_not_take_is_repeated_with_all_dropped_lines() -> None:
    reader = AbsentReader(refusals=3)  # of the first line, of the report before the second, and of the second
    log = ServerLogOutput(LiveOptions(ServerOptions(log_format="text")), reader)
    log.open()
    LOG.info("first")
    LOG.info("second")
    log.close()
    [line] = reader.getvalue().splitlines()
    assert line.endswith("WARNING log_dropped count=2")
