"""Addresses of a secure endpoint as people write them, and the places they stand for.

host:20121            data port 20121, control port 20122
host:20121:20200      both ports
[::1]:20121           IPv6 in brackets
*:20121               every address of this machine; for listening only. It is [::], which hears IPv4, too: a second
                      socket for 0.0.0.0 could not be bound beside it
ipc:                  shared memory of this machine, through the media driver both sides use
ipc:/dev/shm/x        the same, and which media driver that is
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import InUseError, OptionError
from aeron_spark.transport.addresses import Endpoint
from aeron_spark.transport.port import Place
from aeron_spark.transport.wiring import PORT_MAX, ClientPorts, check_place

Ports = tuple[int, int]  # data, control

EVERYWHERE: Final = "*"
IPC: Final = "ipc:"
_REMEDY: Final = "Write such as feeds.example:20121, [::1]:20121, feeds.example:20121:20122 or ipc:"
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\],\s]+))(?::(?P<data>[0-9]{1,9}))?(?::(?P<control>[0-9]{1,9}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Address:
    """A place, and over shared memory the media driver's directory where one was named."""

    place: Place
    aeron_dir: str | None = None

    @property
    def is_ipc(self) -> bool:
        """Whether it is shared memory."""
        return self.place.media == "ipc"


def server_addresses(text: str, ports: Ports | None = None) -> tuple[Address, ...]:
    """Parse where to listen: addresses separated by commas; ``ports`` are for those that name none.

    Raises OptionError for what cannot be listened on, and for a place that stands there twice.
    """
    found: list[Address] = []
    for part in text.split(","):
        address = _parse(part.strip(), ports, own=True)
        if address.place in [one.place for one in found]:
            raise OptionError(f"the address {part.strip()!r} is given twice", remedy="Give it once")
        found.append(address)
    _refuse_shared_ports(found)
    return tuple(found)


def server_address(text: str) -> Address:
    """Parse where a client finds its server. Raises OptionError that says what is wrong."""
    return _parse(text.strip(), None, own=False)


def client_ports(text: str) -> ClientPorts:
    """Parse a client's own ``host:port[:receive port]``; the second port is the next one unless given."""
    address = _parse(text.strip(), None, own=True)
    if address.is_ipc:
        raise OptionError(f"{text!r} is no address of a client's own", remedy="Write such as 0.0.0.0:20400")
    place = address.place
    return ClientPorts(place.data_port, place.control_port, place.host)


def port_pair(text: str) -> Ports:
    """Parse ``20121`` or ``20121,20122``. Raises ValueError that says what is expected."""
    match = re.fullmatch(r"([0-9]{1,9})(?:\s*,\s*([0-9]{1,9}))?", text, re.ASCII)
    if match is None:
        raise ValueError("a data port, or a data port and a control port such as 20121,20122")
    data = int(match[1])
    control = data + 1 if match[2] is None else int(match[2])
    if not (1 <= data <= PORT_MAX and 1 <= control <= PORT_MAX):
        raise ValueError(f"ports from 1 to {PORT_MAX} (the control port is the one after the data port unless given)")
    if data == control:
        raise ValueError("two different ports: the data port and the control port")
    return data, control


def address_in_use(host: str, port: int) -> InUseError:
    """Return the error of a server's port that another program has."""
    return InUseError(
        f"cannot listen on {Endpoint(host, port)}: the address is in use",
        remedy="Stop the program that has it, or choose another port",
    )


def _parse(text: str, ports: Ports | None, *, own: bool) -> Address:
    if text == IPC or text.startswith(f"{IPC}/"):
        return Address(Place(media="ipc"), text[len(IPC) :] or None)
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise OptionError(f"the address {text!r} is not host:port or host:port:control", remedy=_REMEDY)
    data, control = _ports(text, match, ports)
    host = match["v6"] or match["host"]
    if match["v6"] is not None and ":" not in host:
        raise OptionError(f"the address {text!r} has no IPv6 address in its brackets", remedy=_REMEDY)
    if host == EVERYWHERE and own:
        host = "::"
    return Address(check_place(Place("udp", host, data, control), own=own))


def _ports(text: str, match: re.Match[str], ports: Ports | None) -> Ports:
    if match["data"] is not None:
        data = int(match["data"])
        return data, data + 1 if match["control"] is None else int(match["control"])
    if ports is None:
        raise OptionError(f"the address {text!r} has no port", remedy=_REMEDY)
    return ports


def _refuse_shared_ports(found: list[Address]) -> None:
    """One socket cannot be a data port and a control port, not even of two places."""
    taken: dict[tuple[str, int], str] = {}
    for place in (one.place for one in found if not one.is_ipc):
        for name, port in (("data", place.data_port), ("control", place.control_port)):
            socket = (place.host, port)
            if socket in taken:
                raise OptionError(
                    f"the {name} port {port} of {place.host} is the {taken[socket]} port of another address",
                    remedy="Choose other ports; the control port is the one after the data port unless given",
                )
            taken[socket] = name
