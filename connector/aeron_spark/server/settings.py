"""What a server can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import OptionError
from aeron_spark.protocol.access import Filters
from aeron_spark.protocol.ids import FIRST_SESSION_ID, LAST_SESSION_ID, REST
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.protocol.tickets import MAX_SESSIONS, MAX_SESSIONS_PER_KEY

MAX_BULK_LINKS: Final = 256  # of one connection: a Spark worker has one for each partition that it serves
DECIDERS: Final = 8  # threads that look at keys and filters; a slow function of the user's takes one of them


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """``mdc_ports`` is the first port and the number of ports, for ``duologue='mdc'``.

    ``authorized_only``: clients must be among the authorised keys. ``psk``: 32 bytes made of a shared secret.
    """

    link: LinkSettings = field(default_factory=LinkSettings)
    limits: Limits = field(default_factory=Limits)
    filters: Filters = field(default_factory=Filters)
    timing: ServerTiming = field(default_factory=ServerTiming)
    authorized_only: bool = False
    psk: bytes | None = field(default=None, repr=False)
    duologue: Literal["response", "mdc"] = "response"
    mdc_ports: tuple[int, int] | None = None
    session_ids: tuple[int, int] = (FIRST_SESSION_ID, LAST_SESSION_ID)
    id_rest_seconds: float = REST
    max_sessions: int = MAX_SESSIONS
    max_sessions_per_key: int = MAX_SESSIONS_PER_KEY
    max_bulk_links: int = MAX_BULK_LINKS
    deciders: int = DECIDERS

    def __post_init__(self) -> None:
        if self.duologue == "mdc" and self.mdc_ports is None:
            raise OptionError("duologue=mdc needs a range of ports", remedy="Give mdcPorts, such as 20200-20299")
        if self.duologue != "mdc" and self.mdc_ports is not None:
            raise OptionError("mdcPorts is for duologue=mdc only", remedy="Leave it out, or set duologue=mdc")
