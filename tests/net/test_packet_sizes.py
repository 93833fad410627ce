"""The largest packets that a network carries take the rows of streams, and none is cut into fragments of IP."""

from __future__ import annotations

from typing import Final

import pytest

from tests.net.programs import Program, Programs, eventually

ROWS, ROW_BYTES = 20_000, 1_000
PAUSE_AFTER: Final = 2_000
JUMBO: Final = 9_000  # MTU of a network of which a router may forward less
SILENT_TRIES_S: Final = 2 * 2.0  # until 8,960 and 8,192 bytes are given up


def pair(programs: Programs, *tags: str) -> tuple[Program, Program]:
    """Start a server with an archive and the first client's machine with these clients, and write a stream."""
    server = programs.server()
    clients = programs.clients(programs.site.clients[0], *tags)
    server.await_ready()
    clients.await_ready()
    server.request("create_stream", name="rows")
    clients.request("connect")
    return server, clients


def read_all(client: Program, tag: str) -> list[int]:
    """Read the stream from its start, check each row, and return the MTU of the client's bulk links."""
    client.request("begin_read", tag=tag, stream="rows", pause_after=PAUSE_AFTER)
    client.request("await_pause", tag=tag)
    found = client.request("end_read", tag=tag)
    assert (found["rows"], found["wrong"], found["error"]) == (ROWS, [], "")
    return sorted(set(found["mtus"]))


def write_all(client: Program, tag: str) -> list[int]:
    found = client.request("write_rows", tag=tag, stream="rows", count=ROWS, size=ROW_BYTES)
    return sorted(set(found["mtus"]))


@pytest.mark.full("two JVMs; tests/unit/transport/test_packet_sizes.py shows the choice")
def test_rows_take_the_largest_packets_of_their_network(programs: Programs) -> None:
    site, mtus = programs.site, {1_280: 1_248, 1_500: 1_472, 9_000: 8_960}
    _, clients = pair(programs, "writer", *map(str, mtus))
    before = site.fragments()
    assert write_all(clients, "writer") == [1_472]
    for network, expected in mtus.items():
        site.set_mtu(network)
        assert read_all(clients, str(network)) == [expected]
    assert site.fragments() == before


@pytest.mark.full("two JVMs")
def test_a_router_says_how_large_packets_may_be(programs: Programs) -> None:
    site = programs.site
    site.set_mtu(JUMBO)
    site.limit_forwarding(1_500)
    _, clients = pair(programs, "writer", "reader")
    assert write_all(clients, "writer") == [1_472]
    before = site.fragments()
    assert read_all(clients, "reader") == [1_472]
    assert site.fragments() == before


@pytest.mark.full("two JVMs")
def test_a_network_that_drops_large_packets_silently_gets_smaller_ones(programs: Programs) -> None:
    site = programs.site
    site.set_mtu(JUMBO)
    site.limit_forwarding(1_500)
    site.drop_icmp()
    _, clients = pair(programs, "writer", "reader")
    before = site.fragments()
    assert write_all(clients, "writer") == [1_408]
    clients.request("begin_read", tag="reader", stream="rows", pause_after=0)
    # the process remembers what did not pass
    clients.request("await_pause", tag="reader", timeout=SILENT_TRIES_S)
    assert clients.request("end_read", tag="reader")["mtus"] == [1_408]
    assert site.fragments() == before


@pytest.mark.full("two JVMs")
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_network_that_shrinks_meanwhile_loses_no_row(programs: Programs, is_silent: bool) -> None:
    site = programs.site
    site.set_mtu(JUMBO)
    _, clients = pair(programs, "client")
    if is_silent:
        site.drop_icmp()
    assert write_all(clients, "client") == [8_960]
    clients.request("begin_read", stream="rows", pause_after=PAUSE_AFTER)
    assert clients.request("await_pause")["mtus"] == [8_960]
    site.limit_forwarding(1_500)
    found = clients.request("end_read")
    assert (found["rows"], found["wrong"], found["error"]) == (ROWS, [], "")
    # until the next look at the MTU, Linux cuts packets into fragments, and a fast reader has ended by then
    expected = {1_408} if is_silent else {1_472}
    eventually(lambda: set(clients.request("mtus")["mtus"]), lambda mtus: not mtus or mtus == expected)
    before = site.fragments()
    assert set(clients.request("write_rows", stream="rows", count=ROWS, size=ROW_BYTES)["mtus"]) == expected
    assert site.fragments() == before
