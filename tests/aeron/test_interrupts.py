"""Finding C14: Ctrl-C is the program's, whether it set its handler before or after the JVM, or none."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark import node
from tests.aeron.node.programs import python

TIMEOUT_S = 60.0  # of actions in another process on a slow machine
BLOCKED = 600  # seconds that each program would block for

# Blocks in the way that its third argument names; says how it was interrupted.
PROGRAM = f"""
import signal, sys, threading, time
import aeron_spark
from aeron_spark.aeron.interruptible import interruptible
from aeron_spark.aeron.jvm import jclass
from aeron_spark.keys.stores import MemoryPeerStore

aeron_dir, handler, blocking, name = sys.argv[1:]

def handle(number, frame):
    print("handled", signal.Signals(number).name, flush=True)
    raise KeyboardInterrupt

def wait():  # again and again: Python may look for signals just before one comes, and block just after
    event = threading.Event()
    while not event.wait(1):
        pass

def set_handler():
    signal.signal(getattr(signal, name), handle)

if handler == "before":
    set_handler()
client = aeron_spark.Client.to("127.0.0.1:9", store=MemoryPeerStore(), aeron_dir=aeron_dir)
if handler == "after":
    set_handler()
calls = {{
    "connect": lambda: client.connect({BLOCKED}),
    "event": wait,
    "java": lambda: interruptible(jclass("java.lang.Thread").sleep, {BLOCKED}_000),
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
    """Run the program, send it the signal while it blocks; return what it said, its exit code and how long it took."""
    with python(PROGRAM, str(aeron_dir), handler, blocking, number.name) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            begun = time.monotonic()
            process.send_signal(number)
            said, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    return said.splitlines(), process.returncode, time.monotonic() - begun


@pytest.mark.parametrize("blocking", ["connect", "event", "java"])
def test_finding_c14_ctrl_c_raises_keyboard_interrupt_in_whatever_blocks_and_finally_runs(
    shared: Path, blocking: str
) -> None:
    said, code, seconds = interrupted(shared, "none", blocking, signal.SIGINT)
    assert (said, code) == (["interrupted", "finally"], 0)
    assert seconds < BLOCKED / 10


@pytest.mark.parametrize("handler", ["before", "after"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_finding_c14_a_handler_of_the_program_is_called_whenever_it_was_set(
    shared: Path, handler: str, number: signal.Signals
) -> None:
    said, code, _ = interrupted(shared, handler, "event", number)
    assert (said, code) == ([f"handled {number.name}", "interrupted", "finally"], 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_finding_c14_a_signal_that_the_program_does_not_handle_ends_it_at_once(
    shared: Path, number: signal.Signals
) -> None:
    said, code, _ = interrupted(shared, "none", "event", number)
    assert (said, code) == ([], -number)


# What a shell does for a program in the background, and nohup for every program.
IGNORING = """
import os, signal, sys
from aeron_spark.aeron import jvm
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
jvm.start()
for number in (signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
print("lives on", flush=True)
"""


def test_finding_c14_a_signal_that_the_program_ignores_stays_ignored() -> None:
    with python(IGNORING) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert (said.splitlines(), process.returncode) == (["lives on"], 0)


def test_a_java_call_of_the_main_thread_raises_what_java_raised() -> None:
    code = (
        "from aeron_spark.aeron.interruptible import interruptible\n"
        "from aeron_spark.aeron.jvm import jclass\n"
        "try: interruptible(jclass('java.lang.Integer').parseInt, 'x')\n"
        "except jclass('java.lang.NumberFormatException') as error: print(error.getMessage())\n"
        "print(interruptible(jclass('java.lang.Integer').parseInt, '7'))"
    )
    with python(code) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert said.splitlines() == ['For input string: "x"', "7"]


def test_finding_c14_a_call_whose_wait_was_interrupted_ends_later_and_what_it_gave_is_discarded() -> None:
    code = """
import _thread, threading, time
from aeron_spark.aeron import jvm
from aeron_spark.aeron.interruptible import interruptible
jvm.start()
go, gone = threading.Event(), []
late = threading.Event()
def call():
    _thread.interrupt_main()
    go.wait()
    return "late"
def discard(value):
    gone.append(value)
    late.set()
try:
    interruptible(call, discard=discard)
except KeyboardInterrupt:
    print("interrupted", gone)
    go.set()
    late.wait(60)
    print(gone)
"""
    with python(code) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert said.splitlines() == ["interrupted []", "['late']"]


def test_a_process_ends_after_the_threads_whose_call_of_java_has_returned() -> None:
    # A thread that Python ends in the middle of JPype aborts the process: "FATAL: exception not rethrown".
    code = """
import _thread, threading, time
from aeron_spark.aeron import jvm
from aeron_spark.aeron.interruptible import interruptible
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
    with python(code) as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert (said.splitlines(), process.returncode) == (["ends", "discarded late"], 0)
