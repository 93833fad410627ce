"""Compares the options of a running server with those of its configuration now. Pure.

``LIVE`` has the options that apply while the server runs. Each other one applies at the next start, for the reason in
``RESTART_REASONS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from aeron_spark.options import ServerOptions

LIVE: Final = frozenset(
    {
        *("max_connections", "max_connections_per_address", "max_connections_per_key", "max_sessions"),
        *("max_pending", "max_pending_per_address", "handshakes_per_second", "handshake_burst", "exempt_loopback"),
        *("allow", "deny", "bytes_in", "bytes_out", "messages_in"),
        *("memory_limit", "max_running", "call_bytes", "workers_per_key", "max_bulk_links"),
        *("stage_bytes", "stage_bytes_per_key", "max_partitions", "max_partitions_per_key", "lease_delay"),
        "max_columns",
        *("disk_reserve", "drain_timeout", "log_format", "log_level"),
    }
)

RESTART_REASONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "The server opens and locks its addresses, ports and folders at its start, before it serves a client.": (
            *("bind", "ports", "ipc", "reply_channel", "mdc_ports", "session_id_range"),
            *("aeron_dir", "streams_dir", "admin_socket", "http"),
        ),
        "The node keeps its settings until it stops.": ("sync_level",),
        "The clients that are connected have verified the key and the secret, and resume their sessions with them.": (
            *("identity", "shared_secret_file"),
        ),
        "These say where the keys are. A change in the clients file itself applies without a restart.": (
            *("authorized_keys", "allow_any_key"),
        ),
        "A link's channels and buffers are made with these sizes, some of which both ends agree in the handshake.": (
            *("mtu", "term_length", "max_message", "reliable"),
        ),
        "A handshake and its session keep these times and limits to their end, also over several links.": (
            *("expiry", "linger", "session_timeout", "setup_timeout", "step_timeout", "keep_alive", "ping_timeout"),
            *("send_timeout", "close_timeout", "buffering", "buffer_bytes", "buffer_time", "queue_bytes"),
            *("max_transfers", "transfer_memory", "transfer_memory_total", "transfer_disk_total", "spill_dir"),
            *("max_calls", "max_objects", "max_tampered", "tampered_time"),
        ),
        "The event loop and the pools of threads are made at the start.": ("idle", "workers", "deciders"),
        "A collector of metrics expects the same series from a process.": ("metrics_streams",),
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


def restart_table() -> str:
    """Return the table of the options that need a restart, for docs/operations.md."""
    declared = ServerOptions.options()
    rows = (
        f"| {', '.join(f'`{declared[field].name}`' for field in fields)} | {reason} |"
        for reason, fields in RESTART_REASONS.items()
    )
    return "\n".join(["| options that need a restart | reason |", "|---|---|", *rows]) + "\n"
