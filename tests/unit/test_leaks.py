"""``leaks_since`` finds the resources that a test leaves, and no others."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from aeron_spark.reused_threads import ReusedThread
from tests.inner import run_inner
from tests.leaks import RUN_PREFIX, RUN_VARIABLE, SHARED_MEMORY, TIMEOUT_VARIABLE, Snapshot, leaks_since, take_snapshot
from tests.shared_nodes import SharedNodes

LONG_S = 20.0
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def plant(run_name: str) -> Iterator[Callable[[str], Path]]:
    """Return a function that makes a directory in /dev/shm, which the fixture removes."""
    planted: list[Path] = []

    def plant(name: str) -> Path:
        planted.append(SHARED_MEMORY / name)
        planted[-1].mkdir()
        return planted[-1]

    yield plant
    for path in planted:
        shutil.rmtree(path, ignore_errors=True)


def started(code: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | environment, start_new_session=True, stdout=subprocess.PIPE
    )


def wait_for_leaks(before: Snapshot, run_name: str, *, strict: bool = False) -> list[str]:
    """Wait for leaks and return them; a process that has just started cannot be inspected at once."""
    deadline = time.monotonic() + 10
    while not (found := leaks_since(before, run_name, timeout_s=0, strict=strict)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_without_new_resources_there_are_no_leaks(run_name: str) -> None:
    assert leaks_since(take_snapshot(), run_name, timeout_s=0) == []


def test_a_process_is_a_leak_until_it_ends(run_name: str) -> None:
    before = take_snapshot()
    with started(SLEEP) as process:
        (found,) = wait_for_leaks(before, run_name)
        assert found.startswith(f"process {process.pid}: ")
        process.kill()
        process.wait()
        assert leaks_since(before, run_name, timeout_s=0) == []


def test_a_process_whose_parent_has_ended_is_a_leak(run_name: str) -> None:
    before = take_snapshot()
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}], stdout=-3).pid)"
    with started(code) as parent:
        orphan = psutil.Process(int(parent.stdout.read()))
    (found,) = wait_for_leaks(before, run_name)
    assert found.startswith(f"process {orphan.pid}: ")
    orphan.kill()
    assert leaks_since(before, run_name, timeout_s=5) == []


def test_a_child_of_a_wider_fixtures_process_is_allowed_until_the_end_of_the_run(run_name: str) -> None:
    spawn = f"c = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])"
    code = f"import subprocess, sys; input(); {spawn}; print(c.pid, flush=True); c.wait()"
    fixture = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    before = take_snapshot()
    with fixture:
        fixture.stdin.write(b"\n")
        fixture.stdin.flush()
        child = psutil.Process(int(fixture.stdout.readline()))
        (found,) = wait_for_leaks(before, run_name, strict=True)
        assert leaks_since(before, run_name, timeout_s=0) == []
        assert found.startswith(f"process {child.pid}: ")
        child.kill()


def test_a_process_of_another_run_is_no_leak(run_name: str) -> None:
    before = take_snapshot()
    with started(SLEEP, **{RUN_VARIABLE: "another"}) as process:
        assert leaks_since(before, run_name, timeout_s=0) == []
        process.kill()


@pytest.mark.parametrize("name", ["{run}-driver", "aeron-without-user-{run}"])
def test_a_directory_is_a_leak_until_it_is_removed(run_name: str, plant: Callable[[str], Path], name: str) -> None:
    before = take_snapshot()
    path = plant(name.format(run=run_name))
    assert leaks_since(before, run_name, timeout_s=0) == [f"directory {path}"]
    path.rmdir()
    assert leaks_since(before, run_name, timeout_s=0) == []


def test_a_directory_of_another_living_run_is_no_leak(run_name: str, plant: Callable[[str], Path]) -> None:
    before = take_snapshot()
    plant(f"{RUN_PREFIX}{os.getppid()}-{run_name}")
    assert leaks_since(before, run_name, timeout_s=0) == []


@pytest.mark.parametrize("user", ["ours", "another"])
def test_a_directory_belongs_to_the_run_whose_process_uses_it(
    run_name: str, plant: Callable[[str], Path], user: str
) -> None:
    before = take_snapshot()
    path = plant(f"aeron-in-use-{run_name}")
    file = path / "cnc.dat"
    file.write_bytes(bytes(4096))
    use = f"import mmap; f = open({str(file)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); {SLEEP}"
    with started(use, **{RUN_VARIABLE: run_name if user == "ours" else user}) as process:
        process.stdout.readline()
        found = leaks_since(before, run_name, timeout_s=0)
        process.kill()
    directories = [line for line in found if line.startswith("directory")]
    assert directories == ([f"directory {path}"] if user == "ours" else [])


@pytest.mark.parametrize("user", ["ours", "another"])
def test_a_lock_file_belongs_to_the_run_whose_process_has_opened_it(run_name: str, user: str) -> None:
    before = take_snapshot()
    lock = SHARED_MEMORY / f"aeron-program-{run_name}.aeron-spark-server-21590.lock"
    hold = f"f = open({str(lock)!r}, 'w'); print(flush=True); {SLEEP}"
    try:
        with started(hold, **{RUN_VARIABLE: run_name if user == "ours" else user}) as process:
            process.stdout.readline()
            found = leaks_since(before, run_name, timeout_s=0)
            process.kill()
    finally:
        lock.unlink(missing_ok=True)
    files = [line for line in found if line.startswith("directory")]
    assert files == ([f"directory {lock}"] if user == "ours" else [])


def test_an_open_port_is_a_leak_until_it_is_closed(run_name: str) -> None:
    before = take_snapshot()
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(("127.0.0.1", 0))
        assert leaks_since(before, run_name, timeout_s=0) == [
            f"port tcp {tcp.getsockname()[1]}, open in this process",
            f"port udp {udp.getsockname()[1]}, open in this process",
        ]
    assert leaks_since(before, run_name, timeout_s=0) == []


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event for which threads of a test wait, set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def thread_until(release: threading.Event, name: str, *, daemon: bool) -> threading.Thread:
    thread = threading.Thread(target=release.wait, name=name, daemon=daemon)
    thread.start()
    return thread


def test_a_non_daemon_thread_is_a_leak_and_a_foreign_daemon_is_not(run_name: str, release: threading.Event) -> None:
    before = take_snapshot()
    threads = [thread_until(release, "a library's", daemon=True), thread_until(release, "non-daemon", daemon=False)]
    assert leaks_since(before, run_name, timeout_s=0) == ["non-daemon thread 'non-daemon'"]
    release.set()
    for thread in threads:
        thread.join()
    assert leaks_since(before, run_name, timeout_s=0) == []


def test_a_daemon_thread_of_the_project_is_a_leak_until_it_ends(run_name: str, release: threading.Event) -> None:
    """Regression: all threads of the project are daemons, and daemons were ignored."""
    before = take_snapshot()
    thread = thread_until(release, "aeron-spark-lease", daemon=True)
    assert leaks_since(before, run_name, timeout_s=0) == ["daemon thread 'aeron-spark-lease'"]
    threading.Timer(0.01, release.set).start()
    assert leaks_since(before, run_name, timeout_s=10) == []
    assert not thread.is_alive()


def test_a_reused_thread_is_a_leak_while_it_works_and_not_while_it_is_idle(
    run_name: str, release: threading.Event
) -> None:
    """Also on a thread that was idle, or at work for a wider fixture, when the test began."""
    first = ReusedThread(lambda: release.wait(LONG_S), "aeron-spark-first")
    first.start()
    before = take_snapshot()
    assert leaks_since(before, run_name, timeout_s=0) == []
    release.set()
    first.join(LONG_S)
    assert leaks_since(before, run_name, timeout_s=0) == []
    idle, may_end = take_snapshot(), threading.Event()
    second = ReusedThread(lambda: may_end.wait(LONG_S), "aeron-spark-second")
    second.start()
    assert second._thread is first._thread
    try:
        for snapshot in (before, idle):
            assert leaks_since(snapshot, run_name, timeout_s=0) == ["daemon thread 'aeron-spark-second'"]
    finally:
        may_end.set()
    assert leaks_since(before, run_name, timeout_s=10) == []


def test_a_thread_with_the_reused_number_of_an_ended_thread_is_a_leak(run_name: str, release: threading.Event) -> None:
    ended = threading.Event()
    first = thread_until(ended, "aeron-spark-first", daemon=True)
    before = take_snapshot()
    ended.set()
    first.join()
    thread_until(release, "aeron-spark-second", daemon=True)
    assert leaks_since(before, run_name, timeout_s=0) == ["daemon thread 'aeron-spark-second'"]


def test_threads_of_a_wider_fixture_are_allowed_until_the_end_of_the_run(
    run_name: str, release: threading.Event
) -> None:
    begin = threading.Event()
    started: list[threading.Thread] = []

    def run() -> None:
        begin.wait()
        started.append(thread_until(release, "aeron-spark-child", daemon=True))
        release.wait()

    fixture = threading.Thread(target=run, name="aeron-spark-fixture", daemon=True)
    fixture.start()
    old = ThreadPoolExecutor(1, "aeron-spark-old")
    before = take_snapshot()
    new = ThreadPoolExecutor(1, "aeron-spark-new")
    try:
        begin.set()
        for executor in (old, new):
            executor.submit(release.wait)
        while not started:
            time.sleep(0.001)
        assert leaks_since(before, run_name, timeout_s=0) == ["non-daemon thread 'aeron-spark-new_0'"]
        assert leaks_since(before, run_name, timeout_s=0, strict=True) == [
            "daemon thread 'aeron-spark-child'",
            "non-daemon thread 'aeron-spark-new_0'",
            "non-daemon thread 'aeron-spark-old_0'",
        ]
    finally:
        release.set()
        old.shutdown()
        new.shutdown()
    assert leaks_since(before, run_name, timeout_s=10, strict=True) == []


def test_the_directories_belong_to_the_run(run_name: str, shared_nodes: SharedNodes) -> None:
    for name in ("AERON_SPARK_AERON_DIR", "AERON_SPARK_DATA_HOME", "AERON_SPARK_CONFIG_HOME", "XDG_DATA_HOME"):
        path = Path(os.environ[name])
        assert run_name in str(path) or path.is_relative_to(shared_nodes.data)
        assert not Path(os.environ[name]).is_relative_to(Path.home())


# The resources of a fixture are found and ended also if the fixture's set-up fails after it made them.
HALF_SET_UP = f"""
import os, pathlib, subprocess, sys, threading
import pytest

def start(name):
    process = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])
    process.returncode = 0  # no warning when the object is collected
    path = pathlib.Path('/dev/shm') / (os.environ[{RUN_VARIABLE!r}] + name)
    path.mkdir()
    with open(os.environ['STARTED'], 'a') as file:
        file.write(f'{{process.pid}} {{path}}\\n')

@pytest.fixture
def of_the_test():
    start('-test')
    raise RuntimeError('the set-up failed')

@pytest.fixture(scope='module')
def of_the_module():
    start('-module')
    raise RuntimeError('the set-up failed')

def test_with_a_fixture_of_its_own(of_the_test): pass
def test_with_a_shared_fixture(of_the_module): pass
"""


@pytest.mark.slow
def test_resources_of_a_fixture_with_a_failed_set_up_are_reported_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_list = tmp_path / "started"
    monkeypatch.setenv("STARTED", str(started_list))
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.5")
    done = run_inner(tmp_path, {"test_inner.py": HALF_SET_UP})
    assert done.code == 1
    started = [line.split() for line in started_list.read_text().splitlines()]
    assert len(started) == 2
    for pid, path in started:
        assert f"process {pid}: " in done.text
        assert f"directory {path}" in done.text
        assert not psutil.pid_exists(int(pid))
        assert not Path(path).exists()
    assert "leaks of this test" in done.text
    assert "leaks of the whole run" in done.text
