"""The settings of reading SBE messages: the chosen messages, their framing, and the mapping of types to columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from aeron_spark.errors import OptionError


class OnMalformed(IntEnum):
    """The treatment of malformed messages; the numbers are part of the decode table."""

    FAILFAST = 0
    PERMISSIVE = 1
    DROPMALFORMED = 2


class Others(IntEnum):
    """The treatment of messages that are not chosen; the numbers are part of the decode table."""

    SKIP = 0
    KEEP = 1
    FAIL = 2


class Framing(IntEnum):
    """The places of messages in an Aeron message; the numbers are part of the decode table."""

    ONE = 0
    SEQUENCE = 1
    ALIGNED_8 = 2
    SOFH = 3
    LENGTH16 = 4
    LENGTH32 = 5
    CLUSTER = 6

    @property
    def is_single(self) -> bool:
        """Whether an Aeron message has one message."""
        return self in (Framing.ONE, Framing.CLUSTER)


FRAMINGS: Final = {
    "one": Framing.ONE,
    "sequence": Framing.SEQUENCE,
    "aligned-8": Framing.ALIGNED_8,
    "sofh": Framing.SOFH,
    "length16": Framing.LENGTH16,
    "length32": Framing.LENGTH32,
    "cluster": Framing.CLUSTER,
}
_NAME: Final = re.compile(r"\w[\w.-]*|\*")
TIME_SUFFIXES: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True, slots=True)
class DecimalColumns:
    """The type of decimals: ``exact``, ``double``, or a decimal of one precision and scale."""

    kind: str = "exact"
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """The integers that are times: with ``explicit`` those with a unit in the schema, and ``units`` by field name."""

    explicit: bool = True
    units: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SbeSettings:
    """The settings of a decoder. ``messages`` has names or template ids; empty means the only message of the schema."""

    messages: tuple[str, ...] = ()
    others: str = ""  # "" means keep with several messages, skip with one
    mode: OnMalformed = OnMalformed.FAILFAST
    framing: Framing = Framing.ONE
    decimals: DecimalColumns = DecimalColumns()
    times: TimeColumns = TimeColumns()
    enums: str = "names"
    sets: str = "names"
    metadata: bool = False


def parse_messages(text: str) -> tuple[str, ...]:
    """Parse names or template ids, separated by commas, or ``*``. Raises ValueError."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) != len(names) or ("*" in names and len(names) > 1):
        raise ValueError("a message's name or template id, several separated by commas, or '*'")
    return names


def parse_decimals(text: str) -> DecimalColumns:
    """Parse ``exact``, ``double`` or ``decimal(precision,scale)``. Raises ValueError."""
    if text in ("exact", "double"):
        return DecimalColumns(text)
    match = re.fullmatch(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", text, re.IGNORECASE | re.ASCII)
    if match is None or not 1 <= int(match[1]) <= 38 or int(match[2]) > int(match[1]):
        raise ValueError("'exact', 'double' or 'decimal(precision,scale)' with a precision of at most 38")
    return DecimalColumns("decimal", int(match[1]), int(match[2]))


def parse_times(text: str) -> TimeColumns:
    """Parse ``explicit``, ``none``, or units such as ``sendingTime:us,bids.at:ns``. Raises ValueError."""
    if text in ("explicit", "none"):
        return TimeColumns(text == "explicit")
    units = []
    for part in text.split(","):
        name, colon, unit = part.strip().rpartition(":")
        if not colon or not name or unit not in TIME_SUFFIXES:
            raise ValueError("'explicit', 'none', or fields with units s, ms, us or ns, such as 'sendingTime:us'")
        units.append((name, TIME_SUFFIXES[unit]))
    if len(dict(units)) != len(units):
        raise ValueError("one unit for each field")
    return TimeColumns(True, tuple(units))


def parse_mode(text: str) -> OnMalformed:
    """Parse the name of a mode, in any case. Raises ValueError."""
    try:
        return OnMalformed[text.upper()]
    except KeyError:
        raise ValueError("FAILFAST, PERMISSIVE or DROPMALFORMED") from None


def settings_of(message: str | None, options: Mapping[str, str]) -> SbeSettings:
    """Parse the message and the options of ``from_sbe``, such as ``{"mode": "PERMISSIVE"}``. Raises OptionError."""
    parsers: dict[str, tuple[str, Callable[[str], Any]]] = {
        "message": ("messages", parse_messages),
        "others": ("others", _choice("skip", "fail")),
        "mode": ("mode", parse_mode),
        "framing": ("framing", _choice(*FRAMINGS)),
        "decimals": ("decimals", parse_decimals),
        "times": ("times", parse_times),
        "enums": ("enums", _choice("names", "values")),
        "sets": ("sets", _choice("names", "bits", "flags")),
    }
    found: dict[str, Any] = {}
    for name, text in {**options, **({} if message is None else {"message": message})}.items():
        if name not in parsers:
            raise OptionError(f"unknown option {name!r}", remedy=f"The options are: {', '.join(list(parsers)[1:])}.")
        field, parse = parsers[name]
        try:
            found[field] = parse(str(text))
        except ValueError as error:
            raise OptionError(f"option {name!r} must be {error}, not {text!r}", remedy="Correct the option.") from None
    found["framing"] = FRAMINGS[found.get("framing", "one")]
    return SbeSettings(**found)


def _choice(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse
