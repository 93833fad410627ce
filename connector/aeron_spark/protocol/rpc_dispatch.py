"""The callee's half of remote calls: finds the method of a request, runs it, and encodes the response.

``dispatch_call`` and ``dispatch_object`` count a request and find its method, without decoding the arguments. They
return an ``Invocation``. Its ``run`` decodes the arguments and calls the method; it needs no lock, and returns the
method's exception as a value. ``finish`` encodes the response. Every request that expects a response gets one, also an
invalid request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.errors import (
    ERROR_CLASSES,
    REFUSALS,
    AeronSparkError,
    OptionError,
    RefusedError,
    code_of,
    encode_error,
)
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
    describe_request,
    encode_failure,
    encode_value,
    text_of,
)
from aeron_spark.protocol.rpc_objects import ConnectionObjects, Factory, Origin, check_methods
from aeron_spark.protocol.session import RECORD_COST
from aeron_spark.text_safety import nearest

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a method, or its exception, or the failure if it was not called."""

    value: object = None
    error: BaseException | None = None
    refusal: Failure | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    """A method or a factory to run for a request. ``call_id`` 0: the request is one-way.

    ``decode`` decodes the request with its arguments, and raises an error of this package if it is invalid. ``size`` is
    its part of ``running_bytes``.
    """

    call_id: int
    description: str  # for the log
    function: Callable[..., Any]
    decode: Callable[[], Call | Create]
    size: int
    factory: Factory | None = None
    target: Target | None = None  # of a call

    @property
    def one_way(self) -> bool:
        """Whether the caller expects no response."""
        return self.call_id == ONE_WAY

    def run(self) -> Outcome:
        """Decode the arguments and call the method. It is user code, so never call this on the event loop.

        The outcome contains exceptions, also ``SystemExit``: a method must not end its server.
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
NO_LOCK: Final = nullcontext()  # for one thread


def permit_all(target: Target, method: str) -> bool:
    """Permit every listed method of every object."""
    return True


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of each peer's unfinished calls: their number, and their encoded size in bytes.

    A response has at most ``response_bytes``; 0 is no limit.
    """

    running: int = MAX_RUNNING
    bytes: int = CALL_BYTES
    response_bytes: int = 0


class Dispatcher:
    """Dispatches the requests of one connection's peer.

        With a lock as ``counting``, calls need no other lock; object requests need that of ``objects``.

        ``permit`` is called for each call with the target and the method, and for each creation with the factory and
        "create", also if they do not exist. ``limits`` may change; calls that wait or run stay. ``failed_one_way``
        counts one-way calls that could not start; their caller gets no response.
        ``is_memory_full`` returns whether the endpoint has no memory for a request of so many bytes. ``hold_response``
    holds memory for a response, by its number and size, and returns whether there is room for it. ``references`` gives
    access to ``objects`` to the threads that run invocations; it may use a lock.
    """

    def __init__(
        self,
        types: Types,
        objects: ConnectionObjects,
        errors: ErrorCodes,
        *,
        references: References | None = None,
        permit: Permit = permit_all,
        limits: Callable[[], CallLimits] = CallLimits,
        is_memory_full: Callable[[int], bool] = lambda _: False,
        hold_response: Callable[[int, int], bool] = lambda *_: True,
        counting: AbstractContextManager[object] = NO_LOCK,
    ) -> None:
        self.running = 0
        self.running_bytes = 0  # of the records of these calls, including RECORD_COST for each
        self.failed_one_way = 0
        self.limits = limits
        self._is_memory_full = is_memory_full
        self._hold_response = hold_response
        self._counting = counting
        self._types = types
        self._objects = objects
        self._references = references or objects
        self._errors = errors
        self._permit = permit

    @property
    def is_full(self) -> bool:
        """Whether the calls reach a limit. One-way calls cannot be refused: the endpoint must not acknowledge them."""
        limits = self.limits()
        return self.running >= limits.running or self.running_bytes >= limits.bytes

    @property
    def is_half_empty(self) -> bool:
        """Whether the calls take less than half of each limit."""
        limits = self.limits()
        return 2 * self.running < limits.running and 2 * self.running_bytes < limits.bytes

    def refusal_of_bytes(self, size: int, announced: int = 0) -> RefusedError | None:
        """Return why a request of ``size`` bytes is refused while ``announced`` other bytes arrive; None: it is not."""
        held, limit = self.running_bytes + announced, self.limits().bytes
        if held + size <= limit:
            return None
        if size > limit:
            return RefusedError(
                f"the call has {size} bytes, and the limit is {limit} (callBytes)",
                remedy="Send less in a call, or send the data as a message or a file.", reason="limit",
            )  # fmt: skip
        return _busy(
            f"your calls that wait or run have {held} bytes, and this one {size}; the limit is {limit} (callBytes)"
        )

    def dispatch_call(self, payload: Buffer) -> Invocation | bytes | None:
        """Return the invocation of a CALL record, or the response that refuses it, or None for a refused one-way call.

        Raises DataFormatError only for a record without a call id.
        """
        call_id = call_id_of(payload)
        try:
            target, method = decode_call_head(payload)
        except AeronSparkError as error:
            return self._encode_refusal(call_id, Failure(BAD_ARGUMENTS, text_of(error)))
        function = self._find_function(target, method)
        if isinstance(function, Failure):
            return self._encode_refusal(call_id, function)
        return self._start(
            call_id, describe_request(Call(target, method)), function, payload,
            lambda: decode_call(payload, self._types, self._references), target=target,
        )  # fmt: skip

    def dispatch_object(self, payload: Buffer) -> Invocation | bytes | None:
        """Return the invocation of an OBJECT record, or the response, or None if the record expects no response.

        Raises DataFormatError only for a record without a call id.
        """
        call_id = call_id_of(payload)
        try:
            name = decode_creation_head(payload)
            request = None if name is not None else decode_object(payload, self._types, self._objects)
        except AeronSparkError as error:
            return self._encode_refusal(call_id, Failure(BAD_ARGUMENTS, text_of(error)))
        match request:
            case ObjectEnded():
                self._objects.end_proxies(request.object_id)
                return None
            case Delete():
                failure = self._delete(request.object_id)
                return self._encode_refusal(call_id, failure) if failure else self._encode_result(call_id, None)
        return self._create(call_id, str(name), payload)

    def _create(self, call_id: int, name: str, payload: Buffer) -> Invocation | bytes | None:
        # before the look-up: a peer without the permission does not learn which factories exist
        if not self._permit(name, "create"):
            failure = Failure(NOT_PERMITTED, f"you are not permitted to create objects with {name!r}")
            return self._encode_refusal(call_id, failure)
        factory = self._objects.shared.find_factory(name)
        if factory is None:
            known = [one for one in self._objects.shared.factory_names() if self._permit(one, "create")]
            return self._encode_refusal(call_id, _unknown_failure(UNKNOWN_FACTORY, "factory", name, known))

        def decode() -> Create:
            request = decode_object(payload, self._types, self._references)
            assert isinstance(request, Create)  # checked by decode_creation_head
            return request

        return self._start(call_id, describe_request(Create(name)), factory.make, payload, decode, factory)

    def finish(self, invocation: Invocation, outcome: Outcome) -> bytes | None:
        """Count an invocation as ended, and return the response to send, or None for a one-way call.

        Either this, or :meth:`abandon`, must be called once for each ``Invocation``.
        """
        self.abandon(invocation)
        return self.respond(invocation, outcome)

    def respond(self, invocation: Invocation, outcome: Outcome) -> bytes | None:
        """Return the response to send, or None for a one-way call. Its memory is held under the invocation's ``id``.

        Needs no lock, except for an invocation of a factory, whose object it registers.
        """
        if outcome.refusal is not None:
            return self._encode_refusal(invocation.call_id, outcome.refusal)
        if invocation.one_way:
            return None
        if outcome.error is not None:
            return encode_failure(invocation.call_id, self._errors.failure_of(outcome.error), self._types)
        if invocation.factory is not None:
            try:
                methods = check_methods(outcome.value, invocation.factory.methods)
                number = self._objects.register(outcome.value, methods, origin=Origin.CREATED)
            except AeronSparkError as error:
                return self._encode_refusal(invocation.call_id, Failure(BAD_RESULT, text_of(error)))
            # always a reference: an object whose class is also a message type would arrive as a copy
            return self._encode_result(invocation.call_id, Reference(mine=True, target=number))
        return self._encode_result(invocation.call_id, outcome.value, id(invocation))

    def abandon(self, invocation: Invocation) -> None:
        """Count an invocation as ended without a response."""
        with self._counting:
            self.running -= 1
            self.running_bytes -= invocation.size

    def _start(
        self, call_id: int, description: str, function: Callable[..., Any], payload: Buffer,
        decode: Callable[[], Call | Create], factory: Factory | None = None,
        target: Target | None = None,
    ) -> Invocation | bytes | None:  # fmt: skip
        size = len(payload) + RECORD_COST
        refusal = self._refusal(size)
        if refusal is not None and call_id != ONE_WAY:
            return self._encode_refusal(call_id, Failure(refusal.reason, refusal.what))
        with self._counting:
            self.running += 1
            self.running_bytes += size
        return Invocation(call_id, description, function, decode, size, factory, target)

    def _refusal(self, size: int) -> RefusedError | None:
        if self.running >= self.limits().running:
            return _busy(f"{self.running} of your calls wait or run, which is the limit (maxRunning)")
        return memory_refusal(size) if self._is_memory_full(size) else self.refusal_of_bytes(size)

    def _find_function(self, target: Target, method: str) -> Callable[..., Any] | Failure:
        # before the look-up: a peer without the permission does not learn which objects and methods exist
        if not self._permit(target, method):
            return Failure(NOT_PERMITTED, f"you are not permitted to call {method}() of {target!r}")
        exposed = self._objects.find(target)
        if exposed is None:
            return _unknown_failure(UNKNOWN_OBJECT, "object", target, self._permitted_names())
        if method not in exposed.methods:
            known = [one for one in exposed.methods if self._permit(target, one)]
            return _unknown_failure(UNKNOWN_METHOD, "method", method, known)
        function: Callable[..., Any] | None = getattr(exposed.value, method, None)
        return function or _unknown_failure(UNKNOWN_METHOD, "method", method, ())

    def _permitted_names(self) -> list[str]:
        """Return the names of the shared objects of which the peer may call a method."""
        shared = self._objects.shared
        found = ((name, shared.find(name)) for name in shared.names())
        return [name for name, one in found if one and any(self._permit(name, method) for method in one.methods)]

    def _delete(self, number: int) -> Failure | None:
        exposed = self._objects.find(number)
        if exposed is None:
            return _unknown_failure(UNKNOWN_OBJECT, "object", number, ())
        if exposed.origin not in (Origin.CREATED, Origin.PASSED):
            return Failure(NOT_YOURS, f"object {number} can be deleted only by the endpoint that registered it")
        self._objects.end_by_number(number)
        return None

    def _encode_result(self, call_id: int, value: object, number: int = 0) -> bytes | None:
        """Return the response with the value, or a refusal if the limit or the other responses leave no room for it.

        ``number`` is that of its memory; without one, no other responses count.
        """
        if call_id == ONE_WAY:
            return None
        most = self.limits().response_bytes
        size = _least_bytes(value) if most else 0
        if size <= most:  # otherwise not even one copy is made
            if number and not self._hold_response(number, size):
                return self._encode_refusal(call_id, _no_room(size))
            try:
                encoded = encode_value(call_id, value, self._types, self._references)
            except AeronSparkError as error:
                return self._encode_refusal(call_id, Failure(BAD_RESULT, text_of(error)))
            size = len(encoded)
            if number and not self._hold_response(number, size):
                return self._encode_refusal(call_id, _no_room(size))
            if size <= most or not most:
                return encoded
        what = f"the response has {size} bytes or more, and a quarter of memoryLimit is {most} bytes"
        return self._encode_refusal(call_id, Failure("limit", what))

    def _encode_refusal(self, call_id: int, failure: Failure) -> bytes | None:
        if call_id == ONE_WAY:
            self.failed_one_way += 1
            return None
        return encode_failure(call_id, failure, self._types)


def _no_room(size: int) -> Failure:
    what = f"the responses that are sent now leave no room for {size} more bytes (a quarter of memoryLimit)"
    return Failure("busy", what)


def _least_bytes(value: object) -> int:
    """Return a lower bound for the encoded size of a value, from its own texts and bytes or those of its elements."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return sum(len(one) for one in value if isinstance(one, str | bytes | bytearray))
    return 0


def memory_refusal(size: int) -> RefusedError:
    """Return the error for a request of ``size`` bytes when the endpoint's memory for connections is full."""
    return _busy(f"the memory for all connections is full (memoryLimit), and {size} more bytes are needed")


def _busy(what: str) -> RefusedError:
    return RefusedError(what, remedy=REFUSALS["busy"].remedy, reason="busy")


def _unknown_failure(code: str, kind: str, name: Target, known: Iterable[str]) -> Failure:
    near = nearest(name, known) if isinstance(name, str) else ""
    suggestion = f"; did you mean {near!r}?" if near else ""
    return Failure(code, f"unknown remote {kind} {name!r}{suggestion}")
