"""The manifest of a backup, and the findings of a check of a store with its archive. Pure.

    <backup>/manifest.json
    <backup>/streams/<stream>/        definition.json, journal
    <backup>/archive/                 archive.catalog, segments, aeron-spark-streams/<mark of a stream>
    <backup>/configuration/           the clients file, the configuration, and with --with-identity the server's key

The names below ``streams`` and ``archive`` are those of a store and of an archive's folder. A segment is copied up to
the end of its partition; a restore sets the length of its file.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from aeron_spark.aeron.archive_catalog import CATALOG_FILE
from aeron_spark.errors import DataFormatError, DataLossError, OptionError
from aeron_spark.log.epochs import parse_epoch
from aeron_spark.options.values import STREAM_NAME
from aeron_spark.streams.archive_mark import MARKS_FOLDER
from aeron_spark.streams.definition import DEFINITION_FILE, MAX_SEGMENT_BYTES, check_name
from aeron_spark.streams.journal import JOURNAL_FILE, MAX_FILE_BYTES
from aeron_spark.streams.journal_records import Count, Position, Time
from aeron_spark.streams.store import LOCK
from aeron_spark.texts import escape_text, quote_text

MANIFEST_FILE: Final = "manifest.json"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 28  # of the manifest: a million files
MAX_NUMBER: Final = 2**63 - 1
STREAMS: Final = "streams"
ARCHIVE: Final = "archive"
CONFIGURATION: Final = "configuration"
CONFIGURATION_FILES: Final = {
    "clients_file": "authorized_keys",
    "config_file": "server.toml",
    "identity_file": "server",
}
"""The files of the folder ``configuration``, by the name of their paths in the server's response."""
STORE_FILES: Final = ("bans.json",)  # in the folder ``streams``
_PATH: Final = re.compile(
    rf"{STREAMS}/(?:(?P<stream>{STREAM_NAME.pattern})/(?:{re.escape(DEFINITION_FILE)}|{JOURNAL_FILE})"
    rf"|{'|'.join(map(re.escape, STORE_FILES))})"
    rf"|{ARCHIVE}/(?:{re.escape(CATALOG_FILE)}|{MARKS_FOLDER}/{STREAM_NAME.pattern}-[0-9a-f]{{1,16}}\.json"
    r"|(?P<recording>[0-9]{1,19})-[0-9]{1,19}\.rec)"
    rf"|{CONFIGURATION}/(?:{'|'.join(map(re.escape, CONFIGURATION_FILES.values()))})",
    re.ASCII,
)
CHECK: Final = "sha256"  # the member with the checksum of the other members
RESERVED: Final = frozenset({LOCK, *STORE_FILES})
_DAMAGED_REMEDY: Final = "Use another backup."


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of the backup. ``path`` is relative; ``length`` is that of a restored segment, 0 for ``bytes``."""

    path: str
    bytes: Count
    sha256: str
    length: Count = 0


class PartitionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The committed range of a partition. ``epoch`` is that of the byte before ``end``; see ``log.epochs``."""

    recording_id: Count
    fingerprint: str
    start: Position
    end: Position
    epoch: str


class StreamEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream at the time of the backup, with its newest epoch."""

    name: str
    created_ns: Time
    epoch: str
    transactions: Count
    partitions: tuple[PartitionEntry, ...]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A backup. ``time_ns`` is the time of the cut, since 1970. ``damaged`` has the streams that are not in it."""

    version: int
    release: str
    time: str
    time_ns: Time
    streams: tuple[StreamEntry, ...]
    files: tuple[FileEntry, ...]
    damaged: dict[str, str] = {}

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(one.bytes for one in self.files)

    def __post_init__(self) -> None:
        """Raise ValueError for files that no backup has and for wrong numbers, OptionError for a stream's name."""
        if not 0 < self.time_ns <= MAX_NUMBER:  # the epoch of a restore is recognized by this time
            raise ValueError(f"the time {self.time_ns} cannot be")
        for stream in self.streams:
            check_name(stream.name)  # also the name of its folder
            if stream.name in RESERVED:
                raise ValueError(f"a stream cannot have the name {stream.name!r}, which a file of a store has")
            for epoch in (stream.epoch, *(one.epoch for one in stream.partitions)):
                parse_epoch(epoch)
        names = {stream.name for stream in self.streams}
        recordings = {one.recording_id for stream in self.streams for one in stream.partitions}
        for file in self.files:
            _check_file(file, names, recordings)
        if len(names) < len(self.streams) or len({file.path for file in self.files}) < len(self.files):
            raise ValueError("a stream or a file is there twice")


def _check_file(file: FileEntry, streams: set[str], recordings: set[int]) -> None:
    """Raise ValueError unless ``file`` is one that a backup of these streams and recordings can have."""
    found = _PATH.fullmatch(file.path)
    is_segment = found is not None and found["recording"] is not None
    if (
        found is None
        or (found["stream"] is not None and found["stream"] not in streams)
        or (is_segment and int(found["recording"]) not in recordings)
    ):
        raise ValueError(f"{quote_text(file.path)} is not the path of a file in the backup")
    max_bytes = MAX_SEGMENT_BYTES if is_segment else MAX_FILE_BYTES
    if not 0 <= file.bytes <= max_bytes or not (
        file.length == 0 or (is_segment and file.bytes <= file.length <= max_bytes)
    ):
        raise ValueError(f"{file.path} cannot have {file.bytes} bytes and the length {file.length}")


_DECODER: Final = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file of a manifest. Raises OptionError if a restore would refuse it, because it is too long."""
    members: dict[str, Any] = msgspec.to_builtins(manifest)
    data = (json.dumps({**members, CHECK: _digest(members)}, indent=1) + "\n").encode()
    if len(data) > MAX_BYTES:
        raise OptionError(
            f"the backup has {len(manifest.files)} files, and its manifest {len(data)} bytes, limit {MAX_BYTES} bytes",
            remedy="Create streams with longer segments, or shorten their retention.",
        )
    return data


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Decode the file ``name``. Raises DataLossError if it is damaged, DataFormatError for one of another release."""
    try:
        members = json.loads(data)
        is_right = isinstance(members, dict) and members.pop(CHECK, None) == _digest(members)
    except (ValueError, RecursionError) as error:
        raise DataLossError(f"the manifest {name} is damaged: {error}", remedy=_DAMAGED_REMEDY) from error
    if not is_right:
        raise DataLossError(f"the manifest {name} is damaged: its checksum is wrong", remedy=_DAMAGED_REMEDY)
    if members.get("version") != VERSION:
        version = escape_text(repr(members.get("version")))
        raise DataFormatError(
            f"the manifest {name} has version {version}, expected {VERSION}",
            remedy="Use the release of aeron-spark that made the backup, or a newer one.",
        )
    try:
        return _DECODER.decode(json.dumps(members))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"{name} is not the manifest of a backup: {error}", remedy="Name the folder of a backup."
        ) from error


def _digest(members: dict[str, Any]) -> str:
    """Return the SHA-256 of the members, independent of the spaces in the file."""
    return hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


DAMAGE: Final = "damage"
WARNING: Final = "warning"
MAX_CHARACTERS: Final = 10_000
RESTORE: Final = "Restore the store and the archive's folder from copies of one time"


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """A finding. ``partition``, ``start`` and ``end`` are None if it is about the whole stream or partition.

    ``what`` is the fact and its cause, ``lost`` the rows that readers lose, or "".
    """

    level: Literal["damage", "warning"]
    stream: str
    what: str
    lost: str
    remedy: str
    partition: int | None = None
    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        where = f"stream {self.stream!r}" if self.stream else "store"
        if self.partition is not None:
            where = f"partition {self.partition} of {where}"
        if self.start is not None:
            where += f", position {self.start}" + (f" to {self.end}" if self.end is not None else "")
        parts = [f"{self.level}: {where}: {self.what}", self.lost, self.remedy]
        text = ". ".join(part.rstrip(".") for part in parts if part) + "."
        return escape_text(text, MAX_CHARACTERS)  # another person may have chosen names in the folders


def stream_damage(stream: str, what: str, remedy: str = "") -> StoreFinding:
    """Return the finding that a stream cannot be used at all."""
    return StoreFinding(DAMAGE, stream, what, "Readers lose all its rows", remedy or RESTORE)
