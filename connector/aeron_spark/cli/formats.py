"""File formats of ``send`` and ``receive``, without pyarrow: for checks of the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aeron_spark.errors import OptionError

FORMATS: Final = ("text", "json", "csv", "parquet", "arrow")
FORMAT_OF_SUFFIX: Final = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
STANDARD_INPUT: Final = "-"


def format_of(name: str, chosen: str | None, default: str = "text") -> str:
    """Return ``chosen``, or else the format that the file's suffix stands for, or else ``default``."""
    return chosen or FORMAT_OF_SUFFIX.get(Path(name).suffix.lower(), default)


def display_name(name: str) -> str:
    """Return the name of a file in errors."""
    return "standard input" if name == STANDARD_INPUT else name


def total_size(names: Sequence[str]) -> int | None:
    """Return the bytes of all files together; None if one is standard input or cannot be read."""
    total = 0
    for name in names:
        try:
            if name == STANDARD_INPUT:
                return None
            total += os.stat(name).st_size
        except OSError:  # reported when the file is opened
            return None
    return total


def check_file(name: str) -> None:
    """Raise OptionError if the file cannot be read, before the command starts anything."""
    if name == STANDARD_INPUT:
        return
    try:
        with open(name, "rb"):
            return
    except OSError as error:
        raise OptionError(
            f"{name} cannot be read ({error.strerror})", remedy="Give the path of a file that this user can read."
        ) from error
