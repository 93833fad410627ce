"""Reads an archive's catalog, and writes one that has some of its recordings. Pure.

The entry of a recording is a header and a descriptor, with numbers and three texts. Offsets are those of the archive's
SBE schema (Aeron 1.51.0); a test compares each with the Java classes. A recording that is being written has no stop
position in the catalog. A copy of it ends at the position up to which its bytes were copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aeron_spark.aeron.recording import Recording, recording_of
from aeron_spark.errors import DataLossError

CATALOG_FILE: Final = "archive.catalog"
CATALOG_HEADER: Final = struct.Struct(
    "<i"  # version, its major number in bits 16 to 23
    "i"  # length of this header
    "q"  # id of the next recording
    "i"  # alignment of the entries
)
CATALOG_HEADER_LENGTH: Final = 32
CATALOG_MAJOR_VERSION: Final = 3
ENTRY_HEADER: Final = struct.Struct("<iii")  # length of the descriptor, state, checksum
ENTRY_HEADER_LENGTH: Final = 32
VALID: Final = 1
MAX_FAULTS: Final = 1000  # of a catalog; another person may have written it
SIZE_UNIT: Final = 1 << 20  # the archive's smallest catalog, and its step
NUMBERS: Final = struct.Struct(
    "<"
    "q"  # control session
    "q"  # correlation
    "q"  # recording
    "q"  # start, ms
    "q"  # stop, ms
    "q"  # start position
    "q"  # stop position
    "i"  # initial term id
    "i"  # length of a segment file
    "i"  # length of a term
    "i"  # MTU
    "i"  # Aeron session id
    "i"  # stream id
)
RECORDING_ID_OFFSET: Final = 16
STOP_TIMESTAMP_OFFSET: Final = 32
START_POSITION_OFFSET: Final = 40
STOP_POSITION_OFFSET: Final = 48
STREAM_ID_OFFSET: Final = 76
CHECKSUM_OFFSET: Final = 8  # in the header of an entry
TEXTS: Final = 3  # channel, channel as it was given, source
_RECORDING_ID: Final = struct.Struct("<q")
_STREAM_ID: Final = struct.Struct("<i")
_LENGTH: Final = struct.Struct("<I")
_POLYNOMIAL: Final = 0x82F63B78  # of CRC-32C, reversed


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A recording in the catalog; ``data`` are the entry's bytes."""

    recording: Recording
    data: bytes

    @property
    def is_checksum_right(self) -> bool:
        """Whether the entry's checksum is that of its bytes, or the archive writes no checksums."""
        (checksum,) = struct.unpack_from("<i", self.data, CHECKSUM_OFFSET)
        return not checksum or bool(checksum == signed_crc32c(self.data[ENTRY_HEADER_LENGTH:]))


@dataclass(frozen=True, slots=True)
class Catalog:
    """The valid entries by recording id. ``faults`` are the errors in the bytes of others."""

    version: int
    next_recording_id: int
    alignment: int
    entries: Mapping[int, CatalogEntry]
    faults: tuple[str, ...] = ()


def parse_catalog(data: bytes, name: str, is_wanted: Callable[[int, int], bool] = lambda *_: True) -> Catalog:
    """Parse the bytes of a catalog, the file ``name``. Raises DataLossError if its header is damaged.

    ``is_wanted`` gets a recording's id and stream id; the result has no other recordings.
    """
    if len(data) < CATALOG_HEADER_LENGTH:
        raise _damaged(name, f"it has only {len(data)} bytes")
    version, header_length, next_id, alignment = CATALOG_HEADER.unpack_from(data)
    if version >> 16 & 0xFF != CATALOG_MAJOR_VERSION or version >> 24:
        raise _damaged(name, f"its version is {version:#x}, expected major version {CATALOG_MAJOR_VERSION}")
    if header_length != CATALOG_HEADER_LENGTH or alignment < 1 or alignment & (alignment - 1):
        raise _damaged(name, f"its header has {header_length} bytes and the alignment {alignment}")
    entries: dict[int, CatalogEntry] = {}
    faults: list[str] = []
    known: set[int] = set()
    end = CATALOG_HEADER_LENGTH
    for at, length, state in _entries(data, alignment):
        if len(faults) == MAX_FAULTS:
            faults.append(f"the entries from byte {at} on were not read, because there are too many errors")
            break
        end = at + _aligned(ENTRY_HEADER_LENGTH + length, alignment)
        if end > len(data):
            faults.append(f"the entry at byte {at} is longer than the catalog")
        if state != VALID:
            continue
        ids = _ids(data, at + ENTRY_HEADER_LENGTH, length)
        if ids is None or not _has_texts(data, at + ENTRY_HEADER_LENGTH, length):
            faults.append(f"the entry at byte {at} is not a recording's")
            continue
        if ids[0] in known or not 0 <= ids[0] < next_id:
            faults.append(f"the entry at byte {at} has the recording id {ids[0]}, which cannot be")
            continue
        known.add(ids[0])
        if is_wanted(*ids):
            entry = data[at : at + ENTRY_HEADER_LENGTH + length]
            recording = _parse_descriptor(entry[ENTRY_HEADER_LENGTH:])
            entries[recording.id] = CatalogEntry(recording, entry)
    else:
        # An archive that gives a recording a longer channel moves the later entries, and for a moment leaves a gap.
        if data[end:].strip(b"\0"):
            faults.append(f"there is an entry behind the end of the entries at byte {end}")
    return Catalog(version, next_id, alignment, entries, tuple(faults))


def _entries(data: bytes, alignment: int) -> Iterator[tuple[int, int, int]]:
    """Yield offset, length of the descriptor and state of each entry."""
    at = CATALOG_HEADER_LENGTH
    while at + ENTRY_HEADER_LENGTH <= len(data):
        length, state, _ = ENTRY_HEADER.unpack_from(data, at)
        if length <= 0:
            return
        yield at, length, state
        at += _aligned(ENTRY_HEADER_LENGTH + length, alignment)


def _ids(data: bytes, at: int, length: int) -> tuple[int, int] | None:
    """Return the recording id and the stream id of the descriptor at ``at``, or None if it is too short."""
    if length < NUMBERS.size or at + length > len(data):
        return None
    (recording_id,) = _RECORDING_ID.unpack_from(data, at + RECORDING_ID_OFFSET)
    (stream_id,) = _STREAM_ID.unpack_from(data, at + STREAM_ID_OFFSET)
    return recording_id, stream_id


def _has_texts(data: bytes, at: int, length: int) -> bool:
    """Whether the texts of the descriptor at ``at`` end within its length."""
    end = at + length
    at += NUMBERS.size
    for _ in range(TEXTS):
        if at + _LENGTH.size > end:
            return False
        (text_length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + text_length
        if at > end:
            return False
    return True


def _parse_descriptor(data: bytes) -> Recording:
    _, _, *numbers = NUMBERS.unpack_from(data)
    texts = []
    at = NUMBERS.size
    for _ in range(TEXTS):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        texts.append(data[at - length : at].decode("latin-1"))
    return recording_of(numbers, texts)


def encode_catalog(source: Catalog, ranges: Mapping[int, tuple[int, int]], stopped_ms: int) -> bytes:
    """Return a catalog with the recordings of ``ranges``, which has the start and stop position of each by id.

    Ids of recordings stay, and the next id. ``stopped_ms`` is the time of the stop, since 1970. Raises KeyError for an
    unknown recording.
    """
    header = CATALOG_HEADER.pack(source.version, CATALOG_HEADER_LENGTH, source.next_recording_id, source.alignment)
    parts = [header.ljust(CATALOG_HEADER_LENGTH, b"\0")]
    for recording_id in sorted(ranges):
        start, stop = ranges[recording_id]
        data = bytearray(source.entries[recording_id].data)
        for offset, value in (
            (START_POSITION_OFFSET, start),
            (STOP_TIMESTAMP_OFFSET, stopped_ms),
            (STOP_POSITION_OFFSET, stop),
        ):
            struct.pack_into("<q", data, ENTRY_HEADER_LENGTH + offset, value)
        struct.pack_into("<i", data, CHECKSUM_OFFSET, signed_crc32c(data[ENTRY_HEADER_LENGTH:]))
        parts.append(bytes(data).ljust(_aligned(len(data), source.alignment), b"\0"))
    catalog = b"".join(parts)
    return catalog.ljust(_aligned(len(catalog) + 1, SIZE_UNIT), b"\0")


def signed_crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of ``data`` as a signed 32-bit number, the archive's checksum of an entry."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE: Final = tuple(map(_table_entry, range(256)))


def _aligned(length: int, alignment: int) -> int:
    return (length + alignment - 1) // alignment * alignment


def _damaged(name: str, why: str) -> DataLossError:
    return DataLossError(
        f"the archive's catalog {name} is damaged: {why}",
        remedy="Restore the store and the archive's folder from copies of one time.",
    )
