"""What a stream is, as it was created: its name, its partitions, what it keeps. One small file beside the journal."""

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
LONGEST_MESSAGE: Final = 16 << 20  # Aeron's limit, whatever the term length
MOST_PARTITIONS: Final = 10_000  # a commit's record and every answer about positions have a number for each
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)  # is a folder's name, too

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream as it was created.

    ``stream_ids`` are Aeron's, one for each partition, none twice. ``retention_bytes`` of a partition and
    ``retention_seconds`` say from when on whole segments may go; 0 keeps everything.
    """

    name: str
    partitions: int
    stream_ids: tuple[int, ...]
    term_bytes: int
    retention_bytes: _Count = 0
    retention_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    created_ns: int = 0  # since 1970, UTC

    def __post_init__(self) -> None:
        """Raise OptionError where the fields do not make a stream."""
        check_name(self.name)
        if not 1 <= self.partitions <= MOST_PARTITIONS:
            raise OptionError(
                f"stream {self.name!r} cannot have {self.partitions} partitions",
                remedy=f"Choose from 1 to {MOST_PARTITIONS}",
            )
        if len(set(self.stream_ids)) != self.partitions or len(self.stream_ids) != self.partitions:
            raise OptionError(
                f"stream {self.name!r} has {self.partitions} partitions and the stream ids {list(self.stream_ids)}",
                remedy="Give each partition one stream id of its own",
            )
        if self.term_bytes < 64 << 10 or self.term_bytes > 1 << 30 or self.term_bytes & (self.term_bytes - 1):
            raise OptionError(
                f"stream {self.name!r} cannot have terms of {self.term_bytes} bytes",
                remedy="Choose a power of two from 64 KiB to 1 GiB",
            )

    @property
    def max_message_bytes(self) -> int:
        """Bytes of the longest message that its recordings can hold."""
        return min(self.term_bytes // 8, LONGEST_MESSAGE)


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    stream: Definition


# Built while this module is imported, by one thread; see endpoint.payloads.
_STORED: Final = msgspec.json.Decoder(_Stored)


def check_name(name: str) -> str:
    """Return ``name`` if a stream can be called so, else raise OptionError."""
    if not NAME.fullmatch(name):
        raise OptionError(
            f"a stream cannot be called {name[:160]!r}",
            remedy="Use letters, digits, '.', '_' and '-', at most 128, and begin with a letter or digit",
        )
    return name


def unknown_stream(name: str, known: Iterable[str]) -> OptionError:
    """Return the error for a stream that is not there, with the nearest name of those that are."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        remedy = f"Did you mean {near[0]!r}?"
    elif names:
        more = "" if len(names) <= 10 else f" and {len(names) - 10} more"
        remedy = f"There are: {', '.join(names[:10])}{more}"
    else:
        remedy = "There are none; create it with 'aeron-spark streams create'"
    return OptionError(f"there is no stream {name!r}", remedy=remedy)


def write_definition(folder: Path, definition: Definition) -> None:
    """Write the stream's file into ``folder``, at once and synced. Raises TransportError where it cannot be."""
    path = folder / FILE_NAME
    try:
        replace_file(path, msgspec.json.format(msgspec.json.encode(_Stored(VERSION, definition)), indent=2) + b"\n")
    except OSError as error:
        raise write_failed(path, error) from error


def read_definition(folder: Path) -> Definition:
    """Read the stream's file. Raises DataLossError where there is none, DataFormatError where it is not right."""
    path = folder / FILE_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataLossError(
            f"{path} cannot be read: {error.strerror or error}",
            remedy="Restore the file, or move the folder away if no stream was created there",
        ) from error
    try:
        found = json.loads(data)
        version = found.get("version") if isinstance(found, dict) else None
        if version != VERSION:
            raise DataFormatError(
                f"{path} has the version {version!r}, this release knows {VERSION}",
                remedy="Start the release of aeron-spark that wrote it, or a newer one",
            )
        return _STORED.decode(data).stream
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"{path} does not define a stream: {error}", remedy="Restore the file from a copy"
        ) from error
