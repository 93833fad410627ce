"""Remote objects as a program uses them: ``remote("catalog").describe("flights")``.

proxy.describe("flights")               waits for the result
proxy.with_timeout(0.5).describe(...)   waits half a second; 0 or None: as long as the connection lives
proxy.oneway.describe(...)              returns None at once; nothing is answered, not even an error
proxy["oneway"](...)                    a remote method of any name, for instance one of these
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn, Protocol
from weakref import WeakValueDictionary

from aeron_spark.errors import DataFormatError, EndedError, OptionError, UsageError
from aeron_spark.protocol.message_types import Reference
from aeron_spark.protocol.rpc_messages import MAX_NAME_CHARACTERS, Target, check_timeout

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


MAX_OBJECTS: Final = 10_000  # of one connection: what its peer has had created and what was passed to it

LAST_OBJECT_ID: Final = 2**63 - 1

FIRST_SERVICE: Final = 2**62  # from here on the endpoint's own, which judge for themselves who may call them


class Origin(Enum):
    """How an object became callable. A peer may end what it had created or was passed, and nothing else."""

    GLOBAL = "global"
    REGISTERED = "registered"
    CREATED = "created"
    PASSED = "passed"
    SERVICE = "service"  # the endpoint's own, on every connection: no object that anybody counts


@dataclass(frozen=True, slots=True)
class Exposed:
    """An object and the methods that may be called remotely."""

    value: object
    methods: tuple[str, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Factory:
    """What makes objects on request, and the methods of these."""

    make: Callable[..., object]
    methods: tuple[str, ...]


class GlobalObjects:
    """The objects, factories and classes that all connections of a server or client share."""

    def __init__(self) -> None:
        self._objects: dict[str, Exposed] = {}
        self._names: dict[int, str] = {}  # by id() of the object, which is alive as long as it stands here
        self._factories: dict[str, Factory] = {}
        self._classes: dict[type, tuple[str, ...]] = {}

    def register(self, name: str, value: object, methods: Iterable[str]) -> None:
        """Let every peer call these methods of ``value``. Raises OptionError, and changes nothing."""
        _check_name(name, "object", self._objects)
        if id(value) in self._names:
            raise OptionError(
                f"this object is registered already, as {self._names[id(value)]!r}", remedy="Give it one name"
            )
        self._objects[name] = Exposed(value, checked_methods(value, methods), Origin.GLOBAL)
        self._names[id(value)] = name

    def unregister(self, name: str) -> bool:
        """End the object of this name; return whether there was one."""
        exposed = self._objects.pop(name, None)
        if exposed is not None:
            del self._names[id(exposed.value)]
        return exposed is not None

    def factory(self, name: str, make: Callable[..., object], methods: Iterable[str]) -> None:
        """Let every peer have objects made by ``make`` and call these methods of them. Raises OptionError."""
        _check_name(name, "factory", self._factories)
        names = _listed(methods, name)
        if isinstance(make, type):
            names = checked_methods(make, names)
        self._factories[name] = Factory(make, names)

    def expose(self, cls: type, methods: Iterable[str]) -> None:
        """Send objects of ``cls`` and its subclasses as references, and let the receiver call these methods of them."""
        self._classes[cls] = checked_methods(cls, methods)

    def find(self, name: str) -> Exposed | None:
        """The object of this name."""
        return self._objects.get(name)

    def find_factory(self, name: str) -> Factory | None:
        """The factory of this name."""
        return self._factories.get(name)

    def name_of(self, value: object) -> str | None:
        """The name of this very object."""
        return self._names.get(id(value))

    def methods_of(self, cls: type) -> tuple[str, ...] | None:
        """The methods with which objects of ``cls`` are passed as references, or None."""
        return next((self._classes[one] for one in cls.__mro__ if one in self._classes), None)

    def names(self) -> tuple[str, ...]:
        """The names of the objects."""
        return tuple(self._objects)

    def factory_names(self) -> tuple[str, ...]:
        """The names of the factories."""
        return tuple(self._factories)


class ConnectionObjects:
    """The objects of one connection: those at home, and proxies of those at the other side. Not for several threads."""

    def __init__(self, shared: GlobalObjects, invoke: Invoke, *, max_objects: int = MAX_OBJECTS) -> None:
        self.max_objects = max_objects
        self.shared = shared
        self._invoke = invoke
        self._home: dict[int, Exposed] = {}
        self._numbers: dict[int, int] = {}  # by id() of the object, which is alive as long as it stands here
        self._remotes: WeakValueDictionary[Target, Remote] = WeakValueDictionary()
        self._next_number = 1
        self._services = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._home) - self._services

    def register(
        self, value: object, methods: Iterable[str], number: int | None = None, *, origin: Origin = Origin.REGISTERED
    ) -> int:
        """Let the peer call these methods of ``value``; return the number under which it does.

        The same object is not registered twice: its number is returned again. Raises OptionError for a number that is
        taken and UsageError above ``max_objects``; then nothing has changed.
        """
        self._check_open()
        names = checked_methods(value, methods)
        known = self._numbers.get(id(value))
        if known is not None:
            if number not in (None, known):
                raise OptionError(f"this object is registered already, as {known}", remedy="Give it one number")
            return known
        if len(self) >= self.max_objects:
            raise UsageError(
                f"this connection has {len(self)} remote objects, as many as it may",
                remedy="Delete some, or raise the limit of objects",
            )
        chosen = self._free_number() if number is None else self._checked_number(number, origin)
        self._home[chosen] = Exposed(value, names, origin)
        self._numbers[id(value)] = chosen
        self._services += origin is Origin.SERVICE
        return chosen

    def find(self, target: Target) -> Exposed | None:
        """The object at home that the peer calls ``target``."""
        return self.shared.find(target) if isinstance(target, str) else self._home.get(target)

    def proxy(self, target: Target, mode: Mode = Mode.SYNC, timeout: float | None = CALL_TIMEOUT) -> Proxy:
        """A proxy of what the peer has under this name or number. Nobody is asked: a wrong one fails when called."""
        self._check_open()
        remote = self._remotes.get(target)
        if remote is None:
            remote = self._remotes[target] = Remote(target, self._invoke, self)
        return Proxy(remote, mode, timeout)

    def refer(self, value: object) -> Reference | None:
        """Return how ``value`` is written if it is a remote object, or may be passed as one, else None.

        Raises OptionError for a proxy of another connection or of an object that ended, UsageError above
        ``max_objects``.
        """
        if isinstance(value, Proxy):
            remote = remote_of(value)
            if remote.home is not self or remote.ended:
                why = remote.ended or "belongs to another connection"
                raise OptionError(f"{value!r} {why}", remedy="Pass a proxy of this connection, or what it returns")
            return Reference(mine=False, target=remote.target)
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
        """The object at home, or a proxy, that the peer's reference means. Raises DataFormatError if there is none."""
        if reference.mine:
            if isinstance(reference.target, int) and not 0 < reference.target <= LAST_OBJECT_ID:
                raise DataFormatError(
                    f"a reference has the number {reference.target}", remedy="Use the same release on both sides"
                )
            return self.proxy(reference.target)
        exposed = self.find(reference.target)
        if exposed is None:
            raise DataFormatError(
                f"a reference means object {reference.target!r}, which is not here (any more)",
                remedy="Do not pass what was deleted",
            )
        return exposed.value

    def end(self, value: object) -> int | None:
        """End an object at home; return its number, for the news to the peer, or None if it was none."""
        number = self._numbers.pop(id(value), None)
        if number is not None:
            del self._home[number]
        return number

    def end_by_number(self, number: int) -> Exposed | None:
        """End the object of this number at home, and return it."""
        exposed = self._home.get(number)
        if exposed is not None:
            self.end(exposed.value)
        return exposed

    def end_proxies(self, target: Target, why: str = "was deleted") -> None:
        """Note that the peer's object ended: its proxies refuse calls from now on."""
        remote = self._remotes.pop(target, None)
        if remote is not None:
            remote.ended = why

    def close(self) -> None:
        """Forget every object and end every proxy. Nothing can be registered or resolved afterwards."""
        self._closed = True
        self._home.clear()
        self._numbers.clear()
        self._services = 0
        for remote in list(self._remotes.values()):
            remote.ended = remote.ended or "was lost with its connection"
        self._remotes.clear()

    def _free_number(self) -> int:
        while self._next_number in self._home:
            self._next_number += 1
        self._next_number += 1
        return self._next_number - 1

    def _checked_number(self, number: int, origin: Origin) -> int:
        last = LAST_OBJECT_ID if origin is Origin.SERVICE else FIRST_SERVICE - 1
        if type(number) is not int or not 0 < number <= last or number in self._home:
            taken = "is taken" if number in self._home else "is not from 1 to 2^62 - 1"
            raise OptionError(
                f"the number {number!r} of a remote object {taken}", remedy="Leave it out, or choose another"
            )
        return number

    def _check_open(self) -> None:
        if self._closed:
            raise EndedError("the connection of these remote objects has ended", remedy="Connect again")


def checked_methods(value: object, methods: Iterable[str]) -> tuple[str, ...]:
    """Return the listed names if each is a public method of ``value`` (an object or a class). Raises OptionError."""
    owner = value.__name__ if isinstance(value, type) else type(value).__name__
    names = _listed(methods, owner)
    for name in names:
        if not callable(getattr(value, name, None)):
            public = [
                known for known in dir(value) if not known.startswith("_") and callable(getattr(value, known, None))
            ]
            close = difflib.get_close_matches(name, public, n=1)
            raise OptionError(
                f"{owner} has no method {name!r}",
                remedy=f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(public) or 'none'}",
            )
    return names


def _listed(methods: Iterable[str], owner: str) -> tuple[str, ...]:
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    if not names:
        raise OptionError(f"no methods of {owner} are listed", remedy="List those that may be called: methods=['...']")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise OptionError(
                f"{name!r} of {owner} is not the name of a public method",
                remedy="Names with an underscore in front are never called remotely; give the method another one",
            )
    return names


def _check_name(name: str, what: str, taken: Iterable[str]) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise OptionError(f"the name {name!r:.80} of a remote {what} is not usable", remedy="Use 1 to 255 characters")
    if name in taken:
        raise OptionError(f"a remote {what} {name!r} is registered already", remedy="Choose another name")
