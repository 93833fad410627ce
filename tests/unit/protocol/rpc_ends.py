"""Two ends of a connection that make remote calls by passing each other their records in function calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.peer_calls import PeerCalls
from aeron_spark.endpoint.rpc import Rpc
from aeron_spark.endpoint.usage import ResponseMemory
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import CallLimits, ErrorCodes, ObjectService, Permit
from aeron_spark.protocol.rpc_messages import Create, Target, call_id_of
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, GlobalObjects, Proxy

CONNECTION = 7


def permit_all(target: Target, method: str) -> bool:
    return True


class RpcEnd:
    """One end. Only tests and their remote methods change ``now``; a method's duration is its increment of ``now``.

    It sends the requests of its calls, and runs the calls of the other end: at once, or when a test takes them from
    ``work``.
    """

    def __init__(
        self, shared: GlobalObjects | None = None, types: Types | None = None, *, permit: Permit = permit_all,
        limits: CallLimits | None = None, errors: ErrorCodes | None = None, max_objects: int = 100,
        max_in_flight: int = 100_000,
    ) -> None:  # fmt: skip
        self.now = 0.0
        self.loop = Loop("test", lambda: self.now)
        self.shared = shared or GlobalObjects()
        self.types = types or Types()
        self.errors = errors or ErrorCodes()
        self.sent: list[bytes] = []  # records of requests
        self.responses: list[bytes] = []
        self.reported: list[BaseException] = []
        self.work: list[Callable[[], object]] = []
        self.runs_at_once = True
        owner: Any = SimpleNamespace(
            types=self.types, objects=self.shared, error_codes=self.errors,
            options=SimpleNamespace(
                max_objects=max_objects, max_calls=max_in_flight, send_timeout=30.0, call_limits=limits or CallLimits()
            ),
            response_memory=ResponseMemory(lambda: 0), worker_pool=self, loop=self.loop,
        )  # fmt: skip
        self.sender = SimpleNamespace(loop=self.loop, clock=self.loop.clock, withdraw=lambda _: False)
        transfers: Any = self
        self.rpc = Rpc(owner, threading.RLock(), transfers, CONNECTION)
        self.objects = self.rpc.objects
        self.served = PeerCalls(
            owner, ObjectService(self.types, self.objects, self.errors, permit), self.objects, self.responses.append,
            lambda _: False, lambda: None, lambda: None, self.reported.append,
            lambda *ended: None, b"",
        )  # fmt: skip
        self.peer: RpcEnd = self

    def submit(self, share: object, work: Callable[[], object], *, owner: object, kind: object = None) -> None:
        """Run work as a pool does."""
        if self.runs_at_once:
            work()
        else:
            self.work.append(work)

    def drop(self, share: object, owner: object) -> int:
        """Drop the waiting work."""
        count = len(self.work)
        self.work.clear()
        return count

    def serve(self, record: bytes, *, is_call: bool = True) -> bytes | None:
        """Let this end take a request, and return its response."""
        self.served.take(((RecordKind.CALL if is_call else RecordKind.OBJECT, record),))
        return self.responses.pop() if self.responses else None

    def remote(self, target: Target) -> Proxy:
        return self.objects.proxy(target)

    def create(self, factory: str, *args: Any, **kwargs: Any) -> Any:
        return self.rpc.begin(Create(factory, args, kwargs), CALL_TIMEOUT).result()

    def delete(self, proxy: Proxy) -> None:
        self.rpc.begin_delete(proxy, CALL_TIMEOUT).result()

    def end(self, value: object) -> None:
        """End a local object, and notify the peer."""
        assert self.rpc.end(value)

    def send(self, kind: int, record: bytes, until: float | None) -> None:
        assert self.peer.serve(record, is_call=kind == RecordKind.CALL) is None

    def begin(self, kind: int, record: bytes, response: Future[Any] | None, threads: object) -> None:
        """Keep a request, and let the peer execute it. A late response arrives after the end of its call."""
        self.sent.append(record)
        if self.peer is self:
            return
        started = self.peer.now
        answer = self.peer.serve(record, is_call=kind == RecordKind.CALL)
        self.now += self.peer.now - started
        if answer is None or response is None:
            return
        if self.rpc._pending[call_id_of(record)].remaining_s == 0.0:
            response.add_done_callback(lambda _: self.rpc.take_response(answer))
        else:
            self.rpc.take_response(answer)


def connected_ends(client: RpcEnd | None = None, server: RpcEnd | None = None) -> tuple[RpcEnd, RpcEnd]:
    """Return a client and a server that are connected."""
    one, other = client or RpcEnd(), server or RpcEnd()
    one.peer, other.peer = other, one
    return one, other
