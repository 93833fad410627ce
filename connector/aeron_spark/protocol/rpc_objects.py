"""Remote objects: the registries of objects that the peer may call, and proxies of the peer's objects.

proxy.describe("flights")               waits for the result
proxy.with_timeout(0.5).describe(...)   waits at most 0.5 s; 0 or None: until the connection ends
proxy.oneway.describe(...)              returns None at once; the peer sends no response, not even an error
proxy["oneway"](...)                    calls a remote method of any name, for example "oneway"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn
from weakref import WeakValueDictionary

from aeron_spark.errors import DataFormatError, EndedError, OptionError, UsageError
from aeron_spark.protocol.message_types import Reference
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE, MAX_NAME_CHARACTERS, Call, Target, check_timeout

CALL_TIMEOUT: Final = 3.0  # default timeout of a call in seconds


class Mode(Enum):
    """Whether a call has a response."""

    SYNC = "sync"
    ONE_WAY = "one-way"


Invoke = Callable[[Call, Mode, float | None], Any]
"""Executes a proxy's call, with its timeout in seconds; returns its result, or an awaitable of that."""


class Remote:
    """The shared state of all proxies of one remote object."""

    __slots__ = ("__weakref__", "ended", "registry", "target")

    def __init__(self, target: Target, registry: object) -> None:
        self.target = target
        self.registry = registry  # of the connection; proxies of different connections are never equal
        self.ended = ""  # why the object ended, or empty


class Proxy:
    """Represents an object of the peer; its methods call those of the object. Proxies of one object are equal."""

    __slots__ = ("_invoke", "_mode", "_remote", "_timeout")

    _remote: Remote
    _invoke: Invoke
    _mode: Mode
    _timeout: float | None

    def __init__(
        self, remote: Remote, invoke: Invoke, mode: Mode = Mode.SYNC, timeout: float | None = CALL_TIMEOUT
    ) -> None:
        object.__setattr__(self, "_remote", remote)
        object.__setattr__(self, "_invoke", invoke)
        object.__setattr__(self, "_mode", mode)
        object.__setattr__(self, "_timeout", check_timeout(timeout))

    @property
    def oneway(self) -> Proxy:
        """A proxy of the same object whose calls return None at once, without a response."""
        return Proxy(self._remote, self._invoke, Mode.ONE_WAY, self._timeout)

    def with_timeout(self, seconds: float | None) -> Proxy:
        """Return a proxy of the same object with another timeout of its calls; 0 or None: until the connection ends."""
        return Proxy(self._remote, self._invoke, self._mode, seconds)

    def __getitem__(self, method: str) -> Callable[..., Any]:
        """Return the remote method with this name."""
        remote, invoke, mode, timeout = self._remote, self._invoke, self._mode, self._timeout

        def call(*args: Any, **kwargs: Any) -> Any:
            if remote.ended:
                raise EndedError(f"{_label(remote)} {remote.ended}", remedy="Create or look up another object.")
            return invoke(Call(remote.target, method, args, kwargs), mode, timeout)

        call.__name__ = call.__qualname__ = method
        return call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # copy, pickle and notebooks read such names, which must not become remote calls
        if name.startswith("_"):
            raise AttributeError(
                f"{_label(self._remote)} has no attribute {name!r}: private names cannot be called remotely"
            )
        return self[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UsageError(
            f"attribute {name} of {_label(self._remote)} cannot be set remotely", remedy="Call a method that sets it."
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
        raise UsageError(
            f"{_label(self._remote)} belongs to its connection and cannot be copied",
            remedy="Look up the object where you need it.",
        )

    def _key(self) -> tuple[int, Target]:
        return id(self._remote.registry), self._remote.target


def remote_of(proxy: Proxy) -> Remote:
    """Return the remote object of ``proxy``."""
    return proxy._remote


def with_invoke(value: Any, invoke: Invoke) -> Any:
    """Return a proxy of the same object whose calls ``invoke`` executes; another value unchanged."""
    return Proxy(value._remote, invoke) if isinstance(value, Proxy) else value


def _label(remote: Remote) -> str:
    target = repr(remote.target) if isinstance(remote.target, str) else str(remote.target)
    return f"remote object {target}"


MAX_OBJECTS: Final = 10_000  # of one connection; counts created, passed and registered objects

LAST_OBJECT_ID: Final = 2**63 - 1


class Origin(Enum):
    """How an object became callable. A peer may end only CREATED and PASSED objects."""

    GLOBAL = "global"
    REGISTERED = "registered"
    CREATED = "created"
    PASSED = "passed"
    SERVICE = "service"  # a service of the endpoint, which does not count as an object


@dataclass(frozen=True, slots=True)
class Exposed:
    """An object and its methods that the peer may call."""

    value: object
    methods: tuple[str, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Factory:
    """A function that creates objects at the request of the peer, and their methods that the peer may call."""

    make: Callable[..., object]
    methods: tuple[str, ...]


class GlobalObjects:
    """The objects, factories and exposed classes that all connections of an endpoint share."""

    def __init__(self) -> None:
        self._objects: dict[str, Exposed] = {}
        self._names: dict[int, str] = {}  # by id() of the object, which _objects keeps alive
        self._factories: dict[str, Factory] = {}
        self._classes: dict[type, tuple[str, ...]] = {}

    def register(self, name: str, value: object, methods: Iterable[str]) -> None:
        """Let every peer call these methods of ``value``. Raises OptionError, and then registers nothing."""
        _check_name(name, "object", self._objects)
        if id(value) in self._names:
            raise OptionError(
                f"the object is already registered as {self._names[id(value)]!r}", remedy="Register it once."
            )
        self._objects[name] = Exposed(value, check_methods(value, methods), Origin.GLOBAL)
        self._names[id(value)] = name

    def unregister(self, name: str) -> bool:
        """End the object with this name. Returns whether it was registered."""
        exposed = self._objects.pop(name, None)
        if exposed is not None:
            del self._names[id(exposed.value)]
        return exposed is not None

    def factory(self, name: str, make: Callable[..., object], methods: Iterable[str]) -> None:
        """Let every peer create objects with ``make`` and call these methods of them. Raises OptionError."""
        _check_name(name, "factory", self._factories)
        names = _check_method_names(methods, name)
        if isinstance(make, type):
            names = check_methods(make, names)
        self._factories[name] = Factory(make, names)

    def expose(self, cls: type, methods: Iterable[str]) -> None:
        """Pass objects of ``cls`` and its subclasses as references, and let the receiver call these methods of them."""
        self._classes[cls] = check_methods(cls, methods)

    def find(self, name: str) -> Exposed | None:
        """Return the object with this name, or None."""
        return self._objects.get(name)

    def find_factory(self, name: str) -> Factory | None:
        """Return the factory with this name, or None."""
        return self._factories.get(name)

    def name_of(self, value: object) -> str | None:
        """Return the name under which this object is registered, or None."""
        return self._names.get(id(value))

    def methods_of(self, cls: type) -> tuple[str, ...] | None:
        """Return the callable methods of an exposed class, or None if ``cls`` is not exposed."""
        return next((self._classes[base] for base in cls.__mro__ if base in self._classes), None)

    def names(self) -> tuple[str, ...]:
        """Return the names of the objects."""
        return tuple(self._objects)

    def factory_names(self) -> tuple[str, ...]:
        """Return the names of the factories."""
        return tuple(self._factories)


class ConnectionObjects:
    """The local objects of one connection, and the proxies of its peer's objects. Thread-safe with a re-entrant lock.

    Threads that encode and decode values use it without holding ``lock``.
    """

    def __init__(
        self,
        shared: GlobalObjects,
        invoke: Invoke,
        lock: AbstractContextManager[object],
        *,
        max_objects: int = MAX_OBJECTS,
    ) -> None:
        self.max_objects = max_objects
        self.shared = shared
        self.lock: Final = lock
        """Held for microseconds: guards the tables."""
        self._invoke = invoke
        self._local: dict[int, Exposed] = {}
        self._numbers: dict[int, int] = {}  # by id() of the object, which _local keeps alive
        self._remotes: WeakValueDictionary[Target, Remote] = WeakValueDictionary()
        self._next_number = 1
        self._services = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._local) - self._services

    def register(
        self, value: object, methods: Iterable[str], number: int | None = None, *, origin: Origin = Origin.REGISTERED
    ) -> int:
        """Let the peer call these methods of ``value``. Returns the object's number.

        For an object that is already registered, returns its number. Raises OptionError if ``number`` is in use, and
        UsageError above ``max_objects``, and then registers nothing.
        """
        with self.lock:
            self._check_open()
            names = check_methods(value, methods)
            known_number = self._numbers.get(id(value))
            if known_number is not None:
                if number not in (None, known_number):
                    raise OptionError(f"the object is already registered as {known_number}", remedy="Register it once.")
                return known_number
            if len(self) >= self.max_objects:
                raise UsageError(
                    f"this connection has {len(self)} remote objects, which is the limit",
                    remedy="Delete objects that are not needed, or raise the limit of objects.",
                )
            chosen = self._free_number() if number is None else self._checked_number(number, origin)
            self._local[chosen] = Exposed(value, names, origin)
            self._numbers[id(value)] = chosen
            self._services += origin is Origin.SERVICE
            return chosen

    def find(self, target: Target) -> Exposed | None:
        """Return the local object that the peer addresses as ``target``, or None. Takes no lock: one look-up."""
        return self.shared.find(target) if isinstance(target, str) else self._local.get(target)

    def proxy(self, target: Target) -> Proxy:
        """Return a proxy of the peer's object with this name or number. Only a call finds out whether it exists."""
        with self.lock:
            self._check_open()
            remote = self._remotes.get(target)
            if remote is None:
                remote = self._remotes[target] = Remote(target, self)
        return Proxy(remote, self._invoke)

    def refer(self, value: object) -> Reference | None:
        """Return the reference that represents ``value``, or None if it is not passed by reference.

        Registers an object of an exposed class. Raises OptionError for a proxy of another connection or of an ended
        object, and UsageError above ``max_objects``.
        """
        if isinstance(value, Proxy):
            remote = remote_of(value)
            if remote.registry is not self or remote.ended:
                reason = remote.ended or "belongs to another connection"
                raise OptionError(f"{value!r} {reason}", remedy="Pass a proxy of this connection.")
            return Reference(mine=False, target=remote.target)
        with self.lock:
            number = self._numbers.get(id(value))
            if number is not None:
                return Reference(mine=True, target=number)
            name = self.shared.name_of(value)
            if name is not None:
                return Reference(mine=True, target=name)
            methods = self.shared.methods_of(type(value))
            if methods is None:
                return None
            return Reference(mine=True, target=self.register(value, methods, origin=Origin.PASSED))

    def resolve(self, reference: Reference) -> object:
        """Return the local object, or the proxy, of the peer's reference. Raises DataFormatError if it is unknown."""
        if reference.mine:
            if isinstance(reference.target, int) and not 0 < reference.target <= LAST_OBJECT_ID:
                raise DataFormatError(
                    f"a reference has the invalid number {reference.target}",
                    remedy="Use the same release of aeron-spark at both ends.",
                )
            return self.proxy(reference.target)
        exposed = self.find(reference.target)
        if exposed is None:
            raise DataFormatError(
                f"a reference names object {reference.target!r}, which does not exist, or was deleted",
                remedy="Pass only objects that are not deleted.",
            )
        return exposed.value

    def end(self, value: object) -> int | None:
        """End a local object. Returns its number, or None if it was not registered."""
        with self.lock:
            number = self._numbers.pop(id(value), None)
            if number is not None:
                del self._local[number]
            return number

    def end_by_number(self, number: int) -> Exposed | None:
        """End the local object with this number, and return it."""
        with self.lock:
            exposed = self._local.get(number)
            if exposed is not None:
                self.end(exposed.value)
            return exposed

    def end_proxies(self, target: Target) -> None:
        """Note that the peer's object has ended. Later calls of its proxies raise EndedError."""
        with self.lock:
            remote = self._remotes.pop(target, None)
        if remote is not None:
            remote.ended = "was deleted"

    def close(self) -> None:
        """Remove every object and end every proxy. Later registrations raise EndedError."""
        with self.lock:
            self._closed = True
            self._local.clear()
            self._numbers.clear()
            self._services = 0
            for remote in list(self._remotes.values()):
                remote.ended = remote.ended or "was lost with its connection"
            self._remotes.clear()

    def _free_number(self) -> int:
        while self._next_number in self._local:
            self._next_number += 1
        self._next_number += 1
        return self._next_number - 1

    def _checked_number(self, number: int, origin: Origin) -> int:
        last = LAST_OBJECT_ID if origin is Origin.SERVICE else FIRST_SERVICE - 1
        if type(number) is not int or not 0 < number <= last or number in self._local:
            reason = "is in use" if number in self._local else "is not from 1 to 2^62 - 1"
            raise OptionError(
                f"the number {number!r} of a remote object {reason}", remedy="Omit it, or choose another number."
            )
        return number

    def _check_open(self) -> None:
        if self._closed:
            raise EndedError("the connection of the remote objects has ended", remedy="Connect again.")


def check_methods(value: object, methods: Iterable[str]) -> tuple[str, ...]:
    """Return ``methods`` as a tuple. Raises OptionError unless all are public methods of ``value``, object or class."""
    owner = value.__name__ if isinstance(value, type) else type(value).__name__
    names = _check_method_names(methods, owner)
    for name in names:
        if not callable(getattr(value, name, None)):
            public = [
                known for known in dir(value) if not known.startswith("_") and callable(getattr(value, known, None))
            ]
            matches = difflib.get_close_matches(name, public, n=1)
            raise OptionError(
                f"{owner} has no method {name!r}",
                remedy=f"Did you mean {matches[0]!r}?" if matches else f"Choose from: {', '.join(public) or 'none'}.",
            )
    return names


def _check_method_names(methods: Iterable[str], owner: str) -> tuple[str, ...]:
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    if not names:
        raise OptionError(
            f"no methods of {owner} are listed", remedy="List the methods that the peer may call: methods=['...']."
        )
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise OptionError(
                f"{name!r} of {owner} is not the name of a public method",
                remedy="Choose a name that does not begin with an underscore.",
            )
    return names


def _check_name(name: str, kind: str, used: Iterable[str]) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise OptionError(
            f"invalid name {name!r:.80} of a remote {kind}", remedy=f"Use 1 to {MAX_NAME_CHARACTERS} characters."
        )
    if name in used:
        raise OptionError(f"a remote {kind} {name!r} is already registered", remedy="Choose another name.")
