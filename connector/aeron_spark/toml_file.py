"""Reads a server's TOML file. Separate from the options, so that a short command need not load all of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import DataFormatError, OptionError, SetupError

SERVER_TABLE: Final = "server"
_TOML: Final = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # the same module; in Python since 3.11


def read_toml(path: Path) -> dict[str, object]:
    """Return the options in a server's TOML file: at its top, or in the table ``[server]``.

    Raises SetupError if the file cannot be read, DataFormatError if it is not TOML, OptionError for other tables.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}", remedy="Check its path and its mode.") from None
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path} is not UTF-8: {error.reason}", remedy="Write it as UTF-8.") from None
    toml: Any = importlib.import_module(_TOML)
    try:
        document: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise DataFormatError(f"{path} is not TOML: {error}", remedy="For example: maxConnections = 100") from None
    return _options_in(document, path)


def _options_in(document: dict[str, Any], path: Path) -> dict[str, object]:
    table = document.get(SERVER_TABLE, {})
    if not isinstance(table, dict):
        raise OptionError(
            f"{path}: {SERVER_TABLE} is a value, expected a table", remedy=f"Write [{SERVER_TABLE}] above the options."
        )
    top = {name: value for name, value in document.items() if name != SERVER_TABLE}
    duplicates = sorted(top.keys() & table.keys())
    if duplicates:
        raise OptionError(
            f"{path}: option {duplicates[0]} is given twice, at the top and in [{SERVER_TABLE}]", remedy="Give it once."
        )
    options = {**top, **table}
    for name, value in options.items():
        if isinstance(value, dict):
            raise OptionError(
                f"{path} has an unknown table [{name}]",
                remedy=f"Write the options at the top of the file or in [{SERVER_TABLE}].",
            )
    return options
