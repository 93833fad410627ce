"""After kill -9 of a node the next one starts immediately, with the recorded messages."""

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
from aeron_spark.node.locks import owner_pid
from aeron_spark.node.state_files import driver_liveness
from tests.nodes import kill_node
from tests.programs import JAR, start_python
from tests.waiting import suspend

# Publishes to aeron:ipc, stream 77, and records it; prints the recording's id, then recorded positions, until killed.
RECORDER = """
import sys, time
from aeron_spark import node
from aeron_spark.aeron.jvm import jclass

aeron_dir, length, max_position = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
handle = node.ensure(aeron_dir)
context = jclass("io.aeron.archive.client.AeronArchive$Context")()
context.controlRequestChannel(handle.control_channel).controlResponseChannel(handle.control_channel)
context.errorHandler(jclass("io.aeronspark.client.LastErrorHandler")())
archive = jclass("io.aeron.archive.client.AeronArchive").connect(context.aeronDirectoryName(handle.aeron_dir))
publication = archive.addRecordedExclusivePublication("aeron:ipc?mtu=8k", 77)
counters = archive.context().aeron().countersReader()
positions = jclass("io.aeron.archive.status.RecordingPos")
value = bytearray(b"x" * length)
value[length // 2 :] = bytes(length - length // 2)  # zeros, as in Arrow's padding
buffer = jclass("org.agrona.concurrent.UnsafeBuffer")(jclass("java.nio.ByteBuffer").allocateDirect(length))
buffer.putBytes(0, bytes(value))
counter = -1
while counter < 0:
    counter = int(positions.findCounterIdBySession(counters, publication.sessionId(), archive.archiveId()))
print("recording", int(positions.getRecordingId(counters, counter)), flush=True)
printed_at = time.monotonic()
while True:
    if publication.position() >= max_position or publication.offer(buffer) < 0:
        time.sleep(0.0005)
    if time.monotonic() - printed_at > 0.05:
        printed_at = time.monotonic()
        print(int(counters.getCounterValue(counter)), flush=True)
"""
KILLS = 3
MIB = 1 << 20
SEGMENT_MIB = 64  # the recording program never fills the segment, even if the kill is late
PAGE_BYTES = 4096
JAVA_COMMAND = (
    "java",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
)


def start_recording(aeron_dir: Path, length: int) -> tuple[subprocess.Popen[str], int, int]:
    """Start a program that records. Return it, the id of its recording, and a recorded position."""
    program = start_python(RECORDER, str(aeron_dir), str(length), str((SEGMENT_MIB - 4) * MIB))
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


@pytest.mark.sampled
def test_a_killed_node_is_replaced_immediately_and_its_recordings_are_complete(own_dir: Path) -> None:
    recorded: dict[int, int] = {}  # position by recording
    ids = set()
    start_times = []
    for length in (7000, 200, 7000)[:KILLS]:
        handle = node.ensure(own_dir)
        ids.add(handle.archive_id)
        program, recording, position = start_recording(own_dir, length)
        kill_node(own_dir)
        program.kill()
        output, _ = program.communicate(timeout=30)
        recorded[recording] = max([position, *map(int, re.findall(r"^\d+$", output, re.MULTILINE))])
        handle.close()
        assert node.status(own_dir).state == "stale"

        start = time.monotonic()
        with node.ensure(own_dir) as after:
            start_times.append(time.monotonic() - start)
            assert after.pid != handle.pid
            for earlier, recorded_to in recorded.items():
                assert stop_position(after, earlier) >= recorded_to, (earlier, recorded)
    assert len(ids) == 1
    assert sorted(recorded) == list(range(KILLS))
    assert min(start_times) < 8  # without the repair, Aeron would regard the killed node as active for ten seconds


def test_a_recording_with_an_incomplete_frame_is_truncated_and_usable(own_dir: Path) -> None:
    segment, recording = record_and_kill_node(own_dir, 7000)
    content = bytearray(segment.read_bytes())
    # The second half of these messages is zeros, like a page that was not written.
    begin, end = [
        frame
        for frame in frame_ranges(content)
        if next_page_start(frame[0]) < frame[1] - 7000 // 2  # false for the short padding at a term's end
    ][-1]
    incomplete_from = next_page_start(begin)
    content[incomplete_from:] = bytes(len(content) - incomplete_from)
    segment.write_bytes(content)
    with node.ensure(own_dir, segment_length=f"{SEGMENT_MIB}m") as after:
        assert stop_position(after, recording) == segment_start(segment) + begin
    log = node.local_node_paths(own_dir).log.read_text()
    assert log.count("ready:") == 2
    assert log.count(f"{end - begin} bytes of an incomplete fragment were removed") == 1
    assert not any(segment.read_bytes()[begin:])


@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "incomplete"])
def test_a_last_frame_across_a_read_boundary_of_aeron_is_repaired(own_dir: Path, is_complete: bool) -> None:
    segment, recording = record_and_kill_node(own_dir, 7000)
    content = bytearray(segment.read_bytes())
    begin, end = next(frame for frame in frame_ranges(content) if frame[1] > MIB)
    content[end:] = bytes(len(content) - end)
    if not is_complete:
        incomplete_from = next_page_start(begin)
        assert any(content[incomplete_from:end])
        content[incomplete_from:] = bytes(len(content) - incomplete_from)
    segment.write_bytes(content)
    with node.ensure(own_dir, segment_length=f"{SEGMENT_MIB}m") as after:
        assert stop_position(after, recording) == segment_start(segment) + (end if is_complete else begin)


def test_the_archives_tool_finds_no_error_after_the_repair(own_dir: Path) -> None:
    segment, recording = record_and_kill_node(own_dir, 200)
    with node.ensure(own_dir, segment_length=f"{SEGMENT_MIB}m") as after:
        position = stop_position(after, recording)
    report = run_archive_tool("verify", segment.parent)
    assert f"(recordingId={recording}) OK" in report
    assert "ERR" not in report
    with node.ensure(own_dir, segment_length=f"{SEGMENT_MIB}m") as after:
        assert stop_position(after, recording) == position


def record_and_kill_node(own_dir: Path, length: int) -> tuple[Path, int]:
    """Record messages of ``length`` bytes, and kill the node. Return the segment (over 2 MiB) and recording id."""
    with node.ensure(own_dir, segment_length=f"{SEGMENT_MIB}m") as handle:
        archive_dir = Path(handle.archive_dir)
        program, recording, position = start_recording(own_dir, length)
        while position < 2 * MIB:
            position = int(program.stdout.readline())
        kill_node(own_dir)
        program.kill()
        program.communicate(timeout=30)
    (segment,) = archive_dir.glob(f"{recording}-*.rec")
    return segment, recording


def next_page_start(offset: int) -> int:
    return (offset // PAGE_BYTES + 1) * PAGE_BYTES


def segment_start(segment: Path) -> int:
    return int(segment.stem.split("-")[1])


def frame_ranges(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each frame of a segment."""
    begin = 0
    while begin + 32 <= len(content):
        length = int.from_bytes(content[begin : begin + 4], "little", signed=True)
        if length <= 0:
            return
        end = begin + (length + 31) // 32 * 32
        yield begin, end
        begin = end


def run_archive_tool(command: str, archive_dir: Path) -> str:
    """Run Aeron's ArchiveTool without input, and return its output."""
    done = subprocess.run(
        [
            *JAVA_COMMAND,
            "-cp",
            str(JAR),
            "io.aeron.archive.ArchiveTool",
            str(archive_dir),
            command,
            "-checksum",
            CHECKSUM,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sampled
def test_a_suspended_node_can_be_stopped_by_force(own_dir: Path) -> None:
    handle = node.ensure(own_dir)
    suspend(handle.pid)
    handle.close()
    try:
        start = time.monotonic()
        assert node.stop(own_dir, force=True, timeout=0.5)
        assert time.monotonic() - start < 10
    finally:
        if Path(f"/proc/{handle.pid}").exists():
            os.kill(handle.pid, signal.SIGKILL)
    assert node.status(own_dir).state == "absent"
    with node.ensure(own_dir) as after:
        assert after.pid != handle.pid


@pytest.mark.sampled
def test_a_starting_node_is_used_although_the_process_that_started_it_was_killed(own_dir: Path) -> None:
    starter = start_python("import sys; from aeron_spark import node; node.ensure(sys.argv[1])", str(own_dir))
    deadline = time.monotonic() + 30
    while not (own_dir / "cnc.dat").exists():  # the driver has started, the archive has not
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    starter.kill()
    state = node.status(own_dir).state
    with node.ensure(own_dir) as handle:
        assert handle.pid == owner_pid(node.local_node_paths(own_dir).alive_lock)
        found = driver_liveness(own_dir)
        assert found.pid == handle.pid
    starter.communicate(timeout=30)
    assert state == "starting"


@pytest.mark.sampled
def test_a_node_starts_after_another_was_killed_during_its_start(own_dir: Path) -> None:
    paths = node.local_node_paths(own_dir)
    with node.ensure(own_dir) as handle:
        kill_node(own_dir)
        paths.record.unlink()  # the node process writes the record when it is ready
    with node.ensure(own_dir) as after:
        assert after.pid != handle.pid
