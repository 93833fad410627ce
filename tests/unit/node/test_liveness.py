from __future__ import annotations

import struct
from pathlib import Path

from aeron_spark.aeron.counters import CNC_HEADER, CNC_META_LENGTH, RING_HEARTBEAT_OFFSET, RING_TRAILER_LENGTH
from aeron_spark.node.state_files import MARK_HEADER, archive_mark_pid, driver_liveness

NOW = 1_000_000.0


def write_cnc(folder: Path, *, version: int = 512, pid: int = 77, heartbeat: float = NOW) -> None:
    to_driver = 1024 + RING_TRAILER_LENGTH
    file = bytearray(CNC_META_LENGTH + to_driver)
    CNC_HEADER.pack_into(file, 0, version, to_driver, 0, 0, 0, 0, 10**10, int((NOW - 60) * 1000), pid)
    struct.pack_into("<q", file, CNC_META_LENGTH + 1024 + RING_HEARTBEAT_OFFSET, int(heartbeat * 1000))
    (folder / "cnc.dat").write_bytes(file)


def test_a_driver_with_a_recent_heartbeat_is_alive(tmp_path: Path) -> None:
    write_cnc(tmp_path, heartbeat=NOW - 2)
    found = driver_liveness(tmp_path, NOW)
    assert (found.pid, found.started, found.heartbeat_age) == (77, NOW - 60, 2.0)
    assert found.alive


def test_a_driver_that_is_closed_or_has_no_heartbeat_for_ten_seconds_is_not_alive(tmp_path: Path) -> None:
    for heartbeat, age in ((NOW - 10, 10.0), (-0.001, float("inf"))):
        write_cnc(tmp_path, heartbeat=heartbeat)
        found = driver_liveness(tmp_path, NOW)
        assert (found.alive, found.heartbeat_age) == (False, age)


def test_an_incomplete_cnc_file_gives_no_liveness(tmp_path: Path) -> None:
    assert driver_liveness(tmp_path, NOW) is None
    write_cnc(tmp_path, version=0)
    assert driver_liveness(tmp_path, NOW) is None
    file = tmp_path / "cnc.dat"
    write_cnc(tmp_path)
    for length in (0, 10, CNC_HEADER.size, 500):
        file.write_bytes(file.read_bytes()[:length])
        assert driver_liveness(tmp_path, NOW) is None, length
        write_cnc(tmp_path)
    assert driver_liveness(tmp_path, NOW) is not None


def test_the_mark_file_has_the_process_id_of_the_archive(tmp_path: Path) -> None:
    assert archive_mark_pid(tmp_path) is None
    mark = tmp_path / "archive-mark.dat"
    mark.write_bytes(MARK_HEADER.pack(1, 2, 3, 4711) + bytes(100))
    assert archive_mark_pid(tmp_path) == 4711
    mark.write_bytes(b"short")
    assert archive_mark_pid(tmp_path) is None
