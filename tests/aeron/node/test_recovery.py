"""kill -9 of a node: the next one starts at once, and what was recorded is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.aeron.driver import CHECKSUM
from aeron_spark.aeron.jvm import jclass
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.locks import is_locked, owner
from tests.aeron.node.programs import JAR, RECORDER, python

KILLS = 3
MIB = 1 << 20
SEGMENT_MIB = 64  # of which what records leaves a few free, however long its killer is kept from its work
PAGE = 4096
HEADER = 32
JAVA = (
    "java",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
)


def kill_node(aeron_dir: Path, pid: int) -> None:
    """Kill the node, and return when the system has noticed."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while is_locked(node.paths_here(aeron_dir).alive_lock):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def record_for_a_while(aeron_dir: Path, length: int) -> tuple[subprocess.Popen[str], int, int]:
    """Return a program that records, the id of its recording, and a position it has seen recorded."""
    program = python(RECORDER, str(aeron_dir), str(length), str((SEGMENT_MIB - 4) * MIB))
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
    took = []
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
            took.append(time.monotonic() - began)
            assert after.pid != handle.pid
            for old, reached in seen.items():
                assert stop_position(after, old) >= reached, (old, seen)
    assert len(ids) == 1
    assert sorted(seen) == list(range(KILLS))
    assert min(took) < 8  # Aeron alone would say "active" for ten seconds


def test_a_torn_recording_is_cut_and_used(own: Path) -> None:
    segment, recording = killed_while_recording(own, 7000)
    content = bytearray(segment.read_bytes())
    # Of these messages the second half is zeros, which are as whole on a page that was not written.
    begin, end = [frame for frame in frames(content) if next_page(frame[0]) < frame[0] + HEADER + 7000 // 2][-1]
    torn_from = next_page(begin)
    content[torn_from:] = bytes(len(content) - torn_from)
    segment.write_bytes(content)
    with node.ensure(own, segment_length=f"{SEGMENT_MIB}m") as after:
        assert stop_position(after, recording) == base_of(segment) + begin
    log = node.paths_here(own).log.read_text()
    assert log.count("ready:") == 2
    assert log.count(f"{end - begin} bytes of an incomplete fragment were cut off") == 1
    assert not any(segment.read_bytes()[begin:])


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_a_last_fragment_that_ends_what_aeron_reads_at_once_keeps_nobody_out(own: Path, torn: bool) -> None:
    segment, recording = killed_while_recording(own, 7000)
    content = bytearray(segment.read_bytes())
    begin, end = next(frame for frame in frames(content) if frame[1] > MIB)
    content[end:] = bytes(len(content) - end)
    if torn:
        torn_from = next_page(begin)
        assert any(content[torn_from:end])
        content[torn_from:] = bytes(len(content) - torn_from)
    segment.write_bytes(content)
    with node.ensure(own, segment_length=f"{SEGMENT_MIB}m") as after:
        assert stop_position(after, recording) == base_of(segment) + (begin if torn else end)


def test_the_archives_own_tool_finds_nothing_left_to_do(own: Path) -> None:
    segment, recording = killed_while_recording(own, 200)
    with node.ensure(own, segment_length=f"{SEGMENT_MIB}m") as after:
        position = stop_position(after, recording)
    report = archive_tool("verify", segment.parent)
    assert f"(recordingId={recording}) OK" in report
    assert "ERR" not in report
    with node.ensure(own, segment_length=f"{SEGMENT_MIB}m") as after:
        assert stop_position(after, recording) == position


def killed_while_recording(own: Path, length: int) -> tuple[Path, int]:
    """Record messages of ``length`` bytes, kill the node; return the segment, of over 2 MiB, and the recording."""
    with node.ensure(own, segment_length=f"{SEGMENT_MIB}m") as handle:
        archive_dir = Path(handle.archive_dir)
        program, recording, position = record_for_a_while(own, length)
        assert program.stdout
        while position < 2 * MIB:
            position = int(program.stdout.readline())
        kill_node(own, handle.pid)
        program.kill()
        program.communicate(timeout=30)
    (segment,) = archive_dir.glob(f"{recording}-*.rec")
    return segment, recording


def next_page(offset: int) -> int:
    return (offset // PAGE + 1) * PAGE


def base_of(segment: Path) -> int:
    return int(segment.stem.split("-")[1])


def frames(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each frame of a segment begins and ends."""
    begin = 0
    while begin + 32 <= len(content):
        length = int.from_bytes(content[begin : begin + 4], "little", signed=True)
        if length <= 0:
            return
        end = begin + (length + 31) // 32 * 32
        yield begin, end
        begin = end


def archive_tool(command: str, archive_dir: Path) -> str:
    """Run Aeron's own tool, as anybody can; it has nothing to ask."""
    done = subprocess.run(
        [*JAVA, "-cp", str(JAR), "io.aeron.archive.ArchiveTool", str(archive_dir), command, "-checksum", CHECKSUM],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
        assert handle.pid == owner(node.paths_here(own).alive_lock)
        found = driver_liveness(own)
        assert found is not None
        assert found.pid == handle.pid
    starter.communicate(timeout=30)
    assert early == "starting"


def test_a_node_killed_while_it_starts_is_an_error_and_the_next_start_works(own: Path) -> None:
    places = node.paths_here(own)
    with node.ensure(own) as handle:
        kill_node(own, handle.pid)
        places.record.unlink()  # as if it had never become ready
    with node.ensure(own) as after:
        assert after.pid != handle.pid
