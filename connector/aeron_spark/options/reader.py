"""Reads options from Spark, a program, the command line or a TOML file into an OptionSet."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from aeron_spark.errors import OptionError
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

# Options that Spark itself passes to a source or a sink, in lower case; names that begin with "_" are Spark's, too.
SPARK_OPTIONS: Final = frozenset(
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

_T = TypeVar("_T")
_Options = TypeVar("_Options", bound=OptionSet)


class OptionReader:
    """Reads the options that are given in one place (``where``). Names are case-insensitive.

    Values of programs and TOML files (numbers, booleans, lists) are read as texts. In Spark, options of an endpoint's
    client are also allowed; they are stored separately, and not parsed. The constructor raises OptionError for an
    option that is unknown, belongs elsewhere, is empty, or is given twice with different values.
    """

    def __init__(self, options: Mapping[str, object], where: Where) -> None:
        self.where = where
        self._texts: dict[str, str] = {}
        self._client_texts: dict[str, str] = {}
        for name, value in options.items():
            option = self._option(name)
            if option is None or value is None:
                continue
            text = _text_of(value)
            if not text:
                raise OptionError(f"option '{option.name}' has no value", remedy=example(option, where))
            texts = self._texts if where in option.where else self._client_texts
            if texts.setdefault(option.name, text) != text:
                raise OptionError(
                    f"option '{option.name}' is given twice, with different values", remedy="Give it once."
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
        if lower == "checkpointlocation" and self.where in (Where.READ_STREAM, Where.READ_BATCH):
            raise OptionError(
                "option 'checkpointLocation' has no effect on reading",
                remedy="Give it to the query: df.writeStream.option('checkpointLocation', FOLDER). A batch has none.",
            )
        if lower in SPARK_OPTIONS or lower.startswith(("_", "spark.")):
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

    def given_options(self) -> tuple[Option, ...]:
        """Return the given options, in their order."""
        return tuple(self.option(name) for name in self._texts)

    def client_options(self) -> tuple[tuple[str, str], ...]:
        """Return the given options of an endpoint's client, sorted by name; only in Spark."""
        return tuple(sorted(self._client_texts.items()))

    def option(self, name: str) -> Option:
        """Return the option of this name."""
        return next(option for option in options_named(name) if self.where in option.where)

    def read(self, options: type[_Options], **others: Any) -> _Options:
        """Make an OptionSet of the given options; ``others`` are values of its other fields, and replace options.

        Raises OptionError for the first wrong option.
        """
        for field, option in options.options().items():
            if self.where in option.where and field not in others:
                value = self.value(option, option.parse)
                if value is None and option.required:
                    raise OptionError(f"option '{option.name}' is required", remedy=example(option))
                others[field] = value
        return options(**others)

    def value(self, option: Option, parse: Callable[[str], _T]) -> _T | None:
        """Parse the given text of an option, or its default; return None if it has neither.

        ``parse`` raises OptionError, or ValueError with the expected value. Raises OptionError with the option's name.
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
                f"option '{option.name}' must be {error}, not '{_shorten(text)}'", remedy=example(option)
            ) from None


def has_batch_only_options(options: Iterable[str]) -> bool:
    """Whether one of these options is for batch reads only, not for streaming reads."""
    readers = [frozenset[Where]().union(*(one.where for one in options_named(name))) & READING for name in options]
    return BATCH_READ in readers


def example(option: Option, where: Where | None = None) -> str:
    """Return a sentence with an example of the option, written for its use at ``where``.

    Without ``where``, an endpoint's option is written for the command line and Python, and any other one for Spark.
    """
    if option.where <= ENDPOINT and (where is None or where in ENDPOINT):
        return f"For example {option.flag} {option.example}, in Python {option.argument}={option.example!r}"
    quote = '"' if "'" in option.example else "'"
    return f"For example .option('{option.name}', {quote}{option.example}{quote})"


def _endpoint_options(name: str) -> tuple[Option, ...]:
    """Return the options of a server or a client with this name, in any of the three spellings."""
    lower = name.lower()
    return tuple(
        option
        for option in all_options()
        if option.where & ENDPOINT and lower in (option.name.lower(), option.argument, option.flag.removeprefix("--"))
    )


def _shorten(text: str) -> str:
    """Return the text, cut to 120 characters for an error."""
    return text if len(text) <= 120 else text[:117] + "..."


def _text_of(value: object) -> str:
    """Return the text of a value from a program or a TOML file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(part).strip() for part in value)
    return str(value).strip()


def _unknown(name: str, where: Where) -> OptionError:
    own = {option.name.lower(): option.name for option in all_options() if where in option.where}
    client = {} if where in ENDPOINT else {one.name.lower(): one.name for one in all_options() if one.where & CLIENT}
    known = client | own
    nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    remedy = (
        f"Did you mean '{known[nearest[0]]}'?"
        if nearest
        else "The options are: " + ", ".join(sorted(own.values(), key=str.lower))
    )
    return OptionError(f"unknown option '{_shorten(name)}'", remedy=remedy)


def _misplaced(option: Option, where: Where) -> OptionError:
    if where in ENDPOINT:
        owner, other = ("client", "server") if where is Where.SERVER else ("server", "client")
        return OptionError(
            f"option '{option.name}' is only for a {owner}, not for a {other}", remedy="Leave the option out."
        )
    is_reading = where in READING
    if is_reading and option.where & READING:  # a bound of batch reads, in a streaming read
        return OptionError(
            f"option '{option.name}' is only for batch reads (spark.read), not for streaming reads",
            remedy="Leave the option out, or read with spark.read.",
        )
    use, other_use = ("writing", "reading") if is_reading else ("reading", "writing")
    return OptionError(f"option '{option.name}' is only for {use}, not for {other_use}", remedy="Leave the option out.")
