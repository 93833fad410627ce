"""The texts an option may have, turned into values. Each parser raises ``ValueError`` saying what it expects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from typing import Final, Literal

from aeron_spark.transport.channel_parameters import FRAME_ALIGNMENT

NANOS: Final = 1_000_000_000  # nanoseconds in a second
INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
RESERVED: Final = ("reserved-ns", "reserved-ms")

_DURATION: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*(ns|us|ms|s|min|m|h|d)?", re.ASCII)
_DURATION_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "min": 60 * NANOS,
    "h": 3_600 * NANOS,
    "d": 86_400 * NANOS,
}
_SIZE: Final = re.compile(r"(\d{1,18})\s*(?:([kmgt])(?:i?b)?|b)?", re.ASCII)
_SIZE_UNITS: Final[Mapping[str, int]] = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_STREAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
# A regular expression, because what datetime.fromisoformat takes differs from one Python to the next.
_MOMENT: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})"  # day
    r"(?:(?:[Tt]|\s+)(\d{2}:\d{2}(?::\d{2})?)(?:[.,](\d{1,9}))?)?"  # time of day, and its fraction of a second
    r"\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?",  # zone
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

Edge = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """What ``startingOffsets`` or ``endingOffsets`` ask for.

    ``named`` maps a recording (``archive/id``, or just the id) to a position or an edge; ``rest`` is for every other.
    """

    rest: Edge
    named: Mapping[str, int | Edge] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: fixed, or so many nanoseconds before a now that only the caller knows."""

    fixed_ns: int | None = None
    ago_ns: int | None = None

    def at(self, now_ns: int) -> int:
        """Give it in nanoseconds since the epoch."""
        if self.fixed_ns is not None:
            return self.fixed_ns
        return now_ns - (self.ago_ns or 0)


@dataclass(frozen=True, slots=True)
class TimestampFrom:
    """Where a foreign stream carries its publish time: Aeron's reserved value, or eight bytes of the payload."""

    place: Literal["reserved-ns", "reserved-ms", "payload"]
    offset: int = 0  # bytes from the beginning of the payload, for ``payload``


def whole(text: str, low: int, high: int) -> int:
    """Parse a whole number from ``low`` to ``high``."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"a whole number {_bounds(low, high)}")
    number = int(text)
    if not low <= number <= high:
        raise ValueError(f"a whole number {_bounds(low, high)}")
    return number


def _bounds(low: int, high: int) -> str:
    return f"of at least {low}" if high == INT64_MAX else f"from {low} to {high}"


def size(text: str, low: int, high: int) -> int:
    """Parse bytes: ``512KiB``, ``64MiB``, ``1GiB``, also ``64m``, ``64mb`` (powers of 1024), or a plain number."""
    match = _SIZE.fullmatch(text.lower())
    if match is None:
        raise ValueError("a size in bytes such as 512KiB, 64MiB, 1GiB or 1048576")
    number = int(match[1]) * _SIZE_UNITS[match[2] or ""]
    if not low <= number <= high:
        raise ValueError(f"a size {_bounds(low, high)} bytes")
    return number


def duration_ns(text: str) -> int:
    """Parse a duration above zero into nanoseconds: ``100ms``, ``30s``, ``15min``, ``1h``, or plain seconds."""
    match = _DURATION.fullmatch(text.lower())
    nanos = int(Fraction(match[1]) * _DURATION_UNITS[match[2] or "s"]) if match else 0
    if not 0 < nanos <= INT64_MAX:
        raise ValueError("a duration above zero such as 100ms, 30s, 15min or 1h")
    return nanos


def duration_or_zero_ns(text: str) -> int:
    """Parse a duration into nanoseconds, or 0."""
    if re.fullmatch(r"0+(?:\.0+)?\s*(?:ns|us|ms|s|min|m|h|d)?", text.lower()):
        return 0
    try:
        return duration_ns(text)
    except ValueError:
        raise ValueError("a duration such as 100ms, 30s, 15min or 1h, or 0") from None


def flag(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError("true or false")
    return lower == "true"


def choice(text: str, choices: tuple[str, ...]) -> str:
    """Parse one of ``choices``, whatever its case."""
    if text.lower() not in choices:
        raise ValueError(f"{', '.join(choices[:-1])} or {choices[-1]}")
    return text.lower()


def stream_name(text: str) -> str:
    """Parse the name of a server's stream."""
    if not _STREAM.fullmatch(text):
        raise ValueError(
            "the name of a stream: at most 128 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return text


def moment(text: str) -> Moment:
    """Parse an ISO time, with ``T`` or a space, in UTC where it names no zone; or a relative one such as ``-10min``."""
    expected = "an ISO time such as 2026-03-01T09:30:00Z, or a relative one such as -10min"
    if text.startswith("-"):
        try:
            return Moment(ago_ns=duration_ns(text[1:].strip()))
        except ValueError:
            raise ValueError(expected) from None
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(expected)
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z", "z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:] or '00'}"
    try:
        aware = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone}")
    except ValueError:  # such as a 30th of February
        raise ValueError(expected) from None
    since = aware - _EPOCH
    fixed_ns = (since.days * 86_400 + since.seconds) * NANOS + int((fraction or "").ljust(9, "0"))
    if abs(fixed_ns) > INT64_MAX:
        raise ValueError("a time between the years 1678 and 2261: publish times are 64 bits of nanoseconds")
    return Moment(fixed_ns=fixed_ns)


def timestamp_from(text: str) -> TimestampFrom:
    """Parse ``reserved-ns``, ``reserved-ms`` or a byte offset into the payload."""
    lower = text.lower()
    if lower == "reserved-ns":
        return TimestampFrom("reserved-ns")
    if lower == "reserved-ms":
        return TimestampFrom("reserved-ms")
    try:
        return TimestampFrom("payload", whole(text, 0, INT32_MAX))
    except ValueError:
        raise ValueError("reserved-ns, reserved-ms, or the byte offset of a nanosecond time in the payload") from None


def sessions(text: str) -> tuple[int, ...]:
    """Parse session ids separated by commas."""
    try:
        return tuple(dict.fromkeys(whole(part.strip(), INT32_MIN, INT32_MAX) for part in text.split(",")))
    except ValueError:
        raise ValueError("session ids (32-bit whole numbers) separated by commas") from None


def archives(text: str) -> tuple[str, ...]:
    """Split several control channels; a comma separates them only where the next channel (or ``embedded``) begins."""
    parts = [part.strip() for part in re.split(r",(?=\s*(?:aeron(?:-spy)?:|embedded\b|,|$))", text)]
    if not all(parts):
        raise ValueError("control channel URIs separated by commas, or embedded")
    if len(set(parts)) != len(parts):
        raise ValueError("different archives, each named once")
    return tuple(parts)


def offsets(text: str, rest: Edge) -> WantedOffsets:
    """Parse ``earliest``, ``latest``, or JSON of recording to position; ``rest`` is for those it does not name."""
    lower = text.lower()
    if lower == "earliest":
        return WantedOffsets("earliest")
    if lower == "latest":
        return WantedOffsets("latest")
    expected = (
        'earliest, latest, or JSON of recordings to positions such as {"embedded/7": 4096, "embedded/8": "latest"}'
    )
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError(expected) from None
    if not isinstance(pairs, _Pairs):
        raise ValueError(expected)
    named: dict[str, int | Edge] = {}
    for name, value in pairs.items:
        if name in named:
            raise ValueError(f"JSON that names each recording once, not {name!r} twice")
        named[name] = _position(name, value)
    return WantedOffsets(rest, named)


class _Pairs:
    """A JSON object before its repeated names are lost."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[str, object]]) -> None:
        self.items = items


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def _position(name: str, value: object) -> int | Edge:
    if not re.fullmatch(r"(?:.+/)?\d{1,19}", name, re.ASCII):
        raise ValueError(f"JSON whose names are recordings, archive/id or just the id, not {name!r}")
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise ValueError(
            f'JSON whose values are positions, "earliest" or "latest", which {_shown(value)} of {name!r} is not'
        )
    if value % FRAME_ALIGNMENT:
        raise ValueError(
            f"JSON whose positions are message beginnings, multiples of {FRAME_ALIGNMENT}, which {value} of {name!r} "
            f"is not"
        )
    return value


def _shown(value: object) -> str:
    """Show a value of some JSON in an error."""
    return "an object" if isinstance(value, _Pairs) else str(value)
