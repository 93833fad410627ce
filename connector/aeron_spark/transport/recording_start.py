"""Who started a recording, when, and for which query: kept in the ``alias`` of the channel that an archive records.

    aeron:udp?endpoint=localhost:40123|alias=flights;aeron-spark(at=1795469531315,by=ann%40host,query=counts)

An archive keeps the alias of a channel in its catalog and in its list of standing subscriptions, and compares channels
without it. So the note needs no file, survives restarts and backups, and works with an archive on another host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from aeron_spark.errors import OptionError
from aeron_spark.transport.channel import ChannelUri

MAX_TEXT: Final = 100  # characters of a name: a channel has to stay short enough for a counter's label
_NOTE: Final = re.compile(
    r"(?P<own>.*?);?aeron-spark\(at=(?P<at>\d{1,15}),by=(?P<by>[^,()]*),query=(?P<query>[^,()]*)\)", re.DOTALL
)
_SERVER_STREAM: Final = re.compile(r"aeron-spark:(?P<stream>[^:]*):\d+:[0-9a-f]+")  # streams.partition names them so


@dataclass(frozen=True, slots=True)
class RecordingStart:
    """``at_ms`` is in milliseconds since the epoch; ``by`` names user, host and program; ``query`` may be empty."""

    at_ms: int
    by: str
    query: str = ""


def with_start(channel: str, start: RecordingStart) -> str:
    """Return ``channel`` with ``start`` noted in its alias, or unchanged where the URI would become too long."""
    parsed = ChannelUri.parse(without_start(channel), foreign=True)
    by, query = quote(start.by[:MAX_TEXT], safe="@/."), quote(start.query[:MAX_TEXT], safe="@/.")
    note = f"aeron-spark(at={start.at_ms},by={by},query={query})"
    own = parsed.get("alias")
    try:
        return str(ChannelUri.parse(str(parsed.with_params(alias=f"{own};{note}" if own else note)), foreign=True))
    except OptionError:
        return channel


def start_of(channel: str) -> RecordingStart | None:
    """Return the start that is noted in a recorded channel, or None where none is."""
    found = _note(ChannelUri.parse(channel, foreign=True))
    return None if found is None else RecordingStart(int(found["at"]), unquote(found["by"]), unquote(found["query"]))


def without_start(channel: str) -> str:
    """Return the channel as it was given when its recording was started."""
    parsed = ChannelUri.parse(channel, foreign=True)
    found = _note(parsed)
    if found is None:
        return channel
    without = parsed.without("alias")
    return str(without.with_params(alias=found["own"]) if found["own"] else without)


def server_stream(channel: str) -> str | None:
    """Return the name of the server's stream that a recorded channel belongs to, or None for every other recording."""
    found = _SERVER_STREAM.fullmatch(ChannelUri.parse(channel, foreign=True).get("alias") or "")
    return None if found is None else found["stream"]


def _note(channel: ChannelUri) -> re.Match[str] | None:
    return _NOTE.fullmatch(channel.get("alias") or "")
