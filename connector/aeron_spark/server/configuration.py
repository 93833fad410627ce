"""A server's TOML file: the names of docs/options.md as keys, at the top of the file or in the table ``[server]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import DataFormatError, OptionError, SetupError

TABLE: Final = "server"
_PARSER: Final = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # the same; tomllib came into Python with 3.11


def read_configuration(path: Path) -> dict[str, object]:
    """Return the options in a file, for ``server_options``, which knows what they may be.

    Raises SetupError where the file cannot be read, DataFormatError where it is no TOML, OptionError for other tables.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}", remedy="Check its path and its mode") from None
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path} is not UTF-8: {error.reason}", remedy="Write it as UTF-8") from None
    toml: Any = importlib.import_module(_PARSER)
    try:
        found: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise DataFormatError(f"{path} is not TOML: {error}", remedy="For example: maxConnections = 100") from None
    return _options(found, path)


def _options(found: dict[str, Any], path: Path) -> dict[str, object]:
    inside = found.get(TABLE, {})
    if not isinstance(inside, dict):
        raise OptionError(f"{path}: {TABLE} is no table", remedy=f"Write [{TABLE}] above the options")
    outside = {name: value for name, value in found.items() if name != TABLE}
    twice = sorted(outside.keys() & inside.keys())
    if twice:
        raise OptionError(f"{path}: {twice[0]} stands at the top and in [{TABLE}]", remedy="Give it once")
    options = {**outside, **inside}
    for name, value in options.items():
        if isinstance(value, dict):
            raise OptionError(
                f"{path} has a table [{name}], which nobody reads", remedy=f"Options stand at the top or in [{TABLE}]"
            )
    return options
