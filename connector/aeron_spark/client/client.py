"""The client: connects to one server, sends and receives messages, calls remote objects, and uses streams."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from aeron_spark.aeron import jvm
from aeron_spark.endpoint.bulk_links import BulkLink
from aeron_spark.endpoint.bulk_opening import open_bulk_link
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.endpoint import Endpoint
from aeron_spark.errors import AeronSparkError, OptionError, RefusedError
from aeron_spark.process import ExitHook, FreePages
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.rpc_objects import Proxy
from aeron_spark.stream_client.operations import StreamOperations, describe_stream
from aeron_spark.stream_client.session import StreamSession

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

    from aeron_spark.options.keywords import ClientOptions
    from aeron_spark.stream_client.buffered_writer import BufferedWriter, BufferKeywords
    from aeron_spark.stream_client.reader import ReaderKeywords, StreamReader
    from aeron_spark.stream_client.writer import StreamWriter, WriterKeywords
    from aeron_spark.wire.stream_requests import StreamInfo


ClientState = Literal["connecting", "connected", "reconnecting", "stopped", "closed"]

# Each client has buffers of some 100 KiB. The C library keeps those of closed ones in pieces that fit no later buffer.
_FREE_PAGES: Final = FreePages(free=jvm.collect_garbage)

OnLost = TypeVar("OnLost", bound=Callable[[Connection, AeronSparkError], object])
OnReconnect = TypeVar("OnReconnect", bound=Callable[[Connection, bool], object])
OnStopped = TypeVar("OnStopped", bound=Callable[[AeronSparkError], object])

CONNECT_GRACE_S: Final = 5.0  # beyond the time of a connect, for the event loop to say how it ended
BUSY: Final = "Try again; the client's event loop, or the machine, has too much to do."
STREAM_CALL_TIMEOUT_S: Final = 20.0  # of one stream request, including an outage
STREAM_CHECK_TIMEOUT_S: Final = 5.0  # of the check of a stream's name before a buffered writer starts


class Client(Endpoint[ClientEndpoint], StreamOperations):
    """A client of one server. ``close`` or ``with`` ends it; the end of the process closes an open one.

    :func:`aeron_spark.connect` returns one that is connected. :meth:`to` makes one that is not connected, so that a
    program can register listeners, types and objects first; then :meth:`connect` connects it.

    It has one connection. After a lost session the next connection is a new :class:`Connection` object. Methods that
    send or call raise ConnectError while the client has no session, and otherwise the same errors as those of
    :class:`Connection`. Methods for streams raise OptionError for a stream that does not exist (with the nearest name)
    and RefusedError for an action that the client's key is not granted.
    """

    def __init__(self, endpoint: ClientEndpoint) -> None:
        """Make a client of an endpoint, over any transport; :meth:`to` makes one over Aeron."""
        super().__init__(endpoint)
        self._options: Final = endpoint.options
        self._streams_lock: Final = threading.Lock()
        self._streams: StreamSession | None = None
        self._buffered_writers: Final[weakref.WeakSet[BufferedWriter]] = weakref.WeakSet()
        self._exit_hook: Final = ExitHook(self.close)

    @classmethod
    def to(
        cls,
        address: str = "",
        *,
        store: PeerStore | None = None,
        connection_class: type[Connection] = Connection,
        **options: Unpack[ClientOptions],
    ) -> Client:
        """Make a client of the server at ``address`` without connecting; the arguments are those of :func:`connect`."""
        from aeron_spark.client.aeron_dialer import make_aeron_endpoint

        return cls(make_aeron_endpoint(address, store, connection_class, options, None))

    # The connection.

    @property
    def connection(self) -> Connection:
        """The connection of the current session.

        Without a session it raises the error that stopped the client, or ConnectError while the client connects or has
        not been told to, or EndedError once it is closed.
        """
        return self._endpoint.require_connection().for_program

    @property
    def state(self) -> ClientState:
        """The state of the client.

        ``connecting``: it tries to connect. ``connected``. ``reconnecting``: the link was lost, and the client tries to
        resume the session; it keeps the messages that the program sends meanwhile. ``stopped``: it does not try,
        because it never did, the server closed the connection, or :attr:`error` occurred. Sending then raises that
        error, and :meth:`connect` tries again. ``closed``.
        """
        connection = self._endpoint.connection
        if self._endpoint.loop.is_closing:
            return "closed"
        if connection is not None and connection.connected:
            return "connected"
        if self._endpoint.is_stopped:
            return "stopped"
        return "connecting" if connection is None else "reconnecting"

    @property
    def error(self) -> AeronSparkError | None:
        """The error that stopped the client, or that of its last attempt to connect; None while it is connected."""
        state = self.state
        if state == "stopped":
            return self._endpoint.stopped
        return self._endpoint.failure if state in ("connecting", "reconnecting") else None

    @property
    def connected(self) -> bool:
        """Whether the link is connected."""
        connection = self._endpoint.connection
        return connection is not None and connection.connected

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before."""
        return self._endpoint.server_key

    def connect(self, timeout: float | None = None) -> Connection:
        """Connect within ``timeout`` seconds (0: until closed), and return the connection; at once if it is connected.

        A call while another one connects waits for that attempt. After ``timeout`` it raises the error of the last try,
        and the attempt goes on. The client repeats an attempt after a refusal whose advice is soon (``error.retry``).
        Raises RefusedError with the server's reason, IdentityError for a wrong key, TamperedError for a packet that
        fails its authentication, EndedError once the client is closed, and WaitTimeout or ConnectError after
        ``timeout``.
        """
        return self._connect(timeout, reconnecting=False)

    def begin_connecting(self, timeout: float | None = 0.0) -> Future[Connection]:
        """Connect as soon as that is possible, without waiting; return the future of the connection.

        The future fails with the errors of :meth:`connect`, and ``timeout`` is as there: by default, the client tries
        until it is closed. A wrong key ends the attempts, and so does a refusal whose advice is not soon.
        """
        timeout_s = self._options.connect_timeout if timeout is None else timeout
        return self._endpoint.request_connect(self._endpoint.loop.clock() + timeout_s if timeout_s else None)[0]

    def reconnect(self, timeout: float | None = None) -> Connection:
        """Close the link, keep the session, and resume it; ``timeout`` in seconds, as for :meth:`connect`.

        Raises as ``connect`` does. After an error, or an interrupt such as Ctrl-C, the client has stopped: sending
        raises the same error, or ConnectError, and ``connect`` tries to resume the session again.
        """
        connection = self._endpoint.connection
        self._endpoint.expect_reconnect()
        try:
            if connection is not None and connection.connected:
                connection.close(keep_session=True)
                self._endpoint.loop.wait_until(lambda: not connection.connected, self._options.close_timeout + 1.0)
            return self._connect(timeout, reconnecting=True)
        except BaseException as error:
            self._endpoint.stop_reconnecting(error)
            raise

    def _connect(self, timeout: float | None, *, reconnecting: bool) -> Connection:
        timeout_s = self._options.connect_timeout if timeout is None else timeout
        loop = self._endpoint.loop
        until = loop.clock() + timeout_s if timeout_s else None
        awaited = f"a connection with {self._endpoint.server}"
        while True:
            connected, is_own = self._endpoint.request_connect(until, reconnecting=reconnecting)
            grace_s = CONNECT_GRACE_S if is_own else 0.0
            remaining_s = None if until is None else max(0.0, until - loop.clock()) + grace_s
            try:
                return loop.wait(connected, remaining_s, awaited, remedy=BUSY)
            except AeronSparkError as error:
                if is_own:
                    raise
                if not connected.done():
                    raise self._endpoint.late_error(timeout_s) from None
                # The deadline of the call that began the attempt has passed; that of this call may be later.
                if not error.retriable or (until is not None and loop.clock() >= until):
                    raise

    def close(self) -> None:
        """Send the unsent messages and CLOSE, and end. Does nothing if the client is closed or being closed.

        Buffered writers close first and send unsent transactions for a few seconds. After the call, the key store has
        the server's key, unless it needed more than 5 s. The media driver stops some time after its last user.
        """
        for writer in list(self._buffered_writers):
            writer.close()
        if not self._endpoint.loop.begin_closing():
            return
        self._exit_hook.cancel()
        self._close()
        if self._streams is not None:
            self._streams.close()
        self._endpoint.on_closed(not self._endpoint.loop.is_running)
        _FREE_PAGES.return_if_due()

    def _close(self) -> None:
        connection = self._endpoint.connection
        if connection is not None and connection.connected:
            connection.close(keep_session=False)
            self._endpoint.loop.wait_until(lambda: not self._is_closing(connection), self._options.close_timeout)
        self._endpoint.stop()
        self._endpoint.await_stored_key()
        self._endpoint.close_transport()

    def _is_closing(self, connection: ConnectionCore) -> bool:
        return self._endpoint.loop.is_running and self._endpoint.connection is connection

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Listeners of the state. They are called one at a time, in the order of the events.

    def on_lost(self, listener: OnLost) -> OnLost:
        """Call ``listener(connection, error)`` when a session has ended that the program did not close.

        ``error.unconfirmed`` has the messages that were sent, in order, and whose arrival the server has not confirmed;
        the first ones may have arrived. A large message or a file is an :class:`UnconfirmedTransfer`. Also called after
        a close that ended before all messages were confirmed.
        """
        return self._endpoint.listeners.add("lost", listener)

    def on_reconnect(self, listener: OnReconnect) -> OnReconnect:
        """Call ``listener(connection, resumed)`` when the client is connected again after an outage.

        ``resumed``: with the same session. Otherwise ``connection`` is a new one, after ``on_lost`` with the last one.
        """
        return self._endpoint.listeners.add("reconnect", listener)

    def on_stopped(self, listener: OnStopped) -> OnStopped:
        """Call ``listener(error)`` once when the client gives up; :meth:`connect` tries again."""
        return self._endpoint.listeners.add("stopped", listener)

    # Messages and calls.

    def on_message(self, kind: type, listener: Callable[..., object]) -> None:
        """Call ``listener(message)`` for each message of this class or a subclass, in every session."""
        self._endpoint.message_listeners.add(kind, lambda _, message: listener(message))

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message; see :meth:`Connection.send`."""
        self.connection.send(message, timeout=timeout, acknowledge=acknowledge)

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send many messages; see :meth:`Connection.send_many`."""
        self.connection.send_many(messages, timeout=timeout)

    def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file; see :meth:`Connection.send_file`."""
        self.connection.send_file(path, name=name, timeout=timeout)

    def ping(self, timeout: float | None = None) -> float:
        """Return the round-trip time in seconds."""
        return self.connection.ping(timeout)

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of the server's object of this name or number."""
        return self.connection.remote(target)

    def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the server's factory of this name create an object, and return its proxy."""
        return self.connection.create(factory, *args, timeout=timeout, **kwargs)

    def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """Delete an object that the server created for this client."""
        self.connection.delete(proxy, timeout=timeout)

    def offer(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        """Let the server call the listed methods of ``value`` in this session; return its number."""
        return self.connection.register(value, methods, number)

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a bulk link of the connection, without another handshake; ``timeout`` in seconds.

        Raises WaitTimeout, RefusedError when the server allows no more, ConnectError while the client has no session.
        """
        timeout_s = self._options.connect_timeout if timeout is None else timeout
        return open_bulk_link(self._endpoint, self._endpoint.require_connection(), timeout_s)

    # Streams: the operations on them are those of StreamOperations.

    @overload
    def writer(self, stream: str, *, buffer: None = None, **keywords: Unpack[WriterKeywords]) -> StreamWriter: ...

    @overload
    def writer(self, stream: str, *, buffer: str | Path, **keywords: Unpack[BufferKeywords]) -> BufferedWriter: ...

    def writer(
        self, stream: str, *, buffer: str | Path | None = None, **keywords: Any
    ) -> StreamWriter | BufferedWriter:
        """Return a writer of transactions. A ``with`` block is one transaction; each ``commit()`` in it ends one.

        The keywords are ``writer_id``, ``partition``, ``payload``, ``schema``, ``timeout`` and ``evolve_schema``; with
        ``buffer`` also ``buffer_bytes`` and ``keep_sent``.

        A transaction becomes visible completely or not at all, and exactly once. Its rows go to ``partition``. Without
        ``partition``, all rows of a transaction go to one partition, and each transaction to the next one. With
        ``payload`` ``auto``, bytes are ``raw`` messages if the stream has such, else ``framed`` values of any size; all
        other data is ``arrow`` rows. ``schema`` gives the columns of a stream that has none yet, or adds nullable ones
        (with ``evolve_schema``).
        A ``writer_id`` continues the numbering of that writer's transactions, and fences an earlier run with the same
        id.

        With ``buffer``, a folder, ``commit`` writes the transaction to the folder and returns when it is on disk. The
        writer sends the transactions whenever the server can be reached; the next program that opens the folder sends
        the unsent ones. The folder takes up to ``buffer_bytes`` unsent bytes, and belongs to one stream and one writer.
        The client need not be connected (``connect(..., wait=False)``). ``keep_sent`` (``"24h"``, or seconds) keeps
        sent transactions for that time, and they do not count towards ``buffer_bytes``. If the server is restored from
        an older copy, the writer sends the transactions again that the copy lacks.

        ``timeout`` is how many seconds a call waits for a silent server, or with ``buffer`` for room in the folder. A
        call waits up to ten minutes for a commit that the server reports as running. With ``evolve_schema`` the writer
        may add nullable columns to a ``strict`` schema, if its key has the grant ``manage``.
        """
        if buffer is not None:
            return self._buffered_writer(stream, buffer, **keywords)
        from aeron_spark.stream_client.writer import StreamWriter

        return StreamWriter(self._stream_session(), stream, **keywords)

    def _buffered_writer(
        self,
        stream: str,
        buffer: str | Path,
        *,
        buffer_bytes: int = 1 << 30,
        keep_sent: float | str = 0.0,
        schema: pa.Schema | None = None,
        **keywords: Any,
    ) -> BufferedWriter:
        from aeron_spark.stream_client.buffered_writer import BufferedWriter

        known = self._check_stream(stream)
        writer = BufferedWriter(
            self,
            self._stream_session(),
            stream,
            buffer,
            schema=schema or (None if known is None else known.schema),
            max_bytes=buffer_bytes,
            keep_seconds=_parse_seconds("keep_sent", keep_sent),
            former_names=() if known is None else known.former_names,
            **keywords,
        )
        self._buffered_writers.add(writer)
        return writer

    def reader(self, stream: str, **keywords: Unpack[ReaderKeywords]) -> StreamReader:
        """Return an iterator over the stream's record batches; see :class:`StreamReader`.

        The keywords are ``start``, ``end``, ``follow``, ``partitions``, ``schema``, ``metadata`` and ``timeout``.
        ``start`` and ``end`` are ``earliest``, ``latest``, a time (``"-10min"``, ISO, a datetime; UTC without a zone),
        or positions by partition, such as another reader's. Without ``follow`` the iterator ends at the rows that are
        committed now. With it, it continues through outages of the server, and ends after ``timeout`` seconds without a
        row; None: never.
        """
        from aeron_spark.stream_client.reader import StreamReader

        return StreamReader(self._stream_session(), stream, **keywords)

    def _stream_session(self) -> StreamSession:
        with self._streams_lock:
            if self._streams is None:
                self._streams = StreamSession(self, STREAM_CALL_TIMEOUT_S)
            return self._streams

    def _check_stream(self, stream: str) -> StreamInfo | None:
        """Return the stream, None if it cannot be described now.

        Raises the server's error for a stream that cannot be written, if the client is connected.
        """
        if not self.connected:
            return None
        try:
            return describe_stream(self._stream_session(), stream, timeout_s=STREAM_CHECK_TIMEOUT_S)
        except (OptionError, RefusedError):
            raise
        except AeronSparkError:
            return None


def _parse_seconds(name: str, duration: float | str) -> float:
    """Return a keyword's duration in seconds, 0 or more. Raises OptionError for another value."""
    from aeron_spark.texts import NANOS, parse_duration_or_zero_ns

    try:
        return parse_duration_or_zero_ns(str(duration)) / NANOS
    except ValueError:
        raise OptionError(
            f"{name} must be a duration of 0 or more, not {duration!r}", remedy=f"Such as {name}='24h', or seconds."
        ) from None


MIN_CONNECT_S: Final = 0.1  # for the handshake, after a start of the media driver that took nearly all of the timeout


def connect(
    address: str = "",
    *,
    store: PeerStore | None = None,
    connection_class: type[Connection] = Connection,
    timeout: float | None = None,
    wait: bool = True,
    **options: Unpack[ClientOptions],
) -> Client:
    """Connect to the server at ``address`` (``host:port``, ``host:port:control``, or ``ipc:``) and return the client.

    To register listeners before connecting, create the client with ``Client.to(address)``, and call its ``connect``.

    ``options`` are those of docs/options.md, written as there or with underscores: ``identity``, the file of the
    client's key or ``env:NAME`` (by default the user's own key, which is made at its first use), ``tag``,
    ``server_key``. If the server also listens over this machine's shared memory, the client connects there, unless
    ``ipc='never'``.

    ``wait=False`` returns at once, with a client that tries to connect until it is closed. It is for a program that
    writes through a buffer (:meth:`Client.writer`) and whose server may be down; ``client.connect(seconds)`` waits
    later. A thread of the client then starts this machine's media driver. If the machine cannot run one, the client
    stops with the error (``client.error``, ``on_stopped``).

    ``timeout`` is in seconds. It includes the start of this machine's media driver, which has ten minutes without a
    timeout. A slow start continues after the timeout, and the next call waits for it. With 0 the client tries until it
    is closed.

    Raises OptionError for a wrong argument, RefusedError with the server's reason, IdentityError for a wrong key, and
    ConnectError or WaitTimeout if no server responds.
    """
    from aeron_spark.client.aeron_dialer import make_aeron_endpoint

    deadline = time.monotonic() + timeout if timeout else None
    client = Client(make_aeron_endpoint(address, store, connection_class, options, deadline, opens=wait))
    _open(client, timeout, deadline, wait=wait)
    return client


def connect_for_pool(
    address: str,
    timeout: float,
    is_in_use: Callable[[], bool],
    on_unused: Callable[[Client], object],
    options: Mapping[str, object],
) -> Client:
    """Connect as :func:`connect` does, and connect again after a loss only while ``is_in_use()``.

    A client that loses its link without use ends its session and stops. ``on_unused(client)`` is then called on a
    thread of the client, and may close it. The event loop calls ``is_in_use``, which must not wait.
    """
    from aeron_spark.client.aeron_dialer import make_aeron_endpoint

    deadline = time.monotonic() + timeout if timeout else None
    endpoint = make_aeron_endpoint(address, None, Connection, options, deadline)
    client = Client(endpoint)
    _open(client, timeout, deadline, wait=True)
    endpoint.reconnect_while(is_in_use, partial(on_unused, client))
    return client


def _open(client: Client, timeout: float | None, deadline: float | None, *, wait: bool) -> None:
    """Connect a client, or begin to; close it if that fails."""
    try:
        if wait:
            client.connect(timeout if deadline is None else max(MIN_CONNECT_S, deadline - time.monotonic()))
        else:
            client.begin_connecting()
    except BaseException:
        client.close()
        raise
