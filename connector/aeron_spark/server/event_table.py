"""The events that a server logs: their names, levels and fields, from which docs/events.md is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from aeron_spark.texts import MAX_TEXT_CHARACTERS

MAX_OWN_TEXT_CHARACTERS: Final = 1024  # of a text that the server made


class Level(IntEnum):
    """How important an event is. The values are those of the module ``logging``."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class EventField:
    """A field of events. ``is_quoted``: log lines always quote it, because a peer chose its text or a part of it.

    ``json_name``: its name in JSON, if that differs.
    """

    meaning: str
    is_quoted: bool = False
    max_characters: int = MAX_OWN_TEXT_CHARACTERS
    json_name: str = ""


def _peer_text(meaning: str) -> EventField:
    """Return a field whose whole text a peer chose."""
    return EventField(meaning, is_quoted=True, max_characters=MAX_TEXT_CHARACTERS)


@dataclass(frozen=True, slots=True)
class EventType:
    """An event's name, level and fields. ``is_caused_by_peer``: a client alone decides how often it happens."""

    name: str
    level: Level
    fields: tuple[str, ...]
    meaning: str
    is_caused_by_peer: bool = False


FIELDS: Final[Mapping[str, EventField]] = MappingProxyType(
    {
        "id": EventField("id of the connection, which both ends show; `aeron-spark connections` takes it"),
        "call": EventField("id of the call, which the client's error shows"),
        "name": EventField("name of the client's key: `name=` of its line, or `key-` and 8 digits of its SHA-256"),
        "key": EventField("fingerprint of the server's public key"),
        "tag": _peer_text("text by which the client describes itself"),
        "address": EventField("IP address of the client, or the address on which the server listens"),
        "port": EventField("UDP port of the client"),
        "transport": EventField("`udp` or `ipc` (shared memory)"),
        "network": EventField("banned addresses"),
        "reason": EventField("code of the reason"),
        "retry": EventField("when the client may try again: `soon`, `when-freed` or `never`"),
        "limit": EventField("option of the limit; with `clients_file`, option of the key's line or role in that file"),
        "value": EventField("value of the limit"),
        "clients_file": EventField("clients file that has a key's own limit"),
        "method": _peer_text("object and method of the call"),
        "error": EventField("text of the error; it may repeat text of the client", is_quoted=True),
        "error_type": EventField("class of the error"),
        "remedy": EventField("what to do"),
        "stack": EventField("functions that ran at the error, the innermost first"),
        "stream": _peer_text("name of the stream"),
        "new_name": _peer_text("name of the stream from now on"),
        "retention_bytes": EventField("new retention of a partition in bytes; 0: no limit"),
        "retention_seconds": EventField("new retention in seconds; 0: no limit"),
        "schema_policy": EventField("new schema policy: `strict` or `additive`"),
        "partition": EventField("number of the partition"),
        "partitions": EventField("number of partitions"),
        "recording": EventField("id of the recording in the archive"),
        "writer": _peer_text("writer id"),
        "transaction": EventField("number of the transaction"),
        "cut": EventField("what was cut off: partitions with positions, and the end of the journal"),
        "reader": _peer_text("name of the reader"),
        "bytes": EventField("number of bytes"),
        "cut_bytes": EventField("bytes that were cut off after the last complete record of a file"),
        "seconds": EventField("duration in seconds"),
        "stage_s": EventField("seconds for finishing the stages"),
        "publish_s": EventField("seconds for publishing the rows"),
        "record_s": EventField("seconds until the archive had recorded the rows"),
        "journal_s": EventField("seconds for the journal"),
        "connections": EventField("number of connections"),
        "streams": EventField("number of streams"),
        "damaged": EventField("number of damaged streams"),
        "added": EventField("names of added keys"),
        "keys": EventField("number of keys in the clients file"),
        "removed": EventField("names of removed keys"),
        "changed": EventField("names of keys with other grants, or of options with another value"),
        "narrowed": EventField("names of keys that lost a grant or got a further condition"),
        "files": EventField("files whose new version is not used: `configuration`, `clients`"),
        "restart_needed": EventField("options whose change takes effect at a restart"),
        "volume": EventField("`store` or `archive`"),
        "free_bytes": EventField("free bytes"),
        "reserve_bytes": EventField("bytes that must stay free"),
        "used_bytes": EventField("used bytes"),
        "limit_bytes": EventField("most bytes"),
        "cut_off": EventField("number of calls and commits that did not finish"),
        "version": EventField("version of aeron-spark"),
        "pid": EventField("id of the process"),
        "aeron_dir": EventField("folder of the media driver"),
        "directory": EventField("folder of the backup"),
        "copied_at": EventField("time of the backup"),
        "count": EventField("number of them"),
        "event": EventField(
            "name of the suppressed event; in JSON `suppressed_event`", json_name="suppressed_event"
        ),  # each object of JSON has the name ``event`` already
    }
)

_CLIENT: Final = ("id", "name", "tag", "address", "port", "transport")
_I, _W, _E = Level.INFO, Level.WARNING, Level.ERROR

GROUPS: Final[Mapping[str, tuple[EventType, ...]]] = MappingProxyType(
    {
        "server": (
            EventType("started", _I, ("version", "pid", "aeron_dir"), "The server process has started."),
            EventType("listening", _I, ("address", "key", "aeron_dir"), "The server listens on an address."),
            EventType(
                "ready",
                _I,
                ("seconds", "streams", "damaged"),
                "The server serves: it listens, and each stream is recovered or damaged.",
            ),
            EventType("draining", _I, ("connections", "seconds"), "The server finishes its work and takes no more."),
            EventType("stopped", _I, ("seconds", "cut_off"), "The server has ended."),
            EventType("reloaded", _I, ("changed", "restart_needed"), "The server has read its configuration again."),
            EventType(
                "reload_failed",
                _E,
                ("files", "error", "remedy"),
                "A configuration or clients file is wrong. The last good version stays in use.",
            ),
            EventType(
                "clients_changed",
                _I,
                ("added", "removed", "changed", "narrowed", "keys"),
                "A new version of the clients file applies. A warning if it has no key: then no client is admitted.",
            ),
            EventType(
                "disk_low",
                _W,
                ("volume", "free_bytes", "reserve_bytes"),
                "A volume has less free space than `diskReserve`. The server refuses rows, and serves reads.",
            ),
            EventType(
                "shm_low",
                _W,
                ("free_bytes", "reserve_bytes"),
                "The media driver's file system has less than 256 MiB, or an eighth of its size, for further logs.",
            ),
            EventType("memory_high", _W, ("used_bytes", "limit_bytes"), "Clients use most of `memoryLimit`."),
            EventType(
                "backup_done", _I, ("directory", "bytes", "streams", "seconds"), "A backup of the streams is complete."
            ),
            EventType("backup_failed", _E, ("directory", "error"), "A backup failed. Nothing of it was kept."),
            EventType(
                "restored",
                _W,
                ("stream", "copied_at"),
                "The server has opened a stream that was restored from a backup, and not changed since.",
            ),
            EventType("error", _W, ("id", "name", "error_type", "error", "remedy", "stack"), "Another error."),
            EventType(
                "log_suppressed",
                _W,
                ("event", "count"),
                "Lines of an event in the last minute that were more than the limit.",
            ),
            EventType(
                "log_dropped",
                _W,
                ("count",),
                "So many lines were dropped before this one, because the reader of the log was too slow or had gone.",
            ),
        ),
        "connections": (
            EventType("connected", _I, _CLIENT, "A client has connected.", is_caused_by_peer=True),
            EventType(
                "resumed", _I, _CLIENT, "A client continues its session over a new link.", is_caused_by_peer=True
            ),
            EventType(
                "disconnected",
                _I,
                (*_CLIENT, "reason", "error", "seconds"),
                "A client has disconnected, or was silent too long.",
                is_caused_by_peer=True,
            ),
            EventType(
                "refused",
                _W,
                ("reason", "limit", "value", "clients_file", "retry", "name", "tag", "address", "error"),
                "The server has refused a handshake.",
                is_caused_by_peer=True,
            ),
            EventType("kicked", _W, _CLIENT, "An operator has ended a connection."),
            EventType("banned", _W, ("name", "network", "seconds"), "An operator has banned a key or addresses."),
            EventType(
                "tampered",
                _W,
                (*_CLIENT, "error"),
                "A frame failed its authentication; the link is replaced.",
                is_caused_by_peer=True,
            ),
            EventType(
                "throttled",
                _I,
                _CLIENT,
                "A client sends or reads more than its rate.",
                is_caused_by_peer=True,
            ),
            EventType(
                "paused",
                _I,
                (*_CLIENT, "bytes"),
                "A client's data waits until the server has room.",
                is_caused_by_peer=True,
            ),
            EventType(
                "call_failed",
                _I,
                ("call", "id", "name", "method", "error_type", "error", "stack"),
                "A call failed. It is a warning if the error is not one of aeron-spark, and then has its stack.",
                is_caused_by_peer=True,
            ),
        ),
        "streams": (
            EventType(
                "stream_created",
                _I,
                ("stream", "partitions", "name"),
                "A client has created a stream.",
                is_caused_by_peer=True,
            ),
            EventType(
                "stream_deleted", _I, ("stream", "name"), "A client has deleted a stream.", is_caused_by_peer=True
            ),
            EventType(
                "stream_altered",
                _I,
                ("stream", "retention_bytes", "retention_seconds", "schema_policy", "name"),
                "A client has changed these properties of a stream.",
                is_caused_by_peer=True,
            ),
            EventType(
                "stream_renamed",
                _I,
                ("stream", "new_name", "name"),
                "A client has renamed a stream.",
                is_caused_by_peer=True,
            ),
            EventType(
                "stream_ended",
                _I,
                ("stream", "name"),
                "A client has ended a stream: it takes no more rows.",
                is_caused_by_peer=True,
            ),
            EventType(
                "stream_reopened",
                _I,
                ("stream", "name"),
                "A client has reopened a stream: it takes rows again.",
                is_caused_by_peer=True,
            ),
            EventType(
                "writer_released",
                _I,
                ("stream", "writer", "name"),
                "A client has released a writer id: the next key that uses it owns it.",
                is_caused_by_peer=True,
            ),
            EventType(
                "lease_released",
                _I,
                ("stream", "reader", "name"),
                "A client has ended a reader's leases.",
                is_caused_by_peer=True,
            ),
            EventType("purged", _I, ("stream", "name"), "A client has purged a stream.", is_caused_by_peer=True),
            EventType(
                "schema_changed",
                _I,
                ("stream", "writer"),
                "A transaction has changed a stream's schema.",
                is_caused_by_peer=True,
            ),
            EventType(
                "schema_refused",
                _W,
                ("stream", "name", "error"),
                "Rows do not fit a stream's schema.",
                is_caused_by_peer=True,
            ),
            EventType(
                "writer_fenced",
                _I,
                ("stream", "writer"),
                "A new run of a writer has begun, so that the run before it can no longer write. This is so after each "
                "restart of a program.",
                is_caused_by_peer=True,
            ),
            EventType(
                "commit_slow",
                _W,
                ("stream", "writer", "transaction", "seconds", "stage_s", "publish_s", "record_s", "journal_s"),
                "A commit took more than one second.",
                is_caused_by_peer=True,
            ),
            EventType(
                "commit_failed",
                _W,
                ("stream", "writer", "transaction", "name", "reason", "error"),
                "A commit failed, or its rows could not be staged. The writer can repeat it.",
                is_caused_by_peer=True,
            ),
            EventType(
                "recovered",
                _I,
                ("stream", "partitions", "seconds", "cut_bytes", "cut"),
                "A stream is open: at the server's start, or new. A warning: uncommitted bytes were cut off.",
            ),
            EventType("stream_damaged", _E, ("stream", "error", "remedy"), "A stream is damaged and not served."),
            EventType(
                "diverged",
                _W,
                ("stream", "name", "error"),
                "A client has seen rows or acknowledgements that the stream lacks: it was restored from an older copy.",
                is_caused_by_peer=True,
            ),
            EventType(
                "delete_pending",
                _W,
                ("stream", "error"),
                "Recordings and files of a deleted stream still exist after a minute. The server tries again.",
            ),
            EventType(
                "lease_overridden",
                _W,
                ("stream", "reader"),
                "Retention has deleted rows that a reader's lease kept for longer than `leaseDelay`.",
                is_caused_by_peer=True,
            ),
        ),
        "node": (
            EventType("driver_lost", _E, ("error", "remedy"), "The media driver does not answer."),
            EventType("driver_back", _I, ("seconds",), "The server uses a media driver again."),
            EventType(
                "recording_stopped",
                _E,
                ("stream", "partition", "recording", "error"),
                "The archive has stopped recording a partition to which the server writes. The next commit goes on.",
            ),
            EventType(
                "driver_error", _W, ("error", "count"), "The media driver has logged an error for the first time."
            ),
        ),
    }
)

EVENTS: Final[Mapping[str, EventType]] = MappingProxyType(
    {event.name: event for events in GROUPS.values() for event in events}
)
