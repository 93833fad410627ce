"""Repair finds the end of a recording that was active when its archive was killed."""

from __future__ import annotations

import random
import struct
import time
import zlib
from pathlib import Path

import pytest

from aeron_spark.aeron import archive_catalog
from aeron_spark.aeron.recording import PADDING
from aeron_spark.node import archive_repair
from aeron_spark.node.state_files import MARK_FILE, MARK_HEADER

SEGMENT = 1 << 20
TERM = 1 << 16
ALIGNMENT = 1024


def checksum(content: bytes) -> int:
    return zlib.crc32(content) - (1 << 31)


def frame(length: int, kind: int = 1, has_checksum: bool = True) -> bytes:
    """Return a frame of ``length`` bytes with its header, and with a right or a wrong checksum."""
    body = random.Random(length).randbytes(length - 32).ljust((length + 31) // 32 * 32 - 32, b"\0")
    return struct.pack("<ibBHii16x", length, 0, 0xC0, kind, 0, checksum(body) if has_checksum else 1) + body


class Archive:
    """An archive's directory with one recording."""

    def __init__(self, folder: Path, start: int = 0, stop: int = -1, version: int = 3 << 16) -> None:
        self.folder = folder
        descriptor = struct.pack("<8x8xqqqqqiiii", 7, 0, 0, start, stop, 0, SEGMENT, TERM, 1408).ljust(200, b"\0")
        entry = struct.pack("<iii20x", len(descriptor), archive_catalog.VALID, 0) + descriptor
        header = struct.pack("<iiqi", version, 32, 8, ALIGNMENT).ljust(32, b"\0")
        (folder / archive_catalog.CATALOG_FILE).write_bytes((header + entry).ljust(32 + 4 * ALIGNMENT, b"\0"))

    def segment(self, base: int, content: bytes) -> Path:
        path = self.folder / f"7-{base}.rec"
        path.write_bytes(content.ljust(SEGMENT, b"\0"))
        return path

    def stop_position(self) -> int:
        return int(
            archive_repair.DESCRIPTOR.unpack_from((self.folder / archive_catalog.CATALOG_FILE).read_bytes(), 64)[3]
        )


def test_a_recording_ends_after_its_last_frame(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.segment(0, b"")
    content = frame(100) + frame(5000) + frame(64)
    path = archive.segment(SEGMENT, content)
    assert archive_repair.repair_recordings(tmp_path, checksum) == [
        archive_repair.RepairedRecording(7, SEGMENT + len(content), 0)
    ]
    assert archive.stop_position() == SEGMENT + len(content)
    assert path.read_bytes() == content.ljust(SEGMENT, b"\0")
    assert archive_repair.repair_recordings(tmp_path, checksum) == []


def test_a_recording_may_start_within_a_term(tmp_path: Path) -> None:
    archive = Archive(tmp_path, start=TERM + 96)
    archive.segment(TERM, bytes(96) + frame(320))
    assert archive_repair.repair_recordings(tmp_path, checksum) == [
        archive_repair.RepairedRecording(7, TERM + 96 + 320, 0)
    ]


@pytest.mark.parametrize("files", [False, True])
def test_an_empty_recording_ends_at_its_start(tmp_path: Path, files: bool) -> None:
    archive = Archive(tmp_path, start=TERM + 96)
    if files:
        archive.segment(TERM, b"")
    assert archive_repair.repair_recordings(tmp_path, checksum) == [archive_repair.RepairedRecording(7, TERM + 96, 0)]


def test_a_fragment_with_an_unwritten_page_is_removed(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    whole = frame(4000)
    path = archive.segment(0, whole + frame(9000)[:5000])
    assert archive_repair.repair_recordings(tmp_path, checksum) == [
        archive_repair.RepairedRecording(7, len(whole), 9024)
    ]
    assert path.read_bytes() == whole.ljust(SEGMENT, b"\0")


def test_a_fragment_without_a_checksum_is_complete_if_each_page_has_data(tmp_path: Path) -> None:
    content = frame(9000, has_checksum=False)
    Archive(tmp_path).segment(0, content)
    assert archive_repair.repair_recordings(tmp_path, checksum) == [
        archive_repair.RepairedRecording(7, len(content), 0)
    ]


def test_padding_is_complete_with_only_its_header(tmp_path: Path) -> None:
    content = frame(64) + struct.pack("<ibBHii16x", TERM - 64, 0, 0xC0, PADDING, 0, 0)
    Archive(tmp_path).segment(0, content)
    assert archive_repair.repair_recordings(tmp_path, checksum) == [archive_repair.RepairedRecording(7, TERM, 0)]


def test_a_frame_that_is_longer_than_its_file_is_removed(tmp_path: Path) -> None:
    whole = frame(64)
    path = Archive(tmp_path).segment(0, whole + struct.pack("<ibBHii16x", 2 * SEGMENT, 0, 0xC0, 1, 0, 0))
    assert archive_repair.repair_recordings(tmp_path, checksum) == [
        archive_repair.RepairedRecording(7, 64, SEGMENT - 64)
    ]
    assert path.read_bytes() == whole.ljust(SEGMENT, b"\0")


def test_a_stopped_recording_is_unchanged(tmp_path: Path) -> None:
    archive = Archive(tmp_path, stop=64)
    archive.segment(0, frame(64) + frame(64))
    assert archive_repair.repair_recordings(tmp_path, checksum) == []
    assert archive.stop_position() == 64


def test_a_catalog_of_another_version_is_unchanged(tmp_path: Path) -> None:
    archive = Archive(tmp_path, version=2 << 16)
    archive.segment(0, frame(64))
    assert archive_repair.repair_recordings(tmp_path, checksum) == []
    assert archive.stop_position() == -1


@pytest.mark.parametrize(("ago", "unchanged"), [(1.0, True), (60.0, False)])
def test_an_archive_that_may_be_alive_is_unchanged(tmp_path: Path, ago: float, unchanged: bool) -> None:
    Archive(tmp_path).segment(0, frame(64))
    (tmp_path / MARK_FILE).write_bytes(MARK_HEADER.pack(1, int((time.time() - ago) * 1000), 0, 1))
    assert (archive_repair.repair_recordings(tmp_path, checksum) == []) == unchanged


def test_other_files_and_an_empty_catalog_are_ignored(tmp_path: Path) -> None:
    Archive(tmp_path).segment(0, frame(64))
    (tmp_path / "7-old.rec").write_bytes(b"not a segment")
    assert archive_repair.repair_recordings(tmp_path, checksum) == [archive_repair.RepairedRecording(7, 64, 0)]
    (tmp_path / archive_catalog.CATALOG_FILE).write_bytes(b"")  # a kill during its creation can leave it empty
    assert archive_repair.repair_recordings(tmp_path, checksum) == []


def test_a_folder_without_an_archive_is_not_an_error(tmp_path: Path) -> None:
    assert archive_repair.repair_recordings(tmp_path, checksum) == []
