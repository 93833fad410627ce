"""Refuses, in a forked child, the objects that belong to its parent.

A fork copies the objects of a process, but none of their threads. The child shares the memory of Aeron's logs with its
parent: a frame that it wrote there would take the place of one of the parent's frames. It would also wait for locks
that no thread of it releases. Therefore each object that a program can use is registered here. In a child its class is
replaced by one that raises UsageError at each use, before the object takes a lock or calls Java.
"""

from __future__ import annotations

import inspect
import os
import weakref
from typing import Any, Final

from aeron_spark.errors import UsageError

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
