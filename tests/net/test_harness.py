"""The namespaces of these tests work as a real network with a router: NAT, firewall, and outages on request."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aeron_spark.waiting import wait_for
from tests.net import namespaces
from tests.net.capture import Capture
from tests.net.namespaces import FIRST_PORTS, OTHER_PORTS, OTHER_ROUTER, ROUTER, SERVER, SERVER6, Site, udp_socket

PORT = 9000
CLIENT = ("10.77.1.1", 5000)


@contextmanager
def sockets(
    site: Site, server: str = SERVER, client: tuple[str, int] = CLIENT
) -> Iterator[tuple[socket.socket, socket.socket]]:
    with udp_socket(site.server, (server, PORT)) as server_socket, udp_socket(site.clients[0], client) as client_socket:
        yield server_socket, client_socket


def test_clients_are_hidden_behind_the_router_over_ipv4(site: Site) -> None:
    with sockets(site) as (server, client):
        client.sendto(b"hello", (SERVER, PORT))
        data, (address, port) = server.recvfrom(100)
        assert (data, address) == (b"hello", ROUTER)
        assert FIRST_PORTS[0] <= port <= FIRST_PORTS[1]
        server.sendto(b"response", (address, port))
        assert client.recv(100) == b"response"


def test_clients_keep_their_addresses_over_ipv6(site: Site) -> None:
    mine = ("2001:db8:77:1::1", 5000)
    with sockets(site, SERVER6, mine) as (server, client):
        client.sendto(b"hello", (SERVER6, PORT))
        assert server.recvfrom(100)[1][:2] == mine
        server.sendto(b"response", mine)
        assert client.recv(100) == b"response"


@pytest.mark.parametrize(("server", "client"), [(SERVER, CLIENT), (SERVER6, ("2001:db8:77:1::1", 5000))])
def test_packets_without_a_request_do_not_reach_a_client(site: Site, server: str, client: tuple[str, int]) -> None:
    if ":" not in server:
        site.server.ip("route", "add", "10.77.0.0/16", "via", ROUTER)
    with sockets(site, server, client) as (inside, outside), Capture(site.server, "s0") as sent:
        outside.settimeout(0.3)
        inside.sendto(b"unrequested", client)
        with pytest.raises(TimeoutError):
            outside.recv(100)
        assert sent.wait_for(lambda packet: b"unrequested" in packet, 2)


def test_a_client_gets_another_port_after_its_mapping_was_removed(site: Site) -> None:
    with sockets(site) as (server, client):
        client.sendto(b"1", (SERVER, PORT))
        before = server.recvfrom(100)[1]
        site.change_mappings()
        server.settimeout(0.3)
        server.sendto(b"lost", before)
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.sendto(b"2", (SERVER, PORT))
        after = server.recvfrom(100)[1]
        assert after[0] == ROUTER
        assert OTHER_PORTS[0] <= after[1] <= OTHER_PORTS[1]


def test_the_outside_address_of_the_router_can_change(site: Site) -> None:
    with sockets(site) as (server, client):
        client.sendto(b"1", (SERVER, PORT))
        assert server.recvfrom(100)[1][0] == ROUTER
        site.change_address()
        client.sendto(b"2", (SERVER, PORT))
        assert server.recvfrom(100)[1][0] == OTHER_ROUTER


def test_a_cut_of_one_client_is_silent_and_does_not_affect_the_other(site: Site) -> None:
    with sockets(site) as (server, client), udp_socket(site.clients[1], ("10.77.2.1", 5000)) as other:
        site.cut(1)
        client.sendto(b"lost", (SERVER, PORT))
        other.sendto(b"other", (SERVER, PORT))
        assert server.recv(100) == b"other"
        site.heal()
        client.sendto(b"back", (SERVER, PORT))
        assert server.recv(100) == b"back"


def test_a_capture_sees_both_directions_and_bytes_are_counted_at_the_receiver(site: Site) -> None:
    with sockets(site) as (server, client), Capture(site.clients[0], "c1") as capture:
        before = site.clients[0].received_bytes("c1")
        client.sendto(b"marker going", (SERVER, PORT))
        server.sendto(bytes(500) + b"marker coming", server.recvfrom(100)[1])
        assert len(client.recv(1000)) == 513
        assert capture.wait_for(lambda packet: b"marker coming" in packet, 2)
        assert capture.count(b"marker") == 2
        assert 513 < site.clients[0].received_bytes("c1") - before < 1000


def test_namespaces_of_a_killed_run_are_removed() -> None:
    stale = "aeron-spark-test-999999999-abcdef-server"
    namespaces.ip("netns", "add", stale)
    namespaces.sweep()
    assert not (namespaces.NAMED / stale).exists()


def test_namespaces_with_a_running_process_are_removed_with_an_error() -> None:
    before = set(namespaces.remains(os.getpid()))
    site = Site()
    process = subprocess.Popen(site.clients[0].command("sleep", "60"))
    try:
        _wait_until_inside(site, process.pid)
        with pytest.raises(AssertionError, match=rf"processes still run: .*{process.pid} in "):
            site.close()
    finally:
        process.kill()
        process.wait()
    assert set(namespaces.remains(os.getpid())) == before


def _wait_until_inside(site: Site, pid: int) -> None:
    wait_for(
        lambda: pid in site.clients[0].processes() and Path(f"/proc/{pid}/comm").read_text() == "sleep\n",
        5,
        "the process to start",
    )
