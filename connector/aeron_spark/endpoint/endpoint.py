"""The interface that client and server have in common: remote objects, message types, listeners and the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from aeron_spark.endpoint.runtime import Runtime
from aeron_spark.process import ProcessLock, bind_to_process

F = TypeVar("F", bound=Callable[..., object])

# msgspec analyses a class at its first use. A second thread that uses the class meanwhile crashes the process.
_BUILDING_TYPES: Final = ProcessLock()


class Endpoint:
    """Base of ``Client`` and ``Server``: the methods that both offer to programs. Thread-safe.

    The methods ``on_...`` add a listener and can be used as decorators. A listener's exception is reported to the
    error listeners.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime: Final = runtime
        bind_to_process(self)

    def register(self, name: str, value: object, methods: Iterable[str]) -> None:
        """Let peers call the listed methods of ``value`` as ``remote(name)``."""
        self._runtime.objects.register(name, value, methods)

    def factory(self, name: str, make: Callable[..., object], methods: Iterable[str]) -> None:
        """Let peers create objects with ``make``, and call the listed methods of these objects."""
        self._runtime.objects.factory(name, make, methods)

    def expose(self, cls: type, methods: Iterable[str]) -> None:
        """Send objects of this class as references; the receiver may call the listed methods of them."""
        self._runtime.objects.expose(cls, methods)

    def register_type(self, cls: type, type_id: int) -> None:
        """Send and receive messages of ``cls``, a msgspec.Struct or dataclass. Both ends use the same id."""
        with _BUILDING_TYPES:
            self._runtime.types.register(cls, type_id)

    def register_error(self, cls: type[Exception], code: str = "") -> None:
        """Send exceptions of ``cls`` to callers under this code; by default, the name of the class."""
        self._runtime.error_codes.register(cls, code)

    def on_init(self, listener: F) -> F:
        """Call ``listener(connection)`` when the peer is authenticated, before any message is delivered."""
        return self._runtime.listeners.add("init", listener)

    def on_connect(self, listener: F) -> F:
        """Call ``listener(connection)`` when it can be used: once for a session, not when it resumes."""
        return self._runtime.listeners.add("connect", listener)

    def on_resume(self, listener: F) -> F:
        """Call ``listener(connection)`` when it has resumed its session after an outage."""
        return self._runtime.listeners.add("resume", listener)

    def on_disconnect(self, listener: F) -> F:
        """Call ``listener(connection)`` when it is closed, or silent for longer than the expiry.

        The endpoint calls it once, and again only after a resume.
        """
        return self._runtime.listeners.add("disconnect", listener)

    def on_error(self, listener: F) -> F:
        """Call ``listener(connection or None, error)`` for each error. Without a listener, errors are logged."""
        return self._runtime.listeners.add("error", listener)

    @property
    def tampered(self) -> int:
        """Received frames that failed their authentication."""
        return self._runtime.tampered

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._runtime.closed

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait until it is closed; return False after ``timeout`` seconds. Do not call it from a listener."""
        return self._runtime.wait_closed(timeout)
