"""Tests the HTTP pages: answers, deadlines and limits against slow or many clients, and addresses in use."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import InUseError, OptionError
from aeron_spark.server.http import MAX_CLIENTS, HttpServer, json_page, parse_http_address
from aeron_spark.transport.addresses import HostPort
from tests.unit.endpoint.endpoints import wait_for

LARGE = b"x" * 8_000_000  # more than the kernel's buffers of a connection hold


def failing() -> tuple[int, str, bytes]:
    raise ZeroDivisionError("of one scrape")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    pages = {
        "/metrics": lambda: (200, "text/plain", LARGE), "/readyz": lambda: json_page(503, ["disk: full"]),
        "/healthz": lambda: (200, "text/plain", b"ok\n"), "/failing": failing,
    }  # fmt: skip
    one = HttpServer(HostPort("127.0.0.1", 0), pages)
    yield one
    one.close()


def get(server: HttpServer, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection((server.address.host, server.address.port), timeout=20)


def read(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))


def raw(server: HttpServer, request: bytes) -> bytes:
    with connect(server) as client:
        client.sendall(request)
        return read(client)


def descriptors_of_sockets() -> list[str]:
    """Return the open sockets of this process, in which are the server and its clients."""
    links = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(os.readlink(path))
    return [link for link in links if link.startswith("socket:")]


def test_pages_are_served_by_their_paths(server: HttpServer) -> None:
    assert get(server, "/metrics?x=1") == (200, LARGE)
    status, body = get(server, "/readyz")
    assert (status, json.loads(body)) == (503, ["disk: full"])
    assert get(server, "/failing") == (500, b"ZeroDivisionError\n")
    status, body = get(server, "/other")
    assert (status, body) == (404, b"the pages are: /failing /healthz /metrics /readyz\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_other_requests_have_a_short_answer(server: HttpServer, request_bytes: bytes, status: bytes) -> None:
    answer = raw(server, request_bytes)
    assert answer.split()[1] == status
    assert len(answer) < 300


def test_a_request_without_an_end_is_disconnected(server: HttpServer) -> None:
    assert raw(server, b"GET /metrics HTTP/1.1\r\n" + b"a" * 9000) == b""


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"])
def test_a_client_that_does_not_go_on_is_disconnected_at_its_deadline(sent: bytes) -> None:
    one = HttpServer(HostPort("127.0.0.1", 0), {"/metrics": lambda: (200, "text/plain", LARGE)}, timeout_s=0.1)
    try:
        with connect(one) as slow:
            slow.sendall(sent)
            poll = select.poll()
            poll.register(slow, select.POLLRDHUP)  # not POLLIN: the client reads nothing before
            assert poll.poll(20_000)
    finally:
        one.close()


SLOW_CLIENTS = {
    "sends nothing": b"",
    "sends eight bytes": b"GET /met",
    "sends no end of its headers": b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 1000,
    "does not read a large response": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "keeps its connection": b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\n",
}


@pytest.mark.parametrize("sent", SLOW_CLIENTS.values(), ids=SLOW_CLIENTS)
def test_a_probe_is_answered_beside_many_slow_clients(server: HttpServer, sent: bytes) -> None:
    slow = []
    try:
        for _ in range(MAX_CLIENTS + 50):  # each probe is answered, also when all places are taken
            slow.append(connect(server))
            slow[-1].sendall(sent)
            if len(slow) % 10 == 0:
                assert get(server, "/healthz") == (200, b"ok\n")
        assert len(descriptors_of_sockets()) < 2 * len(slow)  # the server has fewer of them than the clients
    finally:
        for one in slow:
            one.close()


@pytest.mark.slow  # its attacker takes what processor time it gets
def test_the_oldest_of_too_many_clients_is_disconnected() -> None:
    one = HttpServer(HostPort("127.0.0.1", 0), {"/": lambda: (200, "text/plain", b"")}, timeout_s=60.0)
    try:
        with ExitStack() as clients:
            found = [clients.enter_context(connect(one)) for _ in range(MAX_CLIENTS + 3)]
            for client in found[:3]:
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""
            assert not select.select(found[3:], [], [], 0)[0]
    finally:
        one.close()


def test_a_server_that_closes_closes_each_client_that_it_has_accepted(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):  # the close comes between the look at the socket and the accept in about every second turn
        one = HttpServer(HostPort("127.0.0.1", 0), {})
        with ExitStack() as clients:
            for _ in range(4):
                clients.enter_context(connect(one))
            one.close()
        assert not caplog.records


def test_a_probe_is_answered_beside_clients_that_send_byte_by_byte_and_others_that_connect_without_end(
    server: HttpServer,
) -> None:
    is_over = threading.Event()

    def attack() -> None:
        slow: deque[socket.socket] = deque()
        while not is_over.is_set():
            slow.append(connect(server))
            for one in slow:
                with suppress(OSError):  # it was disconnected
                    one.send(b"a")
            if len(slow) > 2 * MAX_CLIENTS:
                slow.popleft().close()
        for one in slow:
            one.close()

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        for _ in range(5):
            assert get(server, "/healthz") == (200, b"ok\n")
    finally:
        is_over.set()
        thread.join()


def test_many_requests_of_a_slow_page_share_it_and_delay_no_other_page() -> None:
    may_end, begun = threading.Event(), []

    def slow_page() -> tuple[int, str, bytes]:
        begun.append(1)
        assert may_end.wait(20)
        return 200, "text/plain", b"%d" % len(begun)

    pages = {"/metrics": slow_page, "/healthz": lambda: (200, "text/plain", b"ok\n")}
    one = HttpServer(HostPort("127.0.0.1", 0), pages)
    try:
        with ExitStack() as stack:
            first = stack.enter_context(connect(one))
            first.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            wait_for(lambda: begun, "the first request")
            others = [stack.enter_context(connect(one)) for _ in range(40)]
            for other in others:
                other.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert get(one, "/healthz") == (200, b"ok\n")
            may_end.set()
            assert [read(first)[-1:], *(read(other)[-1:] for other in others)] == [b"1", *[b"2"] * 40]
    finally:
        may_end.set()
        one.close()


def test_a_port_in_use_is_named(server: HttpServer) -> None:
    with pytest.raises(
        InUseError, match=rf"cannot listen on {server.address}: the address is in use\. Stop the program"
    ):
        HttpServer(server.address, {})


@pytest.mark.parametrize(
    ("text", "host", "port"), [(":9464", "127.0.0.1", 9464), ("0.0.0.0:1", "0.0.0.0", 1), ("[::1]:80", "::1", 80)]
)
def test_an_address_without_a_host_is_on_loopback(text: str, host: str, port: int) -> None:
    assert parse_http_address(text) == HostPort(host, port)


@pytest.mark.parametrize("text", ["9464", "host:", "host:x", ":70000", ""])
def test_a_wrong_address_is_an_option_error(text: str) -> None:
    with pytest.raises(OptionError, match="option 'http'"):
        parse_http_address(text)


def test_nothing_is_left_after_close() -> None:
    one: Any = HttpServer(HostPort("127.0.0.1", 0), {})
    one.close()
    assert not one._thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((one.address.host, one.address.port), timeout=5)
