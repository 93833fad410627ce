"""The answering half of remote calls: which object and method a request means, and what is said of the outcome.

A request is counted and looked up with ``call`` or ``object_request``, which leave its arguments undecoded. A method
to run comes back as an ``Invocation``, whose ``run`` decodes the arguments; it needs no lock and never raises for what
the program's method does. ``finish`` turns its outcome into the answer. Every request that wants an answer gets one,
whatever is wrong with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.errors import ERROR_CLASSES, AeronSparkError, OptionError, code_of, encode_error
from aeron_spark.protocol.message_types import Buffer, Reference, References, Types
from aeron_spark.protocol.rpc_messages import (
    MAX_CODE_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    ONE_WAY,
    Call,
    Create,
    Delete,
    Failure,
    ObjectEnded,
    Target,
    call_id_of,
    decode_call,
    decode_call_head,
    decode_creation_head,
    decode_object,
    encode_failure,
    encode_value,
    named,
    text_of,
)
from aeron_spark.protocol.rpc_objects import ConnectionObjects, Factory, Origin, checked_methods
from aeron_spark.protocol.session import RECORD_COST

MAX_RUNNING: Final = 65_536  # calls of one peer that were taken and are not answered; as many as a caller may have
MAX_RUNNING_BYTES: Final = 64 * 1024 * 1024  # of these calls, as received; as much as transfers may keep in memory

UNKNOWN_OBJECT: Final = "unknown-object"
UNKNOWN_METHOD: Final = "unknown-method"
UNKNOWN_FACTORY: Final = "unknown-factory"
BAD_ARGUMENTS: Final = "bad-arguments"
BAD_RESULT: Final = "bad-result"
NOT_PERMITTED: Final = "not-permitted"
NOT_YOURS: Final = "not-yours"
BUSY: Final = "busy"
GENERIC: Final = "RemoteError"
# What a caller can do about a request that was refused. No method ran, so that the log has nothing of it.
REMEDIES: Final = {
    UNKNOWN_OBJECT: "Check the name, and that the other side has registered the object",
    UNKNOWN_METHOD: "Check the name, and that the other side has listed the method",
    UNKNOWN_FACTORY: "Check the name, and that the other side has registered the factory",
    BAD_ARGUMENTS: "Send what the method takes, and register the same message types on both sides",
    BAD_RESULT: "Have the method return what can be sent: register its class as a message type there",
    NOT_PERMITTED: "Ask the server's operator to permit the call to your key",
    NOT_YOURS: "Leave it to the side that registered the object",
    BUSY: "Call again when some of your calls have ended",
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
    """What callers are told of an exception: the name of the nearest listed class, and the exception's text."""

    def __init__(self) -> None:
        self._codes: dict[type, str] = {cls: cls.__name__ for cls in _BUILT_IN_CODES}

    def register(self, cls: type[Exception], code: str = "") -> None:
        """Tell callers of exceptions of ``cls`` by this code, its name unless given. Raises OptionError."""
        if not isinstance(cls, type) or not issubclass(cls, Exception) or len(code) > MAX_CODE_CHARACTERS:
            raise OptionError(
                f"{cls!r} with the code {code!r:.120} is no exception class with a short code", remedy=_SHORT
            )
        self._codes[cls] = code or cls.__name__[:MAX_CODE_CHARACTERS]

    def failure_of(self, error: BaseException) -> Failure:
        """Return the failure that tells a caller of this exception.

        An error of this package whose class was not registered is encoded, so that the caller gets it whole.
        """
        for cls in type(error).__mro__:
            if cls in self._codes:
                code = self._codes[cls]
                return Failure(code, text_of(error) or code)
            if isinstance(error, AeronSparkError) and cls in ERROR_CLASSES.values():
                return Failure(code_of(error), encode_error(error, max_characters=MAX_TEXT_CHARACTERS).decode())
        return Failure(GENERIC, text_of(error) or GENERIC)


_SHORT: Final = f"Give a subclass of Exception, and a code of at most {MAX_CODE_CHARACTERS} characters"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method returned, or raised; or why it was not called."""

    value: object = None
    error: BaseException | None = None
    refusal: Failure | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    """A method, or a factory, to run on a request. ``call_id`` 0: nobody waits for the outcome.

    ``decode`` reads the request with its arguments, and raises an error of this package for one that cannot be read.
    ``size`` is what it counts for among the bytes of running calls.
    """

    call_id: int
    what: str  # it is, for the log
    function: Callable[..., Any]
    decode: Callable[[], Call | Create]
    size: int
    factory: Factory | None = None

    @property
    def one_way(self) -> bool:
        """Whether nobody waits for the outcome."""
        return self.call_id == ONE_WAY

    def run(self) -> Outcome:
        """Decode the arguments and run it; that is user code, and not for the polling thread.

        Exceptions are part of the outcome, ``SystemExit`` too: a method does not end its server.
        """
        try:
            request = self.decode()
        except AeronSparkError as error:
            return Outcome(refusal=Failure(BAD_ARGUMENTS, text_of(error)))
        try:
            return Outcome(self.function(*request.args, **(request.kwargs or {})))
        except (Exception, SystemExit) as error:
            return Outcome(error=error)


Permit = Callable[[Target, str], bool]


def everything(target: Target, method: str) -> bool:
    """Permit every listed method of every object."""
    return True


class Dispatcher:
    """What one connection's peer may call. Not for several threads at once, but for ``Invocation.run``.

    ``permit`` is asked for each call with the target and the method, for each creation with the factory and "create".
    ``failed_one_way`` counts one-way calls that could not be begun: their caller hears nothing of it. ``references``
    are those of ``objects`` for a thread that runs an invocation, which may need a lock for them.
    """

    def __init__(
        self,
        types: Types,
        objects: ConnectionObjects,
        errors: ErrorCodes,
        *,
        references: References | None = None,
        permit: Permit = everything,
        max_running: int = MAX_RUNNING,
    ) -> None:
        self.running = 0
        self.running_bytes = 0  # of the records of these calls, each with its RECORD_COST
        self.failed_one_way = 0
        self.max_running = max_running
        self._types = types
        self._objects = objects
        self._references = references or objects
        self._errors = errors
        self._permit = permit

    @property
    def full(self) -> bool:
        """Whether as many calls run as may. One-way calls cannot be refused: leave them unread meanwhile."""
        return self.running >= self.max_running

    def call(self, payload: Buffer) -> Invocation | bytes | None:
        """Take a CALL record: return what to run, or the answer that refuses it, or None for a one-way call refused.

        Raises DataFormatError only for a record without a call id.
        """
        call_id = call_id_of(payload)
        try:
            target, method = decode_call_head(payload)
        except AeronSparkError as error:
            return self._refused(call_id, Failure(BAD_ARGUMENTS, text_of(error)))
        function = self._function_of(target, method)
        if isinstance(function, Failure):
            return self._refused(call_id, function)
        return self._started(
            call_id, named(Call(target, method)), function, payload,
            lambda: decode_call(payload, self._types, self._references),
        )  # fmt: skip

    def object_request(self, payload: Buffer) -> Invocation | bytes | None:
        """Take an OBJECT record: return what to run, or the answer, or None if it wants none.

        Raises DataFormatError only for a record without a call id.
        """
        call_id = call_id_of(payload)
        try:
            name = decode_creation_head(payload)
            request = None if name is not None else decode_object(payload, self._types, self._objects)
        except AeronSparkError as error:
            return self._refused(call_id, Failure(BAD_ARGUMENTS, text_of(error)))
        match request:
            case ObjectEnded():
                self._objects.end_proxies(request.object_id)
                return None
            case Delete():
                failure = self._deleted(request.object_id)
                return self._refused(call_id, failure) if failure else self._answer(call_id, None)
        return self._create(call_id, str(name), payload)

    def _create(self, call_id: int, name: str, payload: Buffer) -> Invocation | bytes | None:
        factory = self._objects.shared.find_factory(name)
        if factory is None:
            return self._refused(
                call_id, _unknown(UNKNOWN_FACTORY, "factory", name, self._objects.shared.factory_names())
            )
        if not self._permit(name, "create"):
            return self._refused(call_id, Failure(NOT_PERMITTED, f"{name!r} may not create for you"))

        def decode() -> Create:
            request = decode_object(payload, self._types, self._references)
            assert isinstance(request, Create)  # its head says so
            return request

        return self._started(call_id, named(Create(name)), factory.make, payload, decode, factory)

    def finish(self, invocation: Invocation, outcome: Outcome) -> bytes | None:
        """Return the answer to send, or None for a one-way call. Call it once for each ``Invocation``."""
        self.running -= 1
        self.running_bytes -= invocation.size
        if outcome.refusal is not None:
            return self._refused(invocation.call_id, outcome.refusal)
        if invocation.one_way:
            return None
        if outcome.error is not None:
            return encode_failure(invocation.call_id, self._errors.failure_of(outcome.error), self._types)
        if invocation.factory is not None:
            try:
                methods = checked_methods(outcome.value, invocation.factory.methods)
                number = self._objects.register(outcome.value, methods, origin=Origin.CREATED)
            except AeronSparkError as error:
                return self._refused(invocation.call_id, Failure(BAD_RESULT, text_of(error)))
            # by reference whatever its class: one that is a message type, too, would arrive as a copy
            return self._answer(invocation.call_id, Reference(mine=True, target=number))
        return self._answer(invocation.call_id, outcome.value)

    def _started(
        self, call_id: int, what: str, function: Callable[..., Any], payload: Buffer,
        decode: Callable[[], Call | Create], factory: Factory | None = None,
    ) -> Invocation | bytes | None:  # fmt: skip
        if self.full and call_id != ONE_WAY:
            return self._refused(call_id, Failure(BUSY, f"{self.running} of your calls are running, as many as may"))
        size = len(payload) + RECORD_COST
        self.running += 1
        self.running_bytes += size
        return Invocation(call_id, what, function, decode, size, factory)

    def _function_of(self, target: Target, method: str) -> Callable[..., Any] | Failure:
        exposed = self._objects.find(target)
        if exposed is None:
            known = self._objects.shared.names() if isinstance(target, str) else ()
            return _unknown(UNKNOWN_OBJECT, "object", target, known)
        if method not in exposed.methods:
            return _unknown(UNKNOWN_METHOD, "method", method, exposed.methods)
        if not self._permit(target, method):
            return Failure(NOT_PERMITTED, f"you may not call {method}() of {target!r}")
        function: Callable[..., Any] | None = getattr(exposed.value, method, None)
        return function or _unknown(UNKNOWN_METHOD, "method", method, ())

    def _deleted(self, number: int) -> Failure | None:
        exposed = self._objects.find(number)
        if exposed is None:
            return _unknown(UNKNOWN_OBJECT, "object", number, ())
        if exposed.origin not in (Origin.CREATED, Origin.PASSED):
            return Failure(NOT_YOURS, f"object {number} was registered here, and is ended here")
        self._objects.end_by_number(number)
        return None

    def _answer(self, call_id: int, value: object) -> bytes | None:
        if call_id == ONE_WAY:
            return None
        try:
            return encode_value(call_id, value, self._types, self._objects)
        except AeronSparkError as error:
            return self._refused(call_id, Failure(BAD_RESULT, text_of(error)))

    def _refused(self, call_id: int, failure: Failure) -> bytes | None:
        if call_id == ONE_WAY:
            self.failed_one_way += 1
            return None
        return encode_failure(call_id, failure, self._types)


def _unknown(code: str, what: str, name: Target, known: Iterable[str]) -> Failure:
    close = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return Failure(code, f"there is no remote {what} {name!r}{meant}")
