"""The caller's half of remote calls: the pending calls of one connection, their deadlines and their responses.

Call ids count up from 1 and are never reused on a connection, so a late response ends no other call. Each connection
has its own :class:`Calls`, so a response over another connection ends no call either.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import (
    ERROR_CLASSES,
    REFUSALS,
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    RefusedError,
    RemoteError,
    UsageError,
    WaitTimeout,
    decode_error,
)
from aeron_spark.protocol.message_types import Buffer, References, Types
from aeron_spark.protocol.rpc_dispatch import REFUSED, REMEDIES
from aeron_spark.protocol.rpc_messages import (
    ONE_WAY,
    Call,
    Failure,
    Request,
    call_id_of,
    call_name,
    check_timeout,
    decode_return,
    describe_request,
    encode_call,
    encode_object,
)

MAX_IN_FLIGHT: Final = 65_536  # pending calls of one connection; each needs about 500 bytes
_MAX_ENDED_DEADLINES: Final = 64  # deadlines of ended calls in the heap before it is rebuilt


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that ended without a response: the token that was passed to ``begin``, and the error to raise."""

    token: object
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Response:
    """The encoded response to a call, and the token that was passed to ``begin``."""

    token: object
    call_id: int
    description: str
    payload: Buffer


@dataclass(frozen=True, slots=True)
class _PendingCall:
    token: object
    description: str
    deadline: float | None
    timeout: float | None


class Calls:
    """The pending calls of one connection. For one thread at a time.

    ``connection`` is the number of the connection, by which errors and the peer's log identify a call. ``late`` counts
    responses to ended calls, ``forged`` those to calls that were never made.
    """

    def __init__(
        self, types: Types, references: References | None = None, *, max_in_flight: int = MAX_IN_FLIGHT,
        connection: int | None = None,
    ) -> None:  # fmt: skip
        self.max_in_flight = max_in_flight
        self._connection = connection
        self.late = 0
        self.forged = 0
        self._types = types
        self._references = references
        self._pending: dict[int, _PendingCall] = {}
        self._ids: dict[int, int] = {}  # of pending calls, by id() of their tokens
        self._deadlines: list[tuple[float, int]] = []
        self._next_id = 1
        self._closed = ""

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, request: Request, *, now: float, timeout: float | None, token: object) -> bytes:
        """Begin a call, and return the record to send. One ``Response`` or ``EndedCall`` will contain ``token``.

        No two pending calls may have the same token.

        ``timeout`` is in seconds; None or 0: until the connection ends. Raises EndedError after ``close``, UsageError
        above ``max_in_flight`` and OptionError for values that cannot be sent; then no call has begun.
        """
        self._check_open()
        timeout = check_timeout(timeout)
        if len(self._pending) >= self.max_in_flight:
            raise UsageError(
                f"{len(self._pending)} calls wait for a response, which is the limit",
                remedy="Wait for responses, call one-way, or raise the limit of calls in flight.",
            )
        # First of all: a finalizer may make a call during this method, and must not get the same id.
        call_id = self._next_id
        self._next_id += 1
        record = self._encode(call_id, request)
        deadline = None if timeout is None else now + timeout
        self._pending[call_id] = _PendingCall(token, describe_request(request), deadline, timeout)
        self._ids[id(token)] = call_id
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, call_id))
        return record

    def encode_one_way(self, call: Call) -> bytes:
        """Return the record of a call without a response. Raises like ``begin``, except for the limit."""
        self._check_open()
        return self._encode(ONE_WAY, call)

    def withdraw(self, token: object) -> bool:
        """Remove the call with this token; its response will be ignored. Returns whether it was pending."""
        call_id = self._ids.get(id(token))
        if call_id is None:
            return False
        self._remove(call_id)
        return True

    def take_response(self, payload: Buffer) -> Response | None:
        """End the call of a RETURN record. Returns the response, or None, and counts it, if no such call is pending.

        Raises DataFormatError for a record without a call id.
        """
        call_id = call_id_of(payload)
        if call_id not in self._pending:
            if ONE_WAY < call_id < self._next_id:
                self.late += 1
            else:
                self.forged += 1
            return None
        call = self._remove(call_id)
        return Response(call.token, call_id, call.description, payload)

    def result_of(self, response: Response) -> object:
        """Decode a response. Needs no lock, except that of the references.

        Raises RefusedError if the peer's endpoint refused the call, RemoteError for another failure at the peer, and
        DataFormatError for an invalid response.
        """
        value = decode_return(response.payload, self._types, self._references)
        if isinstance(value, Failure):
            raise _error_of(response.description, self._name(response.call_id), value)
        return value

    def expire(self, now: float) -> list[EndedCall]:
        """Remove and return the calls whose deadline has passed, earliest first."""
        ended = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, call_id = heapq.heappop(self._deadlines)
            if call_id in self._pending:
                call = self._pop(call_id)
                text = f"no response to {call.description} within {call.timeout:g} s"
                remedy = "The peer may still execute it. Allow more time with with_timeout(seconds)."
                ended.append(EndedCall(call.token, error=WaitTimeout(text, remedy=remedy)))
        return ended

    def deadline(self) -> float | None:
        """Return when ``expire`` must be called next, or None. Never later than the first deadline."""
        return self._deadlines[0][0] if self._deadlines else None

    def close(self, reason: str) -> list[EndedCall]:
        """End every call with ConnectError, and refuse later calls. Idempotent."""
        self._closed = self._closed or reason or "closed"
        pending = list(self._pending.values())
        self._pending.clear()
        self._ids.clear()
        self._deadlines.clear()
        return [EndedCall(call.token, error=_connection_lost(call.description, reason)) for call in pending]

    def _name(self, call_id: int) -> str:
        return "" if self._connection is None else call_name(self._connection, call_id)

    def _encode(self, call_id: int, request: Request) -> bytes:
        if isinstance(request, Call):
            return encode_call(call_id, request, self._types, self._references)
        return encode_object(call_id, request, self._types, self._references)

    def _pop(self, call_id: int) -> _PendingCall:
        call = self._pending.pop(call_id)
        self._ids.pop(id(call.token), None)
        return call

    def _remove(self, call_id: int) -> _PendingCall:
        call = self._pop(call_id)
        if len(self._deadlines) > 2 * len(self._pending) + _MAX_ENDED_DEADLINES:
            deadlines = ((other.deadline, other_id) for other_id, other in self._pending.items())
            self._deadlines = [(deadline, other_id) for deadline, other_id in deadlines if deadline is not None]
            heapq.heapify(self._deadlines)
        return call

    def _check_open(self) -> None:
        if self._closed:
            raise EndedError(f"the connection has ended ({self._closed})", remedy="Connect again.")


def _connection_lost(description: str, reason: str) -> ConnectError:
    return ConnectError(
        f"the connection ended before the response to {description}: {reason}",
        remedy="Connect again, and check whether the peer has executed the call before you repeat it.",
    )


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
        default_remedy = f"See call {name} in the peer's log." if name else "Look up the error code."
        remedy = REMEDIES.get(failure.code, default_remedy)
        text = f"{description} failed at the peer: {failure.text or failure.code}"
        return RemoteError(text, code=failure.code, remedy=remedy)
    text = f"{description} failed at the peer: {raised.what}"
    error = RemoteError(text, code=failure.code, remedy=raised.remedy, reason=raised.reason, raised=raised)
    error.call = raised.call = name
    return error
