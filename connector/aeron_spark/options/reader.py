"""What somebody gave as options, from Spark, a program, a command line or a TOML file, read into an OptionSet."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from aeron_spark.errors import DataFormatError, OptionError, SetupError
from aeron_spark.options.declaration import (
    BATCH_READ,
    CLIENT,
    ENDPOINT,
    READING,
    Option,
    OptionSet,
    Where,
    all_options,
    options_named,
)

# What Spark itself passes to a source or a sink, in lower case. Names with a leading underscore are Spark's own too.
SPARKS_OWN: Final = frozenset(
    {
        "asyncprogresstrackingcheckpointintervalms",
        "asyncprogresstrackingenabled",
        "checkpointlocation",
        "mode",
        "outputmode",
        "partitionoverwritemode",
        "path",
        "paths",
        "provider",
        "queryname",
        "table",
        "timezone",
    }
)

TABLE: Final = "server"  # of a server's TOML file
_TOML: Final = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # the same; tomllib came into Python with 3.11

_T = TypeVar("_T")
_Options = TypeVar("_Options", bound=OptionSet)


class OptionReader:
    """The given options of one place, by name without regard to case. What does not belong there is refused at once.

    Values of programs and TOML files (numbers, true and false, lists) are read as their texts. Beside Spark's own
    options those of an endpoint's client may stand; they are kept apart, unread.
    """

    def __init__(self, options: Mapping[str, object], where: Where) -> None:
        self.where = where
        self._texts: dict[str, str] = {}
        self._of_client: dict[str, str] = {}
        for name, value in options.items():
            option = self._option(name)
            if option is None or value is None:
                continue
            text = _text(value)
            if not text:
                raise OptionError(f"option '{option.name}' has no value", remedy=example(option, where))
            texts = self._texts if where in option.where else self._of_client
            if texts.setdefault(option.name, text) != text:
                raise OptionError(
                    f"option '{option.name}' is given twice, with different values", remedy="Give it once"
                )

    def _option(self, name: str) -> Option | None:
        if self.where in ENDPOINT:
            return self._endpoint_option(name)
        found = tuple(option for option in options_named(name) if not option.where <= ENDPOINT)
        for option in found:
            if self.where in option.where:
                return option
        if found:
            raise _misplaced(found[0], self.where)
        lower = name.lower()
        if lower in SPARKS_OWN or lower.startswith(("_", "spark.")):
            return None
        return self._client_option(name)

    def _client_option(self, name: str) -> Option:
        found = options_named(name)
        for option in found:
            if Where.CLIENT in option.where:
                return option
        raise _misplaced(found[0], Where.CLIENT) if found else _unknown(name, self.where)

    def _endpoint_option(self, name: str) -> Option:
        found = _endpoint_options(name)
        for option in found:
            if self.where in option.where:
                return option
        if found:
            raise _misplaced(found[0], self.where)
        raise _unknown(name, self.where)

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def given(self) -> tuple[Option, ...]:
        """Return the options that were given, in the order of their names as they came."""
        return tuple(self.option(name) for name in self._texts)

    def of_client(self) -> tuple[tuple[str, str], ...]:
        """Return the options of an endpoint's client that stand beside Spark's own, sorted by name."""
        return tuple(sorted(self._of_client.items()))

    def option(self, name: str) -> Option:
        """Return the option of this name in this place."""
        return next(option for option in options_named(name) if self.where in option.where)

    def read(self, options: type[_Options], **others: Any) -> _Options:
        """Make a set of what was given; ``others`` are its further fields, or stand for fields that are not read.

        Raises OptionError, one sentence and a remedy, for the first thing wrong.
        """
        for field, option in options.options().items():
            if self.where in option.where and field not in others:
                value = self.value(option, option.parse)
                if value is None and option.required:
                    raise OptionError(f"option '{option.name}' is required", remedy=example(option))
                others[field] = value
        return options(**others)

    def value(self, option: Option, parse: Callable[[str], _T]) -> _T | None:
        """Parse what was given for an option, or its default; None where there is neither.

        ``parse`` raises OptionError, or ValueError that says what is expected. Raises OptionError naming the option.
        """
        text = self._texts.get(option.name, option.default_in(self.where))
        if text is None:
            return None
        try:
            return parse(text)
        except OptionError as error:
            raise OptionError(f"option '{option.name}': {error.what}", remedy=error.remedy or example(option)) from None
        except ValueError as error:
            raise OptionError(
                f"option '{option.name}' must be {error}, not '{_shortened(text)}'", remedy=example(option)
            ) from None


def read_toml(path: Path) -> dict[str, object]:
    """Return the options in a server's TOML file: at its top, or in the table ``[server]``.

    Raises SetupError where the file cannot be read, DataFormatError where it is no TOML, OptionError for other tables.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}", remedy="Check its path and its mode") from None
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path} is not UTF-8: {error.reason}", remedy="Write it as UTF-8") from None
    toml: Any = importlib.import_module(_TOML)
    try:
        found: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise DataFormatError(f"{path} is not TOML: {error}", remedy="For example: maxConnections = 100") from None
    return _options_in(found, path)


def _options_in(found: dict[str, Any], path: Path) -> dict[str, object]:
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


def only_in_batches(options: Iterable[str]) -> bool:
    """Whether one of these options is known to batch reads, and to streaming reads not."""
    places = [frozenset[Where]().union(*(option.where for option in options_named(name))) & READING for name in options]
    return BATCH_READ in places


def example(option: Option, where: Where | None = None) -> str:
    """Return the sentence that shows how an option is written, ``where`` it is not for its own place."""
    if option.where <= ENDPOINT and (where is None or where in ENDPOINT):
        return f"For example {option.flag} {option.example}, in Python {option.argument}={option.example!r}"
    quote = '"' if "'" in option.example else "'"
    return f"For example .option('{option.name}', {quote}{option.example}{quote})"


def _endpoint_options(name: str) -> tuple[Option, ...]:
    """Return every option of this name for a server or a client, in any of its three spellings."""
    lower = name.lower()
    return tuple(
        option
        for option in all_options()
        if option.where & ENDPOINT and lower in (option.name.lower(), option.argument, option.flag.removeprefix("--"))
    )


def _shortened(text: str) -> str:
    """Keep an error readable whatever was given."""
    return text if len(text) <= 120 else text[:117] + "..."


def _text(value: object) -> str:
    """The text of a value as programs and TOML have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(part).strip() for part in value)
    return str(value).strip()


def _unknown(name: str, where: Where) -> OptionError:
    here = {option.name.lower(): option.name for option in all_options() if where in option.where}
    beside = {} if where in ENDPOINT else {one.name.lower(): one.name for one in all_options() if one.where & CLIENT}
    known = beside | here
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    remedy = (
        f"Did you mean '{known[near[0]]}'?"
        if near
        else "The options are: " + ", ".join(sorted(here.values(), key=str.lower))
    )
    return OptionError(f"there is no option '{_shortened(name)}'", remedy=remedy)


def _misplaced(option: Option, where: Where) -> OptionError:
    if where in ENDPOINT:
        other, here = ("client", "server") if where is Where.SERVER else ("server", "client")
        return OptionError(f"option '{option.name}' is a {other}'s; a {here} does not know it", remedy="Leave it out")
    reading = where in READING
    if reading and option.where & READING:  # a bound of batch reads, on a stream
        return OptionError(
            f"option '{option.name}' is for batch reads (spark.read); a stream has no such bound",
            remedy="Leave it out, or read with spark.read",
        )
    if reading:
        return OptionError(f"option '{option.name}' is for writing; a reader does not know it", remedy="Leave it out")
    return OptionError(f"option '{option.name}' is for reading; a writer does not know it", remedy="Leave it out")
