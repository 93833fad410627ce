"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def package_version() -> str:
    """Return the version of this package, or "0+source" for a source tree that is not installed."""
    try:
        return metadata.version("aeron-spark")
    except metadata.PackageNotFoundError:
        return "0+source"
