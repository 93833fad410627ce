"""The remote calls that this endpoint makes over one connection: their records, deadlines and responses.

The calling thread encodes the arguments and decodes the response. The event loop finds the call of a response, and ends
calls at their deadlines.

Call ids count up from 1 and are never reused on a connection, so a late response ends no other call. Each connection
has its own :class:`Rpc`, so a response over another connection ends no call either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.endpoint.owner import EndpointServices
from aeron_spark.endpoint.transfers import Transfers
from aeron_spark.errors import (
    ERROR_CLASSES,
    REFUSALS,
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    OptionError,
    RefusedError,
    RemoteError,
    UsageError,
    WaitTimeout,
    decode_error,
)
from aeron_spark.process import bind_to_process
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.rpc_dispatch import REFUSED, REMEDIES
from aeron_spark.protocol.rpc_messages import (
    ONE_WAY,
    Call,
    Create,
    Delete,
    Failure,
    ObjectEnded,
    Request,
    Target,
    call_id_of,
    call_name,
    check_timeout,
    decode_return,
    describe_request,
    encode_call,
    encode_object,
)
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, ConnectionObjects, Mode, Proxy, remote_of
from aeron_spark.waiting import fail, resolve

STUCK_REMEDY: Final = (
    "Connect again: this process has too much to do, or its connection has failed. The peer may still run the request."
)
GRACE_S: Final = 5.0  # after the deadline of a call, for the event loop to end it
LATE_REMEDY: Final = "The peer may still execute it. Allow more time with with_timeout(seconds)."


@dataclass(frozen=True, slots=True)
class _OwnCall:
    """A call that waits. ``response`` ends with the payload of the RETURN record, or with the error to raise."""

    what: str
    response: Future[Buffer]


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that was begun: the futures of its acceptance and of its encoded response, which ``decode`` decodes.

    A program that does not wait any more cancels ``response``.
    """

    accepted: Future[None]
    response: Future[Buffer]
    decode: Callable[[Buffer], Any]


class Rpc:
    """Makes calls over one connection, and has the connection's objects. Thread-safe.

    ``transfers`` sends requests of any size. ``number`` is that of the connection, by which errors and the peer's log
    identify a call. ``late`` counts responses to ended calls, ``forged`` those to calls that were never made.
    """

    def __init__(self, owner: EndpointServices, state_lock: threading.RLock, transfers: Transfers, number: int) -> None:
        self._owner = owner
        self._state_lock = state_lock
        self._transfers = transfers
        self._number = number
        self._loop = owner.loop
        self._clock = owner.loop.clock
        self.objects = ConnectionObjects(owner.objects, self._invoke, state_lock, max_objects=owner.options.max_objects)
        bind_to_process(self)
        self.late = 0
        self.forged = 0
        self._pending: dict[int, _OwnCall] = {}  # by call id
        self._next_id = 1
        self._closed = ""

    def __len__(self) -> int:
        """Return the number of calls that wait for their responses."""
        return len(self._pending)

    def create(self, factory: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None) -> Proxy:
        """Have the peer's factory create an object, and return its proxy."""
        proxy = self._execute(Create(factory, args, kwargs), CALL_TIMEOUT if timeout is None else timeout)
        assert isinstance(proxy, Proxy)  # the response to a creation is always a reference
        return proxy

    def delete(self, proxy: Proxy, timeout: float | None) -> None:
        """Delete an object that the peer created for this endpoint."""
        target = remote_of(proxy).target
        if not isinstance(target, int):
            raise OptionError(
                f"{proxy!r} is a global object, which only its own endpoint ends", remedy="Do not delete it."
            )
        self._execute(Delete(target), CALL_TIMEOUT if timeout is None else timeout)
        self.objects.end_proxies(target)

    def end(self, value: object) -> bool:
        """End an object of this endpoint for the peer; return whether it was registered."""
        number = self.objects.end(value)
        if number is None:
            return False
        record = encode_object(ONE_WAY, ObjectEnded(number), self._owner.types, self.objects)
        self._transfers.send(RecordKind.OBJECT, record, None)
        return True

    def request(self, call: Call, timeout: float | None) -> tuple[Any, str]:
        """Call a method; return its result, and the name of the call in the peer's log. Raises as a call of a proxy."""
        payload = self._response_to(call, timeout)
        return self._result_of(call, payload), self._name(call_id_of(payload))

    def begin(self, request: Request, timeout: float | None) -> Pending | None:
        """Send a request as soon as there is room, without waiting; None if it is too large for a record.

        The event loop ends the request at its deadline, ``timeout`` seconds from now.
        """
        record, response = self._start(request, timeout)
        accepted = self._transfers.begin(_kind_of(request), record)
        if accepted is None:
            response.cancel()
            return None

        def end_with(sent: Future[None]) -> None:
            error = None if sent.cancelled() else sent.exception()
            if error is not None:
                fail(response, error)

        accepted.add_done_callback(end_with)
        return Pending(accepted, response, lambda payload: self._result_of(request, payload))

    def begin_one_way(self, call: Call) -> Future[None] | None:
        """Call a remote method without a response; return the future of its acceptance, or None as ``begin``."""
        return self._transfers.begin(RecordKind.CALL, self.encode_one_way(call))

    def encode_one_way(self, call: Call) -> bytes:
        """Return the record of a call without a response."""
        with self._state_lock:
            self._check_open()
            return self._encode(ONE_WAY, call)

    def take_response(self, payload: Buffer) -> None:
        """Wake the thread whose call has this response. Raises DataFormatError for a record without a call id."""
        call_id = call_id_of(payload)
        with self._state_lock:
            call = self._pending.pop(call_id, None)
            if call is None:
                if ONE_WAY < call_id < self._next_id:
                    self.late += 1
                else:
                    self.forged += 1
                return
        resolve(call.response, payload)

    def close(self, reason: str) -> None:
        """End every call with ConnectError and every object, and refuse later calls."""
        with self._state_lock:
            self._closed = self._closed or reason or "closed"
            pending = list(self._pending.values())
            self._pending.clear()
            self.objects.close()
        for call in pending:
            error = ConnectError(
                f"the connection ended before the response to {call.what}: {reason}",
                remedy="Connect again, and check whether the peer has executed the call before you repeat it.",
            )
            fail(call.response, error)

    def _invoke(
        self,
        target: Target,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mode: Mode,
        timeout: float | None,
    ) -> Any:
        call = Call(target, method, args, kwargs)
        if mode is Mode.ONE_WAY:
            self._transfers.send(RecordKind.CALL, self.encode_one_way(call), self._until(None))
            return None
        return self._execute(call, timeout)

    def _execute(self, request: Request, timeout: float | None) -> Any:
        return self._result_of(request, self._response_to(request, timeout))

    def _response_to(self, request: Request, timeout: float | None) -> Buffer:
        """Send a request, and wait for the payload of its response."""
        record, response = self._start(request, timeout)
        try:
            self._transfers.request(_kind_of(request), record, self._until(timeout), response)
            # The event loop ends the call at its deadline. The grace is for a loop that is late or has ended.
            timeout_s = timeout + GRACE_S if timeout else None
            return self._loop.wait(
                response, timeout_s, f"the response to {describe_request(request)}", remedy=STUCK_REMEDY
            )
        except BaseException:
            response.cancel()
            raise

    def _start(self, request: Request, timeout: float | None) -> tuple[bytes, Future[Buffer]]:
        """Begin a call; return the record to send, and the future of its response, whose end is that of the call.

        ``timeout`` is in seconds; None or 0: until the connection ends. Raises EndedError after ``close``, UsageError
        above the limit of calls, and OptionError for values that cannot be sent; then no call has begun.
        """
        response: Future[Buffer] = Future()
        what = describe_request(request)
        with self._state_lock:
            self._check_open()
            timeout = check_timeout(timeout)
            if len(self._pending) >= self._owner.options.max_calls:
                raise UsageError(
                    f"{len(self._pending)} calls wait for a response, which is the limit",
                    remedy="Wait for responses, call one-way, or raise the limit of calls in flight.",
                )
            # First of all: a finalizer may make a call during this method, and must not get the same id.
            call_id = self._next_id
            self._next_id += 1
            record = self._encode(call_id, request)
            self._pending[call_id] = _OwnCall(what, response)
        response.add_done_callback(lambda _: self._pending.pop(call_id, None))
        if timeout is not None:
            late = WaitTimeout(f"no response to {what} within {timeout:g} s", remedy=LATE_REMEDY)
            self._loop.end_at(response, late, self._clock() + timeout)
        return record, response

    def _encode(self, call_id: int, request: Request) -> bytes:
        if isinstance(request, Call):
            return encode_call(call_id, request, self._owner.types, self.objects)
        return encode_object(call_id, request, self._owner.types, self.objects)

    def _result_of(self, request: Request, payload: Buffer) -> Any:
        """Decode the response to a request.

        Raises RefusedError if the peer's endpoint refused the call, RemoteError for another failure at the peer, and
        DataFormatError for an invalid response.
        """
        value = decode_return(payload, self._owner.types, self.objects)
        if isinstance(value, Failure):
            raise _error_of(describe_request(request), self._name(call_id_of(payload)), value)
        return value

    def _name(self, call_id: int) -> str:
        return call_name(self._number, call_id)

    def _until(self, timeout: float | None) -> float:
        return self._clock() + (timeout or self._owner.options.send_timeout)

    def _check_open(self) -> None:
        if self._closed:
            raise EndedError(f"the connection has ended ({self._closed})", remedy="Connect again.")


def _kind_of(request: Request) -> RecordKind:
    return RecordKind.CALL if isinstance(request, Call) else RecordKind.OBJECT


def _error_of(description: str, name: str, failure: Failure) -> AeronSparkError:
    if failure.code in REFUSED:
        text = f"the peer refused {description}: {failure.text}"
        remedy = REMEDIES.get(failure.code) or REFUSALS[failure.code].remedy
        return RefusedError(text, remedy=remedy, reason=failure.code)
    try:
        raised = decode_error(failure.text.encode("utf-8", "replace")) if failure.code in ERROR_CLASSES else None
    except DataFormatError:
        raised = None  # the peer's class has the same name as one of ours; its text is plain
    if raised is None:
        remedy = REMEDIES.get(failure.code, f"See call {name} in the peer's log.")
        text = f"{description} failed at the peer: {failure.text or failure.code}"
        return RemoteError(text, code=failure.code, remedy=remedy)
    text = f"{description} failed at the peer: {raised.what}"
    error = RemoteError(text, code=failure.code, remedy=raised.remedy, reason=raised.reason, raised=raised)
    error.call = raised.call = name
    return error
