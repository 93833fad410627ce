"""kill -9 of a node: the next one starts at once, and what was recorded is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.aeron.driver import verify_archive
from aeron_spark.aeron.jvm import jclass
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.locks import is_held, owner
from tests.aeron.node.programs import RECORDER, python

KILLS = 3


def kill_node(aeron_dir: Path, pid: int) -> None:
    """Kill the node, and return when the system has noticed."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_held(node.places_here(aeron_dir).alive_lock):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def record_for_a_while(aeron_dir: Path, length: int) -> tuple[subprocess.Popen[str], int, int]:
    """Return a program that records, the id of its recording, and a position it has seen recorded."""
    program = python(RECORDER, str(aeron_dir), str(length))
    assert program.stdout
    words = program.stdout.readline().split()
    assert words[:1] == ["recording"], words + program.stdout.readlines()
    position = 0
    for _ in range(6):
        position = int(program.stdout.readline())
    return program, int(words[1]), position


def stop_position(handle: node.NodeHandle, recording: int) -> int:
    context = jclass("io.aeron.archive.client.AeronArchive$Context")()
    context.controlRequestChannel(handle.control_channel).controlResponseChannel(handle.control_channel)
    archive: Any = jclass("io.aeron.archive.client.AeronArchive").connect(context.aeronDirectoryName(handle.aeron_dir))
    try:
        return int(archive.getStopPosition(recording))
    finally:
        archive.close()


def test_a_killed_node_is_replaced_at_once_and_its_recordings_are_whole(own: Path) -> None:
    seen: dict[int, int] = {}
    ids = set()
    for length in (7000, 200, 7000)[:KILLS]:
        handle = node.ensure(own)
        ids.add(handle.archive_id)
        program, recording, position = record_for_a_while(own, length)
        kill_node(own, handle.pid)
        program.kill()
        said, _ = program.communicate(timeout=30)
        seen[recording] = max([position, *map(int, re.findall(r"^\d+$", said, re.MULTILINE))])
        handle.close()
        assert node.status(own).state == "stale"

        began = time.monotonic()
        with node.ensure(own) as after:
            assert time.monotonic() - began < 8  # Aeron alone would say "active" for ten seconds
            assert after.pid != handle.pid
            for old, reached in seen.items():
                assert stop_position(after, old) >= reached, (old, seen)
    assert len(ids) == 1
    assert sorted(seen) == list(range(KILLS))


def test_a_torn_archive_is_verified_and_used(own: Path) -> None:
    with node.ensure(own, segment_length="16m") as handle:
        archive_dir = Path(handle.archive_dir)
        program, recording, _ = record_for_a_while(own, 7000)
        kill_node(own, handle.pid)
        program.kill()
        program.communicate(timeout=30)
    segment = max(archive_dir.glob(f"{recording}-*.rec"), key=lambda path: int(path.stem.split("-")[1]))
    whole = int(segment.stem.split("-")[1]) + tear_last_fragment(segment)
    with node.ensure(own, segment_length="16m") as after:
        assert stop_position(after, recording) == whole
    log = node.places_here(own).log.read_text()
    assert log.count("ready:") == 2
    assert log.count("verifying the archive") == 1


def tear_last_fragment(segment: Path) -> int:
    """Empty all after the first page of the last frame that crosses one, as a machine that stops does.

    Return where that frame begins in the file: what is before it is whole.
    """
    content = bytearray(segment.read_bytes())
    offset, last = 0, -1
    while offset + 32 < len(content):
        length = int.from_bytes(content[offset : offset + 4], "little", signed=True)
        if length <= 0:
            break
        if offset // 4096 != (offset + length - 1) // 4096:
            last = offset
        offset += (length + 31) // 32 * 32
    assert last >= 0
    torn_from = (last // 4096 + 1) * 4096
    content[torn_from:] = bytes(len(content) - torn_from)
    segment.write_bytes(content)
    return last


def test_the_archives_own_tool_is_run_in_process(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with node.ensure(own) as handle:
        archive_dir = Path(handle.archive_dir)
        program, recording, _ = record_for_a_while(own, 200)
        kill_node(own, handle.pid)
        program.kill()
        program.communicate(timeout=30)
    report = verify_archive(archive_dir)
    assert f"(recordingId={recording}) OK" in report
    assert "ERR" not in report


def test_a_frozen_node_is_named_and_can_be_forced(own: Path) -> None:
    handle = node.ensure(own)
    os.kill(handle.pid, signal.SIGSTOP)
    handle.close()
    try:
        began = time.monotonic()
        assert node.stop(own, force=True, timeout=0.5)
        assert time.monotonic() - began < 10
    finally:
        if Path(f"/proc/{handle.pid}").exists():
            os.kill(handle.pid, signal.SIGKILL)
    assert node.status(own).state == "absent"
    with node.ensure(own) as after:
        assert after.pid != handle.pid


def test_a_node_whose_starter_was_killed_is_found_and_not_disturbed(own: Path) -> None:
    starter = python("import sys; from aeron_spark import node; node.ensure(sys.argv[1])", str(own))
    deadline = time.monotonic() + 30
    while not (own / "cnc.dat").exists():  # the driver is there, the archive is still to come
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    starter.kill()
    early = node.status(own).state
    with node.ensure(own) as handle:
        assert handle.pid == owner(node.places_here(own).alive_lock)
        found = driver_liveness(own)
        assert found is not None
        assert found.pid == handle.pid
    starter.communicate(timeout=30)
    assert early == "starting"


def test_a_node_killed_while_it_starts_is_an_error_and_the_next_start_works(own: Path) -> None:
    places = node.places_here(own)
    with node.ensure(own) as handle:
        kill_node(own, handle.pid)
        places.record.unlink()  # as if it had never become ready
    with node.ensure(own) as after:
        assert after.pid != handle.pid
