"""A server's options, from a command line, a TOML file or a program, as what :class:`Server` needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from aeron_spark.connection.options import link_settings, shared_secret
from aeron_spark.errors import OptionError
from aeron_spark.options.given import OptionReader
from aeron_spark.options.row import Where
from aeron_spark.protocol.access import Filters, Rule
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.server.settings import ServerSettings
from aeron_spark.streams.model import StreamSettings as StreamSettings
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import EndpointAddress, server_addresses

_RULES: Final = ("allow", "deny")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Checked; nothing was started. None: the default place."""

    settings: ServerSettings
    places: tuple[ServerAddress, ...]
    idle: str
    aeron_dir: str | None = None
    identity: str | None = None
    authorized_keys: str | None = None
    streams_dir: str | None = None
    stream_settings: StreamSettings = field(default_factory=StreamSettings)


def server_options(
    address: str = "", options: Mapping[str, object] | None = None, *, authorized_only: bool = False
) -> ServerOptions:
    """Read a server's options; ``address`` stands for ``bind``, ``authorized_only`` for ``authorizedKeys``.

    ``allow`` and ``deny`` may hold functions. Raises OptionError, one sentence and a remedy, for the first thing wrong.
    """
    texts, functions = _without_functions(options or {})
    given = OptionReader(texts, Where.SERVER)
    if address and "bind" in given:
        raise OptionError("the address is given twice, by itself and as 'bind'", remedy="Give one of them")
    places, aeron_dir = _places(given, address)
    return ServerOptions(
        settings=_settings(given, places, functions, authorized_only or "authorizedKeys" in given),
        places=places,
        idle=given.choice("idle"),
        aeron_dir=aeron_dir,
        identity=given.text("identity"),
        authorized_keys=given.text("authorizedKeys"),
        streams_dir=given.text("streamsDir"),
        stream_settings=StreamSettings(stage_limit=given.required("stageBytes", given.size("stageBytes"))),
    )


def server_settings(options: Mapping[str, object]) -> ServerSettings:
    """Read what the server's core needs of its options. Raises as :func:`server_options`."""
    return server_options("", options).settings


def _settings(
    given: OptionReader, places: tuple[ServerAddress, ...], functions: Mapping[str, list[Rule]], authorized_only: bool
) -> ServerSettings:
    duologue = cast('Literal["response", "mdc"]', given.choice("duologue"))
    sessions = given.required("sessionIdRange", given.span("sessionIdRange"))
    step = given.seconds("stepTimeout")
    return ServerSettings(
        link=link_settings(given),
        limits=_limits(given),
        filters=Filters(*([*given.networks(name), *functions[name]] for name in _RULES)),
        timing=ServerTiming(hello=step / 2, admitting=step / 2, opening=step, done=step, authenticating=step),
        authorized_only=authorized_only,
        psk=shared_secret(given),
        duologue=duologue,
        mdc_ports=_mdc_ports(given, duologue, places),
        session_ids=sessions,
        max_sessions=_whole(given, "maxSessions"),
        max_sessions_per_key=_whole(given, "maxSessionsPerKey"),
        deciders=_whole(given, "deciders"),
        max_bulk_links=_whole(given, "maxBranches"),
    )


def _limits(given: OptionReader) -> Limits:
    return Limits(
        connections=_whole(given, "maxConnections"),
        connections_per_address=_whole(given, "maxConnectionsPerAddress"),
        pending=_whole(given, "maxPending"),
        pending_per_address=_whole(given, "maxPendingPerAddress"),
        handshakes_per_second=given.number("handshakesPerSecond"),
        handshake_burst=_whole(given, "handshakeBurst"),
        exempt_loopback=given.flag("exemptLoopback"),
    )


def _places(given: OptionReader, address: str) -> tuple[tuple[ServerAddress, ...], str | None]:
    ports = given.port_pair("ports")

    def parse(text: str) -> tuple[EndpointAddress, ...]:
        return server_addresses(text, ports)

    addresses = parse(address) if address else given.required("bind", given.read("bind", parse))
    places = tuple(one.place for one in addresses)
    if given.flag("ipc") and not any(one.is_ipc for one in addresses):
        places += (ServerAddress(media="ipc"),)
    return places, aeron_dir_of(given, [one for one in addresses if one.is_ipc])


def aeron_dir_of(given: OptionReader, addresses: list[EndpointAddress]) -> str | None:
    """The one media driver that the addresses and ``aeronDir`` name. Raises OptionError where they name several."""
    named = {one.aeron_dir for one in addresses if one.aeron_dir is not None}
    chosen = given.text("aeronDir")
    if chosen is not None:
        named.add(chosen)
    if len(named) > 1:
        raise OptionError(
            f"several media drivers are named: {', '.join(sorted(named))}",
            remedy="Name one, with 'aeronDir' or in the address",
        )
    return named.pop() if named else None


def _mdc_ports(given: OptionReader, duologue: str, places: tuple[ServerAddress, ...]) -> tuple[int, int] | None:
    span = given.span("mdcPorts")
    if duologue == "mdc" and span is None:
        raise OptionError(
            "option 'duologue' is 'mdc', which needs ports of its own", remedy="For example --mdc-ports 20200-20299"
        )
    if span is None:
        return None
    if duologue != "mdc":
        raise OptionError(
            "option 'mdcPorts' is for duologue 'mdc', and it is 'response'", remedy="Leave it out, or set duologue=mdc"
        )
    first, last = span
    for place in places:
        for name, port in (("data", place.data_port), ("control", place.control_port)):
            if place.media == "udp" and first <= port <= last:
                raise OptionError(
                    f"option 'mdcPorts' ({first}-{last}) holds the {name} port {port}", remedy="Choose other ports"
                )
    return first, last - first + 1


def _whole(given: OptionReader, name: str) -> int:
    """These rows all have a default."""
    return given.required(name, given.whole(name))


def _without_functions(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, list[Rule]]]:
    """Set apart the functions in ``allow`` and ``deny``."""
    functions: dict[str, list[Rule]] = {name: [] for name in _RULES}
    texts: dict[str, object] = {}
    for name, value in options.items():
        rest: object = value
        if name.lower() in functions:
            rules = list(value) if isinstance(value, list | tuple) else [value]
            functions[name.lower()] += [cast("Callable[..., bool]", one) for one in rules if callable(one)]
            rest = [one for one in rules if not callable(one)] or None
        texts[name] = rest
    return texts, functions
