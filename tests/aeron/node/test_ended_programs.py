"""After a kill, its peers learn of the loss from the process that has ended, not from Aeron's time-outs of 10 s.

The tests let the wall clock decide nothing: heartbeats are a day in the future, as after a clock was set back.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from pathlib import Path

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.counters import (
    CNC_FILE,
    CNC_HEADER,
    CNC_META_LENGTH,
    COUNTER_LENGTH,
    RING_HEARTBEAT_OFFSET,
    RING_TRAILER_LENGTH,
    Counter,
    read_counters,
)
from aeron_spark.aeron.driver import HEARTBEAT_TYPE
from aeron_spark.aeron.inbox import AeronInbox
from aeron_spark.node.state_files import read_state
from aeron_spark.transport.api import DriverLost
from aeron_spark.waiting import wait_for
from tests.programs import start_python

TIMEOUT_S = 60.0
A_DAY_S = 86_400.0

SUBSCRIBER = """
import sys
from aeron_spark.aeron.client import AeronClient

client = AeronClient(sys.argv[1])
subscription = client.subscription("aeron:ipc", 77)
print("subscribed", flush=True)
input()
"""


def heartbeats(aeron_dir: Path, pid: int) -> list[Counter]:
    """Return the heartbeats of a process's Aeron clients."""
    return [one for one in read_counters(str(aeron_dir), {HEARTBEAT_TYPE}) if f" name=aeron-spark {pid} " in one.label]


def await_look(aeron_dir: Path) -> None:
    """Wait until the node has looked at its clients, which it does before it writes its state."""
    for _ in range(2):  # the first state may be of a look that began before
        before = read_state(node.local_node_paths(aeron_dir).state)
        wait_for(
            lambda before=before: read_state(node.local_node_paths(aeron_dir).state) != before,
            TIMEOUT_S, "the node to look at its clients",
        )  # fmt: skip


def write_tomorrow(aeron_dir: Path, counter: int | None = None) -> None:
    """Write a time a day from now into the heartbeat of a client, or of the driver."""
    with (aeron_dir / CNC_FILE).open("r+b") as file, mmap.mmap(file.fileno(), 0) as cnc:
        _, to_driver, to_clients, meta, *_ = CNC_HEADER.unpack_from(cnc)
        if counter is None:
            at = CNC_META_LENGTH + to_driver - RING_TRAILER_LENGTH + RING_HEARTBEAT_OFFSET
        else:
            at = CNC_META_LENGTH + to_driver + to_clients + meta + counter * COUNTER_LENGTH
        cnc[at : at + 8] = int((time.time() + A_DAY_S) * 1000).to_bytes(8, "little")


def test_the_node_closes_the_aeron_client_of_a_killed_program(own_dir: Path) -> None:
    with node.ensure(own_dir), start_python(SUBSCRIBER, str(own_dir)) as program:
        assert program.stdout.readline() == "subscribed\n"
        [named] = wait_for(
            lambda: heartbeats(own_dir, program.pid) or None, TIMEOUT_S, "the program's client to name itself"
        )
        await_look(own_dir)
        program.kill()
        program.wait()
        write_tomorrow(own_dir, named.id)
        wait_for(lambda: not heartbeats(own_dir, program.pid), TIMEOUT_S, "the node to close the program's client")
        assert f"closed Aeron client {named.registration_id}: process {program.pid} has ended" in (
            node.local_node_paths(own_dir).log.read_text()
        )


def test_a_client_learns_of_a_killed_node_at_once(own_dir: Path) -> None:
    """Aeron's own limit is a heartbeat of 10 s ago."""
    with node.ensure(own_dir) as handle:
        client = AeronClient(handle.aeron_dir)
        inbox = AeronInbox(client)
        assert not client.closed
        os.kill(handle.pid, signal.SIGKILL)
        write_tomorrow(own_dir)
        [event] = wait_for(lambda: inbox.poll(0.05) or None, TIMEOUT_S, "the loss of the driver")
        assert isinstance(event, DriverLost)
        assert "its process or its directory is gone" in event.reason
        inbox.close()
        client.close()
