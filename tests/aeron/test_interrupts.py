"""A program gets Ctrl-C, with a handler set before or after the JVM's start, or without one."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from tests.programs import start_python

TIMEOUT_S = 60.0  # of actions in another process on a slow machine
BLOCKED_S = 600  # duration of the blocking call of each program

# Makes the blocking call that its third argument names; prints how it was interrupted.
PROGRAM = f"""
import signal, sys, threading, time
import aeron_spark
from aeron_spark.aeron.java_calls import interruptible
from aeron_spark.aeron.jvm import jclass
from aeron_spark.keys.stores import MemoryPeerStore

aeron_dir, handler, blocking, name = sys.argv[1:]

def handle(number, frame):
    print("handled", signal.Signals(number).name, flush=True)
    raise KeyboardInterrupt

# Repeatedly: Python may check for signals just before one arrives, and block just after. The wait of a threading.Event
# would leave its lock in a wrong state if the handler raised between two of its lines.
def wait():
    lock = threading.Lock()
    lock.acquire()
    while not lock.acquire(timeout=1):
        pass

def set_handler():
    signal.signal(getattr(signal, name), handle)

if handler == "before":
    set_handler()
client = aeron_spark.Client.to("127.0.0.1:9", store=MemoryPeerStore(), aeron_dir=aeron_dir)
if handler == "after":
    set_handler()
calls = {{
    "connect": lambda: client.connect({BLOCKED_S}),
    "lock": wait,
    "java": lambda: interruptible(jclass("java.lang.Thread").sleep, {BLOCKED_S}_000),
}}
try:
    print("ready", flush=True)
    calls[blocking]()
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    client.close()
    print("finally", flush=True)
"""


@pytest.fixture(scope="module")
def shared(run_name: str) -> Iterator[Path]:
    aeron_dir = Path(f"/dev/shm/{run_name}-interrupts")
    with node.ensure(aeron_dir, archive=False):
        yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=30)
    shutil.rmtree(aeron_dir, ignore_errors=True)


def interrupted(aeron_dir: Path, handler: str, blocking: str, number: signal.Signals) -> tuple[list[str], int, float]:
    """Send the program the signal while it blocks; return its output, its exit code and its duration after it."""
    with start_python(PROGRAM, str(aeron_dir), handler, blocking, number.name) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            begin = time.monotonic()
            process.send_signal(number)
            output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    return output.splitlines(), process.returncode, time.monotonic() - begin


@pytest.mark.parametrize("blocking", ["connect", "lock", "java"])
def test_ctrl_c_raises_keyboard_interrupt_in_any_blocking_call_and_finally_runs(shared: Path, blocking: str) -> None:
    output, code, seconds = interrupted(shared, "none", blocking, signal.SIGINT)
    assert (output, code) == (["interrupted", "finally"], 0)
    assert seconds < BLOCKED_S / 10


@pytest.mark.parametrize("handler", ["before", "after"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_handler_set_before_or_after_the_start_of_the_jvm_is_called(
    shared: Path, handler: str, number: signal.Signals
) -> None:
    output, code, _ = interrupted(shared, handler, "lock", number)
    assert (output, code) == ([f"handled {number.name}", "interrupted", "finally"], 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_the_program_does_not_handle_ends_it_at_once(shared: Path, number: signal.Signals) -> None:
    output, code, _ = interrupted(shared, "none", "lock", number)
    assert (output, code) == ([], -number)


# A shell ignores SIGINT for a program in the background, and nohup ignores SIGHUP.
IGNORING = """
import os, signal, sys
from aeron_spark.aeron import jvm
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
jvm.start()
for number in (signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
print("still running", flush=True)
"""


def test_a_signal_that_the_program_ignores_stays_ignored() -> None:
    with start_python(IGNORING) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert (output.splitlines(), process.returncode) == (["still running"], 0)


def test_a_java_call_of_the_main_thread_raises_javas_exception() -> None:
    code = (
        "from aeron_spark.aeron.java_calls import interruptible\n"
        "from aeron_spark.aeron.jvm import jclass\n"
        "try: interruptible(jclass('java.lang.Integer').parseInt, 'x')\n"
        "except jclass('java.lang.NumberFormatException') as error: print(error.getMessage())\n"
        "print(interruptible(jclass('java.lang.Integer').parseInt, '7'))"
    )
    with start_python(code) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert output.splitlines() == ['For input string: "x"', "7"]


def test_the_result_of_a_call_whose_wait_was_interrupted_is_discarded() -> None:
    code = """
import _thread, threading, time
from aeron_spark.aeron import jvm
from aeron_spark.aeron.java_calls import interruptible
jvm.start()
go, discarded = threading.Event(), []
late = threading.Event()
def call():
    _thread.interrupt_main()
    go.wait()
    return "late"
def discard(value):
    discarded.append(value)
    late.set()
try:
    interruptible(call, discard=discard)
except KeyboardInterrupt:
    print("interrupted", discarded)
    go.set()
    late.wait(60)
    print(discarded)
"""
    with start_python(code) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert output.splitlines() == ["interrupted []", "['late']"]


def test_a_process_ends_after_the_threads_that_return_from_java_calls() -> None:
    # If Python ends a thread within JPype, the process aborts with "FATAL: exception not rethrown".
    code = """
import _thread, threading, time
from aeron_spark.aeron import jvm
from aeron_spark.aeron.java_calls import interruptible
jvm.start()
go, returned = threading.Event(), threading.Event()
def call():
    _thread.interrupt_main()
    go.wait()
    return "late"
def discard(value):
    returned.set()
    time.sleep(0.5)
    print("discarded", value)
try:
    interruptible(call, discard=discard)
except KeyboardInterrupt:
    go.set()
    returned.wait(60)
    print("ends")
"""
    with start_python(code) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert (output.splitlines(), process.returncode) == (["ends", "discarded late"], 0)


def test_a_process_ends_after_the_calls_of_java_that_still_run_at_its_end() -> None:
    """Regression: the end of the clients or of the JVM ended such a call, whose thread then aborted the process."""
    code = f"""
import _thread, time
from aeron_spark.aeron.java_calls import interruptible
from aeron_spark.aeron.jvm import jclass
sleep = jclass("java.lang.Thread").sleep
def call():
    _thread.interrupt_main()
    try:
        sleep({BLOCKED_S}_000)
    finally:
        time.sleep(0.5)
        print("returned from", jclass("java.lang.Thread").currentThread().getState())
try:
    interruptible(call)
except KeyboardInterrupt:
    print("ends")
"""
    with start_python(code) as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert (output.splitlines(), process.returncode) == (["ends", "returned from RUNNABLE"], 0)
