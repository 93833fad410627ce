"""A thread that has called Java leaves nothing in the JVM when it ends.

JPype attaches each thread to the JVM at its first call, and does not detach it: the process grew with each thread.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from aeron_spark.aeron.checksum import crc32
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.java_calls import interruptible, java_errors
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.client.client import Client
from tests.aeron.secure.endpoints import TIMEOUT_S, World
from tests.waiting import poll_until

OTHERS_TYPES: Final = 2  # a thread more than in the first round may be in use at once
THREADS: Final = 40
CONNECTS: Final = 12
OTHERS: Final = 10  # threads that other tests of this process, or Java itself, may have ended or started meanwhile


def java_threads() -> int:
    """Return the number of live threads that the JVM knows, Java's own and attached ones."""
    return int(jclass("java.lang.management.ManagementFactory").getThreadMXBean().getThreadCount())


def await_threads(most: int) -> None:
    poll_until(lambda: java_threads() <= most, TIMEOUT_S, f"at most {most} threads", state=lambda: f"{java_threads()}")


def run_in_threads(work: Callable[[], object]) -> None:
    """Run ``work`` in threads, one after the other: of threads that send at once, one may offer for the others."""
    done = list[object]()
    for _ in range(THREADS):
        thread = threading.Thread(target=lambda: done.append((work(),)))
        thread.start()
        thread.join(TIMEOUT_S)
    assert len(done) == THREADS


def test_the_jvm_counts_a_thread_that_is_attached() -> None:
    """Else the other tests would show nothing."""
    before, ready, end = java_threads(), threading.Event(), threading.Event()

    def stay() -> None:
        jclass("java.lang.Thread").yield_()
        ready.set()
        end.wait(TIMEOUT_S)

    started = [threading.Thread(target=stay) for _ in range(OTHERS + 10)]
    for one in started:
        one.start()
    try:
        assert ready.wait(TIMEOUT_S)
        poll_until(lambda: java_threads() >= before + 10, TIMEOUT_S, "the threads to be attached")
    finally:
        end.set()
        for one in started:
            one.join(TIMEOUT_S)
    await_threads(before + OTHERS)


def call_java(aeron: AeronClient, client: Client, call: Callable[[], object]) -> None:
    with java_errors("a test"):
        call()


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda aeron, client, call: client.send({"n": 1}), id="send"),
        pytest.param(lambda aeron, client, call: client.ping(TIMEOUT_S), id="ping"),
        pytest.param(lambda aeron, client, call: client._endpoint.inbox.wake(), id="wake"),
        pytest.param(lambda aeron, client, call: aeron.closed, id="closed"),
        pytest.param(lambda aeron, client, call: crc32(bytes(1 << 16)), id="crc32"),
        pytest.param(lambda aeron, client, call: jclass("java.lang.Thread").currentThread(), id="jclass"),
        pytest.param(lambda aeron, client, call: interruptible(call), id="interruptible"),
        pytest.param(call_java, id="java_errors"),
    ],
)
def test_threads_that_called_java_and_ended_are_detached(
    world: World, dialling: AeronClient, work: Callable[[AeronClient, Client, Callable[[], object]], object]
) -> None:
    address = world.free_address()
    world.server(address, echo=False).on_message(object, lambda connection, message: None)
    client = world.connected(address)
    client.send({"n": 0}, acknowledge=True)  # starts the threads that the connection keeps
    call = jclass("java.lang.Thread").yield_
    crc32(bytes(1 << 16))  # looks its Java method up
    before = java_threads()
    run_in_threads(lambda: work(dialling, client, call))
    await_threads(before + OTHERS)


def test_threads_that_offered_are_detached(dialling: AeronClient) -> None:
    publication = BatchPublication(dialling, "aeron:ipc", 7301)
    payload = pa.py_buffer(b"payload")
    before = java_threads()
    run_in_threads(lambda: publication.offer_gathered(b"", payload))
    await_threads(before + OTHERS)
    publication.close()


def test_a_process_that_connects_and_closes_often_keeps_its_number_of_threads(world: World) -> None:
    address = world.free_address()
    world.server(address)

    def connect_and_close() -> None:
        client = world.connected(address)
        client.send({"n": 1}, acknowledge=True)
        client.close()

    connect_and_close()
    before = java_threads()
    for _ in range(CONNECTS):
        connect_and_close()
    await_threads(before + OTHERS)


def types_of_threads() -> int:
    """Return the number of types that JPype has made for threads; it never frees one."""
    gc.collect()
    return sum(isinstance(one, type) and one.__name__ == "_JAlloc" for one in gc.get_objects())


def test_jpype_keeps_a_type_for_each_thread_that_makes_an_object_of_java() -> None:
    """Else the next test would show nothing."""
    before = types_of_threads()
    run_in_threads(jclass("java.lang.Object"))
    assert types_of_threads() >= before + THREADS


def test_a_process_that_connects_and_closes_often_keeps_its_size(world: World) -> None:
    """Regression: each client left a type of 25 to 45 kB for its event loop."""
    address = world.free_address()
    world.server(address)

    def connect_and_close() -> None:
        client, answered = world.connected(address), threading.Event()
        client.on_message(int, lambda message: (client.ping(), answered.set()))
        client.send(1, acknowledge=True)
        assert answered.wait(TIMEOUT_S)
        client.close()

    connect_and_close()
    before = types_of_threads()
    for _ in range(CONNECTS):
        connect_and_close()
    assert types_of_threads() <= before + OTHERS_TYPES


PROGRAM: Final = """
import os, threading
from aeron_spark.aeron.jvm import jclass

attached, end = threading.Event(), threading.Event()

def stay():
    jclass("java.lang.Thread").yield_()
    attached.set()
    end.wait()

threading.Thread(target=stay, daemon=True).start()
attached.wait()
child = os.fork()  # drops the other thread's attachment in the child, whose JVM does not run
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
"""  # it ends while the other thread is attached


def test_a_fork_and_the_end_of_the_process_leave_attached_threads_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
