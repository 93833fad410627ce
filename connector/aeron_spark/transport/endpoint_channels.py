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
from dataclasses import dataclass, replace
from typing import Final

from aeron_spark.errors import InUseError, OptionError
from aeron_spark.transport.addresses import HostPort, canonical_host
from aeron_spark.transport.api import (
    HANDSHAKE_STREAM_ID,
    HANDSHAKE_TERM_BYTES,
    MTU_BYTES,
    ChannelSettings,
    LinkIds,
    ServerAddress,
)
from aeron_spark.transport.channel_parameters import MTU_MAX_BYTES

Ports = tuple[int, int]  # data, control

EVERYWHERE: Final = "*"

IPC: Final = "ipc:"

_REMEDY: Final = "Write such as feeds.example:20121, [::1]:20121, feeds.example:20121:20122 or ipc:"

_ADDRESS: Final = re.compile(
    r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\],\s]+))(?::(?P<data>[0-9]{1,9}))?(?::(?P<control>[0-9]{1,9}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """A place, and over shared memory the media driver's directory where one was named."""

    place: ServerAddress
    aeron_dir: str | None = None

    @property
    def is_ipc(self) -> bool:
        """Whether it is shared memory."""
        return self.place.media == "ipc"


def server_addresses(text: str, ports: Ports | None = None) -> tuple[EndpointAddress, ...]:
    """Parse where to listen: addresses separated by commas; ``ports`` are for those that name none.

    Raises OptionError for what cannot be listened on, and for a place that stands there twice.
    """
    found: list[EndpointAddress] = []
    for part in text.split(","):
        address = _parse(part.strip(), ports, own=True)
        if address.place in [one.place for one in found]:
            raise OptionError(f"the address {part.strip()!r} is given twice", remedy="Give it once")
        found.append(address)
    _refuse_shared_ports(found)
    return tuple(found)


def server_address(text: str) -> EndpointAddress:
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
        f"cannot listen on {HostPort(host, port)}: the address is in use",
        remedy="Stop the program that has it, or choose another port",
    )


def _parse(text: str, ports: Ports | None, *, own: bool) -> EndpointAddress:
    if text == IPC or text.startswith(f"{IPC}/"):
        return EndpointAddress(ServerAddress(media="ipc"), text[len(IPC) :] or None)
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise OptionError(f"the address {text!r} is not host:port or host:port:control", remedy=_REMEDY)
    data, control = _ports(text, match, ports)
    host = match["v6"] or match["host"]
    if match["v6"] is not None and ":" not in host:
        raise OptionError(f"the address {text!r} has no IPv6 address in its brackets", remedy=_REMEDY)
    if host == EVERYWHERE and own:
        host = "::"
    return EndpointAddress(check_address(ServerAddress("udp", host, data, control), own=own))


def _ports(text: str, match: re.Match[str], ports: Ports | None) -> Ports:
    if match["data"] is not None:
        data = int(match["data"])
        return data, data + 1 if match["control"] is None else int(match["control"])
    if ports is None:
        raise OptionError(f"the address {text!r} has no port", remedy=_REMEDY)
    return ports


def _refuse_shared_ports(found: list[EndpointAddress]) -> None:
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


LINGER: Final = "500ms"  # for retransmissions after the last message, such as why somebody is refused

PARTING: Final = "200ms"  # for a client to tell the server's driver that its handshake's way is not needed any more

PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class ClientPorts:
    """Ports of a client's own: ``send`` is the one the server sees, ``receive`` where its answers arrive."""

    send: int
    receive: int
    host: str = "0.0.0.0"  # the system chooses the interface


def check_address(place: ServerAddress, *, own: bool) -> ServerAddress:
    """Return ``place`` with its host canonical. Raises OptionError for ports that cannot work.

    ``own``: it is to be listened on here.
    """
    if place.media == "ipc":
        return place
    try:
        host = canonical_host(place.host.strip("[]"))
    except ValueError as error:
        raise OptionError(f"the address {place.host!r} {error}", remedy="Give an IP address or a host name.") from None
    for name, port in (("data", place.data_port), ("control", place.control_port)):
        if not 1 <= port <= PORT_MAX:
            raise OptionError(f"the {name} port {port} is not from 1 to {PORT_MAX}", remedy="Choose another one.")
    if place.data_port == place.control_port:
        raise OptionError(
            f"the data port and the control port are both {place.data_port}",
            remedy="Leave the control port out: it is the one after the data port.",
        )
    if not own and host in {"0.0.0.0", "::"}:
        raise OptionError(f"{host} is no address to connect to", remedy="Name the server's own address.")
    return replace(place, host=host)


def handshake_in(place: ServerAddress, channel_settings: ChannelSettings) -> str:
    """The server's subscription for strangers."""
    return _channel(place, endpoint=_data(place), **_reliable(channel_settings))


def response_stream(place: ServerAddress) -> int:
    """The stream of the server's answers to handshakes.

    Over shared memory all ends are on one channel: on the strangers' stream the server would hear itself.
    """
    return HANDSHAKE_STREAM_ID + 1 if place.media == "ipc" else HANDSHAKE_STREAM_ID


def response_out(place: ServerAddress, image: int, session_id: int, channel_settings: ChannelSettings) -> str:
    """The server's answer to the sender of ``image``."""
    return _channel(
        place,
        control_mode="response",
        control=_control(place),
        response_correlation_id=image,
        session_id=session_id,
        **_publication(place, channel_settings, HANDSHAKE_TERM_BYTES, LINGER),
    )


def link_in(place: ServerAddress, ids: LinkIds, channel_settings: ChannelSettings) -> str:
    """The server's subscription for one client."""
    return _channel(place, endpoint=_data(place), session_id=ids.session_in, **_reliable(channel_settings))


def link_out(place: ServerAddress, ids: LinkIds, image: int, channel_settings: ChannelSettings) -> str:
    """The server's publication for one client: ``image`` is its handshake's, or another duologue's."""
    parameters = _publication(place, channel_settings, channel_settings.term_bytes, LINGER)
    if place.media == "ipc":
        return _channel(place, session_id=ids.session_out, **parameters)
    if ids.mdc_port is not None:
        control = _port(place, ids.mdc_port)
        return _channel(place, control_mode="dynamic", control=control, session_id=ids.session_out, **parameters)
    return _channel(
        place,
        control_mode="response",
        control=_control(place),
        response_correlation_id=image,
        session_id=ids.session_out,
        **parameters,
    )


def response_in(place: ServerAddress, ports: ClientPorts | None, channel_settings: ChannelSettings) -> str:
    """The client's subscription for the server's answers."""
    control = _control(place)
    return _channel(
        place, control_mode="response", **_receiving(place, ports), control=control, **_reliable(channel_settings)
    )


def handshake_out(
    place: ServerAddress,
    ports: ClientPorts | None,
    subscription: int,
    session_id: int,
    channel_settings: ChannelSettings,
) -> str:
    """The client's publication as a stranger, answered on ``subscription``, a registration id."""
    return _channel(
        place,
        endpoint=_data(place),
        **_sending(place, ports),
        response_correlation_id=subscription,
        session_id=session_id,
        **_publication(place, channel_settings, HANDSHAKE_TERM_BYTES, PARTING),
    )


def client_link_in(
    place: ServerAddress, ports: ClientPorts | None, ids: LinkIds, channel_settings: ChannelSettings
) -> str:
    """The client's subscription of its duologue."""
    if place.media == "ipc":
        return _channel(place, session_id=ids.session_out)
    control = _control(place) if ids.mdc_port is None else _port(place, ids.mdc_port)
    return _channel(
        place,
        control_mode="dynamic",
        **_receiving(place, ports),
        control=control,
        session_id=ids.session_out,
        **_reliable(channel_settings),
    )


def client_link_out(
    place: ServerAddress, ports: ClientPorts | None, ids: LinkIds, channel_settings: ChannelSettings, subscription: int
) -> str:
    """The client's publication of its duologue, whose way in is ``subscription``, a registration id.

    That it names one lets the server open further response channels to whom this comes from.
    """
    return _channel(
        place,
        endpoint=_data(place),
        **_sending(place, ports),
        session_id=ids.session_in,
        response_correlation_id=None if place.media == "ipc" else subscription,
        **_publication(place, channel_settings, channel_settings.term_bytes, LINGER),
    )


def _channel(place: ServerAddress, **parameters: str | int | bool | None) -> str:
    """Write a channel of checked parts. Over IPC there are no addresses, and only a response channel has a mode."""
    if place.media == "ipc":
        for name in ("endpoint", "control", "interface", "reliable"):
            parameters.pop(name, None)
    given = {name: value for name, value in parameters.items() if value is not None}
    query = "|".join(f"{name.replace('_', '-')}={_text(value)}" for name, value in given.items())
    return f"aeron:{place.media}?{query}" if query else f"aeron:{place.media}"


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _publication(
    place: ServerAddress, channel_settings: ChannelSettings, term_bytes: int, linger: str
) -> dict[str, str | int | bool | None]:
    # a handshake's packets fit the smallest MTU, and its small terms no large one
    if term_bytes == HANDSHAKE_TERM_BYTES:
        mtu = MTU_BYTES
    else:  # shared memory has no packets: what is cut there is cut, and put together, for nothing
        mtu = min(MTU_MAX_BYTES, term_bytes // 8) if place.media == "ipc" else channel_settings.mtu_bytes
    return {"term_length": term_bytes, "mtu": mtu, "sparse": True, "linger": linger, **_reliable(channel_settings)}


def _reliable(channel_settings: ChannelSettings) -> dict[str, bool | None]:
    return {"reliable": None if channel_settings.reliable else False}


def _receiving(place: ServerAddress, ports: ClientPorts | None) -> dict[str, str | None]:
    return {"endpoint": None if ports is None else str(HostPort(_own_host(place, ports), ports.receive))}


def _sending(place: ServerAddress, ports: ClientPorts | None) -> dict[str, str | None]:
    return {"interface": None if ports is None else str(HostPort(_own_host(place, ports), ports.send))}


def _own_host(place: ServerAddress, ports: ClientPorts) -> str:
    wildcard = ports.host == "0.0.0.0"
    return "::" if wildcard and ":" in place.host else ports.host


def _data(place: ServerAddress) -> str | None:
    return None if place.media == "ipc" else _port(place, place.data_port)


def _control(place: ServerAddress) -> str | None:
    return None if place.media == "ipc" else _port(place, place.control_port)


def _port(place: ServerAddress, port: int) -> str:
    return str(HostPort(place.host, port))
