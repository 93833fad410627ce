"""Answers to cases of options and of channels, in the form of ``OptionAnswers``, the Java program of the same cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, is_dataclass
from enum import Enum
from typing import Any, Final

from aeron_spark.errors import OptionError
from aeron_spark.options import DirectRoute, Moment, ReadOptions, WantedOffsets
from aeron_spark.options.declaration import Format, Option
from aeron_spark.sbe.settings import TimeColumns
from aeron_spark.transport.channel import ChannelUri

_EDGES: Final = {"earliest": -2, "latest": -1}
_NANOS: Final = 1_000_000_000
_IN_SECONDS: Final = {"connectTimeoutNs", "archiveTimeoutNs", "idleTimeoutNs"}


def answer(options: Mapping[str, str], *, streaming: bool) -> dict[str, Any]:
    """Return the values of all options of ``format("aeron-jvm")``, or the error. Times are in nanoseconds."""
    try:
        read = ReadOptions.parse(options, streaming=streaming, spark_format=Format.AERON_JVM)
    except OptionError as error:
        return {"error": {"what": error.what, "remedy": error.remedy}}
    assert isinstance(read.route, DirectRoute)
    values = dict(_values(read)) | dict(_values(read.route))
    return {"values": values | {"streaming": streaming, "queryName": read.query_name, "ignored": list(read.ignored)}}


def channel_answer(text: str, *, foreign: bool) -> dict[str, Any]:
    """Return the channel's text and the identity of its stream, or the error."""
    try:
        channel = ChannelUri.parse(text, foreign=foreign)
    except OptionError as error:
        return {"error": {"what": error.what, "remedy": error.remedy}}
    names = ("media", "endpoint", "control", "controlMode", "networkInterface")
    return {"values": {"text": str(channel), **dict(zip(names, astuple(channel.identity), strict=True))}}


def format_of(option: Option) -> Format:
    """Return the format of Spark that has the option; the one in Python if both have it."""
    return next(one for one in Format if one in option.formats)


def _values(options: ReadOptions | DirectRoute) -> Iterator[tuple[str, Any]]:
    for field, option in options.options().items():
        if Format.AERON_JVM in option.formats:
            yield from _value(option, getattr(options, field))


def _value(option: Option, value: Any) -> Iterator[tuple[str, Any]]:
    if option.type.metavar == "DURATION":
        yield f"{option.name}Ns", _rounded(value) if isinstance(value, float) else value
    else:
        yield option.name, _json(value)


def in_python(answer: Any) -> Any:
    """Return an answer of Java with the precision of Python, which has most times as a float of seconds."""
    values = answer.get("values", {})
    return (
        answer if not values else {"values": values | {name: _rounded(values[name] / _NANOS) for name in _IN_SECONDS}}
    )


def _rounded(seconds: float) -> int:
    """Return the nanoseconds of a time that Python has as a float of seconds, exactly up to 104 days."""
    return round(seconds * _NANOS)


def _json(value: Any) -> Any:
    match value:
        case WantedOffsets():
            return {
                "others": _EDGES[value.default],
                "named": {name: _EDGES.get(str(one), one) for name, one in value.named.items()},
            }
        case TimeColumns():
            return {"explicit": value.explicit, "units": dict(value.units)}
        case Moment():
            return {"fixedNs": value.fixed_ns, "agoNs": value.ago_ns}
        case Enum():
            return value.name
        case tuple():
            return list(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
