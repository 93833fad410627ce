"""Formats log records as lines: text for people, or JSON for programs. A record is always exactly one line."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final, Literal

from aeron_spark.connection.endpoint_listeners import stack_of
from aeron_spark.server.event_table import FIELDS, Field
from aeron_spark.text_safety import quote_text

LogFormat = Literal["text", "json"]

MAX_LISTED: Final = 20  # elements of a list
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:@/+,%\[\]-]+", re.ASCII)  # needs no quotation marks in a line of text
_OTHER_FIELD: Final = Field("of a record that is not an event", is_quoted=True)


class LineFormatter(logging.Formatter):
    """Formats the events of ``server.event_log``, and records of other loggers as the event ``log``.

    Text: ``2026-11-23T18:30:00.123Z INFO connected name=desk-7 tag="orders"``. JSON: one object with ``time``,
    ``level``, ``event`` and the fields. Texts have no line ends, terminal sequences or bidirectional controls.
    """

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json: Final = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line end."""
        event, fields = _event_of(record)
        if self._is_json:
            head = f'"time": "{_time(record)}", "level": "{record.levelname.lower()}", "event": {quote_text(event)}'
            return "{" + head + "".join(f", {_json_name(name)}: {_json(name, fields[name])}" for name in fields) + "}"
        return f"{_time(record)} {record.levelname} {describe(event, fields)}"


def describe(event: str, fields: Mapping[str, Any]) -> str:
    """Return an event with its fields, without time and level: ``connected name=desk-7``."""
    return " ".join([event, *(f"{name}={_text(name, value)}" for name, value in fields.items())])


def _event_of(record: logging.LogRecord) -> tuple[str, Mapping[str, Any]]:
    event, fields = getattr(record, "event", None), getattr(record, "fields", None)
    if isinstance(event, str) and isinstance(fields, Mapping):
        return event, fields
    fields = {"logger": record.name, "message": record.getMessage()}
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields |= {"error_type": type(error).__name__, "error": str(error), "stack": stack_of(error)}
    return "log", fields


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"{value:.6g}"
        case tuple() | list():
            shown = ",".join(str(one) for one in _listed(value))
            return shown if _PLAIN.fullmatch(shown) else _quote(name, shown)
        case _:
            text = str(value)
            is_bare = not _field(name).is_quoted and len(text) <= _field(name).max_characters and _PLAIN.fullmatch(text)
            return text if is_bare else _quote(name, text)


def _json_name(name: str) -> str:
    return quote_text(_field(name).json_name or name)


def _json(name: str, value: object) -> str:
    match value:
        case bool() | int():
            return json.dumps(value)
        case float():
            return json.dumps(float(f"{value:.6g}") if math.isfinite(value) else None)
        case tuple() | list():
            return "[" + ", ".join(_quote(name, str(one)) for one in _listed(value)) + "]"
        case _:
            return _quote(name, str(value))


def _quote(name: str, text: str) -> str:
    return quote_text(text, _field(name).max_characters)


def _field(name: str) -> Field:
    return FIELDS.get(name, _OTHER_FIELD)


def _listed(values: tuple[object, ...] | list[object]) -> list[object]:
    return [*values] if len(values) <= MAX_LISTED else [*values[:MAX_LISTED], f"+{len(values) - MAX_LISTED}"]
