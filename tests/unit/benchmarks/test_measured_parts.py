"""Tests the parts of benchmarks that judge and count, with fakes in place of Spark, servers and commands."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import commands, connecting, sinks, transactions
from benchmarks.checks import DataMismatchError, Totals
from benchmarks.secure_server import SecureServer
from benchmarks.sinks import Sink

EXPECTED = Totals(2, 20, 7)


@pytest.mark.parametrize(("found", "is_complete"), [(EXPECTED.times(3), True), (EXPECTED.times(2), False)])
def test_a_sink_must_have_the_rows_of_all_its_turns(
    monkeypatch: pytest.MonkeyPatch, found: Totals, is_complete: bool
) -> None:
    env: Any = _reading_environment()
    monkeypatch.setattr(sinks, "save", lambda *_: 0.5)
    monkeypatch.setattr(sinks, "totals_of_frame", lambda _: found)
    sink = Sink("kafka", "kafka", {}, "defaults", "kafka", {"subscribe": "t"})
    assert [sink.save(None) for _ in range(3)] == [0.5] * 3
    if is_complete:
        sink.check(env, EXPECTED)
    else:
        with pytest.raises(DataMismatchError, match="kafka delivered"):
            sink.check(env, EXPECTED)


def test_a_sink_sets_spark_only_while_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, str] = {}
    conf = SimpleNamespace(set=settings.__setitem__, unset=settings.__delitem__)
    seen: list[dict[str, str]] = []

    def save(*_: object) -> float:
        seen.append(dict(settings))
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(sinks, "save", save)
    sink = Sink("own", "aeron", {}, "", spark={"spark.sql.execution.arrow.maxBytesPerBatch": "1m"})
    with pytest.raises(RuntimeError, match="the disk is full"):
        sink.save(SimpleNamespace(sparkSession=SimpleNamespace(conf=conf)))
    assert seen == [{"spark.sql.execution.arrow.maxBytesPerBatch": "1m"}]
    assert not settings


def test_a_sink_that_keeps_nothing_is_not_read() -> None:
    Sink("drops", "discard", {}, "").check(SimpleNamespace(), EXPECTED)


def test_a_turn_of_transactions_must_leave_all_rows() -> None:
    server: Any = SimpleNamespace(pid=os.getpid(), new_stream=lambda partitions: f"s{partitions}")
    env: Any = SimpleNamespace(quick=False)
    requests: list[str] = []

    def request(line: str) -> str:
        requests.append(line)
        return "2.0" if " " in line else "408"

    millis: list[float] = []
    assert transactions._turn(env, server, request, 8, 400, millis)() == 200.0
    assert requests == ["s8 8 400", "s8"]
    assert len(millis) == 1
    with pytest.raises(RuntimeError, match="stream s8 has 407 rows, expected 408"):
        transactions._turn(env, server, lambda line: "2.0" if " " in line else "407", 8, 400, millis)()


def test_the_figure_of_commands_is_the_slowest_median() -> None:
    figure = commands._figure("no JVM", "<= 0.15", {"a": [0.1, 0.1, 0.9], "b": [0.2, 0.2, 0.1]})
    assert (figure.name, figure.value, figure.met) == ("commands that need no JVM, the slowest of 2", 0.2, False)
    assert figure.detail == "a 0.1 (0.1 to 0.9), b 0.2 (0.1 to 0.2)"


def test_a_percentile_is_one_of_the_samples() -> None:
    assert connecting._percentile([float(n) for n in range(100)], 0.99) == 99.0
    assert connecting._percentile([3.0], 0.99) == 3.0


def test_the_flags_of_a_command_lead_to_the_server() -> None:
    connection = {"server": "h:1", "identity": "/k", "serverKey": "key", "aeronDir": "/dev/shm/a"}
    server = SecureServer(1, connection, SimpleNamespace())
    assert server.flags() == ["--identity", "/k", "--server-key", "key", "--aeron-dir", "/dev/shm/a"]
    assert server.options("s", ipc="never") == {**connection, "stream": "s", "ipc": "never"}


def _reading_environment() -> Any:
    reader = SimpleNamespace(load=lambda: "frame")
    reader.format = lambda _: reader
    reader.options = lambda **_: reader
    return SimpleNamespace(spark=SimpleNamespace(read=reader))
