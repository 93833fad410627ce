"""The remote calls that the peer of one connection makes: counts them, runs them on workers, sends their responses.

The event loop counts a call and looks up what it needs. A worker decodes the arguments, runs the call and sends the
response. If a peer sends many calls at once, workers also look up what they need, so that the event loop has time for
other connections. Every request that expects a response gets one, also an invalid request.

A call may return a ``concurrent.futures.Future`` of its result. The worker then returns to the pool, and a worker sends
the response when the future is done. If the connection ends first, the future is cancelled.

One lock guards all of this. Workers do not take the connection's state lock to begin and end a call: the event loop
takes that one for each frame, and would wait for each of them in turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.endpoint.owner import ConnectionOwner
from aeron_spark.errors import AeronSparkError, EndedError, RefusedError
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.rpc_dispatch import (
    BAD_ARGUMENTS,
    BAD_RESULT,
    PROGRAM,
    CallLimits,
    ObjectService,
    PeerCall,
    Service,
    busy_error,
    memory_refusal,
)
from aeron_spark.protocol.rpc_messages import (
    FIRST_SERVICE,
    ONE_WAY,
    Call,
    Create,
    Delete,
    Failure,
    ObjectEnded,
    call_id_of,
    decode_call_head,
    decode_creation_head,
    decode_object,
    describe_request,
    encode_failure,
    encode_value,
    text_of,
)
from aeron_spark.protocol.rpc_objects import ConnectionObjects
from aeron_spark.protocol.session import RECORD_COST

Respond = Callable[[bytes], None]
PeerRequest = tuple[int, Buffer]  # the kind of its record, and the payload
TURN_S: Final = 0.01  # time in which the event loop begins TURN_REQUESTS requests of one connection
TURN_REQUESTS: Final = 32
LONG_BACKLOG: Final = 256  # requests; a worker takes them in some 30 ms


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result of a call that waits without a thread: when ``awaited`` ends, a worker calls ``finish``.

    The result of ``finish``, or its error, is that of the call.
    """

    awaited: Future[Any]
    finish: Callable[[], Any]


class RequestBacklog:
    """The requests of a peer that wait for a worker, in the order of their arrival. For one thread at a time.

    The event loop begins a few requests at once: finding the method of a call takes it some 50 microseconds, and a peer
    that sends thousands of calls at once would delay all other connections. While a worker takes requests, later ones
    wait behind them, so that a request to delete an object follows the calls of it. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes of the waiting requests."""
        self._waiting: deque[PeerRequest] = deque()
        self._turn_ends = 0.0
        self._begun_in_turn = 0
        self._has_worker = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, requests: Sequence[PeerRequest], now: float) -> bool:
        """Return whether the caller begins these requests now. Otherwise they wait: see ``take_worker``."""
        if now >= self._turn_ends:
            self._turn_ends, self._begun_in_turn = now + TURN_S, 0
        self._begun_in_turn += len(requests)
        if not self._has_worker and self._begun_in_turn <= TURN_REQUESTS:
            return True
        # First, because other threads read both without the lock: a request that they count has its bytes counted.
        self.bytes += sum([len(payload) for _, payload in requests])
        self._waiting.extend(requests)
        return False

    def take_worker(self) -> bool:
        """Return whether the caller must have a worker take the waiting requests: none does so yet."""
        needs_worker, self._has_worker = not self._has_worker, True
        return needs_worker

    def next(self) -> PeerRequest | None:
        """Remove and return the oldest request for the worker; None if none waits: then the worker must end."""
        if not self._waiting:
            self._has_worker = False
            return None
        request = self._waiting.popleft()
        self.bytes -= len(request[1])
        return request

    def clear(self) -> None:
        """Drop all requests."""
        self._waiting.clear()
        self.bytes = 0


class PeerCalls:
    """Runs the calls of one connection's peer. Thread-safe.

    ``services`` are the endpoint's own, by their numbers; ``objects`` has everything else. ``respond`` sends an encoded
    response. ``is_memory_full`` returns whether the endpoint has no memory for a request of so many bytes. ``on_room``
    is called without a lock after ``is_full`` was true, when the running calls take less than half of their limit.
    ``on_ended`` gets each call that has run, with the seconds since its arrival and its error, on a worker.
    ``failed_one_way`` counts one-way calls that could not start; their caller gets no response.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        service: ObjectService,
        objects: ConnectionObjects,
        respond: Respond,
        is_memory_full: Callable[[int], bool],
        on_room: Callable[[], None],
        on_short_backlog: Callable[[], None],
        report: Callable[[BaseException], None],
        on_ended: Callable[[PeerCall, float, BaseException | None], None],
        peer_key: bytes,
    ) -> None:
        self.services: Final[dict[int, Service]] = {}
        self.failed_one_way = 0
        self._owner = owner
        self._clock = owner.loop.clock
        self._service = service
        self._objects = objects
        self._send_response = respond
        self._is_memory_full = is_memory_full
        self._on_room = on_room
        self._on_short_backlog = on_short_backlog
        self._report = report
        self._on_ended = on_ended
        self._inbound = threading.Lock()  # for microseconds: guards the following attributes
        self._backlog = RequestBacklog()
        self._running = 0
        self._running_bytes = 0  # of the records of these calls, including RECORD_COST for each
        self._was_full = False
        self._is_closed = False
        self._unfinished: dict[PeerCall, Deferred] = {}
        # A key has a share of the threads for its calls, and one for responses that are ready, which need not wait
        # until its calls have begun.
        self._calls_share: Final = ("calls", peer_key)
        self._responses_share: Final = ("responses", peer_key)

    @property
    def _limits(self) -> CallLimits:
        """The present limits. They may change; calls that wait or run stay."""
        return self._owner.options.call_limits

    @property
    def is_full(self) -> bool:
        """Whether the peer's calls reach a limit, so that acknowledgements to the peer should pause.

        One-way calls cannot be refused: the endpoint must not acknowledge them.
        """
        limits = self._limits
        return self.running >= limits.running or self.held_bytes >= limits.bytes

    @property
    def running(self) -> int:
        """Number of the peer's requests that wait for a worker or run."""
        return self._running + len(self._backlog)

    @property
    def unread(self) -> int:
        """Number of the peer's requests that were received, and whose method no thread has looked up yet."""
        return len(self._backlog)

    @property
    def held_bytes(self) -> int:
        """Bytes of the peer's requests that wait for a worker or run."""
        return self._running_bytes + self._backlog.bytes

    @property
    def has_long_backlog(self) -> bool:
        """Whether so many calls of the peer wait for a worker that no further ones should be read now."""
        return len(self._backlog) > LONG_BACKLOG

    def exceeds(self, excess_bytes: int) -> bool:
        """Whether the peer's calls exceed their limit by more than ``excess_bytes``."""
        return self.held_bytes > self._limits.bytes + excess_bytes

    def take(self, requests: Sequence[PeerRequest]) -> None:
        """Count requests of the peer, and have workers run them; after ``close``, drop them.

        A transfer with a request may be complete only after the connection has ended.
        """
        with self._inbound:
            if self._is_closed:
                return
            begins_here = self._backlog.add(requests, self._clock())
            needs_worker = not begins_here and self._backlog.take_worker()
        if needs_worker:
            self._submit(self._take_backlog)
        elif begins_here:
            for request in requests:
                self._begin(request)
        if self.is_full:
            with self._inbound:
                self._was_full = True

    def refusal_of_bytes(self, size: int, announced: int = 0) -> RefusedError | None:
        """Return why a request of ``size`` bytes is refused while ``announced`` other bytes arrive; None: it is not."""
        held, limit = self._running_bytes + announced, self._limits.bytes
        if held + size <= limit:
            return None
        if size > limit:
            return RefusedError(
                f"the call has {size} bytes, and the limit is {limit} (callBytes)",
                remedy="Send less in a call, or send the data as a message or a file.",
                reason="limit",
            )
        return busy_error(
            f"your calls that wait or run have {held} bytes, and this one {size}; the limit is {limit} (callBytes)"
        )

    def close(self) -> None:
        """Drop the requests that wait and the services, and cancel the futures of calls."""
        with self._inbound:
            self._backlog.clear()
            self._is_closed = True
            self.services.clear()
            unfinished, self._unfinished = self._unfinished, {}
            for call in unfinished:
                self._uncount(call)
        for share in (self._calls_share, self._responses_share):
            self._owner.worker_pool.drop(share, self)
        for deferred in unfinished.values():
            deferred.awaited.cancel()

    def _take_backlog(self) -> None:
        """Begin some of the waiting requests; the next ones have another turn."""
        for _ in range(TURN_REQUESTS):
            with self._inbound:
                request = self._backlog.next()
            if request is None:
                self._check_room()
                self._on_short_backlog()
                return
            self._begin(request)
        if not self.has_long_backlog:
            self._on_short_backlog()
        self._submit(self._take_backlog)

    def _begin(self, request: PeerRequest) -> None:
        try:
            begun = self._begun(*request)
        except Exception as error:  # of this record: the other ones are still valid, and their worker must not end
            self._report(error)
            return
        if isinstance(begun, PeerCall):
            self._submit(lambda: self._run(begun), begun.number)
            if self._is_closed:  # ``close`` may have dropped the waiting work before this was submitted
                self._owner.worker_pool.drop(self._calls_share, self)
        elif begun is not None and not self._is_closed:
            self._respond(begun)

    def _begun(self, kind: int, payload: Buffer) -> PeerCall | bytes | None:
        """Return the call to run, or the response, or None if the request expects no response.

        Raises DataFormatError for a record without a call id.
        """
        call_id = call_id_of(payload)
        try:
            head = self._head(kind, payload)
        except AeronSparkError as error:
            return self._refused(call_id, Failure(BAD_ARGUMENTS, text_of(error)))
        match head:
            case ObjectEnded():
                self._objects.end_proxies(head.object_id)
                return None
            case Delete():
                failure = self._service.delete(head.object_id)
                return self._refused(call_id, failure) if failure else self._encoded(call_id, None)
        return self._started(call_id, head, payload)

    def _head(self, kind: int, payload: Buffer) -> Call | Create | Delete | ObjectEnded:
        """Decode a request without its arguments."""
        if kind == RecordKind.CALL:
            return Call(*decode_call_head(payload))
        factory = decode_creation_head(payload)
        return decode_object(payload, self._owner.types, self._objects) if factory is None else Create(factory)

    def _started(self, call_id: int, head: Call | Create, payload: Buffer) -> PeerCall | bytes | None:
        number = service_of(head)
        service = self.services.get(number, self._service)
        found = service.look_up(head)
        if isinstance(found, Failure):
            return self._refused(call_id, found)
        size = len(payload) + RECORD_COST
        refusal = self._refusal(size)
        if refusal is not None and call_id != ONE_WAY:
            return self._refused(call_id, Failure(refusal.reason, refusal.what))
        what = describe_request(head)
        call = PeerCall(call_id, service, number, payload, head, found, size, self._clock(), what)
        with self._inbound:
            self._running += 1
            self._running_bytes += size
        return call

    def _refusal(self, size: int) -> RefusedError | None:
        if self._running >= self._limits.running:
            return busy_error(f"{self._running} of your calls wait or run, which is the limit (maxRunning)")
        return memory_refusal(size) if self._is_memory_full(size) else self.refusal_of_bytes(size)

    def _submit(self, work: Callable[[], object], number: int | None = None) -> None:
        with suppress(RuntimeError):  # the endpoint is closing
            self._owner.worker_pool.submit(self._calls_share, work, owner=self, kind=number)

    def _run(self, call: PeerCall) -> None:
        result, error = None, None
        try:
            result = call.service.run(call)
        except (Exception, SystemExit) as raised:  # a method must not end its server
            error = raised
        if isinstance(result, Future):
            result = Deferred(result, result.result)
        if isinstance(result, Deferred) and isinstance(call.head, Call):
            self._finish_when_done(call, result)
        else:
            self._finish(call, result, error)

    def _finish_when_done(self, call: PeerCall, deferred: Deferred) -> None:
        """Finish a call when the awaited future has ended, without a thread that waits for it."""
        with self._inbound:
            if self._is_closed:
                self._uncount(call)
            else:
                self._unfinished[call] = deferred
        if self._is_closed:
            deferred.awaited.cancel()
        elif deferred.awaited.done():
            self._finish_done(call)
        else:
            deferred.awaited.add_done_callback(lambda _: self._submit_done(call))

    def _submit_done(self, call: PeerCall) -> None:
        """Let a worker send the response. Takes no lock: the caller may be the event loop, or may hold locks."""
        if self._is_closed:
            return
        with suppress(RuntimeError):  # the endpoint is closing
            self._owner.worker_pool.submit(self._responses_share, lambda: self._finish_done(call), owner=self)

    def _finish_done(self, call: PeerCall) -> None:
        with self._inbound:
            deferred = self._unfinished.pop(call, None)
        if deferred is not None:
            self._finish(call, *_outcome_of(deferred.finish))

    def _finish(self, call: PeerCall, result: Any, error: BaseException | None) -> None:
        try:
            self._end(call, result, error)
        finally:  # what the session has taken by now counts for its connection
            self._owner.response_memory.release(id(call))

    def _end(self, call: PeerCall, result: Any, error: BaseException | None) -> None:
        value = result
        if error is not None and not isinstance(error, AeronSparkError):
            value = self._owner.error_codes.failure_of(error)
        elif not isinstance(result, Failure) and not (call.is_one_way and error is None):
            try:
                value = call.service.encode(call, result, error)
            except Exception as failed:  # the caller gets a response in any case
                value, error = self._owner.error_codes.failure_of(failed), failed
        response = self._response(call, value, error)
        with self._inbound:
            self._uncount(call)
        self._check_room()
        if error is not None and call.is_one_way and isinstance(value, Failure):
            self._report(error)
        try:
            self._on_ended(call, self._clock() - call.arrived_at, error)
        except Exception as failure:  # of the observer, such as an error without a text: the caller gets its response
            self._report(failure)
        if response is not None:
            self._respond(response)

    def _response(self, call: PeerCall, value: Any, error: BaseException | None) -> bytes | None:
        if not isinstance(value, Failure):
            return self._encoded(call.call_id, value, id(call))
        if error is None:
            return self._refused(call.call_id, value)
        return None if call.is_one_way else encode_failure(call.call_id, value, self._owner.types)

    def _uncount(self, call: PeerCall) -> None:
        """Count a call as ended; with the lock."""
        self._running -= 1
        self._running_bytes -= call.size

    @property
    def _is_half_empty(self) -> bool:
        """Whether the calls that run take less than half of each limit."""
        limits = self._limits
        return 2 * self._running < limits.running and 2 * self._running_bytes < limits.bytes

    def _check_room(self) -> None:
        """Let the peer send again if its calls have become less than half of their limit after they were full."""
        if not self._was_full:
            return
        with self._inbound:  # the event loop may find the calls full again meanwhile, which must not be lost
            has_room = self._was_full and self._is_half_empty and not len(self._backlog)
            self._was_full = self._was_full and not has_room
        if has_room:
            self._on_room()

    def _respond(self, response: bytes) -> None:
        try:
            self._send_response(response)
        except AeronSparkError as error:
            self._report(error)

    def _encoded(self, call_id: int, value: object, number: int = 0) -> bytes | None:
        """Return the response with the value, or a refusal if the limit or the other responses leave no room for it.

        ``number`` is that of its memory; without one, no other responses count.
        """
        if call_id == ONE_WAY:
            return None
        most, hold = self._limits.response_bytes, self._owner.response_memory.hold
        size = _least_bytes(value) if most else 0
        if size <= most:  # otherwise not even one copy is made
            if number and not hold(number, size):
                return self._refused(call_id, _no_room(size))
            try:
                encoded = encode_value(call_id, value, self._owner.types, self._objects)
            except AeronSparkError as error:
                return self._refused(call_id, Failure(BAD_RESULT, text_of(error)))
            size = len(encoded)
            if number and not hold(number, size):
                return self._refused(call_id, _no_room(size))
            if size <= most or not most:
                return encoded
        what = f"the response has {size} bytes or more, and a quarter of memoryLimit is {most} bytes"
        return self._refused(call_id, Failure("limit", what))

    def _refused(self, call_id: int, failure: Failure) -> bytes | None:
        if call_id == ONE_WAY:
            self.failed_one_way += 1
            return None
        return encode_failure(call_id, failure, self._owner.types)


def service_of(head: Call | Create) -> int:
    """Return the number of the endpoint's own service that is called; PROGRAM for an object of the program."""
    if isinstance(head, Call) and isinstance(head.target, int) and head.target >= FIRST_SERVICE:
        return head.target
    return PROGRAM


def _outcome_of(finish: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return finish(), None
    except CancelledError:
        return None, EndedError("the call was cancelled", remedy="Call again.")
    except BaseException as error:
        return None, error


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
