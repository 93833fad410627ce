"""A process cache has one value per key, and a forked child starts without values and with unlocked locks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aeron_spark.process import ProcessCache

ROOT = Path(__file__).parents[2]


class Value:
    """A value that may be closed once."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def get(cache: ProcessCache[str, Value], key: str) -> Value:
    return cache.get(key, Value, lambda value: not value.closed, lambda value: None)


def test_a_value_stays_cached_until_it_is_unusable() -> None:
    cache: ProcessCache[str, Value] = ProcessCache()
    first, other = get(cache, "a"), get(cache, "b")
    assert get(cache, "a") is first
    first.close()
    second = get(cache, "a")
    assert second is not first
    assert get(cache, "b") is other
    assert cache.cached_keys() == {"a", "b"}


def test_a_replaced_value_is_discarded_once() -> None:
    cache: ProcessCache[str, Value] = ProcessCache()
    discarded: list[Value] = []
    first = get(cache, "a")
    second = cache.get("a", Value, lambda value: False, discarded.append)
    assert discarded == [first]
    assert cache.take("a") is second
    assert cache.take("a") is None
    assert not second.closed


def test_the_next_use_makes_a_value_whose_making_failed() -> None:
    cache: ProcessCache[str, Value] = ProcessCache()

    def fail() -> Value:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", fail, lambda value: True, Value.close)
    assert cache.cached_keys() == frozenset()
    assert not get(cache, "a").closed


# Each case defines `prepare(make)`, which replaces the factory of the module's cached value, and `use()`, its use.
CASES = {
    "aeron.client": """
        from aeron_spark.aeron import client
        def prepare(make): client.AeronClient = type("Fake", (), {"__new__": lambda *args: make(), "close": close})
        def use(): return client.client_of("dir")
    """,
    "aeron.archive": """
        from aeron_spark.aeron import archive
        archive.client_of = lambda aeron_dir: CLIENT
        def prepare(make): archive.Archive = type("Archive", (), {"__new__": lambda *args: make(), "close": close})
        def use(): return archive.archive_of(archive.ArchiveAddress("name", "dir", "aeron:ipc"))
    """,
    "direct.writing": """
        from aeron_spark.direct import writing
        writing.client_of = lambda aeron_dir: CLIENT
        def prepare(make): writing.BatchPublication = lambda *args: make()
        def use(): return writing.publication_of(writing.PublishAddress("dir", "aeron:ipc", 1), "aeron:ipc")
    """,
    "direct.archive_recordings": """
        from aeron_spark.direct import archive_recordings
        archive_recordings.is_running = lambda pid: True
        def prepare(make): archive_recordings.node.ensure = lambda aeron_dir, wait_s: make()
        def use(): return archive_recordings.hold_node("dir", 1.0)
    """,
    "aeron.jvm": """
        from aeron_spark.aeron import jvm
        from aeron_spark.errors import SetupError
        def fail(make): make(); raise SetupError("no jar")
        def prepare(make): jvm.classpath = lambda: fail(make)
        def use():
            try:
                jvm.start()
            except SetupError:
                return None
    """,
    "endpoint.endpoint": """
        from types import SimpleNamespace
        from aeron_spark.endpoint import endpoint
        made = []
        def prepare(make): made[:] = [make]
        def use():
            types = type("Types", (), {"register": lambda self, cls, type_id: made[0]()})()
            return endpoint.Endpoint(SimpleNamespace(types=types)).register_type(int, 1)
    """,
}

# The parent forks while another of its threads makes the value, and has therefore locked the module's lock.
FORKED = """
import os, signal, sys, threading
from types import SimpleNamespace

CLIENT = object()
CLOSED = []

def close(value):
    CLOSED.append(value)

def make():
    return SimpleNamespace(
        closed=False, dormant=False, client=CLIENT, used_at=0.0, pid=1, close=lambda: CLOSED.append(1)
    )

{case}

started, proceed, found = threading.Event(), threading.Event(), []

def make_slowly():
    started.set()
    assert proceed.wait(60)
    return make()

prepare(make_slowly)
thread = threading.Thread(target=lambda: found.append(use()), daemon=True)
thread.start()
assert started.wait(60)
child = os.fork()
if not child:
    signal.alarm(10)
    prepare(make)
    value = use()
    assert use() is value
    os._exit(0 if not CLOSED else 3)
status = os.waitpid(child, 0)[1]
proceed.set()
thread.join(60)
prepare(make)
assert found[0] is use() and not CLOSED, "the parent lost its value"
sys.exit(f"the child ended with status {{status}}" if status else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", CASES)
def test_a_forked_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_holds(module: str) -> None:
    """Regression: a child that was forked while another thread held a lock waited for that lock for ever."""
    case = "\n".join(line.removeprefix("        ") for line in CASES[module].splitlines())
    done = subprocess.run(
        [sys.executable, "-c", FORKED.format(case=case)], cwd=ROOT, env=os.environ, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


FORKED_TWICE = """
import os
from aeron_spark.process import ProcessCache
class Value:
    def __init__(self): self.pid = os.getpid()
    def __del__(self): assert self.pid == os.getpid() or os._exit(4)
cache = ProcessCache()
get = lambda: cache.get("a", Value, lambda value: True, lambda value: os._exit(5))
value_id = id(get())
child = os.fork()
if not child:
    assert get().pid == os.getpid()
    grandchild = os.fork()
    if not grandchild:
        assert get().pid == os.getpid()
        os._exit(0)
    os._exit(os.waitpid(grandchild, 0)[1])
assert os.waitpid(child, 0)[1] == 0
assert id(get()) == value_id
"""


def test_a_forked_child_makes_new_values_and_does_not_finalize_those_of_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED_TWICE], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
