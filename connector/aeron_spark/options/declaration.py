"""Declares options.

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
from collections.abc import Mapping
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
    the only route of the option; None means both. An option of a server is ``live``, which applies to a running server,
    or has a reason for a ``restart``.
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
    only: tuple[frozenset[Where] | Route, ...]
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
                live=self.live,
                restart=self.restart,
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
    shown: str | None = None, secret: bool = False, live: bool = False, restart: Restart | None = None,
) -> Any:  # fmt: skip
    """Declare an option as a field of an OptionSet.

    ``default`` is a text, or a value such as a constant of another package. None means no default; ``shown`` describes
    it in documents. ``only`` restricts the places of the option, or names its route. ``batch_default`` applies to batch
    reads. ``low`` and ``high`` limit numbers, sizes and ranges. A ``secret`` does not appear in ``repr``. Of a server's
    option, ``live`` or ``restart`` says when a change applies.
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


_OPTIONS: Final[list[Option]] = []  # complete after the import of the package


def all_options() -> tuple[Option, ...]:
    """Return all options."""
    return tuple(_OPTIONS)


def options_named(name: str) -> tuple[Option, ...]:
    """Return the options with this name, in any case: at most one for each place."""
    return tuple(one for one in _OPTIONS if one.name.lower() == name.lower())
