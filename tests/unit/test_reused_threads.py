"""Work of endpoints runs on threads that wait for other work when it has ended."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from aeron_spark import reused_threads
from aeron_spark.reused_threads import IDLE_NAME, MAX_IDLE, ReusedThread, submit

TIMEOUT_S: Final = 20.0


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without idle threads, and let the test's own threads end."""
    threads = reused_threads._Threads()
    monkeypatch.setattr(reused_threads, "_threads", threads)
    yield
    monkeypatch.setattr(reused_threads, "MAX_IDLE", 0)
    for _ in range(len(threads._idle)):
        submit(lambda: None, "aeron-spark-last").result(TIMEOUT_S)


def run(work: Callable[[], object]) -> None:
    one = ReusedThread(work, "aeron-spark-work")
    one.start()
    one.join(TIMEOUT_S)
    assert not one.is_alive()


def test_work_that_follows_other_work_has_its_thread() -> None:
    found = list[tuple[threading.Thread, str, bool]]()
    for _ in range(5):
        run(lambda: found.append((threading.current_thread(), threading.current_thread().name, True)))
    [(thread, name, _)] = set(found)
    assert (name, thread.name, thread.daemon) == ("aeron-spark-work", IDLE_NAME, True)


def test_work_at_the_same_time_has_threads_of_which_a_bounded_number_stays() -> None:
    may_end = threading.Event()
    running = [ReusedThread(lambda: may_end.wait(TIMEOUT_S), f"aeron-spark-{n}") for n in range(MAX_IDLE + 4)]
    for one in running:
        one.start()
    threads = {one for one in threading.enumerate() if one.name in {work.name for work in running}}
    may_end.set()
    for one in running:
        one.join(TIMEOUT_S)
    assert len(threads) == MAX_IDLE + 4
    assert len(reused_threads._threads._idle) == MAX_IDLE
    for thread in threads - set(reused_threads._threads._idle):
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_the_work_is_alive_and_current_while_it_runs() -> None:
    found = list[tuple[bool, bool]]()
    work = ReusedThread(lambda: found.append((work.is_alive(), work.is_current)), "aeron-spark-work")
    assert (work.is_alive(), work.is_current) == (False, False)
    work.start()
    work.join(TIMEOUT_S)
    other = list[bool]()
    run(lambda: other.append(work.is_current))  # in the same thread
    assert (found, other, work.is_alive()) == ([(True, True)], [False], False)


def test_a_join_ends_at_its_timeout() -> None:
    may_end = threading.Event()
    work = ReusedThread(lambda: may_end.wait(TIMEOUT_S), "aeron-spark-work")
    work.start()
    work.join(0.001)
    assert work.is_alive()
    may_end.set()
    work.join(TIMEOUT_S)


def test_an_error_of_the_work_is_logged_and_its_thread_works_on(caplog: pytest.LogCaptureFixture) -> None:
    threads = list[threading.Thread]()

    def fail() -> None:
        threads.append(threading.current_thread())
        raise SystemExit(1)

    run(fail)
    run(lambda: threads.append(threading.current_thread()))
    assert threads[0] is threads[1]
    assert "the work of the thread aeron-spark-work failed" in caplog.text


def test_submit_returns_the_result_or_the_error() -> None:
    assert submit(lambda: 7, "aeron-spark-work").result(TIMEOUT_S) == 7
    with pytest.raises(ZeroDivisionError):
        submit(lambda: 1 // 0, "aeron-spark-work").result(TIMEOUT_S)


PROGRAM: Final = """
import os
from aeron_spark.reused_threads import submit
submit(lambda: None, "first").result(20)
child = os.fork()  # without the idle thread of its parent
if child == 0:
    os._exit(submit(lambda: 3, "second").result(20))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_starts_its_own_threads() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
