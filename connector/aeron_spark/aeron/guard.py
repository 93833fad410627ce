"""Configures the guard of a media driver: rules of channels, owners of Aeron sessions, counters of dropped frames.

The guard is Java code (``io.aeronspark.guard``, see docs/driver-guard.md) on the driver's threads. Channel parameters
enable it. A driver without a guard ignores them, so the same channel works with any driver.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from aeron_spark.aeron import jvm
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.java_calls import java_errors
from aeron_spark.errors import OptionError
from aeron_spark.protocol.sources import mapped_address

PACKAGE: Final = "io.aeronspark"
DROP_TYPE: Final = 16723  # as DropCounters.COUNTER_TYPE_ID in Java
OWNER_TYPE: Final = 16724  # as OwnerRegistry.COUNTER_TYPE_ID in Java
COOKIE_TYPE: Final = 16726  # as CookieRegistry.COUNTER_TYPE_ID in Java
DROP_LABEL: Final = "guard dropped "

# layout number, direction, port, session id, stream id, owner's port (little-endian), then the address
OWNER_LAYOUT: Final = 1
OWNER_KEY: Final = struct.Struct("<iiiiii16s")
# layout number, port, stream id (little-endian), then the secret
COOKIE_LAYOUT: Final = 1
COOKIE_KEY: Final = struct.Struct("<iii32s")
DIRECTIONS: Final[Mapping[str, int]] = {"received": 1, "published": 2}

# Each supplier: the method of the driver's context, our class, and the system property that can name another class.
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
    """Rules of one channel, as its parameters. Sizes are bytes, rates are per second. None: the driver's default.

    Any sender may use ``streams``; every other stream needs a registered owner. Empty ``streams`` allows all streams.
    ``joining`` lets a receiver request every publication at a control address. A source is an IPv4 address or an
    IPv6 /64.
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
                    f"the guard's {field.name} is {value}, expected 1 to {2**31 - 1}",
                    remedy="Omit it to use the driver's default.",
                )
        for text in (*self.allow, *self.deny):
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise OptionError(
                    f"the guard's network {text!r} is invalid: {error}", remedy="Write 10.0.0.0/8 or 2001:db8::/32."
                ) from error


def guarded(channel: str, rules: GuardRules) -> str:
    """Return ``channel`` with the parameters that enable the driver's guard."""
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
    """Return the methods of MediaDriver.Context, with arguments, that enable the guard and prompt handshakes.

    Omits a supplier that a system property sets already, such as Aeron's endpoints that simulate packet loss.
    """
    chosen = jvm.jclass("java.lang.System").getProperty
    return {method: jvm.jclass(f"{PACKAGE}.{name}")() for method, name, prop in SUPPLIERS if chosen(prop) is None}


def has_guard(aeron_dir: str) -> bool:
    """Whether the driver has guarded a channel since it started."""
    return bool(read_drops(aeron_dir))


def read_drops(aeron_dir: str) -> dict[str, int]:
    """Return the number of frames dropped since the driver started, by ``receiving: reason`` or ``sending: reason``.

    Empty for a driver without a guard, or before its first guarded channel.
    """
    return {
        counter.label.removeprefix(DROP_LABEL): counter.value
        for counter in read_counters(aeron_dir)
        if counter.type_id == DROP_TYPE
    }


@dataclass(slots=True)
class Registration:
    """One registered owner or secret, until it is closed or the Aeron client that registered it ends."""

    _remove: Callable[[], object]

    def close(self) -> None:
        """Remove the registration; the guard applies the change within about 10 ms."""
        with java_errors("closing a registration with the guard"):
            self._remove()


class SessionOwner(NamedTuple):
    """The only allowed sender of a received Aeron session, or the only allowed receiver of a published one.

    ``port`` is the local port of the endpoint. ``address_port`` 0 allows any port of ``address``.
    """

    direction: Literal["received", "published"]
    port: int
    session_id: int
    stream_id: int
    address: str
    address_port: int = 0

    def key(self) -> bytes:
        """Return the key of its counter for Java's ``OwnerRegistry``; IPv4 is mapped into IPv6."""
        direction, address = DIRECTIONS[self.direction], mapped_address(self.address)
        return OWNER_KEY.pack(
            OWNER_LAYOUT, direction, self.port, self.session_id, self.stream_id, self.address_port, address
        )

    def __str__(self) -> str:
        """Return the label of its counter."""
        what = f"{self.direction} session {self.session_id} stream {self.stream_id} port {self.port}"
        return f"guard owner of {what}: {self.address}"


def register(client: AeronClient, owner: SessionOwner, *, wait: bool = True) -> Registration:
    """Register the owner of an Aeron session with the guard.

    The rule is in force when this returns, but 10 ms later for an image that is open already on one of the channel's
    open streams. Without ``wait`` it is in force when the driver has executed the client's next request. A driver
    without a guard ignores it.
    """
    key, label = owner.key(), str(owner)[:380].encode()
    buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
    described = (OWNER_TYPE, buffer(key), 0, len(key), buffer(label), 0, len(label))
    with java_errors("registering with the guard"):
        if wait:
            return Registration(client.aeron.addCounter(*described).close)
        registration = client.aeron.asyncAddCounter(*described)
        return Registration(lambda: client.aeron.asyncRemoveCounter(registration))


def require_cookies(client: AeronClient, *, port: int, stream_id: int, secret: bytes) -> Registration:
    """Let the guard admit only those sessions of a stream whose HELLO has a cookie that ``secret`` (32 bytes) made.

    ``port`` is the local port of the endpoint. The rule is in force for an endpoint that is opened afterwards, and
    0.25 s later for one that is open. A driver without a guard ignores it.
    """
    key = COOKIE_KEY.pack(COOKIE_LAYOUT, port, stream_id, secret)
    label = f"guard cookies of stream {stream_id} port {port}".encode()
    buffer = jvm.jclass("org.agrona.concurrent.UnsafeBuffer")
    with java_errors("registering with the guard"):
        counter = client.aeron.addCounter(COOKIE_TYPE, buffer(key), 0, len(key), buffer(label), 0, len(label))
    return Registration(counter.close)
