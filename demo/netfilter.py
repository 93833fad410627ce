"""Configures the kernel's packet filter, address translation and connection table over netlink.

It uses nftables without the program ``nft``, which few machines have. The messages are those of
``linux/netfilter/nf_tables.h``, with the expressions that the router of the demo and of tests needs.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final

NETLINK_NETFILTER: Final = 12
HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
FAMILY: Final = struct.Struct("!BBH")  # address family, version, resource
ERROR: Final = struct.Struct("=i")
REQUEST, ACK, CREATE, APPEND = 0x1, 0x4, 0x400, 0x800
MESSAGE_ERROR: Final = 2

NFTABLES, CONNTRACK = 10, 1
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NEW_TABLE, DELETE_TABLE, NEW_CHAIN, NEW_RULE = 0, 2, 3, 6
DELETE_CONNECTIONS: Final = 2
NESTED: Final = 0x8000

INET, IPV4 = 1, 2  # NFPROTO_INET, NFPROTO_IPV4
INPUT, FORWARD, POSTROUTING = 1, 2, 4  # hooks
DROP, ACCEPT = 0, 1
INPUT_NAME, OUTPUT_NAME = 6, 7  # NFT_META_IIFNAME, NFT_META_OIFNAME
PROTOCOL, ICMP = 16, 1  # NFT_META_L4PROTO, IPPROTO_ICMP
EQUAL, DIFFERENT = 0, 1
ESTABLISHED_OR_RELATED: Final = 2 | 4  # of NFT_CT_STATE
REGISTER, SECOND_REGISTER = 1, 2
THESE_PORTS: Final = 2  # NF_NAT_RANGE_PROTO_SPECIFIED


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def _nested(kind: int, *attributes: bytes) -> bytes:
    return _attribute(kind | NESTED, b"".join(attributes))


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("!i", value))


def _name(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _data(kind: int, value: bytes) -> bytes:
    return _nested(kind, _attribute(1, value))


def _expression(name: str, *attributes: bytes) -> bytes:
    return _nested(1, _name(1, name), _nested(2, *attributes))


def interface(which: int, name: str, how: int = EQUAL) -> list[bytes]:
    """Return an expression: the packet's interface has this name (or, with DIFFERENT, another one)."""
    loaded = _expression("meta", _number(1, REGISTER), _number(2, which))
    compared = _expression("cmp", _number(1, REGISTER), _number(2, how), _data(3, name.encode().ljust(16, b"\0")))
    return [loaded, compared]


def protocol(number: int) -> list[bytes]:
    """Return an expression: the packet has this protocol above IP."""
    loaded = _expression("meta", _number(1, REGISTER), _number(2, PROTOCOL))
    return [loaded, _expression("cmp", _number(1, REGISTER), _number(2, EQUAL), _data(3, bytes([number])))]


def established() -> list[bytes]:
    """Return an expression: the packet belongs to an existing connection."""
    mask = struct.pack("=I", ESTABLISHED_OR_RELATED)
    loaded = _expression("ct", _number(1, REGISTER), _number(2, 0))
    masked = _expression(
        "bitwise", _number(1, REGISTER), _number(2, REGISTER), _number(3, 4), _data(4, mask), _data(5, bytes(4))
    )
    return [loaded, masked, _expression("cmp", _number(1, REGISTER), _number(2, DIFFERENT), _data(3, bytes(4)))]


def verdict(code: int) -> list[bytes]:
    """Return a statement that accepts or drops the packet."""
    return [_expression("immediate", _number(1, 0), _nested(2, _nested(2, _number(1, code))))]


def masquerade(first_port: int, last_port: int) -> list[bytes]:
    """Return a statement that replaces the source by the outgoing interface's address and one of these ports."""
    ports = [
        _expression("immediate", _number(1, register), _data(2, struct.pack("!H", port)))
        for register, port in ((REGISTER, first_port), (SECOND_REGISTER, last_port))
    ]
    return [*ports, _expression("masq", _number(1, THESE_PORTS), _number(2, REGISTER), _number(3, SECOND_REGISTER))]


class Change:
    """Changes that the kernel applies in one transaction."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, int, int, bytes]] = []

    def table(self, family: int, name: str) -> None:
        """Add a table if it does not exist."""
        self._add(NEW_TABLE, CREATE, family, _name(1, name))

    def no_table(self, family: int, name: str) -> None:
        """Remove a table with its content, if it exists."""
        self.table(family, name)
        self._add(DELETE_TABLE, 0, family, _name(1, name))

    def chain(self, family: int, table: str, name: str, hook: int, kind: str, priority: int, policy: int) -> None:
        """Add a base chain at a hook of the kernel."""
        hooked = _nested(4, _number(1, hook), _number(2, priority))
        self._add(
            NEW_CHAIN, CREATE, family, _name(1, table), _name(3, name), hooked, _number(5, policy), _name(7, kind)
        )

    def rule(self, family: int, table: str, chain: str, *parts: Iterable[bytes]) -> None:
        """Add a rule made of expressions."""
        expressions = [expression for part in parts for expression in part]
        self._add(NEW_RULE, CREATE | APPEND, family, _name(1, table), _name(2, chain), _nested(4, *expressions))

    def make(self, namespace: Callable[[Callable[[], None]], None]) -> None:
        """Apply the changes in a namespace. Raises OSError with the kernel's reason."""
        number = 1
        sent = [_message(BATCH_BEGIN, REQUEST, number, FAMILY.pack(0, 0, NFTABLES))]
        for kind, flags, family, body in self._messages:
            number += 1
            sent.append(_message(NFTABLES << 8 | kind, REQUEST | ACK | flags, number, FAMILY.pack(family, 0, 0) + body))
        sent.append(_message(BATCH_END, REQUEST, number + 1, FAMILY.pack(0, 0, NFTABLES)))
        namespace(lambda: _exchange(b"".join(sent), len(self._messages)))

    def _add(self, kind: int, flags: int, family: int, *attributes: bytes) -> None:
        self._messages.append((kind, flags, family, b"".join(attributes)))


def forget_connections() -> None:
    """Clear this namespace's connection table, with all address translations in use."""
    _exchange(_message(CONNTRACK << 8 | DELETE_CONNECTIONS, REQUEST | ACK, 1, FAMILY.pack(0, 0, 0)), 1)


def _message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, flags, number, 0) + body


def _exchange(sent: bytes, pending: int) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        netlink.settimeout(10.0)
        netlink.bind((0, 0))
        netlink.send(sent)
        while pending > 0:
            received = netlink.recv(65536)
            while received:
                length, kind, _, number, _ = HEADER.unpack_from(received)
                if kind == MESSAGE_ERROR:
                    (code,) = ERROR.unpack_from(received, HEADER.size)
                    if code:
                        raise OSError(-code, f"netfilter refused message {number}: {os.strerror(-code)}")
                    pending -= 1
                received = received[(length + 3) & ~3 :]


def supported() -> bool:
    """Return whether this kernel supports it. Call it in a temporary namespace: it leaves a table there."""
    change = Change()
    change.table(IPV4, "try")
    change.chain(IPV4, "try", "out", POSTROUTING, "nat", 100, ACCEPT)
    change.rule(IPV4, "try", "out", masquerade(20_000, 20_001))
    try:
        change.make(lambda work: work())
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOENT, errno.EPROTONOSUPPORT, errno.EPERM):
            return False
        raise
    return True
