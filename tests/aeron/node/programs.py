"""Separate programs that use a node, for tests that kill and count processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.class_data import QUICK

ROOT: Final = Path(__file__).resolve().parents[3]
JAR: Final = next((ROOT / "connector" / "aeron_spark" / "jars").glob("aeron-all-*.jar"), Path("aeron-all.jar"))


class Program(subprocess.Popen[str]):
    """A process that a failed ``with`` block kills; Popen would wait for its end without a deadline."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


def start_python(code: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Program:
    """Start ``code`` in a separate Python process that can import the package; its input and output are pipes."""
    path = os.pathsep.join([str(ROOT / "connector"), str(ROOT)])
    return Program(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **(environ or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_foreign_driver(
    aeron_dir: Path, main: str = "io.aeron.driver.MediaDriver", *options: str
) -> subprocess.Popen[bytes]:
    """Start a media driver without this package."""
    return subprocess.Popen(
        [
            "java",
            QUICK,
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "-cp",
            str(JAR),
            f"-Daeron.dir={aeron_dir}",
            "-Daeron.threading.mode=SHARED",
            "-Daeron.dir.delete.on.shutdown=true",
            *options,
            main,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


# Publishes to aeron:ipc, stream 77, and records it; prints the recording's id, then recorded positions, until killed.
RECORDER: Final = """
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
