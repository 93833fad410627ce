"""The calling half of remote calls: which calls of one connection wait, until when, and what became of them.

Call ids count up from 1 for the life of the connection and are never given twice, so that a late answer finds nobody.
An object of this class belongs to one connection: an answer that comes over another one finds nobody either.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import (
    ERROR_CLASSES,
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    RemoteError,
    UsageError,
    WaitTimeout,
    decode_error,
)
from aeron_spark.protocol.message_types import Buffer, References, Types
from aeron_spark.protocol.rpc_dispatch import REMEDIES
from aeron_spark.protocol.rpc_messages import (
    ONE_WAY,
    Call,
    Failure,
    Request,
    call_id_of,
    call_name,
    check_timeout,
    decode_return,
    encode_call,
    encode_object,
    named,
)

MAX_IN_FLIGHT: Final = 65_536  # calls of one connection that wait for an answer; each costs some 500 bytes
_SPARE_DEADLINES: Final = 64  # deadlines of answered calls that are kept before the heap is built anew


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that ended without a response: its token as given to ``begin``, and the error to raise."""

    token: object
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a call, not decoded yet, and the call's token as given to ``begin``."""

    token: object
    call_id: int
    what: str
    payload: Buffer


@dataclass(frozen=True, slots=True)
class _Waiting:
    token: object
    what: str
    deadline: float | None
    timeout: float | None


class Calls:
    """Calls of one connection that wait for an answer. Not for several threads at once.

    ``connection`` is its number, by which errors name a call as the other side's log does. ``late`` counts answers to
    calls that had ended, ``forged`` those to calls that never were.
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
        self._waiting: dict[int, _Waiting] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._next_id = 1
        self._closed = ""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request: Request, *, now: float, timeout: float | None, token: object) -> bytes:
        """Return the record to send. ``token`` comes back in a ``Response`` or an ``EndedCall``, once.

        ``timeout`` is in seconds; None or 0 waits as long as the connection lives. Raises EndedError after ``close``,
        UsageError with too many calls in flight and OptionError for what cannot be sent; then there is no call, and its
        token does not come back.
        """
        self._check_open()
        allowed = check_timeout(timeout)
        if len(self._waiting) >= self.max_in_flight:
            raise UsageError(
                f"{len(self._waiting)} calls wait for an answer already, as many as may",
                remedy="Wait for some of them, call one-way, or raise the limit of calls in flight",
            )
        # Before anything else: a finalizer may call in the middle of this, and must not be given the same id.
        call_id = self._next_id
        self._next_id += 1
        record = self._encode(call_id, request)
        deadline = None if allowed is None else now + allowed
        self._waiting[call_id] = _Waiting(token, named(request), deadline, allowed)
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, call_id))
        return record

    def one_way(self, call: Call) -> bytes:
        """Return the record of a call that nobody answers. Raises as ``begin`` does, but for the limit."""
        self._check_open()
        return self._encode(ONE_WAY, call)

    def withdraw(self, token: object) -> bool:
        """Forget the call of this token: nobody waits for it any more. Return whether it waited."""
        found = [call_id for call_id, waiting in self._waiting.items() if waiting.token is token]
        for call_id in found:
            self._release(call_id)
        return bool(found)

    def take_response(self, payload: Buffer) -> Response | None:
        """Take a RETURN record; return it with the call it ends, or None if it ends none (it is counted then).

        Raises DataFormatError for a record without a call id.
        """
        call_id = call_id_of(payload)
        if call_id not in self._waiting:
            if ONE_WAY < call_id < self._next_id:
                self.late += 1
            else:
                self.forged += 1
            return None
        waiting = self._release(call_id)
        return Response(waiting.token, call_id, waiting.what, payload)

    def result_of(self, response: Response) -> object:
        """Decode a response. Needs no lock beyond that of the references.

        Raises RemoteError for a failure at the other side, DataFormatError for a response that cannot be read.
        """
        value = decode_return(response.payload, self._types, self._references)
        if isinstance(value, Failure):
            raise _failed(response.what, self._name(response.call_id), value)
        return value

    def expired(self, now: float) -> list[EndedCall]:
        """Return, and forget, the calls whose deadline has come, the earliest first."""
        ended = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, call_id = heapq.heappop(self._deadlines)
            if call_id in self._waiting:
                waiting = self._waiting.pop(call_id)
                what = f"no answer to {waiting.what} within {waiting.timeout:g} seconds"
                remedy = "It may still be done there. Give it more time with with_timeout(seconds)"
                ended.append(EndedCall(waiting.token, error=WaitTimeout(what, remedy=remedy)))
        return ended

    def deadline(self) -> float | None:
        """When ``expired`` must be called next, or None. It may be earlier than the first deadline."""
        return self._deadlines[0][0] if self._deadlines else None

    def close(self, reason: str) -> list[EndedCall]:
        """End every call with ConnectError and allow no more. Again, it does nothing."""
        self._closed = self._closed or reason or "closed"
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._deadlines.clear()
        return [EndedCall(one.token, error=_lost(one.what, reason)) for one in waiting]

    def _name(self, call_id: int) -> str:
        return "" if self._connection is None else call_name(self._connection, call_id)

    def _encode(self, call_id: int, request: Request) -> bytes:
        if isinstance(request, Call):
            return encode_call(call_id, request, self._types, self._references)
        return encode_object(call_id, request, self._types, self._references)

    def _release(self, call_id: int) -> _Waiting:
        waiting = self._waiting.pop(call_id)
        if len(self._deadlines) > 2 * len(self._waiting) + _SPARE_DEADLINES:
            timed = ((one.deadline, known) for known, one in self._waiting.items())
            self._deadlines = [(deadline, known) for deadline, known in timed if deadline is not None]
            heapq.heapify(self._deadlines)
        return waiting

    def _check_open(self) -> None:
        if self._closed:
            raise EndedError(f"the connection has ended ({self._closed})", remedy="Connect again")


def _lost(what: str, reason: str) -> ConnectError:
    return ConnectError(
        f"the connection ended before {what} was answered: {reason}",
        remedy="Connect again and call again; whether it was done there is not known",
    )


def _failed(what: str, call: str, failure: Failure) -> RemoteError:
    try:
        raised = decode_error(failure.text.encode("utf-8", "replace")) if failure.code in ERROR_CLASSES else None
    except DataFormatError:
        raised = None  # another class of that name; its text is plain
    if raised is None:
        said = f"the other side could not do {what}: {failure.text or failure.code}"
        see = f"See call {call} in the other side's log" if call else "The code says what kind of error it was"
        return RemoteError(said, code=failure.code, remedy=REMEDIES.get(failure.code, see))
    said = f"the other side could not do {what}: {raised.what}"
    return RemoteError(said, code=failure.code, remedy=raised.remedy, reason=raised.reason, raised=raised)
