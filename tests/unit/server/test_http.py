"""Tests the HTTP pages: answers, deadlines and limits against slow or many clients, and addresses in use."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from aeron_spark.errors import InUseError, OptionError
from aeron_spark.server.http import MAX_CLIENTS, HttpServer, json_page, parse_http_address
from aeron_spark.transport.addresses import HostPort
from tests.unit.connection.endpoints import wait_for


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def failing() -> tuple[int, str, bytes]:
    raise ZeroDivisionError("of one scrape")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[HttpServer]:
    pages = {
        "/metrics": lambda: (200, "text/plain", b"x" * 100_000), "/readyz": lambda: json_page(503, ["disk: full"]),
        "/failing": failing,
    }  # fmt: skip
    one = HttpServer(HostPort("127.0.0.1", 0), pages, clock)
    yield one
    one.close()


def get(server: HttpServer, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def raw(server: HttpServer, request: bytes) -> bytes:
    with socket.create_connection((server.address.host, server.address.port), timeout=20) as client:
        client.sendall(request)
        received = b""
        while data := client.recv(65536):
            received += data
        return received


def test_pages_are_served_by_their_paths(server: HttpServer) -> None:
    assert get(server, "/metrics?x=1") == (200, b"x" * 100_000)
    status, body = get(server, "/readyz")
    assert (status, json.loads(body)) == (503, ["disk: full"])
    assert get(server, "/failing") == (500, b"ZeroDivisionError\n")
    status, body = get(server, "/other")
    assert (status, body) == (404, b"the pages are: /failing /metrics /readyz\n")


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


def test_a_client_that_sends_nothing_is_disconnected_at_its_deadline(server: HttpServer, clock: Clock) -> None:
    with socket.create_connection((server.address.host, server.address.port), timeout=20) as silent:
        assert get(server, "/readyz")[0] == 503  # it delays no other client
        clock.now += 5.1
        assert silent.recv(1) == b""


def test_more_clients_than_the_limit_are_disconnected_and_later_ones_are_served(
    server: HttpServer, clock: Clock
) -> None:
    clients = [
        socket.create_connection((server.address.host, server.address.port), timeout=20)
        for _ in range(MAX_CLIENTS + 10)
    ]
    try:
        for refused in clients[MAX_CLIENTS:]:
            assert refused.recv(1) == b""
        clock.now += 5.1
        for silent in clients[:MAX_CLIENTS]:
            assert silent.recv(1) == b""
    finally:
        for one in clients:
            one.close()
    wait_for(lambda: _status(server) == 503, "a free place")


def _status(server: HttpServer) -> int:
    try:
        return get(server, "/readyz")[0]
    except OSError:
        return 0


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


def test_nothing_is_left_after_close(clock: Clock) -> None:
    one: Any = HttpServer(HostPort("127.0.0.1", 0), {}, clock)
    one.close()
    assert not one._thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((one.address.host, one.address.port), timeout=5)
