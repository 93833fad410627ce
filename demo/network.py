"""The network of the second act: a client behind a router with NAT, or the loopback interface.

    server  s0  203.0.113.1     Spark uses the media driver that runs here, through shared memory
    router  r0  203.0.113.254   translates addresses; blocks packets that no client requested
            r1  10.77.1.254
    client  c1  10.77.1.1

The namespaces are connected only to each other. The machine's own network does not see them, so any number of demos
can use the same addresses.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from aeron_spark.waiting import wait_for
from demo import netfilter as nf
from demo.namespaces import Namespace, why_not

SERVER, ROUTER, CLIENT, GATEWAY = "203.0.113.1", "203.0.113.254", "10.77.1.1", "10.77.1.254"
PORT: Final = 20121  # data port of the server; the control port is the next one
NAT_PORTS: Final = (20_000, 29_999)  # ports to which the router translates the client's ports
UP_TIMEOUT_S: Final = 30.0  # for the kernel to report the devices as connected
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Network:
    """The server's address (``host:port:control``), the prefixes of commands at both ends, and a description."""

    address: str
    at_server: tuple[str, ...]
    at_client: tuple[str, ...]
    description: str


@contextmanager
def network() -> Iterator[Network]:
    """Make the namespaces and remove them at the end. Use loopback if this machine cannot have namespaces."""
    with ExitStack() as stack:
        reason = why_not()
        found: Network | None = None
        if not reason:
            try:
                found = stack.enter_context(_behind_nat())
            except OSError as error:  # for example in a container without permission to change settings
                reason = f"they cannot be set up: {error}"
        yield found or _loopback(reason)


@contextmanager
def _behind_nat() -> Iterator[Network]:
    stem = f"aeron-spark-demo-{os.getpid()}-{secrets.token_hex(3)}"
    with ExitStack() as stack:
        server, router, client = (_namespace(stack, f"{stem}-{role}") for role in ("server", "router", "client"))
        _join(server, "s0", SERVER, router, "r0", ROUTER)
        _join(client, "c1", CLIENT, router, "r1", GATEWAY)
        client.ip("route", "add", "default", "via", GATEWAY)
        _translate(router, outside="r0")
        wait_for(lambda: all(one.is_up() for one in (server, router, client)), UP_TIMEOUT_S, "the namespaces' devices")
        yield Network(
            f"{SERVER}:{PORT}:{PORT + 1}",
            tuple(server.command()),
            tuple(client.command()),
            f"a client at {CLIENT}, in a network namespace behind NAT (nftables masquerade, {ROUTER}), "
            f"and the server at {SERVER}",
        )


def _namespace(stack: ExitStack, name: str) -> Namespace:
    namespace = Namespace(name)
    stack.callback(namespace.close)
    return namespace


def _join(near: Namespace, device: str, address: str, far: Namespace, other: str, other_address: str) -> None:
    near.ip("link", "add", device, "type", "veth", "peer", "name", other, "netns", far.name)
    for namespace, name, own in ((near, device, address), (far, other, other_address)):
        namespace.ip("addr", "add", f"{own}/24", "dev", name)
        namespace.ip("link", "set", name, "up")


def _translate(router: Namespace, outside: str) -> None:
    router.set("net/ipv4/ip_forward", 1)
    change = nf.Change()
    change.table(nf.IPV4, "translation")
    change.chain(nf.IPV4, "translation", "out", nf.POSTROUTING, "nat", 100, nf.ACCEPT)
    change.rule(nf.IPV4, "translation", "out", nf.interface(nf.OUTPUT_NAME, outside), nf.masquerade(*NAT_PORTS))
    change.table(nf.INET, "firewall")
    change.chain(nf.INET, "firewall", "through", nf.FORWARD, "filter", 0, nf.DROP)
    change.rule(nf.INET, "firewall", "through", nf.established(), nf.verdict(nf.ACCEPT))
    from_within = nf.interface(nf.INPUT_NAME, outside, nf.DIFFERENT)
    change.rule(nf.INET, "firewall", "through", from_within, nf.verdict(nf.ACCEPT))
    change.make(router.run)


def _loopback(reason: str) -> Network:
    data, control = _free_ports()
    return Network(f"{LOOPBACK}:{data}:{control}", (), (), f"client and server over loopback, without NAT: {reason}")


def _free_ports() -> tuple[int, int]:
    """Return two UDP ports that no program uses."""
    with socket.socket(type=socket.SOCK_DGRAM) as first, socket.socket(type=socket.SOCK_DGRAM) as second:
        for one in (first, second):
            one.bind((LOOPBACK, 0))
        return first.getsockname()[1], second.getsockname()[1]
