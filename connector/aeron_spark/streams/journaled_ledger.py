"""A stream's ledger and the journal it is made of, kept equal: what is true is written first, and known then."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.errors import TransportError
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.journal import Journal
from aeron_spark.streams.journal_records import Record, Recorded, decode_record, encode_record
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import Shape

JOURNAL: Final = "journal"


class Opened(NamedTuple):
    """When a store was opened (ns since 1970), and 20 random bits."""

    time_ns: int
    random: int


class JournaledLedger:
    """The journal in ``folder`` and what it says. Not safe for concurrent use.

    The first change begins the epoch of ``opened``, which ``mark`` in the archive's folder knows. Raises DataLossError
    or DataFormatError where the journal is missing, not right, or of another time than the archive.
    """

    def __init__(self, folder: Path, partitions: int, opened: Opened, mark: ArchiveMark) -> None:
        self._mark = mark
        self._opened: Opened | None = opened  # None once its epoch is in the journal
        self._journal, payloads = Journal.open(folder / JOURNAL)
        try:
            self.ledger = Ledger.replay(partitions, map(decode_record, payloads))
            mark.check(self.ledger.epoch, self.ledger.transactions)
        except BaseException:
            self._journal.close()
            raise
        self._unknown = ""

    @property
    def torn(self) -> int:
        """Bytes of an unfinished record that opening cut off the journal."""
        return self._journal.torn

    @property
    def fault(self) -> TransportError | None:
        """Why no record can be written any more: it is not known what is on the disk. None where all is well."""
        broken = self._journal.broken or self._unknown
        if not broken:
            return None
        return TransportError(
            f"the journal {self._journal.path} failed before, and what it holds is not known: {broken}",
            remedy="See to the disk, then restart the server, which looks.",
        )

    def check_writable(self) -> None:
        """Raise TransportError where no record can be written any more."""
        fault = self.fault
        if fault is not None:
            raise fault

    def write(self, record: Record) -> None:
        """Make a record true: on the disk, then in the ledger. Raises TransportError where it is not on the disk."""
        self.check_writable()
        if self._opened is not None:
            begun = self.ledger.begin_epoch(*self._opened)
            self._mark.begin(begun.epoch, self.ledger.epoch, self.ledger.transactions)
            self._write(begun)
            self._opened = None
            self._mark.begun(begun.epoch, self.ledger.transactions)
        self._write(record)

    def _write(self, record: Record) -> None:
        self._journal.append(encode_record(record))
        try:
            self.ledger.apply(record)
        except BaseException as error:
            # It is true for whoever reads the journal: going on without it would cut off what it committed.
            self._unknown = repr(error)
            raise

    def compact(self, now_ns: int) -> None:
        """Rewrite the journal as one snapshot where it has grown enough; ``now_ns`` is since 1970."""
        if self._journal.worth_rewriting and not self._journal.broken:
            self.ledger.forget(now_ns)
            self.ledger.thin(now_ns)
            self._journal.rewrite([encode_record(self.ledger.snapshot())])

    def note(self) -> None:
        """Have the archive's folder know how many transactions there are. Raises TransportError."""
        self._mark.note(self.ledger.transactions)

    def close(self) -> None:
        """Let go of the file."""
        with suppress(TransportError):
            self.note()
        self._journal.close()


def begin_ledger(folder: Path, shapes: Sequence[Shape]) -> None:
    """Write the journal of a new stream, whose partitions are these recordings, from position 0 on."""
    records = [Recorded(index, shape.recording_id, shape.fingerprint) for index, shape in enumerate(shapes)]
    Journal.create(folder / JOURNAL, [encode_record(record) for record in records]).close()
