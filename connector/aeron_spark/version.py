"""Which aeron-spark this is."""

from __future__ import annotations

from importlib import metadata


def package_version() -> str:
    """Return the version of this package; a source tree that was never installed has none."""
    try:
        return metadata.version("aeron-spark")
    except metadata.PackageNotFoundError:
        return "0+source"
