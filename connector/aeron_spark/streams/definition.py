"""The definition of a stream: its file, its changes, its name, and the error of a damaged file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Final

import msgspec

from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, OptionError, RefusedError, UsageError
from aeron_spark.files import read_regular, replace_file, sync_folder, write_failed
from aeron_spark.options.values import STREAM_NAME
from aeron_spark.streams.journal_records import Time
from aeron_spark.texts import nearest
from aeron_spark.wire.field_bounds import MAX_PARTITIONS

FIND_AND_RESTORE: Final = (
    "Stop the server, and run 'aeron-spark server verify', which names the rows that are lost. Then restore the store "
    "and the archive's folder from copies of one time. The server changed nothing in the stream."
)


DEFINITION_FILE: Final = "definition.json"
VERSION: Final = 1
MAX_MESSAGE_BYTES: Final = 16 << 20  # Aeron's limit for any term length
MAX_FORMER_NAMES: Final = 64  # older ones are forgotten, so that the file does not grow with each new name
MAX_FILE_BYTES: Final = 4 << 20  # a definition of 10,000 partitions is much smaller

MIN_SEGMENT_BYTES: Final = 1 << 20
MAX_SEGMENT_BYTES: Final = 1 << 30
DEFAULT_SEGMENT_BYTES: Final = 16 << 20
SEGMENTS_OF_RETENTION: Final = 8  # a shorter part in excess is not worth the files and the slower recording

STRICT: Final = "strict"  # writers add no columns, unless they may evolve the schema
ADDITIVE: Final = "additive"  # each writer may add nullable columns
SCHEMA_POLICIES: Final = (STRICT, ADDITIVE)
MAX_RETENTION_BYTES: Final = 2**63 - 1
MAX_RETENTION_SECONDS: Final = float(2**63 // 10**9)  # times are nanoseconds of 64 bits

_StreamId = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class FormerName(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A name that a stream had before it was renamed. ``is_reused``: another stream has had this name since."""

    name: str
    is_reused: bool = False


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream as it was created, with its later changes.

    ``stream_ids`` are Aeron's, a different one for each partition. Segments that exceed ``retention_bytes`` in a
    partition, or that are older than ``retention_seconds``, are deleted; 0 is no limit. ``ended_ns`` is the time since
    1970 from which the stream takes no more rows; 0: it takes rows. ``recorded_as`` is the name at the creation, "" if
    the stream still has it.
    """

    name: str
    partitions: int
    stream_ids: tuple[_StreamId, ...]
    term_bytes: int
    retention_bytes: int = 0
    retention_seconds: float = 0.0
    created_ns: Time = 0  # since 1970, UTC
    created_by: str = ""  # fingerprint of the client's key; "" for the server's own program
    schema_policy: str = ADDITIVE  # that of definitions of earlier releases, which do not have the field
    ended_ns: Time = 0
    former_names: tuple[FormerName, ...] = ()  # the latest one is last
    recorded_as: str = ""

    def __post_init__(self) -> None:
        """Raise OptionError for invalid fields."""
        for name in (self.name, self.original_name, *self.names_before):  # also names of folders and of the mark
            check_name(name)
        _check_retention(self.name, self.retention_bytes, self.retention_seconds)
        if self.schema_policy not in SCHEMA_POLICIES:
            raise OptionError(
                f"stream {self.name!r} cannot have the schema policy {self.schema_policy!r}",
                remedy=f"Choose one of: {', '.join(SCHEMA_POLICIES)}.",
            )
        if isinstance(self.partitions, bool) or not 1 <= self.partitions <= MAX_PARTITIONS:
            raise OptionError(
                f"stream {self.name!r} cannot have {self.partitions} partitions",
                remedy=f"Choose from 1 to {MAX_PARTITIONS}.",
            )
        if len(set(self.stream_ids)) != self.partitions or len(self.stream_ids) != self.partitions:
            raise OptionError(
                f"stream {self.name!r} has {self.partitions} partitions and the stream ids {list(self.stream_ids)}, "
                "expected a different one for each partition",
                remedy="Give each partition its own stream id.",
            )
        if self.term_bytes < 64 << 10 or self.term_bytes > 1 << 30 or self.term_bytes & (self.term_bytes - 1):
            raise OptionError(
                f"stream {self.name!r} cannot have terms of {self.term_bytes} bytes",
                remedy="Choose a power of two from 64 KiB to 1 GiB.",
            )

    @property
    def is_ended(self) -> bool:
        """Whether the stream takes no more rows."""
        return self.ended_ns > 0

    @property
    def original_name(self) -> str:
        """The name at the creation, which the recordings and the mark in the archive's folder have for good."""
        return self.recorded_as or self.name

    def is_former_name(self, name: str) -> bool:
        """Whether requests for ``name`` mean this stream: it had this name, and no other stream has had it since."""
        return any(one.name == name and not one.is_reused for one in self.former_names)

    @property
    def names_before(self) -> tuple[str, ...]:
        """The names before it was renamed; another stream may have one of them now."""
        return tuple(one.name for one in self.former_names)

    def altered(
        self,
        *,
        retention_bytes: int | None = None,
        retention_seconds: float | None = None,
        schema_policy: str | None = None,
    ) -> Definition:
        """Return the definition with these values; None leaves one unchanged. Raises OptionError for invalid ones."""
        return msgspec.structs.replace(
            self,
            retention_bytes=self.retention_bytes if retention_bytes is None else retention_bytes,
            retention_seconds=self.retention_seconds if retention_seconds is None else retention_seconds,
            schema_policy=self.schema_policy if schema_policy is None else schema_policy,
        )

    def ended(self, time_ns: int) -> Definition:
        """Return the definition of the stream after its end; an ended stream keeps the time of its end."""
        return self if self.is_ended else msgspec.structs.replace(self, ended_ns=time_ns)

    def reopened(self) -> Definition:
        """Return the definition of the stream that takes rows again."""
        return msgspec.structs.replace(self, ended_ns=0)

    def renamed(self, name: str) -> Definition:
        """Return the definition under another name. Raises OptionError for an invalid name."""
        check_name(name)
        kept = [one for one in self.former_names if one.name not in (name, self.name)][1 - MAX_FORMER_NAMES :]
        return msgspec.structs.replace(
            self, name=name, former_names=(*kept, FormerName(self.name)), recorded_as=self.original_name
        )

    def with_reused_name(self, name: str) -> Definition:
        """Return the definition after another stream got the former name ``name``."""
        names = tuple(FormerName(one.name, one.is_reused or one.name == name) for one in self.former_names)
        return msgspec.structs.replace(self, former_names=names)

    @property
    def max_message_bytes(self) -> int:
        """The size of the longest message in its recordings, in bytes."""
        return min(self.term_bytes // 8, MAX_MESSAGE_BYTES)


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    stream: Definition
    crc: int | None = None  # CRC-32 of the members of ``stream``; earlier releases wrote none


# Built at import, by one thread: decoders of msgspec that threads build concurrently can crash the process.
_STORED: Final = msgspec.json.Decoder(_Stored)


def check_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a stream. Raises OptionError otherwise."""
    if not STREAM_NAME.fullmatch(name):
        raise OptionError(
            f"invalid stream name {name[:160]!r}",
            remedy="Use at most 128 letters, digits, '.', '_' and '-', and begin with a letter or digit.",
        )
    return name


def _check_retention(name: str, size: int, seconds: float) -> None:
    """Raise OptionError for a retention that is not a number of 0 or more: a caller's types are not checked."""
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_RETENTION_BYTES:
        raise OptionError(
            f"stream {name!r} cannot have a retention of {size!r} bytes",
            remedy=f"Give a whole number of bytes from 0 (no limit) to {MAX_RETENTION_BYTES}.",
        )
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= MAX_RETENTION_SECONDS:  # which is true of NaN
        raise OptionError(
            f"stream {name!r} cannot have a retention of {seconds!r} seconds",
            remedy=f"Give a number of seconds from 0 (no limit) to {MAX_RETENTION_SECONDS:g}.",
        )


def default_segment_bytes(retention_bytes: int) -> int:
    """Return the size of the segments of a stream that was created without one, by the retention of a partition."""
    if not retention_bytes:
        return DEFAULT_SEGMENT_BYTES
    part = max(1, retention_bytes // SEGMENTS_OF_RETENTION)
    return min(DEFAULT_SEGMENT_BYTES, max(MIN_SEGMENT_BYTES, 1 << (part.bit_length() - 1)))


def check_segment_bytes(name: str, size: int) -> None:
    """Raise OptionError unless a stream may be created with segments of this size."""
    if isinstance(size, bool) or not MIN_SEGMENT_BYTES <= size <= MAX_SEGMENT_BYTES or size & (size - 1):
        raise OptionError(
            f"stream {name!r} cannot have segments of {size!r} bytes",
            remedy="Choose a power of two from 1MiB to 1GiB.",
        )


def ended_stream(definition: Definition) -> RefusedError:
    """Return the error for rows that an ended stream does not take."""
    ended = datetime.fromtimestamp(definition.ended_ns / 1e9, tz=timezone.utc)
    return RefusedError(
        f"stream {definition.name!r} was ended at {ended:%Y-%m-%dT%H:%M:%SZ} and takes no more rows",
        remedy="Write to another stream, or ask the server's operator to reopen it (aeron-spark streams reopen).",
        reason="ended",
    )


def closed_stream(name: str) -> UsageError:
    """Return the error for a stream whose store was closed."""
    return UsageError(f"stream {name!r} was closed", remedy="Restart the server.")


def deleted_stream(name: str) -> UsageError:
    """Return the error for a stream that was deleted during a request."""
    return UsageError(f"stream {name!r} was deleted", remedy="Create it again.")


def renamed_stream(name: str, new_name: str) -> OptionError:
    """Return the error for the former name of a stream."""
    what = f"stream {name!r} was renamed to {new_name!r}"
    return OptionError(what, remedy=f"Use the name {new_name!r}.", reason="renamed")


def unknown_stream(name: str, known: Iterable[str]) -> OptionError:
    """Return the error for an unknown stream, with the most similar one of the ``known`` names."""
    names = sorted(known)
    near = nearest(name, names)
    if near:
        remedy = f"Did you mean {near!r}?"
    elif names:
        remedy = "'aeron-spark streams list' shows the streams; 'aeron-spark streams create' creates one."
    else:
        remedy = "The server has no streams; create it with 'aeron-spark streams create'."
    return OptionError(f"unknown stream {name!r:.160}", remedy=remedy, reason="unknown-stream")


def write_definition(folder: Path, definition: Definition) -> None:
    """Write the file of the definition into ``folder`` atomically, with fsync. Raises TransportError."""
    path = folder / DEFINITION_FILE
    try:
        stored = _Stored(VERSION, definition, _crc_of(msgspec.to_builtins(definition)))
        replace_file(path, msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
    except OSError as error:
        raise write_failed(path, error) from error


def read_definition(folder: Path) -> Definition:
    """Read the file of the definition. Raises DataLossError if it is missing, DataFormatError if it is invalid."""
    path = folder / DEFINITION_FILE
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise DataLossError(
            f"the stream is damaged: {path} cannot be read: {error.strerror or error}",
            remedy=f"If the folder never was a stream, move it away. {FIND_AND_RESTORE}",
        ) from error
    try:
        found = json.loads(data)
        version = found.get("version") if isinstance(found, dict) else None
        if version != VERSION:
            raise DataFormatError(
                f"{path} has version {repr(version)[:80]}, expected {VERSION}",
                remedy="Start the release of aeron-spark that wrote it, or a newer one.",
            )
        stored = _STORED.decode(data)
        if stored.crc is not None and stored.crc != _crc_of(found["stream"]):
            raise DataFormatError(f"{path} is damaged: its checksum is wrong", remedy=FIND_AND_RESTORE)
        return stored.stream
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"{path} is damaged, and does not define a stream: {error}", remedy=FIND_AND_RESTORE
        ) from error


def _crc_of(members: object) -> int:
    """Return the CRC-32 of a definition's members, independent of the spaces in the file."""
    return zlib.crc32(json.dumps(members, sort_keys=True, separators=(",", ":")).encode())


def rename_files(folder: Path, definition: Definition) -> None:
    """Give the stream in ``folder`` its new ``definition``, and the folder the name of that.

    Raises TransportError if the disk fails: the stream has its former name then, or the next start renames it.
    """
    before = read_definition(folder)
    write_definition(folder, definition)
    try:
        folder.rename(folder.with_name(definition.name))
        sync_folder(folder.parent)
    except OSError as error:
        with suppress(AeronSparkError):
            if folder.exists():
                write_definition(folder, before)
        raise write_failed(folder, error) from error


def is_half_renamed(folder: Path, definition: Definition) -> bool:
    """Return whether a stream with this ``definition`` is in the folder of its former name, which a start renames."""
    return definition.is_former_name(folder.name) and not folder.with_name(definition.name).exists()


def finish_rename(folder: Path) -> Path:
    """Rename a stream's folder if a crash prevented that; return the folder with its present name.

    A folder with a damaged definition, or one that has never been a folder of its stream, is returned unchanged. Raises
    TransportError if the disk fails.
    """
    try:
        definition = read_definition(folder)
    except AeronSparkError:
        return folder
    if not is_half_renamed(folder, definition):
        return folder
    target = folder.with_name(definition.name)
    try:
        folder.rename(target)
        sync_folder(folder.parent)
    except OSError as error:
        raise write_failed(folder, error) from error
    return target
