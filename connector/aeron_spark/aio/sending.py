"""Sends the messages and calls of one connection for coroutines, without a thread for each one that waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from aeron_spark.aio.own_loop import OwnLoop
from aeron_spark.aio.proxy import Proxy, plain, plain_call, wrap
from aeron_spark.connection.inbound import CONFIRM_REMEDY, CONFIRMS
from aeron_spark.connection.rpc import GRACE_S, STUCK_REMEDY, Pending
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import WaitTimeout
from aeron_spark.protocol import rpc_objects
from aeron_spark.protocol.rpc_messages import Call, Create, describe_request
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, Mode

T = TypeVar("T")


class OnThread(Protocol):
    """Runs a call that waits on a thread of the client, and returns its result."""

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]: ...


class Sending:
    """The calls of one connection. Timeouts are in seconds; None: the endpoint's.

    A record that waits for room is a future of the connection, and the event loop of the client accepts it. A message
    or call of more than one record waits on a thread. The task that ends a wait withdraws a record that was not
    accepted.
    """

    def __init__(self, own_loop: OwnLoop, connection: ConnectionRunner, on_thread: OnThread) -> None:
        self._connection: Final = connection
        self._own_loop: Final = own_loop
        self._on_thread: Final = on_thread

    async def send(self, message: object, timeout: float | None, *, acknowledge: bool) -> None:
        """Send a message; with ``acknowledge``, wait until the peer's listeners have returned."""
        connection, seconds = self._connection, self._connection.send_seconds(timeout)
        begun = connection.messages.begin(message, acknowledge=acknowledge)
        if begun is None:
            await self._on_thread(
                partial(connection.for_program.send, message, timeout=timeout, acknowledge=acknowledge)
            )
            return
        end = self._own_loop.time() + seconds
        try:
            await self._accepted(begun.accepted, seconds)
            if begun.confirmed is not None:
                await self._own_loop.wait(begun.confirmed, max(0.0, end - self._own_loop.time()))
                if not begun.confirmed.done():
                    awaited = f"waited {seconds:.3g} s for {connection.label} {CONFIRMS}"
                    raise WaitTimeout(awaited, remedy=CONFIRM_REMEDY)
                begun.confirmed.result()
        finally:
            if begun.confirmed is not None:
                begun.confirmed.cancel()  # no effect on one that has ended

    async def ping(self, timeout: float | None) -> float:
        """Return the round-trip time in seconds."""
        connection = self._connection
        seconds = connection.ping_seconds(timeout)
        what = f"the response of {connection.label} to a ping"
        pong = connection.begin_ping(seconds)
        return await self._own_loop.result_within(pong, seconds + GRACE_S, what, remedy=STUCK_REMEDY)

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of the peer's object."""
        return Proxy(self._connection.for_program.remote(target), self.invoke)

    async def create(self, factory: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None) -> Proxy:
        """Have the peer's factory create an object."""
        create = Create(factory, *plain_call(args, kwargs))
        seconds = CALL_TIMEOUT if timeout is None else timeout
        begun = self._connection.rpc.begin(create, seconds)
        if begun is not None:
            created = await self._result(begun, create, seconds)
        else:
            make = partial(
                self._connection.for_program.create, factory, *create.args, timeout=timeout, **(create.kwargs or {})
            )
            created = await self._on_thread(make)
        proxy: Proxy = wrap(created, self.invoke)
        return proxy

    async def delete(self, proxy: Proxy, timeout: float | None) -> None:
        """Delete an object that the peer created."""
        await self._on_thread(partial(self._connection.for_program.delete, plain(proxy), timeout=timeout))

    async def invoke(self, proxy: rpc_objects.Proxy, call: Call, mode: Mode, timeout: float | None) -> Any:
        """Call a remote method; return its result, or None when a one-way call is accepted."""
        self._own_loop.check()
        if mode is Mode.ONE_WAY:
            accepted = self._connection.rpc.begin_one_way(call)
            if accepted is not None:
                await self._accepted(accepted, self._connection.send_seconds(timeout))
                return None
        else:
            begun = self._connection.rpc.begin(call, timeout)
            if begun is not None:
                return await self._result(begun, call, timeout)
        method = rpc_objects.Proxy(rpc_objects.remote_of(proxy), mode, timeout)[call.method]
        return await self._on_thread(partial(method, *call.args, **(call.kwargs or {})))

    async def _result(self, begun: Pending, request: Call | Create, timeout: float | None) -> object:
        try:
            await self._accepted(begun.accepted, timeout or self._connection.send_seconds(None))
            # The client's event loop ends the call at its deadline. The grace is for a loop that is late.
            what = f"the response to {describe_request(request)}"
            timeout_s = timeout + GRACE_S if timeout else None
            response = await self._own_loop.result_within(begun.response, timeout_s, what, remedy=STUCK_REMEDY)
        finally:
            begun.response.cancel()  # no effect on one that has ended
        return begun.decode(response)

    async def _accepted(self, accepted: Future[None], seconds: float) -> None:
        """Wait until a record is accepted. Otherwise it is not sent: raises WaitTimeout after ``seconds``."""
        sender = self._connection.sender
        try:
            is_ended = await self._own_loop.wait(accepted, seconds)
        except BaseException:  # the task is cancelled
            sender.withdraw(accepted)
            raise
        if not is_ended and sender.withdraw(accepted):
            raise sender.no_room_error()
        await self._own_loop.wait(accepted)  # accepted a moment ago, and about to end
        accepted.result()
