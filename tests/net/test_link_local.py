"""Over a real network: a client at a link-local IPv6 address."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from aeron_spark.waiting import wait_for
from tests.net.namespaces import OUTSIDE, Namespace
from tests.net.programs import Programs, await_received

TAG = "link-local"
TENTATIVE = 0x40  # IFA_F_TENTATIVE: another host may have the address


@pytest.mark.full(
    "tests/unit/endpoint/test_source_addresses.py shows the same without a network; this one shows Aeron's spelling"
)
def test_a_client_at_a_link_local_address_opens_a_bulk_link(programs: Programs) -> None:
    site = programs.site
    address = wait_for(lambda: link_local(site.server, "s0"), 20, "the server's link-local address")
    own_address = wait_for(lambda: link_local(site.router, OUTSIDE), 20, "the client's link-local address")
    server = programs.server(programs.driver(site.server), "*:20121")
    client = programs.clients(
        programs.driver(site.router), TAG, address=f"[{address}]:20121", bind=f"[{own_address}%{OUTSIDE}]:20131:20132"
    )
    for program in (server, client):
        program.await_ready()
    client.request("connect")
    (seen, _) = server.request("statistics")["addresses"][TAG]
    assert seen.startswith("fe80:")
    assert client.request("open_bulk_link", timeout=20)["number"]
    client.request("send", count=100, size=500)
    await_received(server, TAG, 100)


def link_local(namespace: Namespace, device: str) -> str | None:
    """Return the link-local address of a device, or None while it cannot be used."""
    table = namespace.run(lambda: Path("/proc/thread-self/net/if_inet6").read_text())
    for line in table.splitlines():
        address, _, _, _, flags, name = line.split()
        if name == device and address.startswith("fe80") and not int(flags, 16) & TENTATIVE:
            return str(ipaddress.IPv6Address(int(address, 16)))
    return None
