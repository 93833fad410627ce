"""Represents a remote object in a program of asyncio: each of its methods is awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from aeron_spark.errors import EndedError, UsageError
from aeron_spark.protocol import rpc_objects
from aeron_spark.protocol.rpc_messages import Call, check_timeout
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, Mode, remote_of


class Invoke(Protocol):
    """Executes a call; in ``Mode.SYNC`` it returns the result or raises the error."""

    def __call__(self, proxy: rpc_objects.Proxy, call: Call, mode: Mode, timeout: float | None) -> Awaitable[Any]: ...


class Proxy:
    """An object of the server. ``await proxy.describe("prices")`` calls a method, and waits 3 s at most.

    ``proxy.with_timeout(seconds)``, ``proxy.oneway`` and ``proxy["name"]`` are as those of a proxy without asyncio.
    A cancelled call may still run at the server.
    """

    __slots__ = ("_invoke", "_mode", "_proxy", "_timeout")

    _invoke: Invoke
    _mode: Mode
    _proxy: rpc_objects.Proxy
    _timeout: float | None

    def __init__(
        self, proxy: rpc_objects.Proxy, invoke: Invoke, mode: Mode = Mode.SYNC, timeout: float | None = CALL_TIMEOUT
    ) -> None:
        object.__setattr__(self, "_proxy", proxy)
        object.__setattr__(self, "_invoke", invoke)
        object.__setattr__(self, "_mode", mode)
        object.__setattr__(self, "_timeout", check_timeout(timeout))

    @property
    def oneway(self) -> Proxy:
        """A proxy of the same object whose calls return None when they are accepted, without a response."""
        return Proxy(self._proxy, self._invoke, Mode.ONE_WAY, self._timeout)

    def with_timeout(self, seconds: float | None) -> Proxy:
        """Return a proxy of the same object with another timeout of its calls; 0 or None: until the connection ends."""
        return Proxy(self._proxy, self._invoke, self._mode, seconds)

    def __getitem__(self, method: str) -> Callable[..., Awaitable[Any]]:
        """Return the remote method with this name."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            remote = remote_of(self._proxy)
            if remote.ended:
                raise EndedError(f"{self._proxy!r} {remote.ended}", remedy="Create or look up another object.")
            request = Call(remote.target, method, *plain_call(args, kwargs))
            return wrap(await self._invoke(self._proxy, request, self._mode, self._timeout), self._invoke)

        call.__name__ = call.__qualname__ = method
        return call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("_"):
            raise AttributeError(f"{self._proxy!r} has no attribute {name!r}: private names cannot be called remotely")
        return self[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(f"attribute {name} of {self._proxy!r} cannot be set remotely", remedy="Call a method.")

    def __repr__(self) -> str:
        return repr(self._proxy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proxy) and self._proxy == other._proxy

    def __hash__(self) -> int:
        return hash(self._proxy)


def wrap(value: Any, invoke: Invoke) -> Any:
    """Return the proxy for asyncio of a result that is a proxy; any other value unchanged."""
    return Proxy(value, invoke) if isinstance(value, rpc_objects.Proxy) else value


def plain_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with the plain proxies of those for asyncio."""
    return tuple(plain(value) for value in args), {name: plain(value) for name, value in kwargs.items()}


def plain(value: Any) -> Any:
    """Return the plain proxy of one for asyncio; any other value unchanged."""
    return object.__getattribute__(value, "_proxy") if isinstance(value, Proxy) else value
