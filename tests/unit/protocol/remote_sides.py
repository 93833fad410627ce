"""Two sides of a connection that call each other, joined by a function call: each gets the other's records at once."""

from __future__ import annotations

from typing import Any

from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_calls import Calls
from aeron_spark.protocol.rpc_dispatch import Dispatcher, ErrorCodes, Invocation
from aeron_spark.protocol.rpc_messages import Call, Create, Delete, ObjectEnded, Request, Target, encode_object
from aeron_spark.protocol.rpc_objects import ConnectionObjects, GlobalObjects, Mode, Proxy, remote_of


class Side:
    """One side. ``now`` stands still unless a test moves it; what a method takes is what it adds to ``now``."""

    def __init__(self, shared: GlobalObjects | None = None, types: Types | None = None, **limits: Any) -> None:
        self.now = 0.0
        self.shared = shared or GlobalObjects()
        self.types = types or Types()
        self.errors = ErrorCodes()
        self.objects = ConnectionObjects(self.shared, self.invoke, max_objects=limits.pop("max_objects", 100))
        self.calls = Calls(self.types, self.objects, max_in_flight=limits.pop("max_in_flight", 100_000))
        self.dispatcher = Dispatcher(self.types, self.objects, self.errors, **limits)
        self.peer: Side = self

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
            answer = self.peer.serve(self.calls.one_way(call))
            assert answer is None
            return None
        return self.ask(call, timeout)

    def ask(self, request: Request, timeout: float | None = 3.0) -> Any:
        """Ask, let the peer answer, and return the result or raise."""
        token = object()
        record = self.calls.begin(request, now=self.now, timeout=timeout, token=token)
        begun = self.peer.now
        answer = self.peer.serve(record, is_call=isinstance(request, Call))
        self.now += self.peer.now - begun
        ended = [*self.calls.expired(self.now)]
        if answer is not None and (response := self.calls.take_response(answer)):
            assert response.token is token
            return self.calls.result_of(response)
        (found,) = [one for one in ended if one.token is token]
        raise found.error

    def serve(self, record: bytes, *, is_call: bool = True) -> bytes | None:
        taken = self.dispatcher.call(record) if is_call else self.dispatcher.object_request(record)
        if isinstance(taken, Invocation):
            return self.dispatcher.finish(taken, taken.run())
        return taken

    def remote(self, target: Target) -> Proxy:
        return self.objects.proxy(target)

    def create(self, factory: str, *args: Any, **kwargs: Any) -> Any:
        return self.ask(Create(factory, args, kwargs))

    def delete(self, proxy: Proxy) -> None:
        target = remote_of(proxy).target
        assert isinstance(target, int)
        self.ask(Delete(target))
        self.objects.end_proxies(target)

    def end(self, value: object) -> None:
        """End an object at home and tell the peer."""
        number = self.objects.end(value)
        assert number is not None
        self.peer.serve(encode_object(0, ObjectEnded(number), self.types, None), is_call=False)


def sides(client: Side | None = None, server: Side | None = None) -> tuple[Side, Side]:
    """A client and a server, joined."""
    one, other = client or Side(), server or Side()
    one.peer, other.peer = other, one
    return one, other
