"""One process: its end, its forked children, the values that it keeps, its memory, and whether another one has ended.

A fork copies all locks in their state, but only the forking thread. A child would wait for ever for a lock that another
thread of its parent had locked. PySpark forks its workers, and a user's program may fork at any time.

A fork copies the objects of a process, but none of their threads. The child shares the memory of Aeron's logs with its
parent: a frame that it wrote there would take the place of one of the parent's frames. It would also wait for locks
that no thread of it releases. Therefore each object that a program can use is registered here. In a child its class is
replaced by one that raises UsageError at each use, before the object takes a lock or calls Java.

Clients and servers that a program leaves open are closed before the JVM ends, which JPype ends when the process does. A
thread that calls Java while the JVM ends
waits for ever. If it has the interpreter's lock, the process never ends.

A process id means something only within one PID namespace, and a program in another container may share this one's
memory. Therefore a caller first asks :func:`has_mapped`, while the other process certainly runs: only a process of
this namespace passes. Without the folder /proc no process passes.

glibc maps a large buffer separately, and returns its memory when it is freed. But the first such free raises the size
from which a buffer is large, up to 32 MiB; later buffers of that size come from its heaps and stay there. Some calls of
15 MB then left 100 MiB in a server's process. See mallopt(3).

glibc has several heaps, and each keeps the free memory below its last used byte. What threads needed once, such as
Java's compiler, stays in their heaps. See malloc_trim(3).
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

from aeron_spark.errors import EndedError, UsageError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Resettable(Protocol):
    def after_fork(self) -> None: ...


_instances: weakref.WeakSet[_Resettable] = weakref.WeakSet()


class ProcessLock:
    """A lock that is unlocked in a forked child, even if a thread of the parent had locked it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _instances.add(self)

    def after_fork(self) -> None:
        """Replace the lock by an unlocked one, in a forked child."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


class ProcessCache(Generic[K, V]):
    """One value per key, made at its first use.

    Thread-safe: the cache's lock is held while a value is made or replaced. A forked child starts without values, and
    does not close its parent's values.
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._values: dict[K, V] = {}
        self._parent_values: list[object] = []  # referenced in a child, so that the child does not finalize them
        _instances.add(self)

    def get(self, key: K, make: Callable[[], V], is_usable: Callable[[V], bool], discard: Callable[[V], object]) -> V:
        """Return the value of ``key``. A missing value is made; an unusable one is discarded and replaced."""
        with self._lock:
            value = self._values.get(key)
            if value is None or not is_usable(value):
                if value is not None:
                    discard(value)
                value = self._values[key] = make()
            return value

    def cached_keys(self) -> frozenset[K]:
        """Return the keys that have a value."""
        with self._lock:
            return frozenset(self._values)

    def values(self, is_wanted: Callable[[V], bool]) -> list[V]:
        """Return the values for which ``is_wanted`` is true."""
        with self._lock:
            return [value for value in self._values.values() if is_wanted(value)]

    def take(self, key: K) -> V | None:
        """Remove the value of ``key`` from the cache and return it; None if the key has no value."""
        with self._lock:
            return self._values.pop(key, None)

    def take_unused(self, is_unused: Callable[[V], bool]) -> list[V]:
        """Remove the unused values from the cache and return them. The lock prevents that a use begins in between."""
        with self._lock:
            unused = [key for key, value in self._values.items() if is_unused(value)]
            return [self._values.pop(key) for key in unused]

    def after_fork(self) -> None:
        """Start without values, in a forked child."""
        self._parent_values.append(self._values)
        self._values = {}


def _reset_in_child() -> None:
    for instance in list(_instances):
        instance.after_fork()


os.register_at_fork(after_in_child=_reset_in_child)


ENDINGS: Final = ("close", "stop")  # in a child they do nothing: a `with` block or a handler may call them there

_bound: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_parents: Final[list[object]] = []  # referenced in a child, so that the child does not finalize them
_refusing: Final[dict[type, type]] = {}


def bind_to_process(value: object) -> None:
    """Let only this process use ``value``. Call it in the constructor; the class may have no slots."""
    _bound.add(value)


def _refuse_in_child() -> None:
    parent = os.getppid()
    for value in list(_bound):
        _parents.append(value)
        value.__class__ = _refusing_class(type(value), parent)
    _bound.clear()
    _refusing.clear()  # the processes of a grandchild's objects differ


def _refusing_class(cls: type, parent: int) -> type:
    found = _refusing.get(cls)
    if found is not None:
        return found

    def refuse(self: object, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        if name in ENDINGS and hasattr(cls, name):
            return _do_nothing_async if inspect.iscoroutinefunction(getattr(cls, name)) else _do_nothing
        raise UsageError(
            f"this {cls.__name__} belongs to process {parent}, from which process {os.getpid()} was forked",
            remedy="Make it after the fork, in each process, or start processes with the 'spawn' method.",
        )

    members: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__getattribute__": refuse,
        "__repr__": lambda _: f"<{cls.__name__} of process {parent}>",
        "__exit__": _do_nothing,
        "__aexit__": _do_nothing_async,
        "__del__": _do_nothing,
    }
    found = _refusing[cls] = type(cls)(cls.__name__, (cls,), {k: v for k, v in members.items() if hasattr(cls, k)})
    return found


def _do_nothing(*_: object) -> None:
    pass


async def _do_nothing_async(*_: object) -> None:
    pass


os.register_at_fork(after_in_child=_refuse_in_child)


LOG: Final = logging.getLogger("aeron_spark.endpoint")

_hooks: Final[list[ExitHook]] = []


class ExitHook:
    """Calls ``close`` at the end of the process, unless ``cancel`` is called before.

    It does nothing in a forked child, which has the open object but none of its threads.
    """

    def __init__(self, close: Callable[[], Any]) -> None:
        self._close: Final = close
        self._pid: Final = os.getpid()
        _hooks.append(self)

    def cancel(self) -> None:
        """Do not call ``close``. A second call does nothing."""
        with suppress(ValueError):
            _hooks.remove(self)

    def run(self) -> None:
        """Call ``close``, and log its error: the other hooks must still run."""
        if os.getpid() == self._pid:
            try:
                self._close()
            except Exception:
                LOG.exception("an endpoint could not be closed at the end of the process")


def run_exit_hooks() -> None:
    """Run all hooks, the last one first. The code that ends the JVM calls this first: open objects use the JVM."""
    while _hooks:
        _hooks.pop().run()


atexit.register(run_exit_hooks)


# Fields of /proc/<pid>/stat after the name in brackets.
_STATE: Final = 0
_FLAGS: Final = 6
_THREADS: Final = 17
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD: such a thread never has memory
_MAX_STAT_BYTES: Final = 4_096
_ENDED: Final = ("Z", "X")  # the parent has not reaped it


def sleep_with_parent() -> Callable[[float], None]:
    """Return a function that sleeps for some seconds, and raises EndedError if this process's parent has ended.

    After the end of its parent, no process reads the result of this one, and a wait for it has no use.
    """
    parent = os.getppid()

    def sleep(seconds: float) -> None:
        if os.getppid() != parent:
            raise EndedError(
                f"process {parent}, which started this one, has ended",
                remedy="Start it again, such as the Spark application.",
            )
        time.sleep(seconds)

    return sleep


def has_mapped(pid: int, file: Path) -> bool:
    """Whether process ``pid`` is known in this PID namespace, and has ``file`` in its memory, or had it until it ended.

    A process that is ending, or was not reaped, has no memory any more: it counts, because a caller may have found it
    just after it was killed.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
        return os.fsencode(f"{file.resolve()}\n") in maps or (
            not maps and not int(_fields(pid)[_FLAGS]) & _KERNEL_THREAD
        )
    except (OSError, IndexError, ValueError):  # reaped, of another user, or the system has no such file
        return False


def pid_namespace() -> str:
    """Return the name of this process's PID namespace, or "" if the system does not say.

    Processes with the same name know each other by their process ids.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def has_ended(pid: int) -> bool:
    """Whether process ``pid`` has ended, perhaps without being reaped. False if that is unknown."""
    try:
        fields = _fields(pid)
        # The other threads continue after the end of the first one.
        return fields[_STATE] in _ENDED and int(fields[_THREADS]) <= 1
    except FileNotFoundError:
        return not exists(pid)
    except (OSError, IndexError, ValueError):  # it ends at this moment
        return False


def _fields(pid: int) -> list[str]:
    # Path and a text file take 28 us, this 6 us: each commit asks four times whether the media driver has ended.
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_STAT_BYTES).rpartition(b")")[2].decode().split()
    finally:
        os.close(descriptor)


def exists(pid: int) -> bool:
    """Whether process ``pid`` exists in this PID namespace, also one that has ended and was not reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


LARGE_BYTES: Final = 1 << 20
RETURN_INTERVAL_S: Final = 60.0  # a return walks all heaps, and freed pages are used again soon
M_MMAP_THRESHOLD: Final = -3  # of malloc.h
VARIABLE: Final = "MALLOC_MMAP_THRESHOLD_"  # with which a user sets it in glibc


def return_large_buffers() -> None:
    """Return buffers of ``LARGE_BYTES`` and more to the system when they are freed; for the whole process.

    Does nothing with another C library than glibc, or if the environment has glibc's own variable.
    """
    if VARIABLE not in os.environ:
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


class FreePages:
    """Returns the free pages of the C library's heaps to the system from time to time.

    ``free`` is called before, to free what is not used any more. Two threads at once may both do so.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, free: Callable[[], object] = lambda: None) -> None:
        self._clock = clock
        self._free = free
        self._due_at = clock() + RETURN_INTERVAL_S

    def return_if_due(self) -> None:
        """Return them if that was not done for ``RETURN_INTERVAL_S``."""
        if self._clock() >= self._due_at:
            self._due_at = self._clock() + RETURN_INTERVAL_S
            self._free()
            return_free_pages()


def return_free_pages() -> None:
    """Return the free pages of all heaps of the C library to the system. Does nothing with another one than glibc."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
