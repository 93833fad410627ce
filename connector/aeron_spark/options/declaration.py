"""The one declaration of each option, and ``docs/options.md``, which is made of all of them.

A field of an :class:`OptionSet` declares an option::

    @dataclass(frozen=True)
    class WriteOptions(OptionSet, where=WRITING):
        offer_timeout: Seconds = option("30s", "Back-pressure longer than this fails the task.", example="1min")

Its Spark name and TOML key ``offerTimeout``, its keyword ``offer_timeout``, its flag ``--offer-timeout``, the parser of
its text (by the annotation), its default, and its row of the document all come from there.
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
from aeron_spark.options.values import INT64_MAX, OptionType


class Where(Enum):
    """Where an option may be given."""

    READ_STREAM = "read stream"
    READ_BATCH = "read batch"
    WRITE_STREAM = "write stream"
    WRITE_BATCH = "write batch"
    SERVER = "server"
    CLIENT = "client"


class Route(Enum):
    """How Spark reaches a stream."""

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

REQUIRED: Final = object()  # instead of a default: a set without this option cannot be made
_PLAIN_TYPES: Final[Mapping[object, OptionType]] = {
    str: values.TEXT, int: values.WHOLE, float: values.NUMBER, bool: values.FLAG
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it is declared. ``default`` is the text that stands in when it is not given; None: there is none.

    ``ignored`` is where it is accepted and checked without effect, as Spark's Kafka source does. ``route`` is the only
    route that it belongs to, None: both.
    """

    name: str  # how Spark, TOML files and documents spell it: ``maxConnections``
    argument: str  # how Python spells it: ``max_connections``
    type: OptionType
    default: str | None
    meaning: str
    where: frozenset[Where]
    example: str
    batch_default: str | None
    low: int
    high: int
    ignored: frozenset[Where]
    shown_default: str | None  # for documents, where the default is not a text
    route: Route | None
    required: bool

    @property
    def flag(self) -> str:
        """How the command line spells it: ``--max-connections``."""
        return "--" + self.argument.replace("_", "-")

    def default_in(self, where: Where) -> str | None:
        """Return the text of the default there."""
        if where is Where.READ_BATCH and self.batch_default is not None:
            return self.batch_default
        return self.default

    def parse(self, text: str) -> Any:
        """Parse a text. Raises OptionError, or ValueError that says what is expected."""
        return self.type.parse(text, self.low, self.high)


@dataclass(slots=True)
class _Declaration:
    """What ``option`` was given, until its class names the field. Two classes may share it."""

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
            given = None if self.default in (None, REQUIRED) else self.default
            self.option = Option(
                name=re.sub("_([a-z])", lambda match: match[1].upper(), name),
                argument=name,
                type=kind,
                default=given if given is None or isinstance(given, str) else kind.write(given),
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

    ``default`` is its text, or a value, such as a constant of another package; None is none, and ``shown`` says in
    documents what that means. ``only`` narrows where the option may be given, or names its route. A ``batch_default``
    is that of batch reads. ``low`` and ``high`` bound numbers, sizes and ranges. A ``secret`` is left out of ``repr``.
    """
    narrowed = only if isinstance(only, tuple) else (only,)
    return _Declaration(default, meaning, example, narrowed, batch_default, low, high, ignored, shown, secret)


class OptionSet:
    """Base of a frozen dataclass of options. ``where`` is where its options may be given, unless they say ``only``.

    Other fields may stand beside the options. Fields are annotated with types that exist when the class is made.
    """

    declared: ClassVar[Mapping[str, Option]] = {}  # of this class alone, by field

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
    """Return the type that an annotation stands for, whether None may stand there, too, or not."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is Annotated:
        return next(part for part in get_args(hint) if isinstance(part, OptionType))
    return values.one_of(get_args(hint)) if get_origin(hint) is Literal else _PLAIN_TYPES[hint]


_OPTIONS: Final[list[Option]] = []  # complete once the package has been imported


def all_options() -> tuple[Option, ...]:
    """Return every option there is."""
    return tuple(_OPTIONS)


def options_named(name: str) -> tuple[Option, ...]:
    """Return every option of this name, whatever its case; there is one in each place at most."""
    return tuple(one for one in _OPTIONS if one.name.lower() == name.lower())


_HEAD: Final = """\
# Options

Generated from the option table (`make docs`); a test keeps it true. Names are read without regard to case, as
everywhere in Spark. Unknown options are refused, except those that Spark itself passes to a source or a sink.

Sizes are bytes, or `512KiB`, `64MiB`, `1GiB`, `1TiB` (powers of 1024). Durations are `100ms`, `30s`, `15min`, `1h`,
`7d`, or plain seconds. `2m` is 2 MiB for a size and 2 minutes for a duration: write `2MiB` and `2min`.
Positions are stream positions of a recording, in bytes: where a message begins, always a multiple of 32.
"""

_ENDPOINT: Final = """\
## The secure endpoint

A server and a client of the secure endpoint take the options below. `maxConnections` is `--max-connections` on the
command line, `max_connections=` in Python, and `maxConnections` in a server's TOML file, at its top or in the table
`[server]`. There, and in Python, numbers, true and false, and lists may stand for their texts. Options that nobody
knows, and options that contradict each other, are refused. In Spark those of a client stand beside `server`, spelt as
here; `identity`, `aeronDir`, `serverKey` and `connectTimeout` are those above.
"""


_NAMING: Final = ("channel", "streamId", "server", "stream")  # they say which route it is
_OF_ROUTE: Final = {Route.DIRECT: "Direct way only. ", Route.SERVER: "Through a server only. "}


def markdown() -> str:
    """Return the whole text of ``docs/options.md``."""
    found = all_options()
    shared = [one for one in found if one.where & READING and one.where & WRITING]
    reading = [one for one in found if one.where <= READING]
    writing = [one for one in found if one.where <= WRITING]
    spark = (
        ("Reaching a stream (reading and writing)", shared),
        ("Reading", reading),
        ("Writing", writing),
    )
    endpoint = (
        ("A server and a client", [one for one in found if one.where == ENDPOINT]),
        ("A server", [one for one in found if one.where == SERVER]),
        ("A client", [one for one in found if one.where == CLIENT]),
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
