"""The client as a program uses it: what one can do with its connection, whichever session that is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aeron_spark.client.client import ClientCore
from aeron_spark.protocol.rpc_objects import Proxy

_C = TypeVar("_C", bound="ClientProgram")


class ClientProgram(ClientCore):
    """Everything here raises ConnectError while there is no session, and as :class:`Connection` does otherwise."""

    def on_message(self, kind: type, listener: Callable[..., object]) -> None:
        """Have ``listener(message)`` called for each message of this class or a subclass, in every session."""
        super().on_message(kind, lambda _, message: listener(message))

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message; see :meth:`Connection.send`."""
        self.connection.send(message, timeout=timeout, acknowledge=acknowledge)

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send many messages; see :meth:`Connection.send_many`."""
        self.connection.send_many(messages, timeout=timeout)

    def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file; see :meth:`Connection.send_file`."""
        self.connection.send_file(path, name=name, timeout=timeout)

    def ping(self, timeout: float | None = None) -> float:
        """Return the round trip in seconds."""
        return self.connection.ping(timeout)

    def remote(self, target: str | int) -> Proxy:
        """A stand-in for the server's object of this name or number."""
        return self.connection.remote(target)

    def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the server's factory of this name make an object for us."""
        return self.connection.create(factory, *args, timeout=timeout, **kwargs)

    def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """End an object that was made for us."""
        self.connection.delete(proxy, timeout=timeout)

    def offer(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        """Let the server call the listed methods of ``value`` in this session; return its number."""
        return self.connection.register(value, methods, number)

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
