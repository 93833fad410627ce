"""Serves ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP, without authentication.

One thread accepts; a small pool answers. A client that is slow or sends nothing is disconnected at a deadline, and more
clients than ``MAX_CLIENTS`` are disconnected at once, so that HTTP clients cannot hold the server up.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.transport.addresses import HostPort

THREADS: Final = 4
MAX_CLIENTS: Final = 32  # that are answered, or wait for a thread
REQUEST_TIMEOUT_S: Final = 5.0  # for a client to send its request and to read the response
MAX_REQUEST_BYTES: Final = 8192
ACCEPT_POLL_S: Final = 0.5
LOOPBACK: Final = "127.0.0.1"

Page = Callable[[], tuple[int, str, bytes]]
"""Returns status, content type and body."""
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Error", 503: "Not Ready",
}  # fmt: skip


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

    def __init__(self, address: HostPort, pages: dict[str, Page], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises InUseError if another program uses the port, SetupError if listening fails for another reason."""
        self._pages: Final = pages
        self._clock: Final = clock
        self._socket: Final = _listen(address)
        self.address: Final = HostPort(*self._socket.getsockname()[:2])
        """The address on which it listens."""
        self._places: Final = threading.BoundedSemaphore(MAX_CLIENTS)
        self._pool: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="aeron-spark-http")
        self._is_closing = False
        self._thread: Final = threading.Thread(target=self._accept, name="aeron-spark-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen. A response that is being sent may be cut."""
        self._is_closing = True
        self._thread.join()
        self._socket.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:  # such as too many open files
                time.sleep(ACCEPT_POLL_S)
                continue
            if not self._places.acquire(blocking=False):
                client.close()
                continue
            self._pool.submit(self._serve, client, self._clock() + REQUEST_TIMEOUT_S)

    def _serve(self, client: socket.socket, deadline: float) -> None:
        try:
            with client, suppress(OSError):  # the client is too slow, or has gone
                request = self._read_request(client, deadline)
                if request is None:
                    return
                status, content_type, body = self._answer(request)
                head = (
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                is_head = request.startswith(b"HEAD ")
                self._send(client, head.encode() + (b"" if is_head else body), deadline)
        finally:
            self._places.release()

    def _read_request(self, client: socket.socket, deadline: float) -> bytes | None:
        """Return the head of a request; None if the client sends none in time."""
        request = b""
        while b"\r\n\r\n" not in request and b"\n\n" not in request:
            left_s = deadline - self._clock()
            if left_s <= 0 or self._is_closing or len(request) > MAX_REQUEST_BYTES:
                return None
            client.settimeout(min(left_s, ACCEPT_POLL_S))
            try:
                data = client.recv(4096)
            except TimeoutError:
                continue
            if not data:
                return None
            request += data
        return request

    def _send(self, client: socket.socket, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view and not self._is_closing:
            left_s = deadline - self._clock()
            if left_s <= 0:
                return
            client.settimeout(min(left_s, ACCEPT_POLL_S))
            with suppress(TimeoutError):
                view = view[client.send(view) :]

    def _answer(self, request: bytes) -> tuple[int, str, bytes]:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split()
        if len(words) != 3:
            return 400, "text/plain", b"this is not a request of HTTP\n"
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"only GET and HEAD are allowed\n"
        page = self._pages.get(target.split("?", 1)[0])
        if page is None:
            return 404, "text/plain", f"the pages are: {' '.join(sorted(self._pages))}\n".encode()
        try:
            return page()
        except Exception as error:  # of one scrape: the next one may succeed
            return 500, "text/plain", f"{type(error).__name__}\n".encode()


def json_page(status: int, value: object) -> tuple[int, str, bytes]:
    """Return a page with a value as JSON."""
    return status, "application/json", json.dumps(value).encode() + b"\n"


def _listen(address: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(MAX_CLIENTS)
        listening.settimeout(ACCEPT_POLL_S)
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
