"""What a process keeps for itself: one value a key, and locks that no fork copies as held."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aeron_spark.process_cache import ProcessCache

ROOT = Path(__file__).parents[2]


class Value:
    """Something that is closed once."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def get(cache: ProcessCache[str, Value], key: str) -> Value:
    return cache.get(key, Value, lambda value: not value.closed, lambda value: None)


def test_a_value_is_kept_until_it_is_no_longer_usable() -> None:
    cache: ProcessCache[str, Value] = ProcessCache()
    first, other = get(cache, "a"), get(cache, "b")
    assert get(cache, "a") is first
    first.close()
    second = get(cache, "a")
    assert second is not first
    assert get(cache, "b") is other
    assert cache.kept_keys() == {"a", "b"}


def test_a_value_that_is_replaced_is_discarded_once() -> None:
    cache: ProcessCache[str, Value] = ProcessCache()
    discarded: list[Value] = []
    first = get(cache, "a")
    second = cache.get("a", Value, lambda value: False, discarded.append)
    assert discarded == [first]
    assert cache.take("a") is second
    assert cache.take("a") is None
    assert not second.closed


def test_a_value_that_cannot_be_made_is_made_by_the_next_use() -> None:
    cache: ProcessCache[str, Value] = ProcessCache()

    def fail() -> Value:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", fail, lambda value: True, Value.close)
    assert cache.kept_keys() == frozenset()
    assert not get(cache, "a").closed


# Each case: how to make what the module keeps in the process by a given function, and how to use it.
CASES = {
    "aeron.client": """
        from aeron_spark.aeron import client
        def prepare(make): client.Client = type("Client", (), {"__new__": lambda *given: make(), "close": close})
        def use(): return client.client_of("dir")
    """,
    "aeron.archive": """
        from aeron_spark.aeron import archive
        archive.client_of = lambda aeron_dir: CLIENT
        def prepare(make): archive.Archive = type("Archive", (), {"__new__": lambda *given: make(), "close": close})
        def use(): return archive.archive_of(archive.ArchiveAddress("name", "dir", "aeron:ipc"))
    """,
    "direct.publisher": """
        from aeron_spark.direct import publisher
        publisher.client_of = lambda aeron_dir: CLIENT
        def prepare(make): publisher.BatchPublication = lambda *given: make()
        def use(): return publisher.offering_of(publisher.PublishAddress("dir", "aeron:ipc", 1), "aeron:ipc")
    """,
    "direct.archives": """
        from aeron_spark.direct import archives
        archives._alive = lambda handle: True
        def prepare(make): archives.node.ensure = lambda aeron_dir: make()
        def use(): return archives.hold_node("dir")
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
    "connection.runtime": """
        from aeron_spark.connection import runtime
        made = []
        def prepare(make): made[:] = [make]
        def use():
            types = type("Types", (), {"register": lambda self, cls, type_id: made[0]()})()
            at = type("At", (), {"_types": types})()
            return runtime.Runtime.register_type(at, int, 1)
    """,
}

# The parent forks while another of its threads is in the middle of making the value, and so holds the module's lock.
FORKED = """
import os, signal, sys, threading
from types import SimpleNamespace

CLIENT = object()
CLOSED = []

def close(value):
    CLOSED.append(value)

def make():
    return SimpleNamespace(closed=False, dormant=False, client=CLIENT, used_at=0.0, close=lambda: CLOSED.append(1))

{case}

begun, may_go_on, found = threading.Event(), threading.Event(), []

def held():
    begun.set()
    assert may_go_on.wait(60)
    return make()

prepare(held)
thread = threading.Thread(target=lambda: found.append(use()), daemon=True)
thread.start()
assert begun.wait(60)
child = os.fork()
if not child:
    signal.alarm(10)
    prepare(make)
    mine = use()
    assert use() is mine
    os._exit(0 if not CLOSED else 3)
status = os.waitpid(child, 0)[1]
may_go_on.set()
thread.join(60)
prepare(make)
assert found[0] is use() and not CLOSED, "the parent keeps what it had"
sys.exit(f"the child ended with status {{status}}" if status else 0)
"""


@pytest.mark.parametrize("module", CASES)
def test_finding_a_forked_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_held(module: str) -> None:
    """Finding: a lock of the process stayed held for ever in a child that was forked while another thread held it."""
    case = "\n".join(line.removeprefix("        ") for line in CASES[module].splitlines())
    done = subprocess.run(
        [sys.executable, "-c", FORKED.format(case=case)], cwd=ROOT, env=os.environ, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


FORKED_TWICE = """
import os
from aeron_spark.process_cache import ProcessCache
class Value:
    def __init__(self): self.pid = os.getpid()
    def __del__(self): assert self.pid == os.getpid() or os._exit(4)
cache = ProcessCache()
get = lambda: cache.get("a", Value, lambda value: True, lambda value: os._exit(5))
mine = id(get())
child = os.fork()
if not child:
    assert get().pid == os.getpid()
    grandchild = os.fork()
    if not grandchild:
        assert get().pid == os.getpid()
        os._exit(0)
    os._exit(os.waitpid(grandchild, 0)[1])
assert os.waitpid(child, 0)[1] == 0
assert id(get()) == mine
"""


def test_a_forked_child_makes_values_of_its_own_and_finalizes_none_of_its_parents() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED_TWICE], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
