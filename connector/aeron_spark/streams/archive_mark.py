"""A mark of each stream's journal in the archive's folder, which detects a store and an archive of different times.

    <archive folder>/aeron-spark-streams/<original name of the stream>-<created, hex>.json

An opening of the store begins an epoch in the journal. The mark is written before that, with the new epoch and the
epoch before it, and again after the journal has the new epoch. A start with a journal of another time would truncate
the rows that this journal does not have. So the server refuses such a journal before it changes anything.

The mark also names the stream's folder, so that a start notices a folder that is gone.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path
from typing import Annotated, Final

import msgspec

from aeron_spark.errors import DataFormatError, DataLossError
from aeron_spark.files import read_regular, replace_file, write_failed
from aeron_spark.log.epochs import UNKNOWN, epoch_text
from aeron_spark.streams.definition import Definition

MARKS_FOLDER: Final = "aeron-spark-streams"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 16
OTHER_TIME: Final = "other-time"  # reason of the error about a journal and an archive of different times
LOG: Final = logging.getLogger("aeron_spark.streams")

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Epoch = Annotated[int, msgspec.Meta(ge=0)]  # below 2**64, which msgspec cannot express


class MarkContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file. The journal had at least ``transactions`` transactions in the newest begun epoch.

    The newest begun epoch is ``epoch`` if ``begun``, else ``epoch`` or ``before``. After the store was closed, and
    before the next change, ``journal_bytes`` and ``journal_crc`` are the size and the CRC-32 of the journal's file.
    ``folder`` is the absolute path of the stream's folder at the last change; "" in marks of earlier releases.
    """

    v: int
    epoch: _Epoch
    before: _Epoch
    begun: bool
    transactions: _Number
    journal_bytes: _Number = 0
    journal_crc: _Number = 0
    folder: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a number that is no epoch."""
        if max(self.epoch, self.before) > UNKNOWN:
            raise ValueError(f"the epochs {self.epoch} and {self.before} have more than 64 bits")


# Built at import, by one thread: decoders of msgspec that threads build concurrently can crash the process.
_DECODER: Final = msgspec.json.Decoder(MarkContent)


def read_mark(path: Path) -> MarkContent | None:
    """Return the mark in a file; None if it is missing or of another version. Raises DataFormatError."""
    try:
        found = _DECODER.decode(read_regular(path, MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataFormatError(
            f"the mark {path} cannot be read: {error}",
            remedy="Restore the file, or remove it: the server writes another one at the stream's next change.",
        ) from error
    return found if found.v == VERSION else None


class ArchiveMark:
    """The mark of one stream. Not safe for concurrent use.

    Without the archive's folder on this machine, no mark is written and every journal is accepted. ``stream_folder`` is
    the folder of the stream, which the mark names.
    """

    def __init__(self, archive_dir: str, definition: Definition, stream_folder: Path | None = None) -> None:
        self._name = definition.name
        self._stream_folder = "" if stream_folder is None else os.path.abspath(stream_folder)
        folder = Path(archive_dir)
        self.path = folder / MARKS_FOLDER / f"{definition.original_name}-{definition.created_ns:x}.json"
        self._has_folder = folder.is_dir()
        self._mark: MarkContent | None = None

    def check(self, epoch: int, transactions: int) -> None:
        """Compare the mark with the journal's newest epoch and number of transactions.

        Raises DataLossError if the journal or the archive is an older copy. An unreadable mark is logged and ignored.
        """
        found = self._mark = self._read()
        if found is None:
            return
        if epoch == found.epoch or (not found.begun and epoch == found.before):
            is_older = transactions < found.transactions
        elif epoch > found.epoch:
            raise DataLossError(
                f"the archive of stream {self._name!r} is older than its journal: the archive's folder has epoch "
                f"{epoch_text(found.epoch)}, the journal has epoch {epoch_text(epoch)}",
                remedy="Restore the store and the archive's folder from copies of one time.",
                reason=OTHER_TIME,
            )
        else:
            is_older = True
        if is_older:
            raise DataLossError(
                f"the journal of stream {self._name!r} is older than its archive: the journal has {transactions} "
                f"transactions and epoch {epoch_text(epoch)}, the archive has at least {found.transactions} "
                f"transactions and epoch {epoch_text(found.epoch)}",
                remedy="Restore the store and the archive's folder from copies of one time. To give up the "
                f"transactions that the journal lacks, remove {self.path} and restart the server, which truncates the "
                "recordings.",
                reason=OTHER_TIME,
            )

    def announce(self, epoch: int, before: int, transactions: int) -> None:
        """Write that ``epoch`` is about to begin in the journal, after epoch ``before``. Raises TransportError."""
        self._write(MarkContent(VERSION, epoch, before, begun=False, transactions=transactions))

    def confirm(self, epoch: int, transactions: int) -> None:
        """Write that the journal has the epoch. Raises TransportError."""
        self._write(MarkContent(VERSION, epoch, epoch, begun=True, transactions=transactions))

    def update(self, transactions: int) -> None:
        """Write the journal's number of transactions, if it changed. Raises TransportError."""
        mark = self._mark
        if mark is not None and mark.begun and mark.transactions != transactions:
            self._write(msgspec.structs.replace(mark, transactions=transactions))

    def close(self, transactions: int, journal: Path) -> None:
        """Write the journal's number of transactions, its size and its checksum, if they changed.

        The journal is complete, and is not changed before the next ``announce``. Raises TransportError.
        """
        mark = self._mark
        is_complete = mark is not None and mark.journal_bytes and mark.transactions == transactions
        if mark is None or not mark.begun or is_complete:
            return
        try:
            data = journal.read_bytes()
        except OSError as error:
            raise write_failed(self.path, error) from error
        self._write(
            msgspec.structs.replace(
                mark, transactions=transactions, journal_bytes=len(data), journal_crc=zlib.crc32(data)
            )
        )

    @property
    def found(self) -> MarkContent | None:
        """The mark that ``check`` has read, or that was written since."""
        return self._mark

    def remove(self) -> None:
        """Remove the file, after its stream was deleted."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> MarkContent | None:
        try:
            return read_mark(self.path)
        except DataFormatError as error:
            LOG.warning("stream %r: its mark is ignored: %s", self._name, error.what)
            return None

    def _write(self, mark: MarkContent) -> None:
        if self._stream_folder:
            mark = msgspec.structs.replace(mark, folder=self._stream_folder)
        self._mark = mark
        if not self._has_folder:
            return
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(self.path, msgspec.json.encode(mark))
        except OSError as error:
            raise write_failed(self.path, error) from error
