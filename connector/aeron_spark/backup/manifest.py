"""The manifest of a backup: its release and time, the streams with their ends, and the SHA-256 of each file. Pure.

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
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from aeron_spark.errors import DataFormatError, DataLossError
from aeron_spark.log.epochs import parse_epoch
from aeron_spark.streams.definition import check_name

FILE_NAME: Final = "manifest.json"
VERSION: Final = 1
STREAMS: Final = "streams"
ARCHIVE: Final = "archive"
CONFIGURATION: Final = "configuration"
CHECK: Final = "sha256"  # the member with the checksum of the other members
_DAMAGED_REMEDY: Final = "Use another backup."


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of the backup. ``path`` is relative; ``length`` is that of a restored segment, 0 for ``bytes``."""

    path: str
    bytes: int
    sha256: str
    length: int = 0


class PartitionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The committed range of a partition. ``epoch`` is that of the byte before ``end``; see ``log.epochs``."""

    recording_id: int
    fingerprint: str
    start: int
    end: int
    epoch: str


class StreamEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream at the time of the backup, with its newest epoch."""

    name: str
    created_ns: int
    epoch: str
    transactions: int
    partitions: tuple[PartitionEntry, ...]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A backup. ``time_ns`` is the time of the cut, since 1970. ``damaged`` has the streams that are not in it."""

    version: int
    release: str
    time: str
    time_ns: int
    streams: tuple[StreamEntry, ...]
    files: tuple[FileEntry, ...]
    damaged: dict[str, str] = {}

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(one.bytes for one in self.files)

    def __post_init__(self) -> None:
        """Raise ValueError for a path outside of the backup and for wrong epochs, OptionError for a stream's name."""
        for file in self.files:
            path = PurePosixPath(file.path)
            if path.is_absolute() or ".." in path.parts or len(path.parts) < 2 or str(path) != file.path:
                raise ValueError(f"{file.path!r} is not the path of a file in the backup")
        for stream in self.streams:
            check_name(stream.name)  # also the name of its folder
            for epoch in (stream.epoch, *(one.epoch for one in stream.partitions)):
                parse_epoch(epoch)


_DECODER: Final = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    members: dict[str, Any] = msgspec.to_builtins(manifest)
    return (json.dumps({**members, CHECK: _digest(members)}, indent=1) + "\n").encode()


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Decode the file ``name``. Raises DataLossError if it is damaged, DataFormatError for one of another release."""
    try:
        members = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataLossError(f"the manifest {name} is damaged: {error}", remedy=_DAMAGED_REMEDY) from error
    if not isinstance(members, dict) or members.pop(CHECK, None) != _digest(members):
        raise DataLossError(f"the manifest {name} is damaged: its checksum is wrong", remedy=_DAMAGED_REMEDY)
    if members.get("version") != VERSION:
        raise DataFormatError(
            f"the manifest {name} has version {members.get('version')!r}, expected {VERSION}",
            remedy="Use the release of aeron-spark that made the backup, or a newer one.",
        )
    try:
        return _DECODER.decode(json.dumps(members))
    except (msgspec.MsgspecError, ValueError) as error:
        raise DataFormatError(
            f"{name} is not the manifest of a backup: {error}", remedy="Name the folder of a backup."
        ) from error


def _digest(members: dict[str, Any]) -> str:
    """Return the SHA-256 of the members, independent of the spaces in the file."""
    return hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
