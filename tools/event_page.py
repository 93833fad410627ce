"""Prints ``docs/events.md`` from the table of the server's events."""

from __future__ import annotations

import sys
from typing import Final

from aeron_spark.server.event_table import FIELDS, GROUPS

_HEAD: Final = """\
# Events

This page answers: which log lines does a server write, and what do their fields mean?

It is made from the declarations in `server/event_table.py`. [monitoring.md](monitoring.md) describes the formats of a
line. A line leaves out a field without a value.
"""


def events_page() -> str:
    """Return the text of ``docs/events.md``."""
    lines = [_HEAD]
    for group, events in GROUPS.items():
        lines += [f"## Events: {group}", "", "| event | level | fields | meaning |", "|---|---|---|---|"]
        for event in events:
            fields = ", ".join(f"`{field}`" for field in event.fields)
            lines.append(f"| `{event.name}` | {event.level.name.lower()} | {fields} | {event.meaning} |")
        lines.append("")
    lines += ["## Fields", "", "| field | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {field.meaning} |" for name, field in FIELDS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(events_page())
