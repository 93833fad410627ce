"""The formats and files that ``send`` and ``receive`` take, as far as their command lines need them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aeron_spark.errors import OptionError

FORMATS: Final = ("text", "json", "csv", "parquet", "arrow")
ENDINGS: Final = {
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


def format_of(name: str, asked: str | None) -> str:
    """Return the format of a file by its ending, unless one was asked for."""
    return asked or ENDINGS.get(Path(name).suffix.lower(), "text")


def total_size(names: Sequence[str]) -> int | None:
    """Return the bytes of all files, or None where that cannot be known."""
    total = 0
    for name in names:
        try:
            if name == STANDARD_INPUT:
                return None
            total += os.stat(name).st_size
        except OSError:  # said when it is opened
            return None
    return total


def check_file(name: str) -> None:
    """Raise OptionError where there is no file to read, before anything is started."""
    if name == STANDARD_INPUT:
        return
    try:
        with open(name, "rb"):
            return
    except OSError as error:
        raise OptionError(f"{name} cannot be read ({error.strerror})", remedy="Correct its name.") from error
