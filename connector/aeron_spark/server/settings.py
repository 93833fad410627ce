"""The settings of a server, made from its options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from aeron_spark.connection.rate_limits import Rates
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import OptionError
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.access import Filters
from aeron_spark.protocol.ids import REUSE_DELAY_S
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.protocol.server_sessions import ServerPolicy
from aeron_spark.server.ban_file import StoredBans


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server. Raises OptionError if ``reply_channel`` and ``mdc_ports`` contradict each other.

    ``mdc_ports`` is the first port and the number of ports, for ``reply_channel='mdc'``. ``allow_any_key`` gives
    every grant to keys that are not authorised. ``psk`` is the 32-byte key derived from the shared secret.
    """

    link: LinkSettings = field(
        default_factory=lambda: _link_settings(
            LinkSettings(), ServerOptions.workers_per_key, ServerOptions.memory_limit
        )
    )
    limits: Limits = field(default_factory=Limits)
    filters: Filters = field(default_factory=Filters)
    timing: ServerTiming = field(default_factory=ServerTiming)
    allow_any_key: bool = ServerOptions.allow_any_key
    psk: bytes | None = field(default=None, repr=False)
    reply_channel: Literal["response", "mdc"] = ServerOptions.reply_channel
    mdc_ports: tuple[int, int] | None = None
    session_ids: tuple[int, int] = ServerOptions.session_id_range
    id_reuse_delay_seconds: float = REUSE_DELAY_S
    max_sessions: int = ServerOptions.max_sessions
    max_connections_per_key: int = ServerOptions.max_connections_per_key
    max_bulk_links: int = ServerOptions.max_bulk_links
    deciders: int = ServerOptions.deciders
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        if self.reply_channel == "mdc" and self.mdc_ports is None:
            raise OptionError("replyChannel=mdc needs mdcPorts", remedy="Give mdcPorts, such as 20200-20299.")
        if self.reply_channel != "mdc" and self.mdc_ports is not None:
            raise OptionError("mdcPorts needs replyChannel=mdc", remedy="Leave it out, or set replyChannel=mdc.")

    @classmethod
    def of(cls, options: ServerOptions) -> ServerSettings:
        """Make the settings from a server's options, and read the file of the shared secret.

        Raises OptionError for options that contradict each other, SetupError for a file that cannot be used.
        """
        step, ports, secret = options.step_timeout, options.mdc_ports, options.shared_secret_file
        return cls(
            link=_link_settings(LinkSettings.of(options), options.workers_per_key, options.memory_limit),
            limits=Limits(
                connections=options.max_connections,
                connections_per_address=options.max_connections_per_address,
                pending=options.max_pending,
                pending_per_address=options.max_pending_per_address,
                handshakes_per_second=options.handshakes_per_second,
                handshake_burst=options.handshake_burst,
                exempt_loopback=options.exempt_loopback,
            ),
            filters=Filters(options.allow or (), options.deny or ()),
            timing=ServerTiming(
                hello_s=step / 2, admitting_s=step / 2, path_s=step, done_s=step, authenticating_s=step
            ),
            allow_any_key=options.allow_any_key,
            psk=None if secret is None else read_shared_secret(Path(secret).expanduser()),
            reply_channel=options.reply_channel,
            mdc_ports=None if ports is None else (ports[0], ports[1] - ports[0] + 1),
            session_ids=options.session_id_range,
            max_sessions=options.max_sessions,
            max_connections_per_key=options.max_connections_per_key,
            deciders=options.deciders,
            rates=Rates(options.bytes_in, options.bytes_out, options.messages_in),
            max_bulk_links=options.max_bulk_links,
        )


def _link_settings(settings: LinkSettings, workers_per_key: int, memory_limit: int) -> LinkSettings:
    """Return the settings of a server's links: it measures round trips, shares its workers and limits its memory."""
    times = replace(settings.times, measures_round_trip=True)
    return replace(settings, times=times, workers_per_key=workers_per_key, memory_limit=memory_limit)


def policy_of(settings: ServerSettings, bans: StoredBans) -> ServerPolicy:
    """Return the settings of the server's machine."""
    link = settings.link
    return ServerPolicy(
        limits=settings.limits,
        timing=settings.timing,
        times=link.times,
        key_limits=link.keys,
        psk=settings.psk,
        max_message=link.channel_settings.max_message,
        reply_channel=settings.reply_channel,
        mdc_ports=settings.mdc_ports,
        session_ids=settings.session_ids,
        id_reuse_delay_seconds=settings.id_reuse_delay_seconds,
        max_sessions=settings.max_sessions,
        max_connections_per_key=settings.max_connections_per_key,
        close_seconds=link.close_seconds,
        address_refusal=bans.address_refusal,
    )
