"""The guard of a media driver: which channels it watches, who owns which session, and what it dropped.

The guard itself is Java (``io.aeronspark.guard``, described in docs/driver-guard.md) and runs on the driver's own
threads. A channel asks for it by parameters that a driver without one ignores, so the same channel works with any
driver.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final, Literal

from aeron_spark.aeron import jvm
from aeron_spark.aeron.client import Client
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.exceptions import java_errors
from aeron_spark.errors import OptionError
from aeron_spark.transport.addresses import KEPT

PACKAGE: Final = "io.aeronspark"
DROP_TYPE: Final = 16723  # as DropCounters.COUNTER_TYPE_ID in Java
OWNER_TYPE: Final = 16724  # as OwnerRegistry.COUNTER_TYPE_ID in Java
DROP_LABEL: Final = "guard dropped "

# direction, port, session id, stream id, owner's port: little-endian behind the layout's number; then the address
OWNER_LAYOUT: Final = 1
OWNER_KEY: Final = struct.Struct("<iiiiii16s")
DIRECTIONS: Final[Mapping[str, int]] = {"received": 1, "published": 2}

# What a driver's context calls a supplier, its class, and the property by which somebody may have chosen another.
SUPPLIERS: Final = (
    (
        "receiveChannelEndpointSupplier",
        "guard.GuardedReceiveChannelEndpointSupplier",
        "aeron.ReceiveChannelEndpoint.supplier",
    ),
    ("sendChannelEndpointSupplier", "guard.GuardedSendChannelEndpointSupplier", "aeron.SendChannelEndpoint.supplier"),
    ("congestControlSupplier", "driver.HandshakeTimeouts", "aeron.CongestionControl.supplier"),
)


@dataclass(frozen=True, slots=True)
class GuardRules:
    """Rules of one channel, as its parameters; None leaves a rule to the driver. Sizes are bytes, rates are per second.

    ``streams`` are open to anybody, every other stream needs a registered owner; empty opens all. ``joining`` lets a
    receiver ask for every publication at a control address. A source is an IPv4 address or an IPv6 /64.
    """

    streams: tuple[int, ...] = ()
    term_length: int | None = None
    owned_term_length: int | None = None
    mtu_min: int | None = None
    mtu_max: int | None = None
    sessions: int | None = None
    sessions_per_source: int | None = None
    rate: int | None = None
    burst: int | None = None
    total_rate: int | None = None
    destinations: int | None = None
    destinations_per_source: int | None = None
    joining: bool = False
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value < 2**31:
                raise OptionError(
                    f"the guard's {field.name} {value} is not from 1 to {2**31 - 1}",
                    remedy="Leave it out for the driver's default.",
                )
        for text in (*self.allow, *self.deny):
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise OptionError(
                    f"the guard cannot read the network {text!r}: {error}", remedy="Write 10.0.0.0/8 or 2001:db8::/32."
                ) from error


def guarded(channel: str, rules: GuardRules) -> str:
    """Return ``channel`` with the parameters that ask a driver's guard to watch it."""
    return f"{channel}|{_parameters(rules)}"


@lru_cache(64)
def _parameters(rules: GuardRules) -> str:
    parts = ["guard=true"]
    for field in fields(rules):
        value = getattr(rules, field.name)
        if value not in (None, (), False):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
            parts.append(f"guard-{field.name.replace('_', '-')}={text}")
    return "|".join(parts)


def suppliers() -> dict[str, object]:
    """Return what a MediaDriver.Context is told to have the guard, and prompt handshakes.

    What a system property chose already stays, such as Aeron's own endpoints that lose packets on purpose.
    """
    chosen = jvm.jclass("java.lang.System").getProperty
    return {method: jvm.jclass(f"{PACKAGE}.{name}")() for method, name, prop in SUPPLIERS if chosen(prop) is None}


def has_guard(aeron_dir: str) -> bool:
    """Whether the driver guards an endpoint; known once one was opened on a guarded channel."""
    return bool(read_drops(aeron_dir))


def read_drops(aeron_dir: str) -> dict[str, int]:
    """Return the frames dropped since the driver started, by ``receiving: reason`` or ``sending: reason``.

    Empty beside a driver without a guard, or one that has guarded nothing yet.
    """
    return {
        counter.label.removeprefix(DROP_LABEL): counter.value
        for counter in read_counters(aeron_dir)
        if counter.type_id == DROP_TYPE
    }


@dataclass(slots=True)
class Ownership:
    """One registered owner, until it is closed or the client that registered it is gone."""

    _give_back: Callable[[], object]

    def close(self) -> None:
        """Take the registration back; the guard forgets it within some 10 ms."""
        with java_errors("closing a registration with the guard"):
            self._give_back()


def register(
    client: Client,
    direction: Literal["received", "published"],
    *,
    port: int,
    session_id: int,
    stream_id: int,
    address: str,
    address_port: int = 0,
    wait: bool = True,
) -> Ownership:
    """Register who may speak for a session that this driver receives, or who may receive one that it publishes.

    ``port`` is the local port of the endpoint, ``address_port`` 0 stands for any. In force when this returns (10 ms
    later for what is open already, on a stream for strangers); without ``wait``, when the driver has opened what this
    client asks for next. Beside a driver without a guard it changes nothing.
    """
    key = owner_key(direction, port, session_id, stream_id, address, address_port)
    label = f"guard owner of {direction} session {session_id} stream {stream_id} port {port}: {address}"[:380].encode()
    buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
    described = (OWNER_TYPE, buffer(key), 0, len(key), buffer(label), 0, len(label))
    with java_errors("registering with the guard"):
        if wait:
            return Ownership(client.aeron.addCounter(*described).close)
        registration = client.aeron.asyncAddCounter(*described)
        return Ownership(lambda: client.aeron.asyncRemoveCounter(registration))


def owner_key(
    direction: Literal["received", "published"],
    port: int,
    session_id: int,
    stream_id: int,
    address: str,
    address_port: int = 0,
) -> bytes:
    """Return the key of a registration's counter, as ``OwnerRegistry`` in Java reads it; IPv4 is mapped into IPv6."""
    return OWNER_KEY.pack(
        OWNER_LAYOUT, DIRECTIONS[direction], port, session_id, stream_id, address_port, _mapped(address)
    )


@lru_cache(KEPT)
def _mapped(address: str) -> bytes:
    parsed = ipaddress.ip_address(address)
    return parsed.packed if parsed.version == 6 else bytes(10) + b"\xff\xff" + parsed.packed
