"""The start of a recording (user, time and query), stored in the ``alias`` of the recorded channel.

    aeron:udp?endpoint=localhost:40123|alias=flights;aeron-spark(at=1795469531315,by=ann%40host,query=counts)

An archive stores the alias of a channel in its catalog and its list of recording subscriptions, but ignores it when it
compares channels. The note therefore needs no file, survives restarts and backups, and works with a remote archive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from aeron_spark.errors import OptionError
from aeron_spark.transport.channel import ChannelUri

MAX_TEXT: Final = 100  # characters of a name, because the channel must fit into a counter's label
_NOTE: Final = re.compile(
    r"(?P<own>.*?);?aeron-spark\(at=(?P<at>\d{1,15}),by=(?P<by>[^,()]*),query=(?P<query>[^,()]*)\)", re.DOTALL
)
_SERVER_STREAM: Final = re.compile(r"aeron-spark:(?P<stream>[^:]*):\d+:[0-9a-f]+")  # streams.partition names them so


@dataclass(frozen=True, slots=True)
class RecordingStart:
    """The start of a recording.

    ``at_ms``: milliseconds since the epoch. ``by``: user, host and program. ``query``: name of the query, or "".
    """

    at_ms: int
    by: str
    query: str = ""


def with_start(channel: str, start: RecordingStart) -> str:
    """Return ``channel`` with ``start`` in its alias, or unchanged if the URI would become too long."""
    parsed = ChannelUri.parse(without_start(channel), foreign=True)
    by, query = quote(start.by[:MAX_TEXT], safe="@/."), quote(start.query[:MAX_TEXT], safe="@/.")
    note = f"aeron-spark(at={start.at_ms},by={by},query={query})"
    own = parsed.get("alias")
    try:
        return str(ChannelUri.parse(str(parsed.with_params(alias=f"{own};{note}" if own else note)), foreign=True))
    except OptionError:
        return channel


def start_of(channel: str) -> RecordingStart | None:
    """Return the start in the alias of a recorded channel, or None without one."""
    found = _note(ChannelUri.parse(channel, foreign=True))
    return None if found is None else RecordingStart(int(found["at"]), unquote(found["by"]), unquote(found["query"]))


def without_start(channel: str) -> str:
    """Return the channel without the note of its recording's start."""
    parsed = ChannelUri.parse(channel, foreign=True)
    found = _note(parsed)
    if found is None:
        return channel
    without = parsed.without("alias")
    return str(without.with_params(alias=found["own"]) if found["own"] else without)


def server_stream(channel: str) -> str | None:
    """Return the name of the server's stream to which a recorded channel belongs, or None for another recording."""
    found = _SERVER_STREAM.fullmatch(ChannelUri.parse(channel, foreign=True).get("alias") or "")
    return None if found is None else found["stream"]


def _note(channel: ChannelUri) -> re.Match[str] | None:
    return _NOTE.fullmatch(channel.get("alias") or "")
