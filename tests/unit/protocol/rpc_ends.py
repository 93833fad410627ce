"""Two ends of a connection that make remote calls by passing each other their records in function calls."""

from __future__ import annotations

from typing import Any

from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_calls import Calls
from aeron_spark.protocol.rpc_dispatch import Dispatcher, ErrorCodes, Invocation
from aeron_spark.protocol.rpc_messages import Call, Create, Delete, ObjectEnded, Request, Target, encode_object
from aeron_spark.protocol.rpc_objects import ConnectionObjects, GlobalObjects, Mode, Proxy, remote_of


class RpcEnd:
    """One end. Only tests and their remote methods change ``now``; a method's duration is its increment of ``now``."""

    def __init__(self, shared: GlobalObjects | None = None, types: Types | None = None, **limits: Any) -> None:
        self.now = 0.0
        self.shared = shared or GlobalObjects()
        self.types = types or Types()
        self.errors = ErrorCodes()
        self.objects = ConnectionObjects(self.shared, self.invoke, max_objects=limits.pop("max_objects", 100))
        self.calls = Calls(self.types, self.objects, max_in_flight=limits.pop("max_in_flight", 100_000))
        self.dispatcher = Dispatcher(self.types, self.objects, self.errors, **limits)
        self.peer: RpcEnd = self

    def invoke(
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
            response_record = self.peer.serve(self.calls.encode_one_way(call))
            assert response_record is None
            return None
        return self.request(call, timeout)

    def request(self, request: Request, timeout: float | None = 3.0) -> Any:
        """Send a request, let the peer execute it, and return the result or raise."""
        token = object()
        record = self.calls.begin(request, now=self.now, timeout=timeout, token=token)
        started = self.peer.now
        response_record = self.peer.serve(record, is_call=isinstance(request, Call))
        self.now += self.peer.now - started
        ended = [*self.calls.expire(self.now)]
        if response_record is not None and (response := self.calls.take_response(response_record)):
            assert response.token is token
            return self.calls.result_of(response)
        (call,) = [one for one in ended if one.token is token]
        raise call.error

    def serve(self, record: bytes, *, is_call: bool = True) -> bytes | None:
        invocation = self.dispatcher.dispatch_call(record) if is_call else self.dispatcher.dispatch_object(record)
        if isinstance(invocation, Invocation):
            return self.dispatcher.finish(invocation, invocation.run())
        return invocation

    def remote(self, target: Target) -> Proxy:
        return self.objects.proxy(target)

    def create(self, factory: str, *args: Any, **kwargs: Any) -> Any:
        return self.request(Create(factory, args, kwargs))

    def delete(self, proxy: Proxy) -> None:
        target = remote_of(proxy).target
        assert isinstance(target, int)
        self.request(Delete(target))
        self.objects.end_proxies(target)

    def end(self, value: object) -> None:
        """End a local object, and notify the peer."""
        number = self.objects.end(value)
        assert number is not None
        self.peer.serve(encode_object(0, ObjectEnded(number), self.types, None), is_call=False)


def connected_ends(client: RpcEnd | None = None, server: RpcEnd | None = None) -> tuple[RpcEnd, RpcEnd]:
    """Return a client and a server that are connected."""
    one, other = client or RpcEnd(), server or RpcEnd()
    one.peer, other.peer = other, one
    return one, other
