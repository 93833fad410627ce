"""Clients connect through a router with NAT and a firewall over IPv4, and without NAT over IPv6."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.net.namespaces import OTHER_ROUTER, ROUTER
from tests.net.programs import ADDRESS, ADDRESS6, Program, Programs, await_received

FIRST, SECOND = "first", "second"
MOVE_TIMEOUT_S = 40.0  # Aeron notices the loss after up to 10 s, the expiry is 4 s


@pytest.mark.sampled
def test_two_clients_behind_one_address_receive_only_their_own(programs: Programs) -> None:
    server, *clients = programs.pair(FIRST, SECOND)
    for client in clients:
        client.request("connect")
    addresses = server.request("statistics")["addresses"]
    assert addresses[FIRST][0] == addresses[SECOND][0] == ROUTER
    assert addresses[FIRST] != addresses[SECOND]
    for tag, mine, other in ((FIRST, 0, 1), (SECOND, 1, 0)):
        before = [programs.site.clients[index].received_bytes(f"c{index + 1}") for index in (0, 1)]
        server.request("send", tag=tag, count=2_000, size=1_000)
        await_received(clients[mine], tag, 2_000)
        after = [programs.site.clients[index].received_bytes(f"c{index + 1}") for index in (0, 1)]
        assert after[mine] - before[mine] >= 2_000_000
        assert after[other] - before[other] < 100_000
        clients[mine].request("send", count=50)
        await_received(server, tag, 50)


@pytest.mark.sampled
def test_a_connection_resumes_after_a_changed_nat_mapping_and_loses_or_repeats_no_message(programs: Programs) -> None:
    server, client = programs.pair(FIRST)
    client.request("connect")
    before = _address(server)
    _move_while_both_send(server, client, programs.site.change_mappings)
    assert _address(server)[0] == before[0] == ROUTER
    assert _address(server)[1] != before[1]


@pytest.mark.full("four JVMs; as with a changed mapping")
def test_a_connection_resumes_after_another_router_address_and_loses_or_repeats_no_message(programs: Programs) -> None:
    server, client = programs.pair(FIRST)
    client.request("connect")
    _move_while_both_send(server, client, programs.site.change_address)
    assert _address(server)[0] == OTHER_ROUTER


@pytest.mark.full("six JVMs; tests/aeron/secure shows both families on one machine")
def test_row_19_a_dual_stack_server_serves_ipv4_and_ipv6_clients(programs: Programs) -> None:
    server, first = programs.pair(FIRST, bind="*:20121")
    second = programs.clients(programs.driver(programs.site.clients[1]), SECOND, address=ADDRESS6)
    for client, tag in ((first, FIRST), (second, SECOND)):
        client.request("connect")
        client.request("send", count=500, size=900)
        server.request("send", tag=tag, count=500, size=900)
        await_received(server, tag, 500)
        await_received(client, tag, 500)
    addresses = server.request("statistics")["addresses"]
    assert (addresses[FIRST][0], addresses[SECOND][0]) == (ROUTER, "2001:db8:77:2::1")


@pytest.mark.full("four JVMs a family")
@pytest.mark.parametrize(
    ("bind", "address"), [("0.0.0.0:20121", ADDRESS6), (ADDRESS6, ADDRESS)], ids=["of IPv4", "of IPv6"]
)
def test_row_19_a_server_of_one_family_does_not_serve_the_other(programs: Programs, bind: str, address: str) -> None:
    _, client = programs.pair(FIRST, bind=bind, address=address)
    error = rf"WaitTimeout: .* {re.escape(address)} to respond"
    with pytest.raises(AssertionError, match=error):
        client.request("connect", timeout=3)


@pytest.mark.full("seven JVMs; the rule itself is in tests/unit/protocol/test_limits.py")
def test_row_34_the_addresses_of_one_ipv6_64_share_a_limit(programs: Programs) -> None:
    site = programs.site
    site.clients[0].ip("addr", "add", "2001:db8:77:1::2/64", "dev", "c1", "nodad")
    server = programs.server(programs.driver(site.server), ADDRESS6, max_connections_per_address=1)
    drivers = [programs.driver(namespace) for namespace in site.clients]
    first = programs.clients(drivers[0], FIRST, address=ADDRESS6, bind="[2001:db8:77:1::1]:20400")
    same_network = programs.clients(drivers[0], "same_network", address=ADDRESS6, bind="[2001:db8:77:1::2]:20410")
    second = programs.clients(drivers[1], SECOND, address=ADDRESS6)
    first.request("connect")
    with pytest.raises(AssertionError, match=r"RefusedError.*Too many connections"):
        same_network.request("connect")
    second.request("connect")
    addresses = server.request("statistics")["addresses"]
    assert {tag: address for tag, (address, _) in addresses.items()} == {
        FIRST: "2001:db8:77:1::1",
        SECOND: "2001:db8:77:2::1",
    }
    first.close()
    same_network.request("connect")
    assert server.request("statistics")["addresses"]["same_network"][0] == "2001:db8:77:1::2"


def _move_while_both_send(server: Program, client: Program, move: Callable[[], None]) -> None:
    server.send_request("send", tag=FIRST, count=1_000, rate=100)
    client.send_request("send", count=1_000, rate=100)
    time.sleep(1.0)
    move()
    server.response()
    client.response()
    await_received(server, FIRST, 1_000, MOVE_TIMEOUT_S)
    await_received(client, FIRST, 1_000, MOVE_TIMEOUT_S)
    for endpoint in (server, client):
        # the outage lasts longer than the expiry only if Aeron notices it early
        names = [name for _, name, _ in endpoint.request("statistics")["events"]]
        assert [name for name in names if name != "disconnect"] == ["init", "connect", "resume"]
        assert names.count("disconnect") <= 1


def _address(server: Program) -> list[object]:
    found: list[object] = server.request("statistics")["addresses"][FIRST]
    return found
