"""The options somebody gave, checked by name against the table and read out by kind."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from aeron_spark.errors import OptionError
from aeron_spark.options import endpoint_values, values
from aeron_spark.options.row import BATCH_READ, CLIENT, ENDPOINT, READING, Option, Where
from aeron_spark.options.table import TABLE, rows, rows_of_endpoint
from aeron_spark.protocol.access import Network
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.transport.endpoint_channels import Ports, port_pair

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

_T = TypeVar("_T")


class OptionReader:
    """A case-insensitive view of the given options for one place; refuses at once what does not belong there.

    Beside Spark's own options those of an endpoint's client may stand; they are kept apart, unread.
    """

    def __init__(self, options: Mapping[str, object], where: Where) -> None:
        self.where = where
        self._texts: dict[str, str] = {}
        self._of_client: dict[str, str] = {}
        for name, value in options.items():
            option = self._row(name)
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

    def _row(self, name: str) -> Option | None:
        if self.where in ENDPOINT:
            return self._endpoint_row(name)
        found = tuple(option for option in rows(name) if not option.where <= ENDPOINT)
        for option in found:
            if self.where in option.where:
                return option
        if found:
            raise _misplaced(found[0], self.where)
        lower = name.lower()
        if lower in SPARKS_OWN or lower.startswith(("_", "spark.")):
            return None
        return self._client_row(name)

    def _client_row(self, name: str) -> Option:
        found = rows(name)
        for option in found:
            if Where.CLIENT in option.where:
                return option
        raise _misplaced(found[0], Where.CLIENT) if found else _unknown(name, self.where)

    def _endpoint_row(self, name: str) -> Option:
        found = rows_of_endpoint(name)
        for option in found:
            if self.where in option.where:
                return option
        if found:
            raise _misplaced(found[0], self.where)
        raise _unknown(name, self.where)

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def names(self) -> tuple[str, ...]:
        """Give the names that were given, spelt as in the table."""
        return tuple(self._texts)

    def of_client(self) -> tuple[tuple[str, str], ...]:
        """Give the options of an endpoint's client that stand beside Spark's own, sorted by name."""
        return tuple(sorted(self._of_client.items()))

    def option(self, name: str) -> Option:
        """Give the row of this name in this place."""
        return next(option for option in rows(name) if self.where in option.where)

    def _read(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        option = self.option(name)
        text = self._texts.get(name, option.default_in(self.where))
        if text is None:
            return None
        try:
            return parse(text)
        except OptionError as error:
            raise OptionError(f"option '{name}': {error.what}", remedy=error.remedy or example(option)) from None
        except ValueError as error:
            raise OptionError(
                f"option '{name}' must be {error}, not '{shortened(text)}'", remedy=example(option)
            ) from None

    def text(self, name: str) -> str | None:
        """Read plain text."""
        return self._read(name, str)

    def channel(self, name: str) -> str | None:
        """Read an Aeron URI; the text stays as it was given."""
        return self._read(name, _channel)

    def response(self, name: str) -> str | None:
        """Read an Aeron URI or ``response``."""
        return self._read(name, lambda text: "response" if text.lower() == "response" else _channel(text))

    def archives(self, name: str) -> tuple[str, ...] | None:
        """Read archives' control channels."""
        return self._read(name, _archives)

    def whole(self, name: str) -> int | None:
        """Read a whole number within the row's bounds."""
        option = self.option(name)
        return self._read(name, lambda text: values.whole(text, option.low, option.high))

    def size(self, name: str) -> int | None:
        """Read a size within the row's bounds, in bytes."""
        option = self.option(name)
        return self._read(name, lambda text: values.size(text, option.low, option.high))

    def number(self, name: str) -> float:
        """Read a number within the row's bounds; every row of this kind has a default."""
        option = self.option(name)
        return self.required(name, self._read(name, lambda text: endpoint_values.number(text, option.low, option.high)))

    def span(self, name: str) -> tuple[int, int] | None:
        """Read the first and the last number of a range within the row's bounds."""
        option = self.option(name)
        return self._read(name, lambda text: endpoint_values.span(text, option.low, option.high))

    def port_pair(self, name: str) -> Ports:
        """Read a data port and a control port; every row of this kind has a default."""
        return self.required(name, self._read(name, port_pair))

    def networks(self, name: str) -> tuple[Network, ...]:
        """Read networks; none where none are given."""
        return self._read(name, endpoint_values.networks) or ()

    def read(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        """Read by a parser of the caller's, which raises OptionError or ValueError."""
        return self._read(name, parse)

    def seconds_or_zero(self, name: str) -> float:
        """Read a duration in seconds that may be 0; every row of this kind has a default."""
        return self.required(name, self._read(name, values.duration_or_zero_ns)) / values.NANOS

    def duration_ns(self, name: str) -> int:
        """Read a duration of a row that has a default."""
        return self.required(name, self._read(name, values.duration_ns))

    def seconds(self, name: str) -> float:
        """Read a duration in seconds."""
        return self.duration_ns(name) / values.NANOS

    def flag(self, name: str) -> bool:
        """Read true or false; every row of this kind has a default."""
        return self.required(name, self._read(name, values.flag))

    def choice(self, name: str) -> str:
        """Read one of the row's choices; every row of this kind has a default."""
        option = self.option(name)
        return self.required(name, self._read(name, lambda text: values.choice(text, option.choices)))

    def offsets(self, name: str, rest: values.Edge) -> values.WantedOffsets:
        """Read offsets; every row of this kind has a default."""
        return self.required(name, self._read(name, lambda text: values.offsets(text, rest)))

    def moment(self, name: str) -> values.Moment | None:
        """Read a point in time."""
        return self._read(name, values.moment)

    def timestamp_from(self, name: str) -> values.TimestampFrom | None:
        """Read where a foreign stream has its publish times."""
        return self._read(name, values.timestamp_from)

    def sessions(self, name: str) -> tuple[int, ...] | None:
        """Read session ids."""
        return self._read(name, values.sessions)

    def required(self, name: str, value: _T | None) -> _T:
        """Insist on a value. Raises ``OptionError`` naming the option, with an example, where there is none."""
        if value is None:
            raise OptionError(f"option '{name}' is required", remedy=example(self.option(name)))
        return value


def only_in_batches(options: Iterable[str]) -> bool:
    """Whether one of these options is known to batch reads, and to streaming reads not."""
    places = [frozenset[Where]().union(*(option.where for option in rows(name))) & READING for name in options]
    return BATCH_READ in places


def example(option: Option, where: Where | None = None) -> str:
    """Give the sentence that shows how an option is written, ``where`` it is not for its own place."""
    if option.where <= ENDPOINT and (where is None or where in ENDPOINT):
        return f"For example {option.flag} {option.example}, in Python {option.argument}={option.example!r}"
    quote = '"' if "'" in option.example else "'"
    return f"For example .option('{option.name}', {quote}{option.example}{quote})"


def shortened(text: str) -> str:
    """Keep an error readable whatever was given."""
    return text if len(text) <= 120 else text[:117] + "..."


def _text(value: object) -> str:
    """The text of a value as programs and TOML have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(part).strip() for part in value)
    return str(value).strip()


def _channel(text: str) -> str:
    ChannelUri.parse(text)
    return text


def _archives(text: str) -> tuple[str, ...]:
    parsed = tuple("embedded" if part.lower() == "embedded" else part for part in values.archives(text))
    for part in parsed:
        if part != "embedded":
            ChannelUri.parse(part)
    return parsed


def _unknown(name: str, where: Where) -> OptionError:
    here = {option.name.lower(): option.name for option in TABLE if where in option.where}
    beside = {} if where in ENDPOINT else {one.name.lower(): one.name for one in TABLE if one.where & CLIENT}
    known = beside | here
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    remedy = (
        f"Did you mean '{known[near[0]]}'?"
        if near
        else "The options are: " + ", ".join(sorted(here.values(), key=str.lower))
    )
    return OptionError(f"there is no option '{shortened(name)}'", remedy=remedy)


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
