"""The last backup of a store that succeeded, in the file ``backup.json`` of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from aeron_spark.disk import replace_file
from aeron_spark.streams.journal_records import Count

FILE_NAME: Final = "backup.json"


class LastBackup(msgspec.Struct, frozen=True):
    """The last backup. ``time`` is that of its cut, in seconds since 1970; ``seconds`` is its duration."""

    time: float
    directory: str
    bytes: Count
    seconds: float


_DECODER: Final = msgspec.json.Decoder(LastBackup)


def read_last_backup(store: Path) -> LastBackup | None:
    """Return the last backup of the store; None if there was none, or if the file is damaged."""
    try:
        return _DECODER.decode((store / FILE_NAME).read_bytes())
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def write_last_backup(store: Path, last: LastBackup) -> None:
    """Replace the file. Raises OSError."""
    replace_file(store / FILE_NAME, msgspec.json.encode(last))
