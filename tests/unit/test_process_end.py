from __future__ import annotations

import subprocess
import sys

from tests.programs import python_environ

PROGRAM = """
import os
import sys
from aeron_spark.process import ExitHook

class Open:
    def __init__(self, name):
        self.name = name
        self.hook = ExitHook(self.close)

    def close(self):
        print("closed", self.name, flush=True)
        if self.name == "failing":
            raise ValueError("of the test")

first, failing, closed = Open("first"), Open("failing"), Open("closed")
closed.hook.cancel()
closed.hook.cancel()
Open("dropped")  # without a reference of the program
if os.fork() == 0:
    sys.exit(0)
os.wait()
print("end", flush=True)
"""


def test_the_end_of_a_process_closes_what_is_open_the_last_one_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False,
        env=python_environ(),
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["end", "closed dropped", "closed failing", "closed first"]
    assert "an endpoint could not be closed at the end of the process" in done.stderr
    assert "ValueError: of the test" in done.stderr


CHILD = """
from aeron_spark.errors import EndedError
from aeron_spark.process import sleep_with_parent

sleep = sleep_with_parent()
print("waiting", flush=True)
try:
    while True:
        sleep(0.01)
except EndedError as error:
    print(error.what, flush=True)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_a_wait_ends_after_the_end_of_the_process_that_started_this_one() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True, env=python_environ()
    ) as parent:
        assert parent.stdout.readline() == "waiting\n"
        parent.kill()
        assert parent.communicate(timeout=60)[0] == f"process {parent.pid}, which started this one, has ended\n"
