"""Network namespaces of one test: a server, a router with NAT and a firewall, and clients behind the router.

    server  s0  203.0.113.1, 2001:db8:1::1
    router  r0  203.0.113.254, 2001:db8:1::fe     translates IPv4 source addresses to that of r0, and no IPv6 addresses
            r1  10.77.1.254, 2001:db8:77:1::fe     drops packets to clients that are not part of a client's connection
            r2  10.77.2.254, 2001:db8:77:2::fe
    client1 c1  10.77.1.1, 2001:db8:77:1::1
    client2 c2  10.77.2.1, 2001:db8:77:2::1

The namespaces have no other network, so each test can use the same addresses.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from pathlib import Path
from typing import Final

import psutil

from aeron_spark.waiting import wait_for
from demo import netfilter as nf
from demo.namespaces import NAMED as NAMED
from demo.namespaces import Namespace as Namespace
from demo.namespaces import ip as ip
from demo.namespaces import why_not as why_not

PREFIX: Final = "aeron-spark-test-"  # followed by the pid of the pytest, as for directories in /dev/shm

SERVER, SERVER6 = "203.0.113.1", "2001:db8:1::1"
ROUTER, OTHER_ROUTER, ROUTER6 = "203.0.113.254", "203.0.113.253", "2001:db8:1::fe"
OUTSIDE: Final = "r0"
FIRST_PORTS, OTHER_PORTS = (20_000, 29_999), (30_000, 39_999)
UDP_TIMEOUT: Final = 30  # seconds until an unused mapping is removed: RFC 4787 requires 120, many routers use 30


class Site:
    """The four connected namespaces of a test."""

    def __init__(self) -> None:
        self._namespaces: list[Namespace] = []
        self._devices: list[tuple[Namespace, str]] = []
        stem = f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
        try:
            self.server, self.router = self._make(f"{stem}-server"), self._make(f"{stem}-router")
            self.clients = (self._make(f"{stem}-client1"), self._make(f"{stem}-client2"))
            self._wire()
            self.translate(*FIRST_PORTS)
            wait_for(lambda: all(one.is_up() for one in self._namespaces), 10, "the namespaces' devices")
        except BaseException:
            self.close()
            raise

    @property
    def namespaces(self) -> tuple[Namespace, ...]:
        return tuple(self._namespaces)

    def translate(self, first_port: int, last_port: int) -> None:
        """Use ports of this range for new mappings; existing mappings stay."""
        change = nf.Change()
        change.no_table(nf.IPV4, "translation")
        change.table(nf.IPV4, "translation")
        change.chain(nf.IPV4, "translation", "out", nf.POSTROUTING, "nat", 100, nf.ACCEPT)
        change.rule(
            nf.IPV4, "translation", "out", nf.interface(nf.OUTPUT_NAME, OUTSIDE), nf.masquerade(first_port, last_port)
        )
        change.make(self.router.run)

    def change_mappings(self) -> None:
        """Act as a restarted router: each client gets another port of the router's address."""
        self.translate(*OTHER_PORTS)
        self.router.run(nf.forget_connections)

    def change_address(self) -> None:
        """Change the router's outside address, as internet providers do regularly."""
        self.router.ip("addr", "add", f"{OTHER_ROUTER}/24", "dev", OUTSIDE)
        self.router.ip("addr", "del", f"{ROUTER}/24", "dev", OUTSIDE)
        # deleting the first address also deletes its secondary ones, unless the kernel promotes them
        self.router.ip("addr", "replace", f"{OTHER_ROUTER}/24", "dev", OUTSIDE)
        self.router.run(nf.forget_connections)

    def cut(self, *clients: int) -> None:
        """Silently drop all packets to and from these clients (numbers from 1); by default of all clients."""
        change = nf.Change()
        change.no_table(nf.INET, "cut")
        change.table(nf.INET, "cut")
        change.chain(nf.INET, "cut", "through", nf.FORWARD, "filter", -10, nf.ACCEPT)
        for client in clients or (1, 2):
            for which in (nf.INPUT_NAME, nf.OUTPUT_NAME):
                change.rule(nf.INET, "cut", "through", nf.interface(which, f"r{client}"), nf.verdict(nf.DROP))
        change.make(self.router.run)

    def heal(self) -> None:
        """End every cut."""
        change = nf.Change()
        change.no_table(nf.INET, "cut")
        change.make(self.router.run)

    def set_mtu(self, mtu: int) -> None:
        """Set the MTU of all devices, which the programs' machines know."""
        for namespace, device in self._devices:
            namespace.ip("link", "set", device, "mtu", str(mtu))

    def limit_forwarding(self, mtu: int) -> None:
        """Have the router forward no larger packets, between server and first client; their devices keep their MTU."""
        for device, network in ((OUTSIDE, f"{SERVER}/24"), ("r1", "10.77.1.0/24")):
            network = str(ipaddress.ip_network(network, strict=False))
            self.router.ip("route", "replace", network, "dev", device, "mtu", str(mtu))

    def drop_icmp(self) -> None:
        """Drop the reports of routers that a packet is too large, at server and clients."""
        for namespace in (self.server, *self.clients):
            change = nf.Change()
            change.table(nf.INET, "silence")
            change.chain(nf.INET, "silence", "in", nf.INPUT, "filter", 0, nf.ACCEPT)
            change.rule(nf.INET, "silence", "in", nf.protocol(nf.ICMP), nf.verdict(nf.DROP))
            change.make(namespace.run)

    def fragments(self) -> int:
        """Return how many fragments of IPv4 packets server, router and clients have made."""
        return sum(namespace.run(_fragments_of_thread) for namespace in self._namespaces)

    def close(self) -> None:
        """Remove the namespaces. Fails afterwards if processes were still running in them."""
        running: list[str] = []
        for namespace in reversed(self._namespaces):
            running += [f"{pid} in {namespace.name}" for pid in namespace.processes()]
            namespace.close()
        self._namespaces.clear()
        assert not running, f"processes still run: {running}"

    def _make(self, name: str) -> Namespace:
        namespace = Namespace(name)
        self._namespaces.append(namespace)
        return namespace

    def _wire(self) -> None:
        self._join("s0", self.server, SERVER, SERVER6, OUTSIDE, ROUTER, ROUTER6)
        for number, client in enumerate(self.clients, 1):
            near, near6 = f"10.77.{number}.1", f"2001:db8:77:{number}::1"
            far, far6 = f"10.77.{number}.254", f"2001:db8:77:{number}::fe"
            self._join(f"c{number}", client, near, near6, f"r{number}", far, far6)
            client.ip("route", "add", "default", "via", far)
            client.ip("-6", "route", "add", "default", "via", far6)
        self.server.ip("-6", "route", "add", "2001:db8:77::/48", "via", ROUTER6)
        self.router.set("net/ipv4/ip_forward", 1)
        self.router.set("net/ipv6/conf/all/forwarding", 1)
        change = nf.Change()
        change.table(nf.INET, "firewall")
        change.chain(nf.INET, "firewall", "through", nf.FORWARD, "filter", 0, nf.DROP)
        change.rule(nf.INET, "firewall", "through", nf.established(), nf.verdict(nf.ACCEPT))
        from_within = nf.interface(nf.INPUT_NAME, OUTSIDE, nf.DIFFERENT)
        change.rule(nf.INET, "firewall", "through", from_within, nf.verdict(nf.ACCEPT))
        change.make(self.router.run)
        for name in ("nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"):
            self.router.set(f"net/netfilter/{name}", UDP_TIMEOUT)

    def _join(self, device: str, namespace: Namespace, v4: str, v6: str, other: str, other4: str, other6: str) -> None:
        namespace.ip("link", "add", device, "type", "veth", "peer", "name", other, "netns", self.router.name)
        for end, name, address, address6 in ((namespace, device, v4, v6), (self.router, other, other4, other6)):
            self._devices.append((end, name))
            end.ip("addr", "add", f"{address}/24", "dev", name)
            end.ip("addr", "add", f"{address6}/64", "dev", name, "nodad")
            end.ip("link", "set", name, "up")


def _fragments_of_thread() -> int:
    names, values = (
        line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines() if line.startswith("Ip:")
    )
    return int(values[names.index("FragCreates")])


def remains(pid: int) -> list[str]:
    """Return the namespaces that the pytest with this pid has left."""
    return sorted(path.name for path in NAMED.glob(f"{PREFIX}{pid}-*"))


def sweep() -> None:
    """Remove the namespaces of killed test runs, whose pytest has ended."""
    for path in NAMED.glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            ip("netns", "delete", path.name)


def udp_socket(namespace: Namespace, address: tuple[str, int]) -> socket.socket:
    """Open a UDP socket in a namespace."""

    def open_it() -> socket.socket:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_DGRAM)
        opened.settimeout(2.0)
        opened.bind(address)
        return opened

    return namespace.run(open_it)
