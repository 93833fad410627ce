"""A program with a connected client forks. The child is refused at once, and the parent's connection goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from aeron_spark.stream_client.session import StreamSession
from tests.programs import python_environ
from tests.unit.stream_client.connections import Operations

TIMEOUT_S: Final = 60.0

# The child ends as a program does: it runs the exit handlers, and drops its parent's objects before.
PROGRAM: Final = """
import gc, os, sys
import aeron_spark
from aeron_spark import node
from aeron_spark.keys.stores import MemoryPeerStore

address, aeron_dir = sys.argv[1:]
client = aeron_spark.connect(address, aeron_dir=aeron_dir, ipc="never", store=MemoryPeerStore())
connection, handle = client.connection, node.ensure(aeron_dir)
out, reader = client.writer("forked", writer_id="parent"), client.reader("forked", follow=True, timeout=1)
out.write(b"1")
out.commit()
rows = iter(reader)
found = [next(rows)]

child = os.fork()
if child == 0:
    def refused(use):
        try:
            use()
        except aeron_spark.UsageError as error:
            assert "was forked" in str(error) or "before process" in str(error), error
        else:
            raise AssertionError(use)

    for use in (
        lambda: client.ping(), lambda: client.send({"n": 1}), lambda: client.remote("x").y(),
        lambda: client.reader("forked"), lambda: client.writer("forked"),
        lambda: out.write(b"child"), lambda: out.commit(), lambda: next(rows),
        lambda: list(reader), lambda: connection.ping(),
        lambda: aeron_spark.connect(address, aeron_dir=aeron_dir, store=MemoryPeerStore()),
    ):
        refused(use)
    for one in (out, rows, client, handle):
        one.close()
    reader.stop()
    del client, connection, out, reader, rows, found, one
    gc.collect()
    sys.exit(0)

print(os.waitpid(child, 0)[1], flush=True)
out.write(b"2")
out.commit()
found += rows
print([value for batch in found for value in batch.column("value").to_pylist()])
client.send({"n": 2}, acknowledge=True)
assert client.ping() >= 0
client.close()
"""


def test_a_forked_child_is_refused_and_its_parents_connection_goes_on(server: Server, session: StreamSession) -> None:
    """Regression: the child's frames took the place of the parent's frames, whose connection was dead for good."""
    Operations(session).create_stream("forked")
    messages: list[object] = []
    server.on_message(dict, lambda _, message: messages.append(message))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.addresses[0], server.aeron_dir], env=python_environ(),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "0\n[b'1', b'2']\n")
    assert messages == [{"n": 2}]


# A thread collects garbage all the time, so that most of the children are forked while the JVM is at a safepoint.
PROGRAM_AT_SAFEPOINTS: Final = """
import gc, os, sys, threading
import jpype
from aeron_spark.aeron.client import lease_client

lease = lease_client(sys.argv[1])
is_ended = threading.Event()

def collect():
    while not is_ended.is_set():
        jpype.java.lang.System.gc()

thread = threading.Thread(target=collect)
thread.start()
objects = [jpype.java.util.ArrayList() for _ in range(10)]
results = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        del objects
        gc.collect()
        try:
            jpype.java.util.ArrayList()
        except jpype.JVMNotRunning:
            sys.exit(0)
    results.append(os.waitpid(child, 0)[1])
is_ended.set()
thread.join()
lease.close()
print(results)
"""


def test_a_child_that_was_forked_at_a_safepoint_drops_its_parents_objects_of_java(node: NodeHandle) -> None:
    """Regression: the child waited without end when it dropped one of them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM_AT_SAFEPOINTS, node.aeron_dir], env=python_environ(),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, f"{[0] * 10}\n")
