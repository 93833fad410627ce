"""A client's options, from a program, a command line or Spark, as what :func:`aeron_spark.connect` needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.options import link_settings, shared_secret
from aeron_spark.errors import OptionError
from aeron_spark.options.endpoint_values import public_key
from aeron_spark.options.given import OptionReader
from aeron_spark.options.row import Where
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.keypair import public_text
from aeron_spark.transport.addresses import ip_of
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import ClientPorts, EndpointAddress, client_ports, server_address

Ipc = Literal["auto", "only", "never"]


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Checked; nothing was started. None: the default place, or ports that the system chooses."""

    settings: ClientSettings
    place: ServerAddress
    ipc: Ipc
    idle: str
    ports: ClientPorts | None = None
    aeron_dir: str | None = None
    identity: str | None = None
    known_servers: str | None = None

    @property
    def may_be_ipc(self) -> bool:
        """Whether the server may share this machine's memory: it is on this machine, as far as its address tells."""
        if self.ipc == "only":
            return True
        address = ip_of(self.place.host)
        return address is not None and address.is_loopback


def client_options(address: str = "", options: Mapping[str, object] | None = None) -> ClientOptions:
    """Read a client's options and the address of its server; without an address only shared memory is left.

    Raises OptionError, one sentence and a remedy, for the first thing wrong.
    """
    given = OptionReader(_with_key_as_text(options or {}), Where.CLIENT)
    found = server_address(address) if address else EndpointAddress(ServerAddress(media="ipc"))
    return ClientOptions(
        settings=_settings(given),
        place=found.place,
        ipc=_ipc(given, found),
        idle=given.choice("idle"),
        ports=given.read("bind", client_ports),
        aeron_dir=_aeron_dir(given, found),
        identity=given.text("identity"),
        known_servers=given.text("knownServers"),
    )


def client_settings(options: Mapping[str, object]) -> ClientSettings:
    """Read what the client's core needs of its options. Raises as :func:`client_options`."""
    return client_options("", options).settings


def _settings(given: OptionReader) -> ClientSettings:
    step = given.seconds("stepTimeout")
    server_key, validate = given.read("serverKey", public_key), given.flag("validate")
    if server_key is not None and not validate:
        raise OptionError(
            "options 'serverKey' (the only key the server may have) and 'validate' ('false': any key may come) "
            "contradict",
            remedy="Leave one of them out",
        )
    first, longest = given.seconds("firstPause"), given.seconds("longestPause")
    if first > longest:
        raise OptionError(
            f"option 'firstPause' ({first:g} s) is longer than 'longestPause' ({longest:g} s)",
            remedy="The pauses grow from the one to the other",
        )
    return ClientSettings(
        link=link_settings(given),
        timing=ClientTiming(hello_ack=step, done_ack=step),
        tag=given.text("tag") or "",
        connect_seconds=given.seconds_or_zero("connectTimeout"),
        first_pause=first,
        longest_pause=longest,
        server_key=server_key,
        trust_first_use=given.flag("trustFirstUse"),
        validate=validate,
        reconnect=given.flag("reconnect"),
        psk=shared_secret(given),
    )


def _ipc(given: OptionReader, address: EndpointAddress) -> Ipc:
    ipc = cast("Ipc", given.choice("ipc"))
    if address.is_ipc:
        if ipc == "never":
            raise OptionError(
                "option 'ipc' is 'never', and no address of a server on the network is given",
                remedy="Give host:port, or leave 'ipc' out",
            )
        return "only"
    return ipc


def _aeron_dir(given: OptionReader, address: EndpointAddress) -> str | None:
    chosen = given.text("aeronDir")
    if chosen is not None and address.aeron_dir is not None and chosen != address.aeron_dir:
        raise OptionError(
            f"option 'aeronDir' is {chosen}, and the address names {address.aeron_dir}", remedy="Name one media driver"
        )
    return chosen or address.aeron_dir


def _with_key_as_text(options: Mapping[str, object]) -> dict[str, object]:
    """A program may have the server's key as its bytes."""
    return {name: public_text(value) if isinstance(value, bytes) else value for name, value in options.items()}
