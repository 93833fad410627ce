"""The definition of a stream: its name, partitions and retention, in a small file beside the journal."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from aeron_spark.disk import replace_file, write_failed
from aeron_spark.errors import DataFormatError, DataLossError, OptionError

FILE_NAME: Final = "definition.json"
VERSION: Final = 1
MAX_MESSAGE_BYTES: Final = 16 << 20  # Aeron's limit for any term length
MAX_PARTITIONS: Final = 10_000  # responses about positions have a number for each partition
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)  # also the name of the stream's folder

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream as it was created.

    ``stream_ids`` are Aeron's, a different one for each partition. Segments that exceed ``retention_bytes`` in a
    partition, or that are older than ``retention_seconds``, are deleted; 0 is no limit.
    """

    name: str
    partitions: int
    stream_ids: tuple[int, ...]
    term_bytes: int
    retention_bytes: _Count = 0
    retention_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    created_ns: int = 0  # since 1970, UTC
    created_by: str = ""  # fingerprint of the client's key; "" for the server's own program

    def __post_init__(self) -> None:
        """Raise OptionError for invalid fields."""
        check_name(self.name)
        if not 1 <= self.partitions <= MAX_PARTITIONS:
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
    def max_message_bytes(self) -> int:
        """The size of the longest message in its recordings, in bytes."""
        return min(self.term_bytes // 8, MAX_MESSAGE_BYTES)


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    stream: Definition


# Built at import, by one thread: decoders of msgspec that threads build concurrently can crash the process.
_STORED: Final = msgspec.json.Decoder(_Stored)


def check_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a stream. Raises OptionError otherwise."""
    if not NAME.fullmatch(name):
        raise OptionError(
            f"invalid stream name {name[:160]!r}",
            remedy="Use at most 128 letters, digits, '.', '_' and '-', and begin with a letter or digit.",
        )
    return name


def unknown_stream(name: str, known: Iterable[str]) -> OptionError:
    """Return the error for an unknown stream, with the most similar one of the ``known`` names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        remedy = f"Did you mean {near[0]!r}?"
    elif names:
        more = "" if len(names) <= 10 else f" and {len(names) - 10} more"
        remedy = f"Use one of the streams: {', '.join(names[:10])}{more}."
    else:
        remedy = "The server has no streams; create it with 'aeron-spark streams create'."
    return OptionError(f"unknown stream {name!r}", remedy=remedy)


def write_definition(folder: Path, definition: Definition) -> None:
    """Write the file of the definition into ``folder`` atomically, with fsync. Raises TransportError."""
    path = folder / FILE_NAME
    try:
        replace_file(path, msgspec.json.format(msgspec.json.encode(_Stored(VERSION, definition)), indent=2) + b"\n")
    except OSError as error:
        raise write_failed(path, error) from error


def read_definition(folder: Path) -> Definition:
    """Read the file of the definition. Raises DataLossError if it is missing, DataFormatError if it is invalid."""
    path = folder / FILE_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataLossError(
            f"{path} cannot be read: {error.strerror or error}",
            remedy="Restore the file, or move the folder away if it never was a stream.",
        ) from error
    try:
        found = json.loads(data)
        version = found.get("version") if isinstance(found, dict) else None
        if version != VERSION:
            raise DataFormatError(
                f"{path} has version {version!r}, expected {VERSION}",
                remedy="Start the release of aeron-spark that wrote it, or a newer one.",
            )
        return _STORED.decode(data).stream
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"{path} does not define a stream: {error}", remedy="Restore the file from a copy."
        ) from error
