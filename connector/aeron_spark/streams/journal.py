"""A stream's ledger, persisted in its journal: each change is written and fsynced before it takes effect.

The journal is a file of records. All numbers are little-endian.

    file    offset width name      meaning
            0      4     magic     b"AsFJ"
            4      4     version   1
            8            records

    record  0      4     length    bytes of the payload
            4      4     check     CRC-32 of the four bytes of the length
            8      4     crc       CRC-32 of the payload
            12           payload
            …      4     end       a5 5a a5 5a

A record is one write and one fsync, and the next record begins after that. So after a crash only the last record can be
incomplete: the written bytes end before the record does. ``Journal.open`` removes such a record. Zeros at the end of
the file count as not written, because a file system may extend a file before it writes the bytes; a complete record
ends with the end marker, never with zeros. The checksum of the length makes the end of each record certain. Any other
error is damage to acknowledged records: it raises DataLossError, and changes nothing.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.errors import DataFormatError, DataLossError, EndedError, TransportError, UsageError
from aeron_spark.files import NO_SPACE_ERRNOS, is_no_space, replace_file, sync_folder, write_at, write_failed
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import FIND_AND_RESTORE, Definition
from aeron_spark.streams.journal_records import (
    ContentFixed,
    Record,
    Recorded,
    RunStarted,
    decode_record,
    encode_record,
)
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import PartitionCut, Shape, StreamCut, StreamView

JOURNAL_FILE: Final = "journal"
FILE_HEAD: Final = b"AsFJ" + (1).to_bytes(4, "little")
RECORD_HEAD: Final = struct.Struct(
    "<"
    "I"  # length
    "I"  # check
    "I"  # crc
)
RECORD_END: Final = b"\xa5\x5a\xa5\x5a"
MAX_FILE_BYTES: Final = 1 << 30  # of a journal that is read from a backup
MAX_PAYLOAD_BYTES: Final = (1 << 30) - 1  # a snapshot of 10,000 partitions with their time indexes is much smaller
MIN_REWRITE_BYTES: Final = 1 << 20  # a shorter journal is read in milliseconds


def encode_entry(payload: bytes) -> bytes:
    """Return the bytes of one record. Raises UsageError for more than ``MAX_PAYLOAD_BYTES`` bytes."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise UsageError(
            f"a record of {len(payload)} bytes is too long for a journal, limit {MAX_PAYLOAD_BYTES} bytes",
            remedy="Create the stream with fewer partitions.",
        )
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
    """Return the payloads of all complete records, and the offset of the end of the last one.

    Raises DataFormatError for bytes that are not a journal, DataLossError for a damaged record.
    """
    if data[: len(FILE_HEAD)] != FILE_HEAD:
        raise DataFormatError(
            f"{path} is not a journal of version {FILE_HEAD[4]}: it begins with {data[: len(FILE_HEAD)]!r}",
            remedy="Restore the file from a copy, or start the release of aeron-spark that wrote it.",
        )
    payloads = []
    offset, written = len(FILE_HEAD), len(data.rstrip(b"\0"))
    while offset < written:
        payload = _read_entry(data, offset, written, path)
        if payload is None:
            break
        payloads.append(payload)
        offset += RECORD_HEAD.size + len(payload) + len(RECORD_END)
    return payloads, offset


def _read_entry(data: bytes, offset: int, written: int, path: Path) -> bytes | None:
    """Return the payload of the record at ``offset``, or None if the record ends after ``written``."""
    begin = offset + RECORD_HEAD.size
    if begin > written:
        return None
    length, check, crc = RECORD_HEAD.unpack_from(data, offset)
    if zlib.crc32(data[offset : offset + 4]) != check:
        raise _damage_error(path, offset, "the checksum of its length is wrong")
    end = begin + length + len(RECORD_END)
    if end > written:
        return None
    payload = data[begin : begin + length]
    if zlib.crc32(payload) != crc:
        raise _damage_error(path, offset, "its checksum is wrong")
    if data[begin + length : end] != RECORD_END:
        raise _damage_error(path, offset, "its end marker is missing")
    return payload


def _damage_error(path: Path, offset: int, why: str) -> DataLossError:
    return DataLossError(
        f"the record at byte {offset} of {path} was damaged after it was written: {why}",
        remedy=FIND_AND_RESTORE,
    )


class Journal:
    """An open journal file. Not safe for concurrent use. The caller ensures that no other process opens the file.

    After a failure that leaves the bytes on the disk unknown, the journal is ``broken`` and accepts no more records.
    Opening it again reads the bytes that the disk has.
    """

    def __init__(self, path: Path, descriptor: int, size: int, torn_bytes: int = 0) -> None:
        """Use ``create`` or ``open``."""
        self.path = path
        self.torn_bytes = torn_bytes  # size of the incomplete record that ``open`` removed
        self.broken = ""  # the failure after which no more records are accepted
        self._descriptor = descriptor
        self._size = size
        self._rewritten_size = size

    @classmethod
    def create(cls, path: Path, payloads: Sequence[bytes] = ()) -> Journal:
        """Create the file with these records, atomically. Raises UsageError if it exists, TransportError on failure."""
        if path.exists():
            raise UsageError(f"{path} exists", remedy="Open it instead.")
        try:
            replace_file(path, b"".join((FILE_HEAD, *map(encode_entry, payloads))))
            return cls(path, _open(path), path.stat().st_size)
        except OSError as error:
            raise write_failed(path, error) from error

    @classmethod
    def open(cls, path: Path) -> tuple[Journal, list[bytes]]:
        """Open the file and remove an incomplete last record; return the journal and the payloads of its records.

        Raises DataLossError for a missing or damaged file, DataFormatError for a file that is not a journal,
        TransportError if the disk fails.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DataLossError(
                f"the stream is damaged: {path} is missing, and only it records the committed transactions",
                remedy=FIND_AND_RESTORE,
            ) from error
        except OSError as error:
            raise TransportError(
                f"{path} cannot be read: {error.strerror or error}",
                remedy="Check the disk and the permissions of the file.",
            ) from error
        payloads, end = read_entries(data, path)
        try:
            with suppress(FileNotFoundError):
                path.with_name(path.name + ".new").unlink()  # the draft of a rewrite that a crash interrupted
            descriptor = _open(path)
            try:
                os.ftruncate(descriptor, end)
                # The last record may be in the kernel's memory only, if its fsync failed before the process ended.
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
        """The size of the file in bytes."""
        return self._size

    @property
    def inode(self) -> int:
        """The inode of the file, which a rewrite changes."""
        return os.fstat(self._descriptor).st_ino

    @property
    def is_worth_rewriting(self) -> bool:
        """Whether the file has at least doubled, and grown by 1 MiB, since it was opened or rewritten."""
        return self._size - self._rewritten_size > max(MIN_REWRITE_BYTES, self._rewritten_size)

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names the open file, so that the next start finds it; True after ``close``."""
        return self._descriptor < 0 or self._is_at_path(os.fstat(self._descriptor))

    def append(self, payload: bytes) -> None:
        """Append a record and call fsync.

        Raises TransportError on failure: the record was removed again, or the journal is ``broken`` from now on, and
        only opening it again shows whether it has the record. Raises UsageError if the journal is broken, EndedError if
        it is closed.
        """
        self._check_usable()
        entry, begin = encode_entry(payload), self._size
        try:
            write_at(self._descriptor, entry, begin)
            os.fsync(self._descriptor)
            self._size = begin + len(entry)
        except OSError as error:
            self._undo_append(begin, error)
            if error.errno not in NO_SPACE_ERRNOS and not self.broken:
                # After a failed fsync the kernel may report bytes as written that the disk does not have.
                self.broken = str(error)
            raise write_failed(self.path, error) from error
        except BaseException as error:  # after an interrupt before the fsync, the next opening must not find the record
            self._undo_append(begin, error)
            raise

    def _undo_append(self, begin: int, error: BaseException) -> None:
        self._size = begin
        try:
            os.ftruncate(self._descriptor, begin)
            os.fsync(self._descriptor)
        except OSError as second:
            self.broken = f"{error}, and then {second}"

    def rewrite(self, payloads: Sequence[bytes]) -> None:
        """Replace all records by these, atomically: after a crash, the file has all old or all new records.

        Raises TransportError on failure: the file has the old records, or the journal is ``broken`` from now on.
        """
        self._check_usable()
        data = b"".join((FILE_HEAD, *map(encode_entry, payloads)))
        before = os.fstat(self._descriptor)
        try:
            replace_file(self.path, data)
            descriptor = _open(self.path)
        except OSError as error:
            # The new file may have the name now, and lose it in a crash: no further record is safe in either file.
            if not self._is_at_path(before):
                self.broken = str(error)
            raise write_failed(self.path, error) from error
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._size = self._rewritten_size = len(data)

    def _is_at_path(self, file: os.stat_result) -> bool:
        try:
            return os.path.samestat(self.path.stat(), file)
        except OSError:
            return False

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_usable(self) -> None:
        if self._descriptor < 0:
            raise EndedError(f"the journal {self.path} is closed", remedy="Open it again.")
        if self.broken:
            raise UsageError(
                f"the journal {self.path} failed before, and its bytes on the disk are unknown: {self.broken}",
                remedy="Check the disk, then restart the server.",
            )


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


class StoreOpening(NamedTuple):
    """The time at which a store was opened (ns since 1970), and 20 random bits: the parts of an epoch."""

    time_ns: int
    random: int


class JournaledLedger:
    """The ledger of a stream, with its journal in ``folder``. Not safe for concurrent use.

    The first change begins the epoch of ``opening``; ``mark`` in the archive's folder has it, too. Raises DataLossError
    or DataFormatError if the journal is missing, damaged, or of another time than the archive.
    """

    def __init__(self, folder: Path, partitions: int, opening: StoreOpening, mark: ArchiveMark) -> None:
        self._mark = mark
        self._opening: StoreOpening | None = opening  # None after its epoch is in the journal
        self._journal, payloads = Journal.open(folder / JOURNAL_FILE)
        try:
            self.ledger = Ledger.replay(partitions, map(decode_record, payloads))
            mark.check(self.ledger.epoch, self.ledger.transactions)
        except BaseException:
            self._journal.close()
            raise
        self._apply_error = ""
        self._unwritten: dict[str, RunStarted] = {}  # by writer: applied, and not in the journal yet

    @property
    def torn_bytes(self) -> int:
        """The size of the incomplete record that was removed from the journal, in bytes."""
        return self._journal.torn_bytes

    def cut(self, definition: Definition, view: StreamView) -> StreamCut:
        """Return the present state for a backup; ``view`` is the present one."""
        journal, ledger = self._journal, self.ledger
        partitions = tuple(map(PartitionCut.of, view.states))
        return StreamCut(definition, journal.inode, journal.size, ledger.epoch, ledger.transactions, partitions)

    @property
    def failure(self) -> TransportError | None:
        """The failure after which no more records can be written, or None."""
        broken = self._journal.broken or self._apply_error
        if not broken and not self._journal.is_in_place:
            return TransportError(
                f"{self._journal.path} is not the file any more that the server has opened: the folder of the stream "
                "was removed or replaced, or a file system is mounted over it",
                remedy="Mount or restore the folder of the streams, then restart the server.",
            )
        if not broken:
            return None
        return TransportError(
            f"the journal {self._journal.path} failed before, and its bytes on the disk are unknown: {broken}",
            remedy="Check the disk, then restart the server, which reads the journal again.",
        )

    def check_writable(self) -> None:
        """Raise TransportError if no more records can be written."""
        failure = self.failure
        if failure is not None:
            raise failure

    def write(self, record: Record) -> None:
        """Append the record to the journal, then apply it to the ledger. Raises TransportError if the disk fails."""
        self.check_writable()
        if self._opening is not None:
            begun = self.ledger.prepare_epoch(*self._opening)
            self._mark.announce(begun.epoch, self.ledger.epoch, self.ledger.transactions)
            self._write(begun)
            self._opening = None
            self._mark.confirm(begun.epoch, self.ledger.transactions)
        for writer, started in list(self._unwritten.items()):
            self._journal.append(encode_record(started))
            del self._unwritten[writer]
        self._write(record)

    def write_run(self, started: RunStarted) -> None:
        """As :meth:`write`; without room on the disk, apply the record now, and write it before the next one.

        For the run of a program that replaces its run before, so that it can abort a transaction on a full disk. After
        a crash, the run is unknown, and the program must begin again.
        """
        try:
            self.write(started)
        except TransportError as error:
            if self.failure is not None or not is_no_space(error):
                raise
            self.ledger.apply(started)
            self._unwritten[started.writer] = started

    def _write(self, record: Record) -> None:
        self._journal.append(encode_record(record))
        try:
            self.ledger.apply(record)
        except BaseException as error:
            # The journal has the record and the ledger has not: the next commit would overwrite its rows.
            self._apply_error = repr(error)
            raise

    def compact(self, now_ns: int, max_joined_bytes: int = 0) -> None:
        """Rewrite the journal as one snapshot if it has grown enough; ``now_ns`` is since 1970.

        ``max_joined_bytes`` limits the transactions that the time index joins; see ``TimeIndex.thin``.
        """
        if self._journal.is_worth_rewriting and not self._journal.broken:
            self.ledger.forget_single_use_writers(now_ns)
            for index in self.ledger.times:
                index.thin(now_ns, max_joined_bytes)
            self._journal.rewrite([encode_record(self.ledger.snapshot())])
            self._unwritten.clear()

    def update_mark(self) -> None:
        """Write the number of transactions to the mark in the archive's folder. Raises TransportError."""
        self._mark.update(self.ledger.transactions)

    def close(self) -> None:
        """Complete the mark, and close the journal."""
        with suppress(TransportError):
            if self.failure is None:
                self._mark.close(self.ledger.transactions, self._journal.path)
        self._journal.close()


def create_ledger(folder: Path, shapes: Sequence[Shape], schema: bytes | None = None) -> None:
    """Create the journal of a new stream, whose partitions are recordings of these shapes from position 0 on.

    With ``schema`` (Arrow IPC) the stream has Arrow rows of this schema from the beginning.
    """
    records: list[Record] = [
        Recorded(index, shape.recording_id, shape.fingerprint) for index, shape in enumerate(shapes)
    ]
    if schema is not None:
        records.append(ContentFixed("arrow", schema))
    Journal.create(folder / JOURNAL_FILE, [encode_record(record) for record in records]).close()
