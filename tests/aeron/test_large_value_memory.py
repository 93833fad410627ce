"""In addition to the value itself, a writer and a reader need no more memory for a large value than for a small one.

The tests use the log and the reader's task without Spark, because Spark itself has a BINARY value several times.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from aeron_spark.node import NodeHandle
from tests.aeron.large_values import READER, WRITER
from tests.aeron.streams import own_node
from tests.programs import start_python

MIB: Final = 1 << 20
MAX_NOISE_KIB: Final = 48 << 10  # a JVM needs up to 27 MiB more or less from one value to the next
_streams = itertools.count(1_001)


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name, ipc_term_length="1m", segment_length="64m") as handle:
        yield handle


@pytest.fixture(scope="module")
def writer(node: NodeHandle) -> Iterator[subprocess.Popen[str]]:
    yield from _running(WRITER, node)


@pytest.fixture(scope="module")
def reader(node: NodeHandle) -> Iterator[subprocess.Popen[str]]:
    yield from _running(READER, node)


def _running(code: str, node: NodeHandle) -> Iterator[subprocess.Popen[str]]:
    process = start_python(code, node.aeron_dir)
    yield process
    process.communicate(timeout=60)
    assert process.returncode == 0


def peak_without_value(process: subprocess.Popen[str], payload: str, size: int, stream: int) -> int:
    """Let the process write or read one value; return its peak memory without the value, in KiB."""
    print(payload, size, stream, file=process.stdin, flush=True)
    line = process.stdout.readline()
    assert line.strip().isdigit(), line + process.stdout.read()
    return int(line)


def compare_peaks(writer: subprocess.Popen[str], reader: subprocess.Popen[str], payload: str, *sizes: int) -> None:
    """Check that the peaks without the value differ by noise only; the first size is for the warm-up."""
    warm, small, large = sizes
    peaks = []
    for size in (warm, small, large):
        stream = next(_streams)
        peaks.append([peak_without_value(process, payload, size, stream) for process in (writer, reader)])
    for before, after in zip(peaks[1], peaks[2], strict=True):
        assert after - before < MAX_NOISE_KIB, f"{after} KiB for {large} bytes, {before} KiB for {small} bytes"


@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_a_value_of_128_mib_needs_no_more_additional_memory_than_one_of_16_mib(
    writer: subprocess.Popen[str], reader: subprocess.Popen[str], payload: str
) -> None:
    compare_peaks(writer, reader, payload, 8 * MIB, 16 * MIB, 128 * MIB)


@pytest.mark.soak
@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_a_value_of_1_gib_needs_no_more_additional_memory_than_one_of_64_mib(
    writer: subprocess.Popen[str], reader: subprocess.Popen[str], payload: str
) -> None:
    compare_peaks(writer, reader, payload, 16 * MIB, 64 * MIB, 1024 * MIB)
