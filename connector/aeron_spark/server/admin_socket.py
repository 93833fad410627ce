"""The Unix socket on which commands of this machine ask a running server: it reads and writes lines.

The mode of its file is the access control: only the server's user and root may connect.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from aeron_spark import unix_sockets
from aeron_spark.errors import RefusedError
from aeron_spark.protocol.admin_messages import MAX_REQUEST_BYTES, encode_response

MAX_CONNECTIONS: Final = 32  # each has a thread while its command runs
REQUEST_TIMEOUT_S: Final = 2.0  # for the whole request
SEND_TIMEOUT_S: Final = 5.0  # for each line of the response
CLOSE_TIMEOUT_S: Final = 1.0  # for the commands that run when the socket closes
RECEIVE_BYTES: Final = 4096


class AdminSocket:
    """Listens at ``path``. ``respond`` executes the line of a request on a separate thread, and returns the response.

    The lines of a response are sent one by one. ``report`` takes errors of the socket. A client that is slow, or that
    sends no request, is disconnected after a few seconds.
    """

    def __init__(
        self, path: Path, respond: Callable[[bytes], Iterable[bytes]], report: Callable[[BaseException], object],
        *, request_timeout_s: float = REQUEST_TIMEOUT_S, send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:  # fmt: skip
        """Raises InUseError if another process listens at ``path``, SetupError if it cannot be used."""
        self.path: Final = path
        self._respond: Final = respond
        self._report: Final = report
        self._request_timeout_s: Final = request_timeout_s
        self._send_timeout_s: Final = send_timeout_s
        self._lock: Final = threading.Lock()
        self._connections: Final[dict[socket.socket, threading.Thread]] = {}
        self._is_closed = False
        self._listening: Final = unix_sockets.listen(path)
        self._file: Final = os.lstat(path)
        self._thread: Final = threading.Thread(target=self._accept_all, name="aeron-spark-admin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen, remove the file, and end the connections. Further calls do nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        with suppress(OSError):
            if os.path.samestat(self._file, os.lstat(self.path)):
                self.path.unlink()
        self._listening.shutdown(socket.SHUT_RDWR)  # ends ``accept``
        self._thread.join()
        self._listening.close()
        with self._lock:
            connections = dict(self._connections)
        end = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in connections.values():
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _accept_all(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if not self._is_closed:
                    self._report(error)  # for example: the process has no file descriptor left
                    time.sleep(0.1)
                continue
            self._accept(connection)

    def _accept(self, connection: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="aeron-spark-admin-command", daemon=True)
        with self._lock:
            if self._is_closed or len(self._connections) >= MAX_CONNECTIONS:
                _refuse(connection)
                return
            self._connections[connection] = thread
        try:
            thread.start()
        except RuntimeError as error:  # the process has too many threads
            self._forget(connection)
            connection.close()
            self._report(error)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            del self._connections[connection]

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):  # the client has gone, sends no request, or takes no response
                for response in self._respond(self._read_line(connection)):
                    connection.settimeout(self._send_timeout_s)  # for all of the line
                    connection.sendall(response)
        finally:
            self._forget(connection)

    def _read_line(self, connection: socket.socket) -> bytes:
        """Read the request, or the beginning of one that is too long. Raises OSError if it does not arrive in time."""
        end = time.monotonic() + self._request_timeout_s
        line = b""
        while not line.endswith(b"\n") and len(line) <= MAX_REQUEST_BYTES:
            connection.settimeout(max(0.001, end - time.monotonic()))
            received = connection.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionResetError("the client sent no complete request")
            line += received
        return line


def _refuse(connection: socket.socket) -> None:
    """Send an error without waiting, and close."""
    error = RefusedError(
        f"{MAX_CONNECTIONS} commands run at the server's admin socket, the limit", remedy="Try again in a few seconds.",
        reason="busy",
    )  # fmt: skip
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.sendall(encode_response(error))
