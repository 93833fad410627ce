"""Compares the options of a running server with those of its configuration now. Pure.

``LIVE`` has the options that apply while the server runs. Each other one applies at the next start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from aeron_spark.options import ServerOptions

LIVE: Final = frozenset(
    {
        *("max_connections", "max_connections_per_address", "max_connections_per_key", "max_sessions"),
        *("max_pending", "max_pending_per_address", "handshakes_per_second", "handshake_burst", "exempt_loopback"),
        *("allow", "deny", "bytes_in", "bytes_out", "messages_in"),
        *("stage_bytes", "stage_bytes_per_key", "max_partitions", "max_partitions_per_key"),
        *("disk_reserve", "drain_timeout", "log_level"),
    }
)


@dataclass(frozen=True, slots=True)
class OptionChanges:
    """The names of the options that changed and apply now, and of those that need a restart; ``bind`` for addresses."""

    changed: tuple[str, ...]
    restart_needed: tuple[str, ...]


def compare(running: ServerOptions, configured: ServerOptions) -> OptionChanges:
    """Return the differences between the options of a running server and those of its configuration."""
    differing = {
        field: option.name
        for field, option in ServerOptions.options().items()
        if field != "bind" and getattr(running, field) != getattr(configured, field)
    }
    names = {True: [], False: ["bind"] if running.addresses != configured.addresses else []}  # by whether it is live
    for field, name in differing.items():
        names[field in LIVE].append(name)
    return OptionChanges(tuple(sorted(names[True])), tuple(sorted(names[False])))


def with_live(running: ServerOptions, configured: ServerOptions) -> ServerOptions:
    """Return the running options with the configured values of the live ones."""
    return replace(running, **{field: getattr(configured, field) for field in LIVE})
