"""Where the second act takes place: a client behind a router that translates addresses, or one machine's loopback.

    server  s0  203.0.113.1     Spark uses the media driver that runs here, through shared memory
    router  r0  203.0.113.254   what leaves has this address, nothing comes in that nobody within asked for
            r1  10.77.1.254
    client  c1  10.77.1.1

The namespaces have no network but each other: nothing of it is seen by the machine's own network, and any number of
demos has the same addresses.
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
TRANSLATED: Final = (20_000, 29_999)  # ports of the router's that stand for the client's
UP_SECONDS: Final = 30.0  # for the kernel to have noticed that the devices are connected
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Network:
    """Where the server is, ``host:port:control``; what a command begins with on either side; all of it in words."""

    address: str
    at_server: tuple[str, ...]
    at_client: tuple[str, ...]
    words: str


@contextmanager
def network() -> Iterator[Network]:
    """Make the namespaces, and remove them in the end; over loopback, where this machine can have none."""
    with ExitStack() as stack:
        reason = why_not()
        found: Network | None = None
        if not reason:
            try:
                found = stack.enter_context(_behind_nat())
            except OSError as error:  # a container, say, with settings that nobody may write
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
        wait_for(lambda: all(one.is_up() for one in (server, router, client)), UP_SECONDS, "the namespaces' devices")
        yield Network(
            f"{SERVER}:{PORT}:{PORT + 1}",
            tuple(server.command()),
            tuple(client.command()),
            f"a client at {CLIENT}, in a network namespace behind NAT (nftables masquerade, {ROUTER}), "
            f"and the server at {SERVER}",
        )


def _namespace(stack: ExitStack, name: str) -> Namespace:
    made = Namespace(name)
    stack.callback(made.close)
    return made


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
    change.rule(nf.IPV4, "translation", "out", nf.interface(nf.OUTPUT_NAME, outside), nf.masquerade(*TRANSLATED))
    change.table(nf.INET, "firewall")
    change.chain(nf.INET, "firewall", "through", nf.FORWARD, "filter", 0, nf.DROP)
    change.rule(nf.INET, "firewall", "through", nf.asked_for(), nf.verdict(nf.ACCEPT))
    from_within = nf.interface(nf.INPUT_NAME, outside, nf.DIFFERENT)
    change.rule(nf.INET, "firewall", "through", from_within, nf.verdict(nf.ACCEPT))
    change.make(router.run)


def _loopback(reason: str) -> Network:
    data, control = _free_ports()
    return Network(
        f"{LOOPBACK}:{data}:{control}", (), (), f"client and server over loopback, as there is no NAT here: {reason}"
    )


def _free_ports() -> tuple[int, int]:
    """Two UDP ports that nobody has now."""
    with socket.socket(type=socket.SOCK_DGRAM) as first, socket.socket(type=socket.SOCK_DGRAM) as second:
        for one in (first, second):
            one.bind((LOOPBACK, 0))
        return first.getsockname()[1], second.getsockname()[1]
