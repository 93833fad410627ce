"""Prints ``docs/options.md``: ``python -m aeron_spark.options > docs/options.md``."""

from __future__ import annotations

import sys

from aeron_spark.options.declaration import markdown

if __name__ == "__main__":
    sys.stdout.write(markdown())
