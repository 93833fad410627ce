"""A client of the secure endpoint: connects, comes back to its session after an outage, and talks to its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final

from aeron_spark.client.branching import open_branch
from aeron_spark.client.settings import ClientSettings
from aeron_spark.client.steering import Steering
from aeron_spark.duologue.branch import Branch
from aeron_spark.duologue.connection import Connection
from aeron_spark.endpoint.peers import PeerStore, ServerName
from aeron_spark.errors import AeronSparkError, ConnectError, UsageError, WaitTimeout
from aeron_spark.transport.port import Dialing

GRACE: Final = 5.0  # seconds beyond its time that a connect waits for the agent to say how it ended
LOOK: Final = 0.002  # seconds between two looks whether a duologue has gone


class ClientCore(Steering):
    """The client over any transport; :func:`aeron_spark.connect` brings Aeron, keys and settings together.

    One server, one connection; after a lost session the next one is another :class:`Connection`. ``dial`` opens the
    transport, again when its media driver was lost. ``data_port`` is the server's, where its name does not say it.
    """

    def __init__(
        self,
        dial: Callable[[], Dialing],
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
        """The connection there is. Raises ConnectError while there is none."""
        connection = self._connection
        if connection is None:
            raise ConnectError(f"there is no connection with {self._server}", remedy="Connect, or wait for it")
        return connection

    @property
    def connected(self) -> bool:
        """Whether a duologue is there now."""
        connection = self._connection
        return connection is not None and connection.connected

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before."""
        return self._judge.key

    def connect(self, timeout: float | None = None) -> Connection:
        """Connect, and return the connection, at once where there is one; ``timeout`` in seconds, 0 until closed.

        Who calls it while another thread connects waits for the same, for that one's time. Raises RefusedError with
        the server's reason, IdentityError for a wrong key, TamperedError for an answer that fails its authentication,
        UsageError once the client is closed, and WaitTimeout or ConnectError when the time is over.
        """
        seconds = self._client_settings.connect_seconds if timeout is None else timeout
        waiting = self._connecting(time.monotonic() + seconds if seconds else None)
        try:
            return waiting.result(seconds + GRACE if seconds else None)
        except (FutureTimeout, CancelledError) as error:
            if isinstance(error, AeronSparkError):
                raise
            raise WaitTimeout(f"waited {seconds:g} s for a connection with {self._server}") from None

    def begin_connecting(self) -> Future[Connection]:
        """Connect when that is possible, without waiting for it; a refusal, or a wrong key, ends the attempts."""
        return self._connecting(None)

    def reconnect(self, timeout: float | None = None) -> Connection:
        """Leave the duologue there is, keep the session, and come back to it."""
        connection = self._connection
        if connection is not None and connection.connected:
            connection.close(keep_session=True)
            end = time.monotonic() + self._settings.close_seconds + 1.0
            while connection.connected and time.monotonic() < end:
                time.sleep(LOOK)
        return self.connect(timeout)

    def branch(self, timeout: float | None = None) -> Branch:
        """Open a further duologue of the connection, for bulk, without another handshake; ``timeout`` in seconds.

        Raises WaitTimeout, RefusedError where the server gives no more, ConnectError while there is no connection.
        """
        seconds = self._client_settings.connect_seconds if timeout is None else timeout
        return open_branch(
            self.connection, self.branches, lambda: self._dialing, self._settings, self.on_agent, seconds
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
        self._reopening.close()
        self._dialing.close()

    def _connecting(self, by: float | None) -> Future[Connection]:
        """Have the agent connect; what it will say."""
        with self._attending:
            if self._closing_begun:
                raise UsageError("the client is closed", remedy="Make another one")
            waiting = self._connected
            begins = waiting.done()
            if begins:
                waiting = self._connected = Future()
                self._jobs.append(lambda: self._want(by))
            if not self._agent.alive:
                self._agent.start()
        self._inbox().wake()
        return waiting
