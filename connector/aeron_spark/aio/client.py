"""The client for programs of asyncio: a facade over ``Client``, whose threads execute the protocol."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from aeron_spark import client as plain
from aeron_spark.aio.own import OwnLoop
from aeron_spark.aio.reader import StreamReader
from aeron_spark.aio.writer import BufferedWriter, StreamWriter
from aeron_spark.client.client import MIN_CONNECT_S, ClientState
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.errors import AeronSparkError, EndedError, UsageError
from aeron_spark.process import ExitHook, bind_to_process
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.rpc_messages import Call, Create
from aeron_spark.protocol.rpc_objects import Mode, Proxy, with_invoke
from aeron_spark.stream_client.operations import AwaitedStreamOperations
from aeron_spark.waiting import fail, resolve

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aeron_spark.options.keywords import ClientOptions
    from aeron_spark.stream_client.buffered_writer import BufferKeywords
    from aeron_spark.stream_client.reader import ReaderKeywords
    from aeron_spark.stream_client.writer import WriterKeywords


T = TypeVar("T")
S = TypeVar("S", StreamReader, StreamWriter, BufferedWriter)
F = TypeVar("F", bound=Callable[..., object])

THREADS: Final = 8  # of a client, for calls that wait on a thread: large messages, files, administration of streams


def connect(
    address: str = "",
    *,
    store: PeerStore | None = None,
    connection_class: type[Connection] = Connection,
    timeout: float | None = None,
    wait: bool = True,
    **options: Unpack[ClientOptions],
) -> Client:
    """Return a client that connects when it is entered (``async with``) or awaited.

    The arguments and errors are those of :func:`aeron_spark.connect`. Listeners that are added before are there from
    the beginning.
    """

    def make(deadline: float | None) -> ClientEndpoint:
        from aeron_spark.client.aeron_dialer import make_aeron_endpoint

        return make_aeron_endpoint(address, store, connection_class, options, deadline, opens=wait)

    return Client(make, timeout, wait=wait)


class Client(AwaitedStreamOperations):
    """A client of one server, for the coroutines of the event loop in which it was opened; :func:`connect` makes it.

    Its methods are those of the client without asyncio, with the same arguments and errors; those that wait are
    awaited. Cancelling a task ends its wait, and not what the client has accepted: a message is sent, and a call runs
    at the server. A message that still waits for room is not sent. Listeners are called in the event loop, and may be
    coroutines. Raises UsageError in another event loop.
    """

    def __init__(
        self, make: Callable[[float | None], ClientEndpoint], timeout: float | None = None, *, wait: bool = True
    ) -> None:
        """``make(deadline)`` makes the endpoint of the client, on a thread, by a deadline in monotonic seconds."""
        bind_to_process(self)
        self._make: Final = make
        self._timeout: Final = timeout
        self._waits: Final = wait
        self._own: OwnLoop | None = None
        self._endpoint: ClientEndpoint | None = None
        self._client: plain.Client | None = None
        self._making: Future[plain.Client] = Future()
        self._threads: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="aeron-spark-aio")
        self._prepare: Final[list[Callable[[plain.Client], object]]] = []
        self._streams: Final[weakref.WeakSet[StreamReader | StreamWriter | BufferedWriter]] = weakref.WeakSet()
        self._closing: Future[None] | None = None
        self._exit_hook: ExitHook | None = None

    # Opening and closing.

    async def open(self) -> Client:
        """Make the client and connect it; ``async with`` and ``await`` do so. Raises as :func:`aeron_spark.connect`.

        If it raises, or its task is cancelled, the client is closed.
        """
        if self._own is not None:
            raise UsageError("the client was opened before", remedy="Call aio.connect for each client.")
        deadline = time.monotonic() + self._timeout if self._timeout else None
        own = self._own = OwnLoop()
        self._making = self._threads.submit(self._make_prepared, deadline)
        try:
            await own.wait(self._making)
            self._client = self._making.result()
            if self._waits:
                remaining = None if deadline is None else max(MIN_CONNECT_S, deadline - time.monotonic())
                await self.connect(self._timeout if remaining is None else remaining)
            else:
                self._client.begin_connecting()
        except BaseException:
            self._begin_closing()
            raise
        return self

    def _make_prepared(self, deadline: float | None) -> plain.Client:
        endpoint = self._make(deadline)
        client = plain.Client(endpoint)
        try:
            for prepare in self._prepare:
                prepare(client)
        except BaseException:
            client.close()
            raise
        self._endpoint = endpoint
        self._exit_hook = ExitHook(lambda: self._close(Future()))  # before that of the client, which it closes
        return client

    async def connect(self, timeout: float | None = None) -> None:
        """Connect within ``timeout`` seconds, also after the client has stopped; see ``Client.connect``."""
        self._opened()
        endpoint = self._endpoint
        assert endpoint is not None  # that of the opened client
        timeout_s = endpoint.options.connect_timeout if timeout is None else timeout
        until = time.monotonic() + timeout_s if timeout_s else None
        connected, is_own = endpoint.request_connect(until)
        if not await self._own_loop.wait(connected, None if is_own or not timeout_s else timeout_s):
            raise endpoint.late_error(timeout_s)
        connected.result()

    async def reconnect(self, timeout: float | None = None) -> None:
        """Close the link, keep the session, and resume it; see ``Client.reconnect``."""
        await self._on_thread(partial(self._opened().reconnect, timeout))

    async def close(self) -> None:
        """Send the unsent messages, close, and wait until all threads of the client have ended."""
        if self._own is None:
            return
        self._own.check()
        await self._own.wait(self._begin_closing())

    def _begin_closing(self) -> Future[None]:
        if self._closing is None:
            self._closing = Future()
            threading.Thread(target=self._close, args=(self._closing,), name="aeron-spark-aio-close").start()
        return self._closing

    def _close(self, closing: Future[None]) -> None:
        try:
            if self._making.exception() is None:
                if self._exit_hook is not None:
                    self._exit_hook.cancel()
                streams = list(self._streams)
                for one in streams:
                    one.stop()  # a reader that follows ends its wait
                self._making.result().close()
                for one in streams:
                    one.join()
            self._threads.shutdown(wait=True)
        except BaseException as error:
            fail(closing, error)
        else:
            resolve(closing, None)

    def __await__(self) -> Generator[Any, None, Client]:
        return self.open().__await__()

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The state.

    @property
    def state(self) -> ClientState:
        """The state of the client; ``closed`` before it is opened, too."""
        return "closed" if self._client is None else self._client.state

    @property
    def error(self) -> AeronSparkError | None:
        """The error that stopped the client, or that of its last attempt to connect."""
        return None if self._client is None else self._client.error

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before."""
        return b"" if self._client is None else self._client.server_key

    # Listeners, which may be coroutines, and what the server may call.

    def on_message(self, kind: type, listener: Callable[[Any], object]) -> None:
        """Call ``listener(message)`` for each message of this class or a subclass, in order."""
        self._with_client(lambda client: client.on_message(kind, self._in_loop(listener)))

    def on_connect(self, listener: F) -> F:
        """Call ``listener(connection)`` when a session can be used: once for a session, not when it resumes."""
        return self._add_listener("on_connect", listener)

    def on_disconnect(self, listener: F) -> F:
        """Call ``listener(connection)`` when the connection is closed, or silent for longer than the expiry."""
        return self._add_listener("on_disconnect", listener)

    def on_reconnect(self, listener: F) -> F:
        """Call ``listener(connection, resumed)`` when the client is connected again after an outage."""
        return self._add_listener("on_reconnect", listener)

    def on_lost(self, listener: F) -> F:
        """Call ``listener(connection, error)`` when a session has ended; ``error.unconfirmed`` has its messages."""
        return self._add_listener("on_lost", listener)

    def on_stopped(self, listener: F) -> F:
        """Call ``listener(error)`` once when the client gives up; :meth:`connect` tries again."""
        return self._add_listener("on_stopped", listener)

    def on_error(self, listener: F) -> F:
        """Call ``listener(connection or None, error)`` for each error that no call raises."""
        return self._add_listener("on_error", listener)

    def register(self, name: str, value: object, methods: Iterable[str]) -> None:
        """Let the server call the listed methods of ``value``, on threads of the client."""
        self._with_client(lambda client: client.register(name, value, methods))

    def register_type(self, cls: type, type_id: int) -> None:
        """Send and receive messages of ``cls``, a msgspec.Struct or dataclass."""
        self._with_client(lambda client: client.register_type(cls, type_id))

    def _add_listener(self, name: str, listener: F) -> F:
        self._with_client(lambda client: getattr(client, name)(self._in_loop(listener)))
        return listener

    def _in_loop(self, listener: Callable[..., object]) -> Callable[..., None]:
        return self._own_loop.in_loop(listener)

    def _with_client(self, use: Callable[[plain.Client], object]) -> None:
        """Call ``use`` with the client: now, or after the client is made and before it connects."""
        if self._own is None:
            self._prepare.append(use)
        else:
            use(self._opened())

    # Messages and calls.

    async def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message; see ``Connection.send``. A message of more than one record waits on a thread."""
        core = self._core()
        seconds = core.send_seconds(timeout)
        pending = core.begin_send(message, seconds, acknowledge=acknowledge, threads=self._threads)
        if pending is not None:
            await self._own_loop.awaited(pending)

    async def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send many messages, on a thread; see ``Connection.send_many``."""
        await self._on_thread(partial(self._opened().connection.send_many, messages, timeout=timeout))

    async def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file, on a thread; see ``Connection.send_file``."""
        await self._on_thread(partial(self._opened().connection.send_file, path, name=name, timeout=timeout))

    async def ping(self, timeout: float | None = None) -> float:
        """Return the round-trip time in seconds."""
        core = self._core()
        return await self._own_loop.awaited(core.begin_ping(core.ping_seconds(timeout)))

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of the server's object of this name or number, whose methods are awaited.

        The server may still run a cancelled call.
        """
        core = self._core()
        proxy: Proxy = self._awaited(core, core.rpc.objects.proxy(target))
        return proxy

    async def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the server's factory of this name create an object, and return its proxy."""
        core = self._core()
        pending = core.rpc.begin(Create(factory, args, kwargs), core.call_seconds(timeout), self._threads)
        proxy: Proxy = self._awaited(core, await self._own_loop.awaited(pending))
        return proxy

    async def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """Delete an object that the server created for this client."""
        core = self._core()
        await self._own_loop.awaited(core.rpc.begin_delete(proxy, core.call_seconds(timeout), self._threads))

    def _awaited(self, core: ConnectionCore, value: Any) -> Any:
        """Return a proxy of the same object whose calls are awaited; another value unchanged."""

        async def invoke(call: Call, mode: Mode, timeout: float | None) -> Any:
            self._own_loop.check()
            pending = core.rpc.begin_call(call, mode, timeout, self._threads)
            return None if pending is None else self._awaited(core, await self._own_loop.awaited(pending))

        return with_invoke(value, invoke)

    # Streams: the operations on them are those of AwaitedStreamOperations.

    @overload
    def writer(self, stream: str, *, buffer: None = None, **keywords: Unpack[WriterKeywords]) -> StreamWriter: ...

    @overload
    def writer(self, stream: str, *, buffer: str | Path, **keywords: Unpack[BufferKeywords]) -> BufferedWriter: ...

    def writer(
        self, stream: str, *, buffer: str | Path | None = None, **keywords: Any
    ) -> StreamWriter | BufferedWriter:
        """Return a writer of transactions for ``async with``; see ``Client.writer``. It has one thread."""
        client = self._opened()
        if buffer is None:
            return self._add_stream(
                StreamWriter(self._own_loop, lambda: client.writer(stream, buffer=None, **keywords), stream)
            )
        return self._add_stream(
            BufferedWriter(self._own_loop, lambda: client.writer(stream, buffer=buffer, **keywords), stream)
        )

    def reader(self, stream: str, **keywords: Unpack[ReaderKeywords]) -> StreamReader:
        """Return an iterator over the stream's record batches for ``async for``; see ``Client.reader``.

        It has one thread, until it is closed (``async with``) or the client is.
        """
        client = self._opened()
        return self._add_stream(StreamReader(self._own_loop, lambda: client.reader(stream, **keywords), stream))

    def _add_stream(self, stream: S) -> S:
        self._streams.add(stream)
        return stream

    # The parts of the methods.

    @property
    def _own_loop(self) -> OwnLoop:
        if self._own is None:
            raise UsageError("the client is not open", remedy="Use it in an `async with` block.")
        return self._own

    def _opened(self) -> plain.Client:
        """Return the client without asyncio. Raises UsageError outside its event loop, and before it is open."""
        self._own_loop.check()
        if self._client is None:
            raise UsageError("the client is not open", remedy="Use it in an `async with` block.")
        return self._client

    def _core(self) -> ConnectionCore:
        """Return the connection. Raises as :meth:`_opened`, and while the client has no session."""
        self._opened()
        assert self._endpoint is not None  # that of the opened client
        return self._endpoint.require_connection()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        """Return the result of a call that waits, on a thread of the client. A cancellation ends the wait only."""
        self._own_loop.check()
        try:
            running = self._threads.submit(call)
        except RuntimeError:
            raise EndedError("the client is closed", remedy="Open another client.") from None
        await self._own_loop.wait(running)
        return running.result()
