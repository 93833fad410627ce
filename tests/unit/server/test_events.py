"""Tests the events of a server: the table, the log records, the lines, and the limits."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.endpoint.endpoint_listeners import stack_of
from aeron_spark.facts import Bus
from aeron_spark.server.event_log import SUPPRESSED_INTERVAL_S, EventLog, EventReported
from aeron_spark.server.event_table import EVENTS, FIELDS, GROUPS, Level
from aeron_spark.server.log_output import LineFormatter, LogFormat
from aeron_spark.wire.stream_requests import OPERATIONS
from tools.event_page import events_page

ROOT: Final = Path(__file__).resolve().parents[3]
FORGED_TAGS: Final = (
    "a\n2026-11-23T18:30:00.123Z INFO connected name=root",
    "a\r\x1b[2K\x1b[1Aconnected name=root",
    "\u202emoc.live\u2066",
    '" name=root x="',
    "\u2028\u2029\x85",
    "x" * 5000,
)


class _Lines(logging.Handler):
    """Keeps the formatted lines."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(log_format))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.Logger("aeron_spark.server", logging.INFO)
    yield logger
    logger.handlers.clear()


def lines_of(log: logging.Logger, log_format: LogFormat = "text") -> list[str]:
    handler = _Lines(log_format)
    log.addHandler(handler)
    return handler.lines


def test_every_field_of_an_event_is_declared_and_every_declared_field_is_used() -> None:
    used = {field for event in EVENTS.values() for field in event.fields}
    assert used == set(FIELDS)


# Events whose name or fields are variables: ``_NOTICES`` of the log, lines about the log itself, and those of requests.
VARIABLE: Final = {
    *("connected", "resumed", "disconnected", "log_suppressed", "log_dropped"),
    *(operation.event for operation in OPERATIONS.values()),
}


def calls_beside_reports() -> Iterator[tuple[Path, ast.Call]]:
    """Yield each call, with its file, in the modules of the package that report events."""
    for path in sorted((ROOT / "connector" / "aeron_spark").rglob("*.py")):
        text = path.read_text()
        if ".report(" in text or "_low.update(" in text:  # to parse all modules takes a second
            yield from ((path, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def test_every_declared_field_is_filled_by_a_report_of_its_event() -> None:
    """Regression: six fields were documented and never in a line."""
    filled: dict[str, set[str]] = {}
    for _, call in calls_beside_reports():
        match call:
            case ast.Call(func=ast.Attribute(attr="report" | "update"), args=[ast.Constant(value=str(event)), *_]):
                for keyword in call.keywords:  # ``**`` is always ``_fields_of``, the fields of a client
                    names = {"id", "name", "tag", "address", "port", "transport"} if keyword.arg is None else set()
                    filled.setdefault(event, set()).update(names or {str(keyword.arg)})
    never = {
        name: missing
        for name, event in EVENTS.items()
        if name not in VARIABLE and (missing := set(event.fields) - filled.get(name, set()))
    }
    assert never == {}


def test_the_document_of_the_events_is_the_one_of_the_table() -> None:
    assert (ROOT / "docs" / "events.md").read_text() == events_page()


def test_an_event_becomes_one_line_of_text(log: logging.Logger) -> None:
    lines = lines_of(log)
    EventLog(Bus(), log=log).report("connected", id=7, name="desk-7", tag="orders", address="10.0.0.7", port=40123)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO (.*)", lines[0])[1] == (  # type: ignore[index]
        'connected id=7 name=desk-7 tag="orders" address=10.0.0.7 port=40123'
    )


def test_an_event_becomes_one_object_of_json(log: logging.Logger) -> None:
    lines = lines_of(log, "json")
    events = EventLog(Bus(), log=log)
    events.report("commit_slow", stream="prices", transaction=3, seconds=1.23456789, journal_s=float("nan"))
    found = json.loads(lines[0])
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning", "event": "commit_slow", "stream": "prices", "transaction": 3, "seconds": 1.23457,
        "journal_s": None,
    }  # fmt: skip


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("tag", FORGED_TAGS)
def test_a_forged_tag_stays_one_field_of_one_line(log: logging.Logger, log_format: LogFormat, tag: str) -> None:
    lines = lines_of(log, log_format)
    EventLog(Bus(), log=log).report("connected", id=1, name="desk-7", tag=tag)
    (line,) = lines
    assert line.isprintable()
    assert len(line) < 300
    if log_format == "json":
        assert json.loads(line)["name"] == "desk-7"
    else:
        quoted = line[line.index("tag=") + 4 :]
        assert tag.startswith(json.loads(quoted).removesuffix("…")[:20])


def test_the_message_for_other_formatters_is_safe_too(log: logging.Logger) -> None:
    handler = logging.Handler()
    messages: list[str] = []
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    EventLog(Bus(), log=log).report("connected", id=1, tag=FORGED_TAGS[0])
    assert messages[0].startswith('connected id=1 tag="a\\u000a2026')


def test_lists_are_cut(log: logging.Logger) -> None:
    lines = lines_of(log)
    events = EventLog(Bus(), log=log)
    events.report("clients_changed", added=("a", "b"), removed=(), changed=tuple(f"k{n}" for n in range(50)))
    assert " added=a,b removed=" in lines[0]
    assert lines[0].endswith("k19,+30")


def test_an_unknown_event_field_or_a_value_in_bytes_is_an_error(log: logging.Logger) -> None:
    events = EventLog(Bus(), log=log)
    with pytest.raises(ValueError, match="no event 'conected'"):
        events.report("conected")
    with pytest.raises(ValueError, match="no field ticket"):
        events.report("connected", ticket="secret")
    with pytest.raises(ValueError, match="bytes"):
        events.report("connected", name=b"secret")


def test_observers_get_each_event_and_the_log_gets_the_limited_ones(log: logging.Logger) -> None:
    lines, clock = lines_of(log), _Clock()
    facts, seen = Bus(), list[EventReported]()
    facts.on(EventReported, seen.append)
    events = EventLog(facts, log=log, clock=clock)
    for _ in range(30):
        events.report("refused", reason="rate", address="10.0.0.7")
    assert len(seen) == 30
    assert seen[0] == EventReported("refused", {"reason": "rate", "address": "10.0.0.7"})
    assert len(lines) == 5
    assert events.suppressed_total == 25


def test_suppressed_lines_are_reported_each_minute(log: logging.Logger) -> None:
    lines, clock = lines_of(log), _Clock()
    events = EventLog(Bus(), log=log, clock=clock)
    for _ in range(9):
        events.report("refused", reason="rate", address="10.0.0.7")
    lines.clear()
    clock.now += SUPPRESSED_INTERVAL_S - 1
    events.report_suppressed_when_due()
    assert lines == []
    clock.now += 1
    events.report_suppressed_when_due()
    assert [line.split(" ", 2)[2] for line in lines] == ["log_suppressed event=refused count=4"]
    clock.now += SUPPRESSED_INTERVAL_S
    events.report_suppressed_when_due()
    assert len(lines) == 1


def test_each_name_of_a_json_object_is_unique(log: logging.Logger) -> None:
    lines, clock = lines_of(log, "json"), _Clock()
    events = EventLog(Bus(), log=log, clock=clock)
    for _ in range(6):
        events.report("refused", reason="rate", address="10.0.0.7")
    lines.clear()
    clock.now += SUPPRESSED_INTERVAL_S
    events.report_suppressed_when_due()
    names = [name for name, _ in json.loads(lines[0], object_pairs_hook=list)]
    assert len(names) == len(set(names))
    found = json.loads(lines[0])
    assert (found["event"], found["suppressed_event"], found["count"]) == ("log_suppressed", "refused", 1)


def test_a_level_that_is_too_low_makes_no_line(log: logging.Logger) -> None:
    lines = lines_of(log)
    log.setLevel(Level.WARNING)
    events = EventLog(Bus(), log=log)
    events.report("connected", id=1)
    events.report("call_failed", level=Level.WARNING, call="1.2")
    assert [line.split()[1] for line in lines] == ["WARNING"]


def _raise() -> None:
    raise KeyError("a\nb")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_records_of_other_loggers_are_one_line_with_the_stack(log: logging.Logger, log_format: LogFormat) -> None:
    lines = lines_of(log, log_format)
    try:
        _raise()
    except KeyError:
        log.exception("a job failed:\n%s", "\x1b[2J")
    (line,) = lines
    assert line.isprintable()
    assert "_raise < test_events.py" in line
    if log_format == "json":
        found = json.loads(line)
        assert found["event"] == "log"
        assert found["message"] == "a job failed:\n\x1b[2J"
        assert found["error_type"] == "KeyError"


def test_a_stack_names_the_innermost_function_first() -> None:
    with pytest.raises(KeyError) as raised:
        _raise()
    assert re.match(r"test_events\.py:\d+ _raise < test_events\.py:\d+ test_a_stack", stack_of(raised.value))


def test_each_reported_event_is_declared_with_its_fields() -> None:
    reported = set()
    for path, call in calls_beside_reports():
        is_report = ast.unparse(call.func).endswith(("events.report", "self.report", "_low.update"))
        if is_report and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            name = call.args[0].value
            fields = {keyword.arg for keyword in call.keywords} - {None, "level"}
            assert name in EVENTS, f"{path.name}:{call.lineno}: {name}"
            assert fields <= set(EVENTS[name].fields), f"{path.name}:{call.lineno}: {name}"
            reported.add(name)
    assert {"refused", "call_failed", "stream_damaged", "commit_slow", "disk_low", "ready"} <= reported


def test_each_event_is_declared_once() -> None:
    names = [event.name for events in GROUPS.values() for event in events]
    assert sorted(names) == sorted(EVENTS)
