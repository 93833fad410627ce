"""Prints ``docs/options.md``; with the argument ``keywords``, prints ``aeron_spark/options/keywords.py``."""

from __future__ import annotations

import sys

from aeron_spark.options.declaration import markdown
from aeron_spark.options.keyword_source import keyword_source

if __name__ == "__main__":
    sys.stdout.write(keyword_source() if sys.argv[1:] == ["keywords"] else markdown())
