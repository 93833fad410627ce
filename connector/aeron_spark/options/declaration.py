"""Declares options, and reads their values.

A field of an :class:`OptionSet` declares an option::

    @dataclass(frozen=True)
    class WriteOptions(OptionSet, where=WRITING):
        offer_timeout: Seconds = option("30s", "Back-pressure longer than this fails the task.", example="1min")

The declaration determines the Spark name and TOML key ``offerTimeout``, the argument ``offer_timeout``, the flag
``--offer-timeout``, the parser (by the annotation), the default, and the row in the document.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.options.kafka_names import replacement_of_option
from aeron_spark.options.values import OptionType
from aeron_spark.texts import INT64_MAX


class Where(Enum):
    """A place where an option may be given."""

    READ_STREAM = "read stream"
    READ_BATCH = "read batch"
    WRITE_STREAM = "write stream"
    WRITE_BATCH = "write batch"
    SERVER = "server"
    CLIENT = "client"


class Route(Enum):
    """The route to a stream, for options that belong to one route."""

    DIRECT = "direct"
    SERVER = "server"


class Format(Enum):
    """A name of this connector in Spark, with its implementation: ``spark.read.format("aeron")``."""

    AERON = "aeron"
    """The source and sink in Python."""
    AERON_JVM = "aeron-jvm"
    """The source in Java, inside Spark's process. It has only the direct route."""


class Restart(Enum):
    """Why a server applies the change of an option at its next start only."""

    OPENED = "The server opens and locks its addresses, ports and folders at its start, before it serves a client."
    NODE = "The node keeps its settings until it stops."
    VERIFIED = (
        "The clients that are connected have verified the key and the secret, and resume their sessions with them."
    )
    KEYS = "These say where the keys are. A change in the clients file itself applies without a restart."
    CHANNELS = (
        "A link's channels and buffers are made with these sizes, some of which both ends agree in the handshake."
    )
    SESSION = "A handshake and its session keep these times and limits to their end, also over several links."
    THREADS = "The event loop and the pools of threads are made at the start."
    METRICS = "A collector of metrics expects the same series from a process."


READING: Final = frozenset({Where.READ_STREAM, Where.READ_BATCH})
WRITING: Final = frozenset({Where.WRITE_STREAM, Where.WRITE_BATCH})
STREAMING_WRITE: Final = frozenset({Where.WRITE_STREAM})
EVERYWHERE: Final = READING | WRITING
BATCH_READ: Final = frozenset({Where.READ_BATCH})
SERVER: Final = frozenset({Where.SERVER})
CLIENT: Final = frozenset({Where.CLIENT})
ENDPOINT: Final = SERVER | CLIENT

REQUIRED: Final = object()  # in place of a default: the option must be given
_PLAIN_TYPES: Final[Mapping[object, OptionType]] = {
    str: values.TEXT, int: values.WHOLE, float: values.NUMBER, bool: values.FLAG
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """A declared option. ``default`` is the text that is parsed if the option is not given, or None.

    ``ignored`` has the places where it is accepted and checked without effect, as in Spark's Kafka source. ``route`` is
    the only route of the option; None means both. ``formats`` are the formats of Spark that have it. An option of a
    server is ``live``, which applies to a running server, or has a reason for a ``restart``.
    """

    name: str  # in Spark, TOML files and documents: ``maxConnections``
    argument: str  # in Python: ``max_connections``
    type: OptionType
    default: str | None
    meaning: str
    where: frozenset[Where]
    example: str
    batch_default: str | None
    low: int
    high: int
    ignored: frozenset[Where]
    shown_default: str | None  # for documents, if the default is not a text
    route: Route | None
    formats: frozenset[Format]
    required: bool
    live: bool
    restart: Restart | None

    @property
    def flag(self) -> str:
        """The flag of the command line: ``--max-connections``."""
        return "--" + self.argument.replace("_", "-")

    def default_in(self, where: Where) -> str | None:
        """Return the text of the default at ``where``."""
        if where is Where.READ_BATCH and self.batch_default is not None:
            return self.batch_default
        return self.default

    def parse(self, text: str) -> Any:
        """Parse a text. Raises OptionError, or ValueError with the expected value."""
        return self.type.parse(text, self.low, self.high)


@dataclass(slots=True)
class _Declaration:
    """The arguments of ``option``, until a class gives the field its name. Two classes may share it."""

    default: object
    meaning: str
    example: str
    only: tuple[frozenset[Where] | Route | Format, ...]
    batch_default: str | None
    low: int
    high: int
    ignored: frozenset[Where]
    shown: str | None
    secret: bool
    live: bool
    restart: Restart | None
    option: Option | None = None

    def bind(self, name: str, kind: OptionType, where: frozenset[Where]) -> Option:
        """Return the option, the same for each class that declares it."""
        if self.option is None:
            value = None if self.default in (None, REQUIRED) else self.default
            where = next((one for one in self.only if isinstance(one, frozenset)), where)
            route = next((one for one in self.only if isinstance(one, Route)), None)
            self.option = Option(
                name=re.sub("_([a-z])", lambda match: match[1].upper(), name),
                argument=name,
                type=kind,
                default=value if value is None or isinstance(value, str) else kind.write(value),
                meaning=self.meaning,
                where=where,
                example=self.example,
                batch_default=self.batch_default,
                low=self.low,
                high=self.high,
                ignored=self.ignored,
                shown_default=self.shown,
                route=route,
                formats=self._formats(where, route),
                required=self.default is REQUIRED,
                live=self.live,
                restart=self.restart,
            )
            _OPTIONS.append(self.option)
        return self.option

    def _formats(self, where: frozenset[Where], route: Route | None) -> frozenset[Format]:
        only = {one for one in self.only if isinstance(one, Format)}
        if route is Route.SERVER or where <= ENDPOINT:
            only.add(Format.AERON)  # the only one that connects to servers
        return frozenset(only or Format)

    def field(self, declared: Option) -> Any:
        """Return the field of the dataclass."""
        if self.default is REQUIRED:
            return dataclasses.field(repr=not self.secret)
        text = declared.default
        return dataclasses.field(default=None if text is None else declared.parse(text), repr=not self.secret)


def option(
    default: object,
    meaning: str,
    *,
    example: str,
    only: frozenset[Where] | Route | Format | tuple[Any, ...] = (),
    batch_default: str | None = None,
    low: int = 0,
    high: int = INT64_MAX,
    ignored: frozenset[Where] = frozenset(),
    shown: str | None = None,
    secret: bool = False,
    live: bool = False,
    restart: Restart | None = None,
) -> Any:
    """Declare an option as a field of an OptionSet.

    ``default`` is a text, or a value such as a constant of another package. None means no default; ``shown`` describes
    it in documents. ``only`` restricts the places of the option, or names its route or format. ``batch_default``
    applies to batch reads. ``low`` and ``high`` limit numbers, sizes and ranges. A ``secret`` does not appear in
    ``repr``. Of a server's option, ``live`` or ``restart`` says when a change applies.
    """
    narrowed = only if isinstance(only, tuple) else (only,)
    return _Declaration(
        default, meaning, example, narrowed, batch_default, low, high, ignored, shown, secret, live, restart
    )


class OptionSet:
    """Base of a frozen dataclass of options. ``where`` has the places of its options, unless an option has ``only``.

    The class may also have other fields. The types in its annotations must exist when the class is created.
    """

    declared: ClassVar[Mapping[str, Option]] = {}  # options of this class without those of its bases, by field

    def __init_subclass__(cls, where: frozenset[Where]) -> None:
        hints = get_type_hints(cls, include_extras=True)
        declared: dict[str, Option] = {}
        for name, value in list(vars(cls).items()):
            if isinstance(value, _Declaration):
                declared[name] = value.bind(name, _type_of(hints[name]), where)
                setattr(cls, name, value.field(declared[name]))
        cls.declared = declared

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Return the options of this class and its bases, by field."""
        bases = [base for base in reversed(cls.__mro__) if issubclass(base, OptionSet)]
        return {name: declared for base in bases for name, declared in base.declared.items()}


def _type_of(hint: object) -> OptionType:
    """Return the option type of an annotation, with or without ``| None``."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is Annotated:
        return next(part for part in get_args(hint) if isinstance(part, OptionType))
    return values.one_of(get_args(hint)) if get_origin(hint) is Literal else _PLAIN_TYPES[hint]


_OPTIONS: Final[list[Option]] = []  # those of Spark after the import of the package, and those of endpoints later


def all_options() -> tuple[Option, ...]:
    """Return all options; load the modules of those of endpoints, which most processes of Spark do not need."""
    for name in ("endpoint_options", "server_options"):
        importlib.import_module(f"aeron_spark.options.{name}")
    return tuple(_OPTIONS)


def options_named(name: str) -> tuple[Option, ...]:
    """Return the options with this name, in any case: at most one for each place."""
    return _named(name, all_options())


def _named(name: str, options: Iterable[Option] = _OPTIONS) -> tuple[Option, ...]:
    return tuple(one for one in options if one.name.lower() == name.lower())


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
    """Reads the options that are given in one place (``where``), in Spark to ``spark_format``.

    Names are case-insensitive. Values of programs and TOML files (numbers, booleans, lists) are read as texts. In
    Spark, options of an endpoint's client are also allowed; they are stored separately, and not parsed. The constructor
    raises OptionError for an option that is unknown, belongs elsewhere, is empty, or is given twice with different
    values.
    """

    def __init__(self, options: Mapping[str, object], where: Where, spark_format: Format = Format.AERON) -> None:
        self.where = where
        self.spark_format = spark_format
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
        found = tuple(option for option in _named(name) if not option.where <= ENDPOINT)
        for option in found:
            if self.where in option.where:
                return self._of_format(option)
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
                return self._of_format(option)
        raise _misplaced(found[0], Where.CLIENT) if found else _unknown(name, self.where, self.spark_format)

    def _of_format(self, option: Option) -> Option:
        if self.spark_format in option.formats:
            return option
        own, (other,) = self.spark_format.value, (one.value for one in option.formats)
        if option.route is Route.SERVER or option.where <= ENDPOINT:
            raise OptionError(
                f"option '{option.name}' is only for the route through a server, and format('{own}') has only the "
                "direct route",
                remedy=f"Use format('{other}').",
            )
        raise OptionError(
            f"option '{option.name}' is only for format('{other}'), not for format('{own}')",
            remedy=f"Use format('{other}'), or leave the option out.",
        )

    def _endpoint_option(self, name: str) -> Option:
        found = _endpoint_options(name)
        for option in found:
            if self.where in option.where:
                return option
        if found:
            raise _misplaced(found[0], self.where)
        raise _unknown(name, self.where, self.spark_format)

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
        return next(option for option in _named(name) if self.where in option.where)

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
    readers = [frozenset[Where]().union(*(one.where for one in _named(name))) & READING for name in options]
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


def _unknown(name: str, where: Where, spark_format: Format) -> OptionError:
    replacement = replacement_of_option(name) if where in EVERYWHERE else None
    if replacement is not None:
        return OptionError(f"option '{_shorten(name)}' is one of Spark's Kafka source or sink", remedy=replacement)
    options = [option for option in all_options() if spark_format in option.formats]
    own = {option.name.lower(): option.name for option in options if where in option.where}
    client = {} if where in ENDPOINT else {one.name.lower(): one.name for one in options if one.where & CLIENT}
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
