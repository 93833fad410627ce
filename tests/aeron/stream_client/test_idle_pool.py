"""A process whose server connections are idle closes its Aeron client and threads, and starts no media driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node as nodes
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.server import Server
from tests.programs import ROOT, start_interpreter
from tests.server_processes import ServerProcess

TIMEOUT_S: Final = 120.0  # of actions that are fast on an idle machine

# A worker's pool with a short idle timeout. With the argument "in use" the process also uses an Aeron client directly.
WORKER = """
import sys
from aeron_spark.aeron import client as clients
from aeron_spark.options import ServerRoute
from aeron_spark.options.values import parse_public_key
from aeron_spark.pool import ConnectionPool, _close_shared_clients
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import ListStreams
from tests.java_threads import java_threads

address, key, aeron_dir, use = sys.argv[1:]
timeout_s = 120  # of actions that are fast on an idle machine
clients.UNUSED_TIMEOUT_S = 0.2
pool = ConnectionPool(idle_timeout_s=0.2, close_shared=_close_shared_clients)
route = ServerRoute(
    server=((address, address),), server_key=(parse_public_key(key),), stream="s", aeron_dir=aeron_dir,
    client=(("ipc", "never"),), connect_timeout=timeout_s,
)
before = clients.client_of(aeron_dir) if use == "in use" else None
for _ in range(2):
    with pool.borrow(route) as sessions:
        assert sessions[address].call(ListStreams()).streams == ()
        assert "aeron-client" in java_threads()
    wait_for(lambda: not pool._watching, timeout_s, "the pool to end its thread")
    # A thread of Java gets its name after its start, so a poller that was just started may be seen later.
    kept = set() if before is None else {"aeron-client"}
    wait_for(lambda: java_threads() <= kept, timeout_s, "the threads of Java to end", state=lambda: str(java_threads()))
    if before is None:
        assert not clients.CLIENTS.cached_keys()
    else:
        assert clients.client_of(aeron_dir) is before and not before.closed
wait_for(lambda: java_threads() <= kept, timeout_s, "a late poller to end", state=lambda: str(java_threads()))
"""


def run(server: Server, node: NodeHandle, use: str) -> None:
    address = ":".join(server.addresses[0].split(":")[:2])
    done = subprocess.run(
        [sys.executable, "-c", WORKER, address, public_text(server.public_key), node.aeron_dir, use],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=6 * TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_closing_the_last_idle_connection_ends_the_aeron_client_and_its_java_threads(
    server: Server, node: NodeHandle
) -> None:
    """Regression: a worker kept an Aeron client and two Java threads after its last connection was closed."""
    run(server, node, "not in use")


def test_an_aeron_client_that_is_still_in_use_is_not_closed(server: Server, node: NodeHandle) -> None:
    run(server, node, "in use")


# A worker's pool, used once for each line of the input. After each use it waits for the end of the idle connection.
IDLE_WORKER = """
import sys, threading
from aeron_spark.options import ServerRoute
from aeron_spark.options.values import parse_public_key
from aeron_spark.pool import POOL
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import ListStreams

address, key, aeron_dir = sys.argv[1:]
route = ServerRoute(
    server=((address, address),), server_key=(parse_public_key(key),), stream="s", aeron_dir=aeron_dir,
    client=(("ipc", "never"),),
)

def endpoints():
    return [one.name for one in threading.enumerate() if one.name.startswith("aeron-spark-client")]

for _ in sys.stdin:
    with POOL.borrow(route) as sessions:
        assert sessions[address].call(ListStreams()).streams == ()
        assert endpoints()
    print("idle", flush=True)
    wait_for(lambda: not endpoints(), 60, "the idle connection to end", state=lambda: str(endpoints()))
    print("ended", flush=True)
"""


class IdleWorker:
    """A process with the pool of a worker, whose connection is idle between two uses."""

    def __init__(self, server: ServerProcess, key: str, aeron_dir: Path) -> None:
        address = ":".join(server.address.split(":")[:2])
        self._process = start_interpreter("-c", IDLE_WORKER, address, key, str(aeron_dir))

    def use(self) -> None:
        """Use the connection, and wait until it is idle."""
        self._process.send("use")
        self.expect("idle")

    def expect(self, line: str) -> None:
        assert self._process.stdout.readline() == f"{line}\n"

    def close(self) -> None:
        self._process.communicate(timeout=TIMEOUT_S)
        assert self._process.returncode == 0


@pytest.mark.sampled
def test_an_idle_connection_does_not_start_a_stopped_media_driver_and_the_next_use_connects(
    own_dir: Path, tmp_path: Path
) -> None:
    """Regression: an idle worker whose server had ended started the media driver again after it was stopped."""
    key = public_text(ensure_identity(tmp_path / "server.key").public)
    server = ServerProcess(str(own_dir), tmp_path)
    server.start()
    worker = IdleWorker(server, key, own_dir)
    try:
        worker.use()
        assert server.stop(TIMEOUT_S) == 0
        worker.expect("ended")
        nodes.stop(own_dir, timeout=TIMEOUT_S)  # waits until the worker has closed its Aeron client
        assert nodes.status(own_dir).state == "absent"
        server.start()
        worker.use()
        server.kill()
        nodes.stop(own_dir, force=True)
        worker.expect("ended")
        assert nodes.status(own_dir).state == "absent"
    finally:
        server.kill()
        worker.close()
