"""A mark of each stream's journal in the archive's folder: it tells a store and an archive of different times apart.

    <archive folder>/aeron-spark-streams/<stream>-<created, hex>.json

An opening of the store begins an epoch in the journal. The mark is written before that, with the new epoch and the one
before it, and again once the journal has the new one. A start with a journal of another time would cut off what this
journal does not know: such a journal is refused before anything is changed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Final

import msgspec

from aeron_spark.disk import replace_file, write_failed
from aeron_spark.errors import DataLossError
from aeron_spark.log.epochs import epoch_text
from aeron_spark.streams.definition import Definition

FOLDER: Final = "aeron-spark-streams"
VERSION: Final = 1
LOG: Final = logging.getLogger("aeron_spark.streams")

_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``transactions`` is how many the journal had, at least, in ``epoch``, or in ``before`` until that has begun."""

    v: int
    epoch: _Number
    before: _Number
    begun: bool
    transactions: _Number


# Built while this module is imported, by one thread; see endpoint.payloads.
_DECODER: Final = msgspec.json.Decoder(_Mark)


class ArchiveMark:
    """The mark of one stream. Not safe for concurrent use.

    Without a folder of the archive on this machine there is none, and every journal is accepted.
    """

    def __init__(self, archive_dir: str, definition: Definition) -> None:
        self._name = definition.name
        folder = Path(archive_dir)
        self.path = folder / FOLDER / f"{definition.name}-{definition.created_ns:x}.json"
        self._is_kept = folder.is_dir()
        self._mark: _Mark | None = None

    def check(self, epoch: int, transactions: int) -> None:
        """Compare with the journal: its newest epoch, and how many transactions it has.

        Raises DataLossError where one of them is of an older copy. A mark that cannot be read is logged and ignored.
        """
        found = self._mark = self._read()
        if found is None:
            return
        if epoch == found.epoch or (not found.begun and epoch == found.before):
            is_older = transactions < found.transactions
        elif epoch > found.epoch:
            raise DataLossError(
                f"the archive of stream {self._name!r} is older than its journal: the archive's folder is of epoch "
                f"{epoch_text(found.epoch)}, the journal of {epoch_text(epoch)}",
                remedy="Restore the store and the archive's folder from copies of one time",
            )
        else:
            is_older = True
        if is_older:
            raise DataLossError(
                f"the journal of stream {self._name!r} is older than its archive: the journal has {transactions} "
                f"transactions, the last in epoch {epoch_text(epoch)}, and the archive's folder was left with at least "
                f"{found.transactions} in epoch {epoch_text(found.epoch)}",
                remedy="Restore the store and the archive's folder from copies of one time. To give up what the "
                f"journal does not know, remove {self.path} and restart the server, which cuts it off the recordings",
            )

    def begin(self, epoch: int, before: int, transactions: int) -> None:
        """Note that ``epoch`` is about to begin in the journal. Raises TransportError where that cannot be written."""
        self._write(_Mark(VERSION, epoch, before, begun=False, transactions=transactions))

    def begun(self, epoch: int, transactions: int) -> None:
        """Note that the journal has the epoch. Raises TransportError."""
        self._write(_Mark(VERSION, epoch, epoch, begun=True, transactions=transactions))

    def note(self, transactions: int) -> None:
        """Note how many transactions the journal has now, from time to time. Raises TransportError."""
        mark = self._mark
        if mark is not None and mark.begun and mark.transactions != transactions:
            self._write(msgspec.structs.replace(mark, transactions=transactions))

    def remove(self) -> None:
        """Remove it with its stream."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> _Mark | None:
        try:
            found = _DECODER.decode(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            LOG.warning("stream %r: the mark %s cannot be read and is ignored: %s", self._name, self.path, error)
            return None
        return found if found.v == VERSION else None

    def _write(self, mark: _Mark) -> None:
        self._mark = mark
        if not self._is_kept:
            return
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(self.path, msgspec.json.encode(mark))
        except OSError as error:
            raise write_failed(self.path, error) from error
