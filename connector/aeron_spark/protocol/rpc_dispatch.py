"""The services that a peer can call. One of them has the objects and factories of the program.

The event loop looks up what a call needs, without decoding its arguments. A worker decodes them and runs the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aeron_spark.errors import (
    ERROR_CLASSES,
    REFUSALS,
    AeronSparkError,
    OptionError,
    RefusedError,
    code_of,
    encode_error,
)
from aeron_spark.protocol.message_types import Buffer, Reference, Types
from aeron_spark.protocol.rpc_messages import (
    MAX_CODE_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    ONE_WAY,
    Call,
    Create,
    Failure,
    Target,
    decode_call,
    decode_object,
    text_of,
)
from aeron_spark.protocol.rpc_objects import ConnectionObjects, Factory, Origin, check_methods
from aeron_spark.texts import nearest

MAX_IN_FLIGHT: Final = 65_536  # pending calls of one connection; each needs about 500 bytes
MAX_RUNNING: Final = 1_024
CALL_BYTES: Final = 16 * 1024 * 1024

UNKNOWN_OBJECT: Final = "unknown-object"
UNKNOWN_METHOD: Final = "unknown-method"
UNKNOWN_FACTORY: Final = "unknown-factory"
BAD_ARGUMENTS: Final = "bad-arguments"
BAD_RESULT: Final = "bad-result"
NOT_PERMITTED: Final = "not-permitted"
NOT_YOURS: Final = "not-yours"
GENERIC: Final = "RemoteError"
PROGRAM: Final = 0  # in place of a service's number: the objects of the program
REFUSED: Final = (NOT_PERMITTED, "busy", "limit")  # codes of requests that the endpoint refused by its rules
# Remedies for other invalid requests. No method ran, so the log has no entry.
REMEDIES: Final = {
    UNKNOWN_OBJECT: "Check the name, and that the peer has registered the object.",
    UNKNOWN_METHOD: "Check the name, and that the peer has listed the method.",
    UNKNOWN_FACTORY: "Check the name, and that the peer has registered the factory.",
    BAD_ARGUMENTS: "Pass arguments that the method accepts, and register the same message types at both ends.",
    BAD_RESULT: "Register the class of the result as a message type at the peer.",
    NOT_PERMITTED: "Ask the server's operator to grant the call to your key.",
    NOT_YOURS: "Delete the object at the endpoint that registered it.",
}

_BUILT_IN_CODES: Final[tuple[type[Exception], ...]] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ConnectionError,
    EOFError,
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IndexError,
    IsADirectoryError,
    KeyError,
    LookupError,
    MemoryError,
    NameError,
    NotADirectoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    PermissionError,
    RecursionError,
    RuntimeError,
    StopIteration,
    TimeoutError,
    TypeError,
    UnicodeError,
    ValueError,
    ZeroDivisionError,
)


class ErrorCodes:
    """Converts exceptions to failures: the code of the nearest listed class, and the exception's text."""

    def __init__(self) -> None:
        self._codes: dict[type, str] = {cls: cls.__name__ for cls in _BUILT_IN_CODES}

    def register(self, cls: type[Exception], code: str = "") -> None:
        """Use ``code`` for exceptions of ``cls``; its default is the name of the class. Raises OptionError."""
        if not isinstance(cls, type) or not issubclass(cls, Exception) or len(code) > MAX_CODE_CHARACTERS:
            raise OptionError(f"cannot register {cls!r} with the error code {code!r:.120}", remedy=_REGISTER_REMEDY)
        self._codes[cls] = code or cls.__name__[:MAX_CODE_CHARACTERS]

    def failure_of(self, error: BaseException) -> Failure:
        """Return the failure of this exception.

        Encodes an error of this package completely, unless its class was registered.
        """
        for cls in type(error).__mro__:
            if cls in self._codes:
                code = self._codes[cls]
                return Failure(code, text_of(error) or code)
            if isinstance(error, AeronSparkError) and cls in ERROR_CLASSES.values():
                return Failure(code_of(error), encode_error(error, max_characters=MAX_TEXT_CHARACTERS).decode())
        return Failure(GENERIC, text_of(error) or GENERIC)


_REGISTER_REMEDY: Final = f"Pass a subclass of Exception, and a code of at most {MAX_CODE_CHARACTERS} characters."


@dataclass(slots=True, eq=False)
class PeerCall:
    """A call of the peer that waits for a worker or runs. ``call_id`` 0: one-way, the peer expects no response.

    ``found`` is what the service has found for it, and ``size`` its part of the bytes of unfinished calls. ``what``
    describes it in the log. A service with typed requests sets ``request`` when it has decoded one. ``arrived_at`` is
    in monotonic seconds.
    """

    call_id: int
    service: Service
    number: int  # of the endpoint's own service that is called; PROGRAM for an object of the program
    payload: Buffer
    head: Call | Create
    found: Any
    size: int
    arrived_at: float
    what: str
    request: Any = None

    @property
    def is_one_way(self) -> bool:
        """Whether the caller expects no response."""
        return self.call_id == ONE_WAY


class Service(Protocol):
    """Runs the calls of one target."""

    def look_up(self, head: Call | Create) -> Any | Failure:
        """Return what the call needs to run, or why it does not run. Decodes no argument.

        Checks the permission first: a peer without it does not learn what exists.
        """

    def run(self, call: PeerCall) -> Any:
        """Decode the arguments and run the call, on a worker; return its result, a Failure if they are invalid."""

    def encode(self, call: PeerCall, result: Any, error: AeronSparkError | None) -> Any | Failure:
        """Return the value of the response to a call that ended with this result or error, or its failure."""


Permit = Callable[[Target, str], bool]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of each peer's unfinished calls: their number, and their encoded size in bytes.

    A response has at most ``response_bytes``; 0 is no limit.
    """

    running: int = MAX_RUNNING
    bytes: int = CALL_BYTES
    response_bytes: int = 0


class ObjectService:
    """Runs the calls of the objects and factories that the peer of a connection may use. Thread-safe.

    ``permit`` is called for each call with the target and the method, and for each creation with the factory and
    "create", also if they do not exist.
    """

    def __init__(self, types: Types, objects: ConnectionObjects, errors: ErrorCodes, permit: Permit) -> None:
        self._types = types
        self._objects = objects
        self._errors = errors
        self._permit = permit

    def look_up(self, head: Call | Create) -> Callable[..., Any] | Factory | Failure:
        """Return the method to call, or the factory."""
        return self._find_factory(head.factory) if isinstance(head, Create) else self._find_method(head)

    def run(self, call: PeerCall) -> Any:
        """Decode the arguments and call the method or factory. It is user code, so never call this on the event loop.

        Raises its exceptions.
        """
        try:
            if isinstance(call.head, Call):
                called = decode_call(call.payload, self._types, self._objects)
                function, args, kwargs = call.found, called.args, called.kwargs
            else:
                created = decode_object(call.payload, self._types, self._objects)
                assert isinstance(created, Create)  # checked by decode_creation_head
                function, args, kwargs = call.found.make, created.args, created.kwargs
        except AeronSparkError as error:
            return Failure(BAD_ARGUMENTS, text_of(error))
        return function(*args, **(kwargs or {}))

    def encode(self, call: PeerCall, result: Any, error: AeronSparkError | None) -> Any | Failure:
        """Return the result, the reference to a created object, or the failure."""
        if error is not None:
            return self._errors.failure_of(error)
        if isinstance(call.head, Call) or isinstance(result, Failure):
            return result
        try:
            methods = check_methods(result, call.found.methods)
            number = self._objects.register(result, methods, origin=Origin.CREATED)
        except AeronSparkError as invalid:
            return Failure(BAD_RESULT, text_of(invalid))
        # always a reference: an object whose class is also a message type would arrive as a copy
        return Reference(mine=True, target=number)

    def delete(self, number: int) -> Failure | None:
        """End an object at the request of the peer; return why not, or None."""
        with self._objects.lock:
            exposed = self._objects.find(number)
            if exposed is None:
                return unknown_failure(UNKNOWN_OBJECT, "object", number, ())
            if exposed.origin not in (Origin.CREATED, Origin.PASSED):
                return Failure(NOT_YOURS, f"object {number} can be deleted only by the endpoint that registered it")
            self._objects.end_by_number(number)
            return None

    def _find_factory(self, name: str) -> Factory | Failure:
        if not self._permit(name, "create"):
            return Failure(NOT_PERMITTED, f"you are not permitted to create objects with {name!r}")
        factory = self._objects.shared.find_factory(name)
        if factory is not None:
            return factory
        known = [one for one in self._objects.shared.factory_names() if self._permit(one, "create")]
        return unknown_failure(UNKNOWN_FACTORY, "factory", name, known)

    def _find_method(self, head: Call) -> Callable[..., Any] | Failure:
        target, method = head.target, head.method
        if not self._permit(target, method):
            return Failure(NOT_PERMITTED, f"you are not permitted to call {method}() of {target!r}")
        exposed = self._objects.find(target)
        if exposed is None:
            return unknown_failure(UNKNOWN_OBJECT, "object", target, self._permitted_names())
        if method not in exposed.methods:
            known = [one for one in exposed.methods if self._permit(target, one)]
            return unknown_failure(UNKNOWN_METHOD, "method", method, known)
        function: Callable[..., Any] | None = getattr(exposed.value, method, None)
        return function or unknown_failure(UNKNOWN_METHOD, "method", method, ())

    def _permitted_names(self) -> list[str]:
        """Return the names of the shared objects of which the peer may call a method."""
        shared = self._objects.shared
        found = ((name, shared.find(name)) for name in shared.names())
        return [name for name, one in found if one and any(self._permit(name, method) for method in one.methods)]


def memory_refusal(size: int) -> RefusedError:
    """Return the error for a request of ``size`` bytes when the endpoint's memory for connections is full."""
    return busy_error(f"the memory for all connections is full (memoryLimit), and {size} more bytes are needed")


def busy_error(what: str) -> RefusedError:
    """Return the error for a request that may be sent again soon."""
    return RefusedError(what, remedy=REFUSALS["busy"].remedy, reason="busy")


def unknown_failure(code: str, kind: str, name: Target, known: Iterable[str]) -> Failure:
    """Return the failure of a call whose target does not exist; suggests the nearest of the known names."""
    near = nearest(name, known) if isinstance(name, str) else ""
    suggestion = f"; did you mean {near!r}?" if near else ""
    return Failure(code, f"unknown remote {kind} {name!r}{suggestion}")
