"""A grant as text, in the words of the clients file."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timezone

from aeron_spark.protocol.grants import MESSAGE_DIRECTIONS, STREAM_ACTIONS, Grant, KeyLimits
from aeron_spark.units import format_size

SIZES = frozenset({"bytes_in", "bytes_out", "stage_bytes"})


def allowed_text(grant: Grant) -> str:
    """Return what the grant allows; "connect and ping" if that is all."""
    if grant.everything:
        return "all"
    words = [
        f"streams={','.join(one.patterns)}:" + (",".join(action for action in STREAM_ACTIONS if action in one.actions))
        for one in grant.streams
    ]
    if grant.writers is not None:
        words.append(f"writers={','.join(grant.writers)}")
    if grant.calls:
        words.append(f"calls={','.join(grant.calls)}")
    if grant.messages:
        words.append(f"messages={','.join(one for one in MESSAGE_DIRECTIONS if one in grant.messages)}")
    if grant.sends_files:
        words.append("files=send")
    return " ".join(words) or "connect and ping"


def conditions_text(grant: Grant) -> str:
    """Return the conditions of the grant, or ""."""
    words = [f"tag={','.join(patterns)}" for patterns in grant.tags]
    words += [f"from={','.join(map(str, networks))}" for networks in grant.networks]
    if grant.expires is not None:
        words.append(f"expires={time_text(grant.expires)}")
    return " ".join(words)


def limits_text(grant: Grant) -> str:
    """Return the limits of the grant, or ""."""
    found = ((one.name, getattr(grant.limits, one.name)) for one in fields(KeyLimits))
    return " ".join(
        f"{name.replace('_', '-')}={format_size(value) if name in SIZES else value}"
        for name, value in found
        if value is not None
    )


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as text in UTC: a day at midnight, else a time."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.strftime("%Y-%m-%d" if seconds % 86_400 == 0 else "%Y-%m-%dT%H:%M:%SZ")
