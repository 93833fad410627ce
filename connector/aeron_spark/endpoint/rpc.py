"""The remote calls that this endpoint makes over one connection: their records, deadlines and responses.

The calling thread encodes the arguments, waits until the deadline, and decodes the response. The event loop finds the
call of a response.

Call ids count up from 1 and are never reused on a connection, so a late response ends no other call. Each connection
has its own :class:`Rpc`, so a response over another connection ends no call either.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final

from aeron_spark.endpoint.owner import ConnectionOwner
from aeron_spark.endpoint.sender import Pending
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
    decode_error,
)
from aeron_spark.process import bind_to_process
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.rpc_dispatch import REFUSED, REMEDIES
from aeron_spark.protocol.rpc_messages import (
    ONE_WAY,
    Call,
    Delete,
    Failure,
    ObjectEnded,
    Request,
    call_id_of,
    call_name,
    check_timeout,
    decode_return,
    describe_request,
    encode_call,
    encode_object,
)
from aeron_spark.protocol.rpc_objects import ConnectionObjects, Mode, Proxy, remote_of
from aeron_spark.waiting import fail, resolve

LATE_REMEDY: Final = "The peer may still execute it. Allow more time with with_timeout(seconds)."


class Rpc:
    """Makes calls over one connection, and has the connection's objects. Thread-safe.

    ``transfers`` sends requests of any size. ``number`` is that of the connection, by which errors and the peer's log
    identify a call. ``late`` counts responses to ended calls, ``forged`` those to calls that were never made.
    """

    def __init__(self, owner: ConnectionOwner, state_lock: threading.RLock, transfers: Transfers, number: int) -> None:
        self._owner = owner
        self._state_lock = state_lock
        self._transfers = transfers
        self._number = number
        self.objects = ConnectionObjects(owner.objects, self._invoke, state_lock, max_objects=owner.options.max_objects)
        bind_to_process(self)
        self.late = 0
        self.forged = 0
        self._pending: dict[int, Pending[Any]] = {}  # by call id
        self._next_id = 1
        self._closed = ""

    def __len__(self) -> int:
        """Return the number of calls that wait for their responses."""
        return len(self._pending)

    def begin_delete(self, proxy: Proxy, timeout: float | None, threads: Executor | None = None) -> Pending[Any]:
        """Delete an object that the peer created for this endpoint."""
        target = remote_of(proxy).target
        if not isinstance(target, int):
            raise OptionError(
                f"{proxy!r} is a global object, which only its own endpoint ends", remedy="Do not delete it."
            )
        return self.begin(Delete(target), timeout, threads)

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
        pending = self.begin(call, timeout)
        return pending.result(), self._name(call_id_of(pending.future.result()))

    def begin(self, request: Request, timeout: float | None, threads: Executor | None = None) -> Pending[Any]:
        """Send a request as soon as there is room; return the wait for its response.

        ``timeout`` is in seconds; None or 0: until the connection ends. A request that is too large for a record is
        sent on ``threads``; None: on this thread, which waits. Raises EndedError after ``close``, UsageError above the
        limit of calls, and OptionError for values that cannot be sent; then no call has begun.
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
            pending: Pending[Any] = Pending(
                self._transfers.sender,
                response,
                timeout,
                f"the response to {what}",
                LATE_REMEDY,
                decode=partial(self._result_of, request),
                forget=lambda: self._pending.pop(call_id, None),
            )
            self._pending[call_id] = pending
        try:
            kind = RecordKind.CALL if isinstance(request, Call) else RecordKind.OBJECT
            self._transfers.begin(kind, record, response, threads)
        except BaseException:
            pending.cancel()
            raise
        return pending

    def begin_call(
        self, call: Call, mode: Mode, timeout: float | None, threads: Executor | None = None
    ) -> Pending[Any] | None:
        """Call a remote method as a proxy does; None: it is a call without a response, and accepted."""
        if mode is not Mode.ONE_WAY:
            return self.begin(call, timeout, threads)
        waits = self._transfers.begin(RecordKind.CALL, self.encode_one_way(call), None, threads)
        return None if waits is None else self._transfers.sender.wait_for_room(waits, self._owner.options.send_timeout)

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
        resolve(call.future, payload)

    def close(self, reason: str) -> None:
        """End every call with ConnectError and every object, and refuse later calls."""
        with self._state_lock:
            self._closed = self._closed or reason or "closed"
            pending = list(self._pending.values())
            self._pending.clear()
            self.objects.close()
        for call in pending:
            error = ConnectError(
                f"the connection ended before {call.what}: {reason}",
                remedy="Connect again, and check whether the peer has executed the call before you repeat it.",
            )
            fail(call.future, error)

    def _invoke(self, call: Call, mode: Mode, timeout: float | None) -> Any:
        pending = self.begin_call(call, mode, timeout)
        return None if pending is None else pending.result()

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
        if isinstance(request, Delete):
            self.objects.end_proxies(request.object_id)
        return value

    def _name(self, call_id: int) -> str:
        return call_name(self._number, call_id)

    def _check_open(self) -> None:
        if self._closed:
            raise EndedError(f"the connection has ended ({self._closed})", remedy="Connect again.")


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
