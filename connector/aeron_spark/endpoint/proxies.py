"""Remote objects as a program uses them: ``remote("catalog").describe("flights")``.

proxy.describe("flights")               waits for the result
proxy.with_timeout(0.5).describe(...)   waits half a second; 0 or None: as long as the connection lives
proxy.oneway.describe(...)              returns None at once; nothing is answered, not even an error
proxy["oneway"](...)                    a remote method of any name, for instance one of these
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NoReturn, Protocol

from aeron_spark.endpoint.requests import Target, check_timeout
from aeron_spark.errors import EndedError, UsageError

CALL_TIMEOUT: Final = 3.0  # seconds for a call unless the proxy says otherwise: noticed by people, long for machines


class Mode(Enum):
    """Whether a call is answered."""

    SYNC = "sync"
    ONE_WAY = "one-way"


class Invoke(Protocol):
    """What carries a proxy's call out: it sends, and with SYNC waits, and returns the result or raises."""

    def __call__(
        self,
        target: Target,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mode: Mode,
        timeout: float | None,
    ) -> Any: ...


class Remote:
    """What all proxies of one object share: where it is, and whether it ended."""

    __slots__ = ("__weakref__", "ended", "home", "invoke", "target")

    def __init__(self, target: Target, invoke: Invoke, home: object) -> None:
        self.target = target
        self.invoke = invoke
        self.home = home  # the connection's registry, so that a proxy is never taken for one of another connection
        self.ended = ""


class Proxy:
    """A stand-in for an object at the other side, with its methods. Two are equal if they stand for the same one."""

    __slots__ = ("_mode", "_remote", "_timeout")

    _remote: Remote
    _mode: Mode
    _timeout: float | None

    def __init__(self, remote: Remote, mode: Mode = Mode.SYNC, timeout: float | None = CALL_TIMEOUT) -> None:
        object.__setattr__(self, "_remote", remote)
        object.__setattr__(self, "_mode", mode)
        object.__setattr__(self, "_timeout", check_timeout(timeout))

    @property
    def oneway(self) -> Proxy:
        """The same object, called without waiting: every call returns None at once."""
        return Proxy(self._remote, Mode.ONE_WAY, self._timeout)

    def with_timeout(self, seconds: float | None) -> Proxy:
        """The same object, with this many seconds for each call; 0 or None: as long as the connection lives."""
        return Proxy(self._remote, self._mode, seconds)

    def __getitem__(self, method: str) -> Callable[..., Any]:
        """The remote method of this name, whatever it is."""
        remote, mode, timeout = self._remote, self._mode, self._timeout

        def call(*args: Any, **kwargs: Any) -> Any:
            if remote.ended:
                raise EndedError(f"{_label(remote)} {remote.ended}", remedy="Create or look up another one")
            return remote.invoke(remote.target, method, args, kwargs, mode, timeout)

        call.__name__ = call.__qualname__ = method
        return call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # copy, pickle and notebooks ask for names like these, and must not ask the other side
        if name.startswith("_"):
            raise AttributeError(
                f"{_label(self._remote)} has no attribute {name!r}: no private names are called remotely"
            )
        return self[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(
            f"{name} of {_label(self._remote)} cannot be set from here", remedy="Call a method that sets it"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{_label(self._remote)} cannot be iterated over")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proxy) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<{_label(self._remote)}>"

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"{_label(self._remote)} belongs to its connection", remedy="Look it up where it is needed")

    def _key(self) -> tuple[int, Target]:
        return id(self._remote.home), self._remote.target


def remote_of(proxy: Proxy) -> Remote:
    """What ``proxy`` stands for."""
    return proxy._remote


def _label(remote: Remote) -> str:
    target = repr(remote.target) if isinstance(remote.target, str) else str(remote.target)
    return f"remote object {target}"
