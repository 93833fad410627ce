"""The version of the installed package, and the versions of Spark that it supports."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

OLDEST_SPARK: Final = (4, 0)
NEWEST_SPARK: Final = (4, 3)  # the newest one with which the tests ran


def package_version() -> str:
    """Return the version of this package, or "0+source" for a source tree that is not installed."""
    try:
        return metadata.version("aeron-spark")
    except metadata.PackageNotFoundError:
        return "0+source"


def numbers_of(release: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, fewer if it has fewer."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])


def dotted(numbers: tuple[int, ...]) -> str:
    """Return a version as text."""
    return ".".join(map(str, numbers))
