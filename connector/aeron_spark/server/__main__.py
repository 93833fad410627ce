"""Prints ``docs/events.md``: ``python -m aeron_spark.server > docs/events.md``."""

from __future__ import annotations

import sys

from aeron_spark.server.event_table import document

if __name__ == "__main__":
    sys.stdout.write(document())
