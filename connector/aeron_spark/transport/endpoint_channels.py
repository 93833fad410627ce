"""Parses the addresses of secure endpoints, and writes the channels of paths and links.

host:20121            data port 20121, control port 20122
host:20121:20200      both ports
[::1]:20121           IPv6 in brackets
*:20121               all addresses of this machine, only for a server. Equals [::], which receives IPv4, too: a second
                      socket for 0.0.0.0 could not be bound
ipc:                  shared memory of this machine, through the media driver of both endpoints
ipc:/dev/shm/x        the same, with the directory of the media driver
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
from aeron_spark.transport.channel import MTU_MAX_BYTES

Ports = tuple[int, int]  # data, control

WILDCARD: Final = "*"

IPC: Final = "ipc:"

_REMEDY: Final = "Write an address such as feeds.example:20121, [::1]:20121, feeds.example:20121:20122 or ipc:"

_ADDRESS: Final = re.compile(
    r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\],\s]+))(?::(?P<data>[0-9]{1,9}))?(?::(?P<control>[0-9]{1,9}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """A server's address and, for shared memory, the media driver's directory if the text names one."""

    address: ServerAddress
    aeron_dir: str | None = None

    @property
    def is_ipc(self) -> bool:
        """Whether the address is shared memory."""
        return self.address.media == "ipc"


def server_addresses(text: str, ports: Ports | None = None) -> tuple[EndpointAddress, ...]:
    """Parse the addresses of a server, separated by commas; ``ports`` is the default for addresses without ports.

    Raises OptionError for an address on which no server can listen, for duplicates, and for conflicting ports.
    """
    found: list[EndpointAddress] = []
    for part in text.split(","):
        parsed = _parse(part.strip(), ports, own=True)
        if parsed.address in [one.address for one in found]:
            raise OptionError(f"the address {part.strip()!r} is given twice", remedy="Give it once")
        found.append(parsed)
    _refuse_shared_ports(found)
    return tuple(found)


def server_address(text: str) -> EndpointAddress:
    """Parse the server's address for a client. Raises OptionError."""
    return _parse(text.strip(), None, own=False)


def client_ports(text: str) -> ClientPorts:
    """Parse a client's local ``host:port[:receive port]``; the default of the second port is the first one plus 1."""
    parsed = _parse(text.strip(), None, own=True)
    if parsed.is_ipc:
        raise OptionError(
            f"{text!r} is not a local address of a client", remedy="Write an address such as 0.0.0.0:20400"
        )
    return ClientPorts(parsed.address.data_port, parsed.address.control_port, parsed.address.host)


def port_pair(text: str) -> Ports:
    """Parse ``20121`` or ``20121,20122``. Raises ValueError with the expected values."""
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
    """Return the error to raise if another program uses a server's port."""
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
    if host == WILDCARD and own:
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
    """Raise OptionError if two addresses use the same port of a host: a socket is a data port or a control port."""
    used: dict[tuple[str, int], str] = {}
    for address in (one.address for one in found if not one.is_ipc):
        for name, port in (("data", address.data_port), ("control", address.control_port)):
            socket = (address.host, port)
            if socket in used:
                raise OptionError(
                    f"the {name} port {port} of {address.host} is the {used[socket]} port of another address",
                    remedy="Choose other ports; by default the control port is the data port plus 1",
                )
            used[socket] = name


# Aeron's linger: how long a driver keeps a closed publication for retransmissions.
LINGER: Final = "500ms"  # the last message may be a refusal
HANDSHAKE_LINGER: Final = "200ms"  # of a client's handshake, to signal the end of its stream to the server's driver

PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class ClientPorts:
    """Local ports of a client: ``send`` is the source of its packets, ``receive`` gets the server's packets."""

    send: int
    receive: int
    host: str = "0.0.0.0"  # the system chooses the interface


ANY_PORTS: Final = ClientPorts(0, 0)


def check_address(address: ServerAddress, *, own: bool) -> ServerAddress:
    """Return the address with a canonical host. Raises OptionError for an invalid host or port.

    ``own``: a server of this process listens on it.
    """
    if address.media == "ipc":
        return address
    try:
        host = canonical_host(address.host.strip("[]"))
    except ValueError as error:
        raise OptionError(
            f"the address {address.host!r} {error}", remedy="Give an IP address or a host name."
        ) from None
    for name, port in (("data", address.data_port), ("control", address.control_port)):
        if not 1 <= port <= PORT_MAX:
            raise OptionError(f"the {name} port is {port}, expected 1 to {PORT_MAX}", remedy="Choose another port.")
    if address.data_port == address.control_port:
        raise OptionError(
            f"the data port and the control port are both {address.data_port}",
            remedy="Omit the control port: its default is the data port plus 1.",
        )
    if not own and host in {"0.0.0.0", "::"}:
        raise OptionError(f"a client cannot connect to the wildcard {host}", remedy="Name the server's address.")
    return replace(address, host=host)


def handshake_in(address: ServerAddress, channel_settings: ChannelSettings) -> str:
    """Return the channel of the server's subscription for handshakes."""
    return _channel(address, endpoint=_data(address), **_reliable(channel_settings))


def response_stream(address: ServerAddress) -> int:
    """Return the stream id of the server's handshake packets.

    In shared memory both ends use the same channel: on the clients' stream the server would receive its own packets.
    """
    return HANDSHAKE_STREAM_ID + 1 if address.media == "ipc" else HANDSHAKE_STREAM_ID


def response_out(address: ServerAddress, image: int, session_id: int, channel_settings: ChannelSettings) -> str:
    """Return the channel of the server's handshake publication for the sender of ``image``."""
    return _channel(
        address,
        control_mode="response",
        control=_control(address),
        response_correlation_id=image,
        session_id=session_id,
        **_publication(address, channel_settings, HANDSHAKE_TERM_BYTES, LINGER),
    )


def link_in(address: ServerAddress, ids: LinkIds, channel_settings: ChannelSettings) -> str:
    """Return the channel of the server's subscription of a link."""
    return _channel(address, endpoint=_data(address), session_id=ids.session_in, **_reliable(channel_settings))


def link_out(address: ServerAddress, ids: LinkIds, image: int, channel_settings: ChannelSettings) -> str:
    """Return the channel of the server's publication of a link; ``image`` is the client's, of its path or a link."""
    parameters = _publication(address, channel_settings, channel_settings.term_bytes, LINGER)
    if address.media == "ipc":
        return _channel(address, session_id=ids.session_out, **parameters)
    if ids.mdc_port is not None:
        control = _port(address, ids.mdc_port)
        return _channel(address, control_mode="dynamic", control=control, session_id=ids.session_out, **parameters)
    return _channel(
        address,
        control_mode="response",
        control=_control(address),
        response_correlation_id=image,
        session_id=ids.session_out,
        **parameters,
    )


def response_in(address: ServerAddress, ports: ClientPorts | None, channel_settings: ChannelSettings) -> str:
    """Return the channel of the client's subscription for handshake packets of the server."""
    control = _control(address)
    return _channel(
        address, control_mode="response", **_receiving(address, ports), control=control, **_reliable(channel_settings)
    )


def handshake_out(
    address: ServerAddress,
    ports: ClientPorts | None,
    subscription: int,
    session_id: int,
    channel_settings: ChannelSettings,
) -> str:
    """Return the channel of the client's handshake publication; the server responds to ``subscription``, its id."""
    return _channel(
        address,
        endpoint=_data(address),
        **_sending(address, ports),
        response_correlation_id=subscription,
        session_id=session_id,
        **_publication(address, channel_settings, HANDSHAKE_TERM_BYTES, HANDSHAKE_LINGER),
    )


def client_link_in(
    address: ServerAddress, ports: ClientPorts | None, ids: LinkIds, channel_settings: ChannelSettings
) -> str:
    """Return the channel of the client's subscription of a link."""
    if address.media == "ipc":
        return _channel(address, session_id=ids.session_out)
    control = _control(address) if ids.mdc_port is None else _port(address, ids.mdc_port)
    if ports is None and channel_settings.own_socket:
        ports = ANY_PORTS  # Aeron opens another socket for each channel whose port the system chooses
    return _channel(
        address,
        control_mode="dynamic",
        **_receiving(address, ports),
        control=control,
        session_id=ids.session_out,
        **_reliable(channel_settings),
    )


def client_link_out(
    address: ServerAddress,
    ports: ClientPorts | None,
    ids: LinkIds,
    channel_settings: ChannelSettings,
    subscription: int,
) -> str:
    """Return the channel of the client's publication of a link; ``subscription`` is the link's, a registration id.

    With this id in the channel, the server can open further response channels to the client.
    """
    return _channel(
        address,
        endpoint=_data(address),
        **_sending(address, ports),
        session_id=ids.session_in,
        response_correlation_id=None if address.media == "ipc" else subscription,
        **_publication(address, channel_settings, channel_settings.term_bytes, LINGER),
    )


def _channel(address: ServerAddress, **parameters: str | int | bool | None) -> str:
    """Return the channel of checked parameters, without those that are None; over IPC also without addresses."""
    if address.media == "ipc":
        for name in ("endpoint", "control", "interface", "reliable"):
            parameters.pop(name, None)
    present = {name: value for name, value in parameters.items() if value is not None}
    query = "|".join(f"{name.replace('_', '-')}={_text(value)}" for name, value in present.items())
    return f"aeron:{address.media}?{query}" if query else f"aeron:{address.media}"


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _publication(
    address: ServerAddress, channel_settings: ChannelSettings, term_bytes: int, linger: str
) -> dict[str, str | int | bool | None]:
    # The packets of a handshake fit into the smallest MTU, and its small terms do not allow a large one.
    if term_bytes == HANDSHAKE_TERM_BYTES:
        mtu = MTU_BYTES
    else:  # shared memory has no packets, so fragmentation would only cost time
        mtu = min(MTU_MAX_BYTES, term_bytes // 8) if address.media == "ipc" else channel_settings.mtu_bytes
    return {"term_length": term_bytes, "mtu": mtu, "sparse": True, "linger": linger, **_reliable(channel_settings)}


def _reliable(channel_settings: ChannelSettings) -> dict[str, bool | None]:
    return {"reliable": None if channel_settings.reliable else False}


def _receiving(address: ServerAddress, ports: ClientPorts | None) -> dict[str, str | None]:
    return {"endpoint": None if ports is None else str(HostPort(_own_host(address, ports), ports.receive))}


def _sending(address: ServerAddress, ports: ClientPorts | None) -> dict[str, str | None]:
    return {"interface": None if ports is None else str(HostPort(_own_host(address, ports), ports.send))}


def _own_host(address: ServerAddress, ports: ClientPorts) -> str:
    wildcard = ports.host == "0.0.0.0"
    return "::" if wildcard and ":" in address.host else ports.host


def _data(address: ServerAddress) -> str | None:
    return None if address.media == "ipc" else _port(address, address.data_port)


def _control(address: ServerAddress) -> str | None:
    return None if address.media == "ipc" else _port(address, address.control_port)


def _port(address: ServerAddress, port: int) -> str:
    return str(HostPort(address.host, port))
