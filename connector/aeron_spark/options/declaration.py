"""Declares options, and writes ``docs/options.md`` from all declarations.

A field of an :class:`OptionSet` declares an option::

    @dataclass(frozen=True)
    class WriteOptions(OptionSet, where=WRITING):
        offer_timeout: Seconds = option("30s", "Back-pressure longer than this fails the task.", example="1min")

The declaration determines the Spark name and TOML key ``offerTimeout``, the argument ``offer_timeout``, the flag
``--offer-timeout``, the parser (by the annotation), the default, and the row in the document.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from aeron_spark.options import values
from aeron_spark.options.values import OptionType
from aeron_spark.units import INT64_MAX


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
    the only route of the option; None means both.
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
    required: bool

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
    only: tuple[frozenset[Where] | Route, ...]
    batch_default: str | None
    low: int
    high: int
    ignored: frozenset[Where]
    shown: str | None
    secret: bool
    option: Option | None = None

    def bind(self, name: str, kind: OptionType, where: frozenset[Where]) -> Option:
        """Return the option, the same for each class that declares it."""
        if self.option is None:
            value = None if self.default in (None, REQUIRED) else self.default
            self.option = Option(
                name=re.sub("_([a-z])", lambda match: match[1].upper(), name),
                argument=name,
                type=kind,
                default=value if value is None or isinstance(value, str) else kind.write(value),
                meaning=self.meaning,
                where=next((one for one in self.only if isinstance(one, frozenset)), where),
                example=self.example,
                batch_default=self.batch_default,
                low=self.low,
                high=self.high,
                ignored=self.ignored,
                shown_default=self.shown,
                route=next((one for one in self.only if isinstance(one, Route)), None),
                required=self.default is REQUIRED,
            )
            _OPTIONS.append(self.option)
        return self.option

    def field(self, declared: Option) -> Any:
        """Return the field of the dataclass."""
        if self.default is REQUIRED:
            return dataclasses.field(repr=not self.secret)
        text = declared.default
        return dataclasses.field(default=None if text is None else declared.parse(text), repr=not self.secret)


def option(
    default: object, meaning: str, *, example: str, only: frozenset[Where] | Route | tuple[Any, ...] = (),
    batch_default: str | None = None, low: int = 0, high: int = INT64_MAX, ignored: frozenset[Where] = frozenset(),
    shown: str | None = None, secret: bool = False,
) -> Any:  # fmt: skip
    """Declare an option as a field of an OptionSet.

    ``default`` is a text, or a value such as a constant of another package. None means no default; ``shown`` describes
    it in documents. ``only`` restricts the places of the option, or names its route. ``batch_default`` applies to batch
    reads. ``low`` and ``high`` limit numbers, sizes and ranges. A ``secret`` does not appear in ``repr``.
    """
    narrowed = only if isinstance(only, tuple) else (only,)
    return _Declaration(default, meaning, example, narrowed, batch_default, low, high, ignored, shown, secret)


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


_OPTIONS: Final[list[Option]] = []  # complete after the import of the package


def all_options() -> tuple[Option, ...]:
    """Return all options."""
    return tuple(_OPTIONS)


def options_named(name: str) -> tuple[Option, ...]:
    """Return the options with this name, in any case: at most one for each place."""
    return tuple(one for one in _OPTIONS if one.name.lower() == name.lower())


_HEAD: Final = """\
# Options

Generated from the declarations of the options by `make docs`. Names are case-insensitive, as in Spark. Unknown options
are refused, except those that Spark itself passes to a source or a sink.

Sizes are bytes, or `512KiB`, `64MiB`, `1GiB`, `1TiB` (powers of 1024). Durations are `100ms`, `30s`, `15min`, `1h`,
`7d`, or plain seconds. `2m` is 2 MiB for a size and 2 minutes for a duration: write `2MiB` and `2min`.
A position is a number of bytes in a recording at which a message begins, always a multiple of 32.
"""

_ENDPOINT: Final = """\
## The secure endpoint

These are the options of a server and a client of the secure endpoint. `maxConnections` is `--max-connections` on the
command line, `max_connections=` in Python, and `maxConnections` in a server's TOML file, at its top or in the table
`[server]`. TOML files and Python may also give numbers, booleans and lists instead of texts. Unknown options, and
options that contradict each other, are refused. In Spark, the client options below may be given together with
`server`; `identity`, `aeronDir`, `serverKey` and `connectTimeout` have the meanings above.
"""


_NAMING: Final = ("channel", "streamId", "server", "stream")  # they select the route
_OF_ROUTE: Final = {Route.DIRECT: "Direct route only. ", Route.SERVER: "Only through a server. "}


def markdown() -> str:
    """Return the text of ``docs/options.md``."""
    options = all_options()
    sbe = [one for one in options if one.argument.startswith("sbe_")]
    shared = [one for one in options if one.where & READING and one.where & WRITING and one not in sbe]
    reading = [one for one in options if one.where <= READING and one not in sbe]
    writing = [one for one in options if one.where <= WRITING]
    spark = (
        ("Route to a stream (reading and writing)", shared),
        ("Reading", reading),
        ("SBE messages (`payload=sbe`, reading and writing)", [one for one in sbe if one.where & WRITING]),
        ("Reading SBE messages (`payload=sbe`)", [one for one in sbe if not one.where & WRITING]),
        ("Writing", writing),
    )
    endpoint = (
        ("Server and client", [one for one in options if one.where == ENDPOINT]),
        ("Server", [one for one in options if one.where == SERVER]),
        ("Client", [one for one in options if one.where == CLIENT]),
    )
    parts = [_HEAD, *_sections("##", spark), _ENDPOINT, *_sections("###", endpoint)]
    return "\n".join(parts)


def _sections(level: str, sections: Sequence[tuple[str, Sequence[Option]]]) -> Iterator[str]:
    for title, options in sections:
        lines = [f"{level} {title}", "", "| option | default | value | meaning |", "|---|---|---|---|"]
        lines += [_row(one) for one in options]
        yield "\n".join(lines) + "\n"


def _row(one: Option) -> str:
    meaning = f"Batch only. {one.meaning}" if one.where == BATCH_READ else one.meaning
    meaning = _OF_ROUTE[one.route] + meaning if one.route is not None and one.name not in _NAMING else meaning
    cells = (f"`{one.name}`", _default(one), _value(one), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(one: Option) -> str:
    if one.shown_default is not None:
        return one.shown_default
    if one.default is None:
        return "none"
    if one.batch_default is not None:
        return f"`{one.default}` (stream), `{one.batch_default}` (batch)"
    return f"`{one.default}`"


def _value(one: Option) -> str:
    if one.type.choices:
        return ", ".join(f"`{name}`" for name in one.type.choices)
    return f"{one.type.label}, e.g. `{one.example}`"
