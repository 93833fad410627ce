"""What a client can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aeron_spark.connection.loop import REOPEN_SECONDS
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import OptionError
from aeron_spark.protocol.client_attempt import ClientPolicy
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.handshake_payloads import check_tag

CONNECT_SECONDS: Final = 30.0
FIRST_PAUSE: Final = 0.1  # seconds between the first two attempts; then twice as long each time
LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """``connect_seconds`` is for connecting in all; 0: until closed. ``server_key``: the only key the server may have.

    ``trust_first_use``: a server not known yet is trusted, and remembered once the handshake has completed.
    ``validate``: without it a changed key is let in and flagged. ``reconnect``: go on after the server was lost.
    """

    link: LinkSettings = field(default_factory=LinkSettings)
    timing: ClientTiming = field(default_factory=ClientTiming)
    tag: str = ""
    connect_seconds: float = CONNECT_SECONDS
    first_pause: float = FIRST_PAUSE
    longest_pause: float = LONGEST_PAUSE
    server_key: bytes | None = None
    trust_first_use: bool = True
    validate: bool = True
    reconnect: bool = True
    psk: bytes | None = field(default=None, repr=False)

    def policy(self, *, is_ipc: bool) -> ClientPolicy:
        """Return what the client's machine needs of this."""
        times = self.link.times
        return ClientPolicy(
            tag=self.tag,
            reconnect=self.reconnect,
            expects_retry=not is_ipc,
            server_key=self.server_key,
            trust_first_use=self.trust_first_use,
            validate=self.validate,
            first_pause=self.first_pause,
            longest_pause=self.longest_pause,
            setup_seconds=times.setup_seconds,
            expiry_seconds=times.expiry_seconds,
            close_seconds=self.link.close_seconds,
            reopen_seconds=REOPEN_SECONDS,
            timing=self.timing,
            key_limits=self.link.keys,
            psk=self.psk,
        )

    def __post_init__(self) -> None:
        check_tag(self.tag)
        if self.connect_seconds < 0:
            raise OptionError(f"connectTimeout is {self.connect_seconds}", remedy="Use 0 to try until closed")
        if not 0 < self.first_pause <= self.longest_pause:
            raise OptionError(
                f"the pauses between attempts are {self.first_pause} to {self.longest_pause} s",
                remedy="Make both more than 0, the longest at least the first",
            )
