"""Tests how a server writes its log to standard error."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from aeron_spark.server.log_output import PACKAGE_LOG, ServerLog

LOG = logging.getLogger("aeron_spark.test_log_output")


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    before = (PACKAGE_LOG.level, PACKAGE_LOG.propagate, tuple(PACKAGE_LOG.handlers))
    yield io.StringIO()
    assert (PACKAGE_LOG.level, PACKAGE_LOG.propagate, tuple(PACKAGE_LOG.handlers)) == before


def test_a_change_of_format_and_level_applies_to_the_next_line(output: io.StringIO) -> None:
    log = ServerLog("text", "info", output)
    log.open()
    LOG.info("first")
    log.change("json", "warning")
    LOG.info("not logged")
    LOG.warning("second")
    log.change("text", "info")
    LOG.info("third")
    log.close()
    first, second, third = output.getvalue().splitlines()
    assert first.endswith('INFO log logger="aeron_spark.test_log_output" message="first"')
    assert json.loads(second)["message"] == "second"
    assert third.endswith('message="third"')


def test_a_log_without_a_format_is_not_written_until_a_change_gives_it_one(output: io.StringIO) -> None:
    log = ServerLog(None, "info", output)
    log.change("json", "info")
    LOG.warning("before the start")
    log.change(None, "info")
    log.open()
    LOG.warning("without a format")
    log.change("text", "info")
    LOG.warning("with a format")
    log.change(None, "info")
    LOG.warning("again without")
    log.close()
    [line] = output.getvalue().splitlines()
    assert 'message="with a format"' in line
