"""The types of option values: a parser for the text of each type, and annotations for the fields of an OptionSet.

A parser raises ``ValueError`` with the expected value, or OptionError with a complete error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Annotated, Any, Final, Literal

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.keypair import PREFIX, parse_public
from aeron_spark.texts import (
    INT64_MAX,
    NANOS,
    format_seconds,
    format_size,
    parse_duration_ns,
    parse_duration_or_zero_ns,
    parse_size,
    parse_whole,
)
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.channel import FRAME_ALIGNMENT, ChannelUri
from aeron_spark.transport.endpoint_channels import ClientPorts, client_ports, server_address

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
ENVIRONMENT: Final = "env:"
AUTO: Final = "auto"

STREAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
# A regular expression, because the texts that datetime.fromisoformat accepts depend on the Python version.
_MOMENT: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})"  # day
    r"(?:(?:[Tt]|\s+)(\d{2}:\d{2}(?::\d{2})?)(?:[.,](\d{1,9}))?)?"  # time of day, and its fraction of a second
    r"\s*([Zz]|[+-]\d{2}(?::?[0-5]\d)?)?",  # zone
    re.ASCII,
)
_ARCHIVE_COMMA: Final = re.compile(r",(?=\s*(?:aeron(?:-spy)?:|embedded(?!\w)|,|\Z))", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
# 32 bytes as hex, or as base64 of either alphabet; write "./" before a path that looks the same
_KEY: Final = re.compile(r"[0-9A-Fa-f]{64}|[A-Za-z0-9+/_-]{43}=|[A-Za-z0-9+_-]{43}|[A-Za-z0-9+][A-Za-z0-9+/]{42}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SPAN: Final = re.compile(r"(\d{1,10})\s*-\s*(\d{1,10})", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

Edge = Literal["earliest", "latest"]
ServerNames = tuple[tuple[str, str], ...]  # of each server: host:port, and the address with its control port


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """The value of ``startingOffsets`` or ``endingOffsets``.

    ``named`` maps a recording (``archive/id``, or only the id) to a position or an edge; ``default`` is for all others.
    """

    default: Edge
    named: Mapping[str, int | Edge] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: fixed, in nanoseconds since 1970, or a number of nanoseconds before now."""

    fixed_ns: int | None = None
    ago_ns: int | None = None

    def at(self, now_ns: int) -> int:
        """Return the time in nanoseconds since 1970; ``now_ns`` is the current time."""
        if self.fixed_ns is not None:
            return self.fixed_ns
        return now_ns - (self.ago_ns or 0)


@dataclass(frozen=True, slots=True)
class TimestampFrom:
    """The location of the publish time in messages of other programs: Aeron's reserved value, or payload bytes."""

    location: Literal["reserved-ns", "reserved-ms", "payload"]
    offset: int = 0  # of the eight bytes in the payload, for ``payload``


def parse_flag(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError("true or false")
    return lower == "true"


def parse_choice(text: str, choices: tuple[str, ...]) -> str:
    """Parse one of ``choices``, in any case."""
    if text.lower() not in choices:
        raise ValueError(f"{', '.join(choices[:-1])} or {choices[-1]}")
    return text.lower()


def parse_stream_name(text: str) -> str:
    """Parse the name of a server's stream."""
    if not STREAM_NAME.fullmatch(text):
        raise ValueError(
            "the name of a stream: at most 128 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return text


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern of names of streams, as in a grant; a name has none of these characters."""
    return not {"*", "?", "["}.isdisjoint(text)


def parse_streams(text: str) -> tuple[str, ...]:
    """Parse several names and patterns of streams, separated by commas; empty for one name."""
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) == 1 and not is_pattern(text):
        return ()
    for part in parts:
        # a pattern has the same characters, and those of patterns, which a letter replaces here
        if not STREAM_NAME.fullmatch(re.sub(r"[*?!\[\]]", "x", part) if is_pattern(part) else part):
            raise ValueError(
                "names of streams (letters, digits, '.', '_' and '-'), or patterns with '*', '?' or '[...]', separated "
                "by commas"
            )
    return _each_once(parts)


def parse_stream_ids(text: str) -> tuple[str, ...]:
    """Parse several Aeron stream ids, separated by commas; empty for one."""
    if "," not in text:
        return ()
    try:
        ids = [parse_whole(part.strip(), INT32_MIN, INT32_MAX) for part in text.split(",")]
    except ValueError:
        raise ValueError("Aeron stream ids (32-bit whole numbers) separated by commas") from None
    return _each_once(tuple(map(str, ids)))


def _each_once(streams: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(streams)) < len(streams):
        raise ValueError("streams without repetition")
    return streams


def parse_moment(text: str) -> Moment:
    """Parse an ISO time, with ``T`` or a space, in UTC if it has no zone; or a relative time such as ``-10min``."""
    expected = "an ISO time such as 2026-03-01T09:30:00Z, or a relative one such as -10min"
    if text.startswith("-"):
        try:
            return Moment(ago_ns=parse_duration_ns(text[1:].strip()))
        except ValueError:
            raise ValueError(expected) from None
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(expected)
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z", "z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:] or '00'}"
    try:
        aware = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone}")
    except ValueError:  # for example the 30th of February
        raise ValueError(expected) from None
    since = aware - _EPOCH
    fixed_ns = (since.days * 86_400 + since.seconds) * NANOS + int((fraction or "").ljust(9, "0"))
    if abs(fixed_ns) > INT64_MAX:
        raise ValueError("a time between the years 1678 and 2261: publish times are 64 bits of nanoseconds")
    return Moment(fixed_ns=fixed_ns)


def parse_timestamp_from(text: str) -> TimestampFrom:
    """Parse ``reserved-ns``, ``reserved-ms`` or a byte offset into the payload."""
    lower = text.lower()
    if lower == "reserved-ns":
        return TimestampFrom("reserved-ns")
    if lower == "reserved-ms":
        return TimestampFrom("reserved-ms")
    try:
        return TimestampFrom("payload", parse_whole(text, 0, INT32_MAX))
    except ValueError:
        raise ValueError("reserved-ns, reserved-ms, or the byte offset of a nanosecond time in the payload") from None


def parse_session_ids(text: str) -> tuple[int, ...]:
    """Parse session ids separated by commas."""
    try:
        return tuple(dict.fromkeys(parse_whole(part.strip(), INT32_MIN, INT32_MAX) for part in text.split(",")))
    except ValueError:
        raise ValueError("Aeron session ids (32-bit whole numbers) separated by commas") from None


def split_archives(text: str) -> tuple[str, ...]:
    """Split several control channels at each comma before ``aeron:``, ``aeron-spy:`` or ``embedded``."""
    parts = [part.strip() for part in _ARCHIVE_COMMA.split(text)]
    if not all(parts):
        raise ValueError("control channel URIs separated by commas, or embedded")
    if len(set(parts)) != len(parts):
        raise ValueError("archives without repetition")
    return tuple(parts)


def parse_offsets(text: str, default: Edge) -> WantedOffsets:
    """Parse ``earliest``, ``latest``, or JSON of recordings to positions; ``default`` is for all other recordings."""
    lower = text.lower()
    if lower == "earliest":
        return WantedOffsets("earliest")
    if lower == "latest":
        return WantedOffsets("latest")
    expected = (
        'earliest, latest, or JSON of recordings to positions such as {"embedded/7": 4096, "embedded/8": "latest"}'
    )
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_float=_Fraction, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError(expected) from None
    if not isinstance(pairs, _Pairs):
        raise ValueError(expected)
    named: dict[str, int | Edge] = {}
    for name, value in pairs.items:
        if name in named:
            raise ValueError(f"JSON that names each recording once, not {name!r} twice")
        named[name] = _position(name, value)
    return WantedOffsets(default, named)


def parse_end(text: str) -> WantedOffsets | Moment:
    """Parse the end of a backfill: positions as ``parse_offsets`` reads them, ``latest``, or an ISO time."""
    if text.lower() == "latest" or text.lstrip().startswith("{"):
        return parse_offsets(text, "latest")
    expected = "latest, an ISO time such as 2026-03-01T09:30:00Z, or JSON of recordings to positions"
    try:
        moment = parse_moment(text)
    except ValueError:
        raise ValueError(expected) from None
    if moment.fixed_ns is None:  # it would be another time after a restart
        raise ValueError(expected)
    return moment


class _Pairs:
    """A JSON object with its repeated names, which a dict would lose."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[str, object]]) -> None:
        self.items = items


class _Fraction(str):
    """The text of a JSON number that is not whole, which can be too large for a float."""

    __slots__ = ()


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def _position(name: str, value: object) -> int | Edge:
    if not re.fullmatch(r"(?:[^\ud800-\udfff\n]+/)?\d{1,19}", name, re.ASCII):  # no half of a surrogate pair
        raise ValueError(f"JSON whose names are recordings, archive/id or only the id, not {name!r}")
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise ValueError(
            f'JSON whose values are positions, "earliest" or "latest"; the value of {name!r} is {_text_of(value)}'
        )
    if value % FRAME_ALIGNMENT:
        raise ValueError(
            f"JSON whose positions are multiples of {FRAME_ALIGNMENT}, where messages begin; the position of {name!r} "
            f"is {value}"
        )
    return value


def _text_of(value: object) -> str:
    """Return a JSON value as it appears in an error."""
    if isinstance(value, _Pairs | list):
        return "an object" if isinstance(value, _Pairs) else "a list"
    return json.dumps(value) if isinstance(value, bool | None) else str(value)


def parse_number(text: str, low: int, high: int) -> float:
    """Parse a number from ``low`` to ``high``, such as 0.5."""
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not low <= value <= high:
        raise ValueError(f"a number of at least {low}, such as 10 or 0.5")
    return value


def parse_span(text: str, low: int, high: int) -> tuple[int, int]:
    """Parse the inclusive range ``first-last``, with both numbers from ``low`` to ``high``."""
    match = _SPAN.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (-1, -1)
    if not low <= first <= last <= high:
        raise ValueError(f"a range such as {low}-{high}, the first not after the last")
    return first, last


def parse_public_key(text: str) -> bytes:
    """Parse a public key as ``aeron-spark keys show`` prints it. Raises OptionError for an invalid one."""
    try:
        return parse_public(text)
    except DataFormatError as error:
        raise OptionError(error.what, remedy=error.remedy) from None


def parse_public_keys(text: str) -> tuple[bytes, ...]:
    """Parse public keys, separated by commas. Raises OptionError for an invalid one."""
    return tuple(parse_public_key(part.strip()) for part in text.split(","))


def servers_file_path(text: str) -> str | None:
    """Return the path after ``@`` of a file that lists servers; None if the text has the servers themselves."""
    if not text.startswith("@"):
        return None
    if not text[1:].strip():
        raise OptionError("the path after '@' is missing", remedy="Give a path, such as @/etc/aeron-spark/servers.")
    return text[1:].strip()


def parse_servers(text: str) -> ServerNames:
    """Parse servers' addresses, separated by commas: return the name ``host:port`` and the full address of each.

    Raises OptionError for an address that is not on a network, and for a server that is given twice.
    """
    addresses: dict[str, str] = {}
    for part in text.split(","):
        address = server_address(part).address
        if address.media == "ipc":
            raise OptionError(
                f"the address {part.strip()!r} is not valid on other machines, expected host:port",
                remedy="Give host:port. Connections to a server on this machine use shared memory anyway.",
            )
        name = str(HostPort(address.host, address.data_port))
        if name in addresses:
            raise OptionError(f"the server {name} is given twice", remedy="Give it once.")
        addresses[name] = f"{name}:{address.control_port}"
    return tuple(addresses.items())


def parse_identity(text: str) -> str:
    """Check the location of a key: a path, a file name, or ``env:NAME``. Raises OptionError for a key itself.

    The error does not repeat the text, because Spark shows errors in its UI and logs.
    """
    if text.startswith(ENVIRONMENT):
        if not _VARIABLE.fullmatch(text[len(ENVIRONMENT) :]):
            raise _secret_error("the text after 'env:' is not the name of an environment variable")
        return text
    if text.startswith(PREFIX):
        raise OptionError(
            "the value is a public key, expected the location of an identity key",
            remedy="Give the file of this client's identity key, or env:NAME.",
        )
    if _KEY.fullmatch(text) or "\n" in text or "private:" in text or "PRIVATE KEY" in text:
        raise _secret_error("the value looks like a key itself, and Spark shows options in its UI and logs")
    return text


def _secret_error(what: str) -> OptionError:
    return OptionError(
        what,
        remedy="Give the file of the key; or send the file with spark.addFile and give its name; or set an environment "
        "variable of the Spark driver and the executors, and give env:NAME. If the value was a key, others may know it "
        "now: create a new one with 'aeron-spark keys new'.",
    )


def parse_channel(text: str) -> str:
    """Return an Aeron URI unchanged. Raises OptionError for an invalid one."""
    ChannelUri.parse(text)
    return text


def parse_response_channel(text: str) -> str:
    """Parse an Aeron URI, or ``response`` for Aeron's response channels. Raises OptionError for another text."""
    return "response" if text.lower() == "response" else parse_channel(text)


def parse_archive_channels(text: str) -> tuple[str, ...]:
    """Parse control channels of archives, or ``embedded``. Raises OptionError for an invalid channel."""
    parts = (part.lower() if part.lower() == "embedded" else part for part in split_archives(text))
    return tuple(part if part == "embedded" else parse_channel(part) for part in parts)


def parse_servers_or_file(text: str) -> ServerNames | str:
    """Parse servers' addresses, or ``@`` and the path of a file that lists them, into the path."""
    return servers_file_path(text) or parse_servers(text)


@dataclass(frozen=True, slots=True)
class OptionType:
    """The type of an option's value.

    ``metavar`` is its name in ``--help``, ``label`` in docs/options.md. ``parse`` takes the text and the option's
    ``low`` and ``high``. ``write`` returns the text of a default that is declared as a value.
    """

    metavar: str
    label: str
    parse: Callable[[str, int, int], Any]
    write: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()


def one_of(choices: tuple[str, ...]) -> OptionType:
    """Return the type of a ``Literal`` of texts."""
    return OptionType("CHOICE", "one of", lambda text, low, high: parse_choice(text, choices), choices=choices)


def unbounded(parse: Callable[[str], Any]) -> Callable[[str, int, int], Any]:
    """Return the parser of a type without bounds."""
    return lambda text, low, high: parse(text)


def _in_seconds(parse: Callable[[str], int]) -> Callable[[str, int, int], float]:
    return lambda text, low, high: parse(text) / NANOS


def parse_size_or_auto(text: str, low: int, high: int) -> int | None:
    """Parse a size from ``low`` to ``high`` bytes, or ``auto`` into None."""
    return None if text.lower() == AUTO else parse_size(text, low, high)


# types of fields that are annotated with a plain Python type
TEXT: Final = OptionType("TEXT", "text", unbounded(str))
WHOLE: Final = OptionType("WHOLE", "whole number", parse_whole)
NUMBER: Final = OptionType("NUMBER", "number", parse_number, "{:g}".format)
FLAG: Final = OptionType("FLAG", "true or false", unbounded(parse_flag), lambda value: str(value).lower())

SIZE: Final = OptionType("SIZE", "size", parse_size, format_size)
DURATION: Final = OptionType("DURATION", "duration", _in_seconds(parse_duration_ns), format_seconds)
DURATION_OR_ZERO: Final = OptionType(
    "DURATION-OR-ZERO", "duration, or 0", _in_seconds(parse_duration_or_zero_ns), format_seconds
)
MOMENT: Final = OptionType("MOMENT", "time", unbounded(parse_moment))
SPAN: Final = OptionType("SPAN", "range", parse_span, "{0[0]}-{0[1]}".format)

PathText = Annotated[str, OptionType("PATH", "path", unbounded(str))]
Bytes = Annotated[int, SIZE]
BytesOrAuto = Annotated[int, OptionType("SIZE-OR-AUTO", "size, or `auto`", parse_size_or_auto)]
Seconds = Annotated[float, DURATION]
SecondsOrZero = Annotated[float, DURATION_OR_ZERO]
Nanoseconds = Annotated[int, OptionType("DURATION", "duration", unbounded(parse_duration_ns))]
Time = Annotated[Moment, MOMENT]
NumberRange = Annotated[tuple[int, int], SPAN]
PortRange = Annotated[tuple[int, int], OptionType("PORT-SPAN", "range of ports", parse_span)]
# types of the Aeron and log options
Channel = Annotated[str, OptionType("CHANNEL", "Aeron URI", unbounded(parse_channel))]
ResponseChannel = Annotated[str, OptionType("RESPONSE", "Aeron URI, or `response`", unbounded(parse_response_channel))]
Archives = Annotated[
    tuple[str, ...], OptionType("ARCHIVES", "Aeron URIs, or `embedded`", unbounded(parse_archive_channels))
]
StartingOffsets = Annotated[
    WantedOffsets, OptionType("OFFSETS", "offsets", lambda text, low, high: parse_offsets(text, "earliest"))
]
EndingOffsets = Annotated[
    WantedOffsets, OptionType("OFFSETS", "offsets", lambda text, low, high: parse_offsets(text, "latest"))
]
PublishTimes = Annotated[TimestampFrom, OptionType("TIMESTAMP-FROM", "location", unbounded(parse_timestamp_from))]
SessionIds = Annotated[tuple[int, ...], OptionType("SESSIONS", "session ids", unbounded(parse_session_ids))]
# types of the endpoint options
OwnAddress = Annotated[ClientPorts, OptionType("ADDRESS", "address", unbounded(client_ports))]
AddressTexts = Annotated[str, OptionType("ADDRESSES", "addresses", unbounded(str))]
Servers = Annotated[ServerNames | str, OptionType("ADDRESSES", "addresses", unbounded(parse_servers_or_file))]
PublicKey = Annotated[bytes, OptionType("PUBLIC-KEY", "public key", unbounded(parse_public_key))]
PublicKeys = Annotated[tuple[bytes, ...], OptionType("PUBLIC-KEYS", "public keys", unbounded(parse_public_keys))]
StreamName = Annotated[str, OptionType("STREAM", "name", unbounded(parse_stream_name))]
Identity = Annotated[str, OptionType("IDENTITY", "path, name or `env:NAME`", unbounded(parse_identity))]
