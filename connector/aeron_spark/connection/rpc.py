"""Remote calls of one connection: callers wait for their responses, and calls of the peer run on the worker pool.

The event loop counts received calls, finds their methods, and finds the caller of a response. A worker decodes the
arguments of a call and runs it. The calling thread decodes the response. If a peer sends many calls at once, workers
also find the methods, so that the event loop has time for other connections.

The connection's state lock guards own calls and objects. Workers do not take it to begin and end the calls of the peer:
the event loop takes it for each frame, and would wait for each of them in turn.

A method may return a ``concurrent.futures.Future`` of its result. The worker then returns to the pool, and a worker
sends the response when the future is done. If the connection ends first, the future is cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.connection.call_observer import ServedCall, note_answer, take_noted_failure
from aeron_spark.connection.owner import EndpointServices
from aeron_spark.connection.request_backlog import TURN_REQUESTS, Begins, PeerRequest, RequestBacklog
from aeron_spark.errors import AeronSparkError, EndedError, OptionError, RefusedError
from aeron_spark.process_bound import bind_to_process
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Buffer, Reference
from aeron_spark.protocol.rpc_calls import Calls, EndedCall, Response
from aeron_spark.protocol.rpc_dispatch import Dispatcher, Invocation, Outcome
from aeron_spark.protocol.rpc_messages import (
    FIRST_SERVICE,
    Call,
    Create,
    Delete,
    ObjectEnded,
    Request,
    Target,
    call_name,
    describe_request,
    encode_object,
)
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, ConnectionObjects, Mode, Proxy, remote_of
from aeron_spark.waiting import fail, resolve, result_within

Send = Callable[[int, bytes, float | None], None]  # kind, payload, end of the wait for room (None: do not wait)
SendRequest = Callable[[int, bytes, float, Future[Any]], None]  # kind, payload, end of the wait for room, response
Permit = Callable[[Target, str], bool]
BeginPush = Callable[[int, bytes], Future[None] | None]  # kind, payload -> future of its acceptance
STUCK_REMEDY: Final = (
    "Connect again: this process has too much to do, or its connection has failed. The peer may still run the request."
)
PROGRAM: Final = 0  # in place of a service's number: the objects of the program
LONG_BACKLOG: Final = 256  # requests; a worker takes them in some 30 ms
GRACE_S: Final = 5.0  # after the deadline of a call, for the event loop to end it


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """A request that was begun: the futures of its acceptance and of its response, which ``result_of`` decodes.

    A program that does not wait any more cancels ``response``.
    """

    accepted: Future[None]
    response: Future[Response]
    result_of: Callable[[Response], object]


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result of a method that waits without a thread: when ``awaited`` ends, a worker calls ``finish``.

    The result of ``finish``, or its error, is the response to the call.
    """

    awaited: Future[Any]
    finish: Callable[[], Any]


class RpcRunner:
    """Makes calls and runs the peer's calls. Thread-safe.

    ``send`` sends a record of any size. ``send_request`` sends one whose response the future is for, and fails the
    future if the peer refuses the request. ``is_memory_full`` returns whether the endpoint has no memory for a request
    of so many bytes. ``on_room`` is called without a lock after ``is_full`` was true, when the running calls take less
    than half of their limit.
    """

    def __init__(
        self,
        state_lock: threading.RLock,
        owner: EndpointServices,
        permit: Permit,
        send: Send,
        send_request: SendRequest,
        is_memory_full: Callable[[int], bool],
        on_room: Callable[[], None],
        on_short_backlog: Callable[[], None],
        report: Callable[[BaseException], None],
        number: int,
        peer_key: bytes,
        observe: Callable[[ServedCall], None],
    ) -> None:
        self._state_lock = state_lock
        self._owner = owner
        self._send = send
        self._send_request = send_request
        self._on_room = on_room
        self._on_short_backlog = on_short_backlog
        self._report = report
        self._number = number
        self._observe = observe
        self.objects = ConnectionObjects(owner.objects, self._invoke, max_objects=owner.options.max_objects)
        bind_to_process(self)
        self.references = LockedReferences(self.objects, state_lock)
        self.calls = Calls(owner.types, self.references, max_in_flight=owner.options.max_calls, connection=number)
        self.dispatcher = Dispatcher(
            owner.types, self.objects, owner.error_codes, references=self.references, permit=permit,
            limits=lambda: owner.options.call_limits, is_memory_full=is_memory_full,
            hold_response=owner.response_memory.hold, counting=threading.Lock(),
        )  # fmt: skip
        self._requests_lock = threading.Lock()  # for microseconds: guards the following attributes
        self._backlog = RequestBacklog()
        self._was_full = False
        self._is_closed = False
        # A key has a share of the threads for its calls, and one for responses that are ready, which need not wait
        # until its calls have begun.
        self._calls_share: Final = ("calls", peer_key)
        self._responses_share: Final = ("responses", peer_key)
        self._unfinished: dict[int, tuple[Invocation, Deferred, float]] = {}  # by the invocation's id

    @property
    def is_full(self) -> bool:
        """Whether the peer's requests reach their limit, so that acknowledgements to the peer should pause."""
        limits = self.dispatcher.limits()
        return self.running >= limits.running or self.held_bytes >= limits.bytes

    @property
    def running(self) -> int:
        """Number of the peer's requests that wait for a worker or run."""
        return self.dispatcher.running + len(self._backlog)

    @property
    def unread(self) -> int:
        """Number of the peer's requests that were received, and whose method no thread has looked up yet."""
        return len(self._backlog)

    @property
    def held_bytes(self) -> int:
        """Bytes of the peer's requests that wait for a worker or run."""
        return self.dispatcher.running_bytes + self._backlog.bytes

    @property
    def has_long_backlog(self) -> bool:
        """Whether so many calls of the peer wait for a worker that no further ones should be read now."""
        return len(self._backlog) > LONG_BACKLOG

    def exceeds(self, excess_bytes: int) -> bool:
        """Whether the peer's calls exceed their limit by more than ``excess_bytes``."""
        return self.held_bytes > self.dispatcher.limits().bytes + excess_bytes

    def create(self, factory: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None) -> Proxy:
        """Have the peer's factory create an object, and return its proxy."""
        proxy = self._request(
            RecordKind.OBJECT, Create(factory, args, kwargs), CALL_TIMEOUT if timeout is None else timeout
        )
        assert isinstance(proxy, Proxy)  # the response to a creation is always a reference
        return proxy

    def delete(self, proxy: Proxy, timeout: float | None) -> None:
        """Delete an object that the peer created for this endpoint."""
        target = remote_of(proxy).target
        if not isinstance(target, int):
            raise OptionError(
                f"{proxy!r} is a global object, which only its own endpoint ends", remedy="Do not delete it."
            )
        self._request(RecordKind.OBJECT, Delete(target), CALL_TIMEOUT if timeout is None else timeout)
        with self._state_lock:
            self.objects.end_proxies(target)

    def end(self, value: object) -> bool:
        """End an object of this endpoint for the peer; return whether it was registered."""
        with self._state_lock:
            number = self.objects.end(value)
            if number is None:
                return False
            record = encode_object(0, ObjectEnded(number), self._owner.types, self.objects)
        self._send(RecordKind.OBJECT, record, None)
        return True

    def take_request(self, kind: int, payload: Buffer) -> None:
        """Count a call or an object request of the peer, and have a worker run it."""
        self.take_requests(((kind, payload),))

    def take_requests(self, requests: Sequence[PeerRequest]) -> None:
        """Count requests of the peer, and have workers run them; after ``close``, drop them.

        A transfer with a request may be complete only after the connection has ended.
        """
        with self._requests_lock:
            if self._is_closed:
                return
            begins = self._backlog.add(requests, time.monotonic())
        if begins is Begins.ON_WORKER:
            self._submit(self._take_backlog)
        elif begins is Begins.HERE:
            for request in requests:
                self._begin(self._dispatch(request))
        if self.is_full:
            with self._requests_lock:
                self._was_full = True

    def _take_backlog(self) -> None:
        """Begin some of the waiting requests; the next ones have another turn."""
        for _ in range(TURN_REQUESTS):
            with self._requests_lock:
                request = self._backlog.next()
            if request is None:
                self._check_room()
                self._on_short_backlog()
                return
            self._begin(self._dispatch(request))
        if not self.has_long_backlog:
            self._on_short_backlog()
        self._submit(self._take_backlog)

    def _dispatch(self, request: PeerRequest) -> Invocation | bytes | Exception | None:
        kind, payload = request
        try:
            if kind == RecordKind.CALL:
                return self.dispatcher.dispatch_call(payload)
            with self._state_lock:  # it may end objects
                return self.dispatcher.dispatch_object(payload)
        except Exception as error:  # of this record: the other ones are still valid, and their worker must not end
            return error

    def _begin(self, taken: Invocation | bytes | Exception | None) -> None:
        if isinstance(taken, Exception):
            self._report(taken)
        elif isinstance(taken, Invocation):
            arrived_at = time.monotonic()
            self._submit(lambda: self._run(taken, arrived_at), service_of(taken.target))
            if self._is_closed:  # ``close`` may have dropped the waiting work before this was submitted
                self._owner.worker_pool.drop(self._calls_share, self)
        elif taken is not None and not self._is_closed:
            self._respond(taken)

    def _respond(self, response: bytes) -> None:
        try:
            self._send(RecordKind.RETURN, response, None)
        except AeronSparkError as error:
            self._report(error)

    def _submit(self, work: Callable[[], object], service: int | None = None) -> None:
        with suppress(RuntimeError):  # the endpoint is closing
            self._owner.worker_pool.submit(self._calls_share, work, owner=self, kind=service)

    def _check_room(self) -> None:
        """Let the peer send again if its calls have become less than half of their limit after they were full."""
        if not self._was_full:
            return
        with self._requests_lock:  # the event loop may find the calls full again meanwhile, which must not be lost
            has_room = self._was_full and self.dispatcher.is_half_empty and not len(self._backlog)
            self._was_full = self._was_full and not has_room
        if has_room:
            self._on_room()

    def transfer_refusal(self, size: int, announced: int) -> RefusedError | None:
        """Return why the peer may not send a request of ``size`` bytes while it sends ``announced`` others."""
        return self.dispatcher.refusal_of_bytes(size, announced)

    def take_response(self, payload: Buffer) -> None:
        """Wake the thread whose call has this response."""
        with self._state_lock:
            response = self.calls.take_response(payload)
        if response is not None:
            waiter = response.token
            assert isinstance(waiter, Future)
            resolve(waiter, response)

    def tick(self, now: float) -> None:
        """End the calls whose deadline has passed."""
        deadline = self.calls.deadline()
        if deadline is not None and deadline <= now:
            with self._state_lock:
                expired = self.calls.expire(now)
            for ended in expired:
                _raise_in_caller(ended)

    def close(self, reason: str) -> None:
        """End every call and every object, and cancel the futures of calls of the peer."""
        with self._state_lock:
            open_calls = self.calls.close(reason)
            self.objects.close()
        with self._requests_lock:
            self._backlog.clear()
            self._is_closed = True
            unfinished, self._unfinished = self._unfinished, {}
            for invocation, _, _ in unfinished.values():
                self.dispatcher.abandon(invocation)
        for share in (self._calls_share, self._responses_share):
            self._owner.worker_pool.drop(share, self)
        for _, deferred, _ in unfinished.values():
            deferred.awaited.cancel()
        for ended in open_calls:
            _raise_in_caller(ended)

    def _invoke(
        self, target: Target, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode,
        timeout: float | None,
    ) -> Any:  # fmt: skip
        call = Call(target, method, args, kwargs)
        if mode is Mode.ONE_WAY:
            self._send(RecordKind.CALL, self.encode_one_way(call), self._until(None))
            return None
        return self._request(RecordKind.CALL, call, timeout)

    def _request(self, kind: int, request: Request, timeout: float | None) -> Any:
        waiter: Future[Response] = Future()
        with self._state_lock:
            record = self.calls.begin(request, now=time.monotonic(), timeout=timeout, token=waiter)
        try:
            self._send_request(kind, record, self._until(timeout), waiter)
            # The event loop ends the call at its deadline. The grace is for a loop that is late or has ended.
            timeout_s = timeout + GRACE_S if timeout else None
            response = result_within(
                waiter, timeout_s, f"the response to {describe_request(request)}", remedy=STUCK_REMEDY
            )
        except BaseException:
            self._withdraw(waiter)
            waiter.cancel()
            raise
        note_answer(call_name(self._number, response.call_id))
        return self.calls.result_of(response)

    def begin_request(self, kind: int, request: Request, timeout: float | None, push: BeginPush) -> BegunRequest | None:
        """Send a request as soon as there is room, without waiting; None if it is too large for a record.

        ``push`` is ``FrameSender.begin_push``, or returns None for a record that is too large. The event loop ends the
        request at its deadline, ``timeout`` seconds from now.
        """
        waiter: Future[Response] = Future()
        with self._state_lock:
            record = self.calls.begin(request, now=time.monotonic(), timeout=timeout, token=waiter)
        accepted = push(kind, record)
        if accepted is None:
            self._withdraw(waiter)
            return None
        waiter.add_done_callback(self._withdraw_cancelled)
        accepted.add_done_callback(lambda done: self._fail_with(waiter, done))
        return BegunRequest(accepted, waiter, self.calls.result_of)

    def encode_one_way(self, call: Call) -> bytes:
        """Return the record of a call without a response."""
        with self._state_lock:
            return self.calls.encode_one_way(call)

    def _fail_with(self, waiter: Future[Response], accepted: Future[None]) -> None:
        error = None if accepted.cancelled() else accepted.exception()
        if error is not None:
            self._withdraw(waiter)
            fail(waiter, error)

    def _withdraw_cancelled(self, waiter: Future[Response]) -> None:
        if waiter.cancelled():
            self._withdraw(waiter)

    def _withdraw(self, waiter: Future[Response]) -> None:
        with self._state_lock:
            self.calls.withdraw(waiter)

    def _until(self, timeout: float | None) -> float:
        return time.monotonic() + (timeout or self._owner.options.send_timeout)

    def _run(self, invocation: Invocation, arrived_at: float) -> None:
        take_noted_failure()
        outcome = invocation.run()
        deferred = outcome.value
        if isinstance(deferred, Future):
            deferred = Deferred(deferred, deferred.result)
        if isinstance(deferred, Deferred) and invocation.factory is None:
            self._finish_when_done(invocation, deferred, arrived_at)
        else:
            self._finish(invocation, outcome, arrived_at)

    def _finish_when_done(self, invocation: Invocation, deferred: Deferred, arrived_at: float) -> None:
        """Finish a call when the awaited future has ended, without a thread that waits for it."""
        with self._requests_lock:
            if self._is_closed:
                self.dispatcher.abandon(invocation)
            else:
                self._unfinished[id(invocation)] = (invocation, deferred, arrived_at)
        if self._is_closed:
            deferred.awaited.cancel()
        elif deferred.awaited.done():
            self._finish_done(invocation)
        else:
            deferred.awaited.add_done_callback(lambda _: self._submit_done(invocation))

    def _submit_done(self, invocation: Invocation) -> None:
        """Let a worker send the response. Takes no lock: the caller may be the event loop, or may hold locks."""
        if self._is_closed:
            return
        with suppress(RuntimeError):  # the endpoint is closing
            self._owner.worker_pool.submit(self._responses_share, lambda: self._finish_done(invocation), owner=self)

    def _finish_done(self, invocation: Invocation) -> None:
        with self._requests_lock:
            unfinished = self._unfinished.pop(id(invocation), None)
        if unfinished is not None:
            _, deferred, arrived_at = unfinished
            take_noted_failure()
            self._finish(invocation, _outcome_of(deferred.finish), arrived_at)

    def _finish(self, invocation: Invocation, outcome: Outcome, arrived_at: float) -> None:
        try:
            self._send_outcome(invocation, outcome, arrived_at)
        finally:  # what the session has taken by now counts for its connection
            self._owner.response_memory.release(id(invocation))

    def _send_outcome(self, invocation: Invocation, outcome: Outcome, arrived_at: float) -> None:
        with self._state_lock if invocation.factory is not None else nullcontext():
            response = self.dispatcher.respond(invocation, outcome)
        self.dispatcher.abandon(invocation)
        self._check_room()
        if outcome.error is not None and invocation.one_way:
            self._report(outcome.error)
        description, error = take_noted_failure() or (invocation.description, outcome.error)
        name = call_name(self._number, invocation.call_id)
        seconds = time.monotonic() - arrived_at
        try:
            self._observe(ServedCall(name, description, invocation.target, invocation.one_way, seconds, error))
        except Exception as failure:  # of the observer, such as an error without a text: the caller gets its response
            self._report(failure)
        if response is not None:
            self._respond(response)


class LockedReferences:
    """The objects of a connection, for threads that encode and decode without its lock."""

    def __init__(self, objects: ConnectionObjects, state_lock: threading.RLock) -> None:
        self._objects = objects
        self._state_lock = state_lock

    def refer(self, value: object) -> Reference | None:
        """As ``ConnectionObjects``."""
        with self._state_lock:
            return self._objects.refer(value)

    def resolve(self, reference: Reference) -> object:
        """As ``ConnectionObjects``."""
        with self._state_lock:
            return self._objects.resolve(reference)


def service_of(target: Target | None) -> int:
    """Return the number of the endpoint's own service that is called; PROGRAM for an object of the program."""
    return target if isinstance(target, int) and target >= FIRST_SERVICE else PROGRAM


def _outcome_of(finish: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(finish())
    except CancelledError:
        return Outcome(error=EndedError("the call was cancelled", remedy="Call again."))
    except BaseException as error:
        return Outcome(error=error)


def _raise_in_caller(ended: EndedCall) -> None:
    waiter = ended.token
    assert isinstance(waiter, Future)
    fail(waiter, ended.error)
