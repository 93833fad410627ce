"""A reader that Spark ends by a signal at any moment ends at once, and its driver closes its client."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.aeron.counters import read_counters
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, open_stream
from tests.programs import Program

HEARTBEAT_TYPE_ID = 11
END_TIMEOUT_S = 5.0  # less than the 10 s after which a driver closes a client without a notice

READER = """
import sys

from aeron_spark.log.api import Range
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress, embedded, hold_node

archives = (embedded(hold_node(sys.argv[1], wait_s=10.0)),)
log = ArchiveLog(StreamAddress(sys.argv[2], int(sys.argv[3]), archives, read_path=sys.argv[4]))
while True:
    for state in log.states():
        one = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
        print(sum(len(rows) for rows in log.read(one)), flush=True)
"""


@pytest.fixture(scope="module")
def node(node_of_256k: NodeHandle) -> NodeHandle:
    return node_of_256k


@pytest.fixture(scope="module")
def stream(node: NodeHandle) -> Iterator[Stream]:
    for one in open_stream(node):
        one.record().publisher().send([b"x" * 1_000] * 2_000)
        yield one


def clients(node: NodeHandle, pid: int) -> list[str]:
    """Return the labels of the driver's clients in process ``pid``."""
    found = [counter.label for counter in read_counters(node.aeron_dir) if counter.type_id == HEARTBEAT_TYPE_ID]
    return [label for label in found if f"name=aeron-spark {pid} " in f"{label} "]


@pytest.mark.parametrize("read_path", ["files", "replay"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_reader_ended_by_a_signal_ends_at_once_and_its_driver_closes_its_client(
    node: NodeHandle, stream: Stream, number: signal.Signals, read_path: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", READER, node.aeron_dir, stream.channel, str(stream.id), read_path]
    with Program(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as reader:
        assert reader.stdout.readline() == "2000\n"
        wait_for(lambda: clients(node, reader.pid), TIMEOUT_S, "the reader's client at the driver")
        reader.send_signal(number)
        assert reader.wait(END_TIMEOUT_S) == -number
    wait_for(lambda: not clients(node, reader.pid), END_TIMEOUT_S, "the driver to close the reader's client")
    assert not list(tmp_path.iterdir())  # such as the report of a crashed JVM
