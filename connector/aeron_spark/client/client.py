"""A client of the secure endpoint: connects, comes back to its session after an outage, and talks to its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Literal

from aeron_spark.client.branching import open_bulk_link
from aeron_spark.client.runner import ClientRunner
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, ConnectError, EndedError
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.client_events import ClientState as MachineState
from aeron_spark.transport.api import ClientTransport
from aeron_spark.waiting import result_within

ClientState = Literal["connecting", "connected", "reconnecting", "stopped", "closed"]

GRACE: Final = 5.0  # seconds beyond its time that a connect waits for the agent to say how it ended
STOPPING: Final = 1.0  # seconds that an interrupted reconnect() waits for the agent to stop
LOOK: Final = 0.002  # seconds between two looks whether a duologue has gone


class ClientCore(ClientRunner):
    """The client over any transport; :func:`aeron_spark.connect` brings Aeron, keys and settings together.

    One server, one connection; after a lost session the next one is another :class:`Connection`. ``dial`` opens the
    transport, again when its media driver was lost. ``data_port`` is the server's, where its name does not say it.
    """

    def __init__(
        self,
        dial: Callable[[], ClientTransport],
        server: ServerName,
        store: PeerStore,
        settings: ClientSettings | None = None,
        connection_class: type[Connection] = Connection,
        *,
        is_ipc: bool = False,
        data_port: int = 0,
    ) -> None:
        super().__init__(
            dial, server, store, settings or ClientSettings(), connection_class, is_ipc=is_ipc, data_port=data_port
        )

    @property
    def connection(self) -> Connection:
        """The connection there is.

        Without one it raises why the client has stopped trying, ConnectError while it tries or was never told to, and
        EndedError once it is closed.
        """
        connection, stopped = self._connection, self._machine.stopped
        if connection is not None:
            return connection
        if self._closing_begun:
            raise EndedError("the client is closed", remedy="Make another one")
        if stopped is not None:
            raise stopped.with_what(stopped.what)
        raise ConnectError(f"there is no connection with {self._server}", remedy="Connect, or wait for it")

    @property
    def state(self) -> ClientState:
        """What the client does now.

        ``connecting``: it tries to connect. ``connected``. ``reconnecting``: the link was lost, and it tries to resume
        the session; what is sent is kept for that. ``stopped``: it does not try, because it never did, was left, or met
        :attr:`error`; sending raises that error, and ``connect`` tries again. ``closed``.
        """
        connection = self._connection
        if self._closing_begun:
            return "closed"
        if connection is not None and connection.connected:
            return "connected"
        idle = self._machine.state is MachineState.IDLE and not self._machine.reconnecting
        if idle and self._connected.done():
            return "stopped"
        return "connecting" if connection is None else "reconnecting"

    @property
    def error(self) -> AeronSparkError | None:
        """Why the client has stopped, or why its last attempt to connect failed; None while it is connected."""
        state = self.state
        if state == "stopped":
            return self._machine.stopped
        return self._machine.failure if state in ("connecting", "reconnecting") else None

    @property
    def connected(self) -> bool:
        """Whether a duologue is there now."""
        connection = self._connection
        return connection is not None and connection.connected

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before."""
        return self._machine.server_key

    def connect(self, timeout: float | None = None) -> Connection:
        """Connect, and return the connection, at once where there is one; ``timeout`` in seconds, 0 until closed.

        A call while another thread connects waits for that connection, and for that call's time. A refusal that passes
        soon (``error.retry``) is tried again in that time. Raises RefusedError with the server's reason, IdentityError
        for a wrong key, TamperedError for an answer that fails its authentication, EndedError once the client is
        closed, and WaitTimeout or ConnectError when the time is over.
        """
        return self._connect(timeout, reconnecting=False)

    def _connect(self, timeout: float | None, *, reconnecting: bool) -> Connection:
        seconds = self._client_settings.connect_seconds if timeout is None else timeout
        waiting = self._connecting(time.monotonic() + seconds if seconds else None, reconnecting=reconnecting)
        remedy = "Try again; the client's event loop, or the machine, has too much to do."
        return result_within(
            waiting, seconds + GRACE if seconds else None, f"a connection with {self._server}", remedy=remedy
        )

    def begin_connecting(self) -> Future[Connection]:
        """Connect when that is possible, without waiting for it.

        A wrong key ends the attempts, and so does a refusal that does not pass soon.
        """
        return self._connecting(None)

    def reconnect(self, timeout: float | None = None) -> Connection:
        """Leave the link there is, keep the session, and resume it; ``timeout`` in seconds, as for :meth:`connect`.

        Raises as ``connect`` does. The client has stopped then, also after an interrupt such as Ctrl-C: what is sent
        raises the same error, or ConnectError, and ``connect`` tries to resume the session again.
        """
        connection = self._connection
        self._later(self._machine.expect_reconnect)
        try:
            if connection is not None and connection.connected:
                connection.close(keep_session=True)
                end = time.monotonic() + self._settings.close_seconds + 1.0
                while connection.connected and time.monotonic() < end:
                    time.sleep(LOOK)
            return self._connect(timeout, reconnecting=True)
        except BaseException as error:
            self._stop_reconnecting(error)
            raise

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a further duologue of the connection, for bulk, without another handshake; ``timeout`` in seconds.

        Raises WaitTimeout, RefusedError where the server gives no more, ConnectError while there is no connection.
        """
        seconds = self._client_settings.connect_seconds if timeout is None else timeout
        return open_bulk_link(
            self.connection, self.bulk_links, lambda: self._dialing, self._settings, self.on_agent, seconds
        )

    def close(self) -> None:
        """Send what was sent, tell the server, and end. Again, it does nothing."""
        if not self._begin_closing():
            return
        connection = self._connection
        if connection is not None and connection.connected:
            self.leave(connection, keep_session=False)
            end = time.monotonic() + self._settings.close_seconds
            while self._agent.alive and self._connection is connection and time.monotonic() < end:
                time.sleep(LOOK)
        self._stop()
        self._close_transport()

    def _stop_reconnecting(self, why: BaseException) -> None:
        """Have the agent stop because of ``why``, and wait for a moment until it has.

        Of an error of this package the agent knows already.
        """
        if isinstance(why, AeronSparkError) or self._closing_begun or not self._agent.alive:
            return
        error = ConnectError(f"reconnect() was interrupted by {type(why).__name__}")

        def stop() -> None:
            now = time.monotonic()
            self._execute(self._machine.stop(error, now), now)

        stopped = self.on_agent(stop)
        with suppress(AeronSparkError):
            result_within(stopped, STOPPING, "the client's event loop to stop reconnecting")

    def _connecting(self, by: float | None, *, reconnecting: bool = False) -> Future[Connection]:
        """Have the agent connect; what it will say."""

        def connect() -> None:
            now = time.monotonic()
            self._execute(self._machine.connect(by, now, reconnecting=reconnecting), now)

        with self._attending:
            if self._closing_begun:
                raise EndedError("the client is closed", remedy="Make another one")
            waiting = self._connected
            begins = waiting.done()
            if begins:
                waiting = self._connected = Future()
                self._jobs.append(connect)
            if not self._agent.alive:
                self._agent.start()
        self._inbox().wake()
        return waiting
