"""Serves ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP, without authentication.

One thread runs an event loop of asyncio for all clients, so a slow client has no thread. Each client has a deadline,
and the oldest one is disconnected when there are too many: a probe of ``/healthz`` is answered whatever others do.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.transport.addresses import HostPort

MAX_CLIENTS: Final = 128  # connected at a time: each has a descriptor, and perhaps a response that it does not read
REQUEST_TIMEOUT_S: Final = 5.0  # for a client to send its request and to read the response
MAX_REQUEST_BYTES: Final = 8192
# A page rests as many times as long as it took to make: each call of a socket may wait for the GIL while one is made.
REST: Final = 4
ACCEPT_RETRY_S: Final = 0.05  # after a failure such as too many open files
# Clients that the kernel connects before this process accepts them. Beyond them, it drops a client's first packet, and
# the client repeats that after 1 s: too late for a probe.
BACKLOG: Final = 4096
SEND_BUFFER_BYTES: Final = 1 << 18  # of the kernel, for a client that does not read its response
LOOPBACK: Final = "127.0.0.1"

Response = tuple[int, str, bytes]
"""Status, content type and body."""
Page = Callable[[], Response]
_RESET: Final = struct.pack("ii", 1, 0)
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Error", 503: "Not Ready",
}  # fmt: skip


def require_prometheus_client() -> None:
    """Raise OptionError without the package prometheus_client."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise OptionError(
            "option 'http' needs the Python package prometheus_client, which is not installed",
            remedy="Install it: pip install 'aeron-spark[server]'",
        ) from None


def parse_http_address(text: str) -> HostPort:
    """Parse ``HOST:PORT``; ``:PORT`` is on 127.0.0.1. Raises OptionError for another text."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise OptionError(f"option 'http' is {text!r}, expected HOST:PORT", remedy="Write for example 127.0.0.1:9464.")
    return HostPort(host.strip("[]") or LOOPBACK, int(port))


def require_free(address: HostPort) -> None:
    """Raise InUseError if another program uses the port, SetupError if listening there fails for another reason."""
    _listen(address).close()


class HttpServer:
    """Serves pages by their paths, from its construction until ``close``. Port 0 takes a free port."""

    def __init__(self, address: HostPort, pages: dict[str, Page], timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Raises InUseError if another program uses the port, SetupError if listening fails for another reason."""
        self._pages: Final = pages
        self._timeout_s: Final = timeout_s
        self._socket: Final = _listen(address)
        self.address: Final = HostPort(*self._socket.getsockname()[:2])
        """The address on which it listens."""
        self._clients: Final[dict[asyncio.Task[None], None]] = {}  # oldest first
        self._next: Final[dict[str, asyncio.Task[Response]]] = {}  # by path: makes the page, and has not begun
        self._rested_at: Final[dict[str, float]] = {}  # by path: the time from which the page may be made again
        self._turns: Final = {path: asyncio.Lock() for path in pages}
        self._pool: Final = ThreadPoolExecutor(len(pages) or 1, thread_name_prefix="aeron-spark-http")
        self._loop: Final = asyncio.new_event_loop()
        self._accepting: Final = self._loop.create_task(self._accept())
        self._thread: Final = threading.Thread(target=self._run, name="aeron-spark-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen. A response that is being sent may be cut."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._accepting.cancel)
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        with self._socket, suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._accepting)
        self._loop.close()

    async def _accept(self) -> None:
        try:
            while True:
                try:
                    client, _ = self._socket.accept()
                except BlockingIOError:
                    await self._connected()
                    continue
                except OSError:  # such as too many open files
                    self._disconnect_oldest()
                    await asyncio.sleep(ACCEPT_RETRY_S)
                    continue
                if len(self._clients) >= MAX_CLIENTS:
                    self._disconnect_oldest()
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the body does not wait for an ACK
                task = self._loop.create_task(self._serve(client))
                self._clients[task] = None
                task.add_done_callback(self._forget)
                # Requests that are there are read before the next client is accepted, which could disconnect theirs.
                await asyncio.sleep(0)
        finally:
            tasks = asyncio.all_tasks() - {self._accepting}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self) -> None:
        """Wait until a client connects.

        ``sock_accept`` would not close a client that it accepts while ``close`` cancels it.
        """
        found = asyncio.Event()
        self._loop.add_reader(self._socket, found.set)
        try:
            await found.wait()
        finally:
            self._loop.remove_reader(self._socket)

    def _disconnect_oldest(self) -> None:
        if self._clients:
            oldest = next(iter(self._clients))
            self._forget(oldest)
            oldest.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._clients.pop(task, None)

    async def _serve(self, client: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        deadline = self._loop.call_later(self._timeout_s, task.cancel)
        with client, suppress(OSError):  # the client has gone
            try:
                request = await self._read_request(client)
                if request is None:
                    return
                status, content_type, body = await self._answer(request)
                head = (
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                await self._loop.sock_sendall(client, head.encode())
                if not request.startswith(b"HEAD "):
                    await self._loop.sock_sendall(client, body)
                client.shutdown(socket.SHUT_WR)
                while await self._loop.sock_recv(client, 4096):  # until the client has read the response
                    pass
            except asyncio.CancelledError:
                # The kernel would keep the rest of the response, for a client that does not read it
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                raise
            finally:
                deadline.cancel()

    async def _read_request(self, client: socket.socket) -> bytes | None:
        """Return the head of a request; None if the client sends none."""
        request = b""
        while b"\r\n\r\n" not in request and b"\n\n" not in request:
            data = await self._loop.sock_recv(client, 4096)
            request += data
            if not data or len(request) > MAX_REQUEST_BYTES:
                return None
        return request

    async def _answer(self, request: bytes) -> Response:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split()
        if len(words) != 3:
            return 400, "text/plain", b"this is not a request of HTTP\n"
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"only GET and HEAD are allowed\n"
        path = target.split("?", 1)[0]
        if path not in self._pages:
            return 404, "text/plain", f"the pages are: {' '.join(sorted(self._pages))}\n".encode()
        if path not in self._next:
            self._next[path] = self._loop.create_task(self._make(path))
        return await asyncio.shield(self._next[path])  # other requests wait for it, too

    async def _make(self, path: str) -> Response:
        """Make a page in a thread. All requests that come before it begins share it, so many cost little."""
        async with self._turns[path]:
            await asyncio.sleep(self._rested_at.get(path, 0.0) - self._loop.time())
            del self._next[path]
            began = self._loop.time()
            try:
                return await self._loop.run_in_executor(self._pool, self._pages[path])
            except Exception as error:  # of one scrape: the next one may succeed
                return 500, "text/plain", f"{type(error).__name__}\n".encode()
            finally:
                ended = self._loop.time()
                self._rested_at[path] = ended + REST * (ended - began)


def json_page(status: int, value: object) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value).encode() + b"\n"


def _listen(address: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise InUseError(
                f"cannot listen on {address}: the address is in use",
                remedy="Stop the program that has it, or choose another port",
            ) from error
        raise SetupError(
            f"cannot listen on {address}: {error.strerror}", remedy="Give --http an address of this machine."
        ) from error
    return listening
