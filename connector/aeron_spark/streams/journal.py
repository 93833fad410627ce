"""A stream's journal: records appended one after the other, each on the disk before ``append`` returns.

All numbers are little-endian.

    file    offset width name      meaning
            0      4     magic     b"AsFJ"
            4      4     version   1
            8            records

    record  0      4     length    bytes of the payload
            4      4     check     CRC-32 of the four bytes of the length
            8      4     crc       CRC-32 of the payload
            12           payload
            …      4     end       a5 5a a5 5a

A record is one write and one sync, and the next begins only after that; so only the last one can be torn. It is torn,
and cut off on opening, where what was written ends before it does. Zeros at the end of the file were not written: a
file system may make a file longer before it writes what is in it, and no record ends in zeros, for its end marker. That
the length has a checksum of its own makes it certain where a record should end: anything else that is not right is
damage to what was acknowledged. That is never cut off, it raises DataLossError.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.disk import NO_SPACE_ERRNOS, replace_file, sync_folder, write_at, write_failed
from aeron_spark.errors import DataFormatError, DataLossError, EndedError, TransportError, UsageError
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.journal_records import Record, Recorded, decode_record, encode_record
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import Shape

JOURNAL: Final = "journal"
FILE_HEAD: Final = b"AsFJ" + (1).to_bytes(4, "little")
RECORD_HEAD: Final = struct.Struct(
    "<"
    "I"  # length
    "I"  # check
    "I"  # crc
)
RECORD_END: Final = b"\xa5\x5a\xa5\x5a"
MOST_PAYLOAD: Final = (1 << 30) - 1  # bytes; a snapshot of ten thousand partitions and their times is far below
REWRITE_AT_LEAST: Final = 1 << 20  # bytes; a shorter journal is read in milliseconds, so rewriting it gains nothing


def encode_entry(payload: bytes) -> bytes:
    """Return the bytes of one record. Raises UsageError for more than ``MOST_PAYLOAD`` bytes."""
    if len(payload) > MOST_PAYLOAD:
        raise UsageError(f"a record of {len(payload)} bytes is too long for a journal", remedy="Use fewer partitions")
    length = len(payload).to_bytes(4, "little")
    return b"".join(
        (
            length,
            zlib.crc32(length).to_bytes(4, "little"),
            zlib.crc32(payload).to_bytes(4, "little"),
            payload,
            RECORD_END,
        )
    )


def read_entries(data: bytes, path: Path) -> tuple[list[bytes], int]:
    """Take a journal's bytes apart: the payloads, and where the last whole record ends.

    Raises DataFormatError where ``data`` is no journal, DataLossError where a record was damaged.
    """
    if data[: len(FILE_HEAD)] != FILE_HEAD:
        raise DataFormatError(
            f"{path} is not a journal of version {FILE_HEAD[4]}: it begins with {data[: len(FILE_HEAD)]!r}",
            remedy="Restore the file from a copy, or start the release of aeron-spark that wrote it",
        )
    payloads = []
    at, written = len(FILE_HEAD), len(data.rstrip(b"\0"))
    while at < written:
        payload = _entry(data, at, written, path)
        if payload is None:
            break
        payloads.append(payload)
        at += RECORD_HEAD.size + len(payload) + len(RECORD_END)
    return payloads, at


def _entry(data: bytes, at: int, written: int, path: Path) -> bytes | None:
    """The payload of the record at ``at``, or None where it is torn: ``written`` ends before it does."""
    begin = at + RECORD_HEAD.size
    if begin > written:
        return None
    length, check, crc = RECORD_HEAD.unpack_from(data, at)
    if zlib.crc32(data[at : at + 4]) != check:
        raise _damaged(path, at, "the checksum of its length does not hold")
    end = begin + length + len(RECORD_END)
    if end > written:
        return None
    payload = data[begin : begin + length]
    if zlib.crc32(payload) != crc:
        raise _damaged(path, at, "its checksum does not hold")
    if data[begin + length : end] != RECORD_END:
        raise _damaged(path, at, "it does not end as it should")
    return payload


def _damaged(path: Path, at: int, why: str) -> DataLossError:
    return DataLossError(
        f"the record at byte {at} of {path} was damaged after it was written: {why}",
        remedy="See to the disk, and restore the store and the archive's folder from copies of one time; nothing of "
        "the stream was changed",
    )


class Journal:
    """One open journal. Not safe for concurrent use; whoever opens it sees to it that no other process does.

    After a failure that leaves unknown what is on the disk it is ``broken``, takes no more records, and has to be
    opened anew, which finds out.
    """

    def __init__(self, path: Path, descriptor: int, size: int, torn: int = 0) -> None:
        """Use ``create`` or ``open``."""
        self.path = path
        self.torn = torn  # bytes of an unfinished record that opening cut off
        self.broken = ""  # why no more records are taken
        self._descriptor = descriptor
        self._size = size
        self._base = size

    @classmethod
    def create(cls, path: Path, payloads: Sequence[bytes] = ()) -> Journal:
        """Create the file with these records, at once. Raises UsageError where it exists, TransportError on failure."""
        if path.exists():
            raise UsageError(f"{path} exists", remedy="Open it instead")
        try:
            replace_file(path, b"".join((FILE_HEAD, *map(encode_entry, payloads))))
            return cls(path, _open(path), path.stat().st_size)
        except OSError as error:
            raise write_failed(path, error) from error

    @classmethod
    def open(cls, path: Path) -> tuple[Journal, list[bytes]]:
        """Open what is there, cutting off a torn record; return the payloads of all whole ones.

        Raises DataLossError where the file is missing or damaged, DataFormatError where it is no journal,
        TransportError where the disk does not work.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DataLossError(
                f"{path} is missing", remedy="Restore the file from a copy; without it nothing says what was committed"
            ) from error
        except OSError as error:
            raise TransportError(
                f"{path} cannot be read: {error.strerror or error}", remedy="See to the disk and the file's permissions"
            ) from error
        payloads, end = read_entries(data, path)
        try:
            with suppress(FileNotFoundError):
                path.with_name(path.name + ".new").unlink()  # of a rewrite that did not finish
            descriptor = _open(path)
            try:
                os.ftruncate(descriptor, end)
                # What was read may never have reached the disk: a record whose sync failed, and then the process ended.
                os.fsync(descriptor)
                sync_folder(path.parent)
            except OSError:
                os.close(descriptor)
                raise
        except OSError as error:
            raise write_failed(path, error) from error
        return cls(path, descriptor, end, len(data) - end), payloads

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    @property
    def worth_rewriting(self) -> bool:
        """Whether it has grown enough since it was opened or rewritten that a snapshot is worth its writing."""
        return self._size - self._base > max(REWRITE_AT_LEAST, self._base)

    def append(self, payload: bytes) -> None:
        """Append a record; when this returns it is on the disk.

        Raises TransportError where it is not: then nothing of it is there, or the journal is ``broken`` from now on and
        only opening it again shows which. Raises UsageError if the journal is broken, EndedError if it is closed.
        """
        self._check_usable()
        entry, begin = encode_entry(payload), self._size
        try:
            write_at(self._descriptor, entry, begin)
            os.fsync(self._descriptor)
            self._size = begin + len(entry)
        except OSError as error:
            self._take_back(begin, error)
            if error.errno not in NO_SPACE_ERRNOS and not self.broken:
                # After a failed sync the kernel may take its own copy for what is on the disk: nothing it says counts.
                self.broken = str(error)
            raise write_failed(self.path, error) from error
        except BaseException as error:  # an interrupt between the two: the record must not come back to life later
            self._take_back(begin, error)
            raise

    def _take_back(self, begin: int, error: BaseException) -> None:
        self._size = begin
        try:
            os.ftruncate(self._descriptor, begin)
            os.fsync(self._descriptor)
        except OSError as second:
            self.broken = f"{error}, and then {second}"

    def rewrite(self, payloads: Sequence[bytes]) -> None:
        """Replace all records by these, at once: after a crash all of the old or all of the new are there.

        Raises TransportError on failure: then the old ones are there, or the journal is ``broken`` from now on.
        """
        self._check_usable()
        data = b"".join((FILE_HEAD, *map(encode_entry, payloads)))
        before = os.fstat(self._descriptor).st_ino
        try:
            replace_file(self.path, data)
            descriptor = _open(self.path)
        except OSError as error:
            # Where the new file took the old one's name but may lose it again, no record is safe in either.
            if not self._is_still(before):
                self.broken = str(error)
            raise write_failed(self.path, error) from error
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._size = self._base = len(data)

    def _is_still(self, inode: int) -> bool:
        try:
            return self.path.stat().st_ino == inode
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the file; every record in it is on the disk already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_usable(self) -> None:
        if self._descriptor < 0:
            raise EndedError(f"the journal {self.path} is closed", remedy="Open it again")
        if self.broken:
            raise UsageError(
                f"the journal {self.path} failed before, and what is on the disk is not known: {self.broken}",
                remedy="See to the disk, then open the stream anew (restart the server)",
            )


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


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
            begun = self.ledger.prepare_epoch(*self._opened)
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
            self.ledger.forget_single_use_writers(now_ns)
            self.ledger.thin_time_index(now_ns)
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
