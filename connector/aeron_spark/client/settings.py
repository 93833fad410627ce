"""The settings of a client, made from its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aeron_spark.connection.loop import REOPEN_SECONDS
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import OptionError
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.client_attempt import ClientPolicy
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.handshake_payloads import check_tag


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client. ``connect_seconds`` is the timeout of ``connect``; 0: until closed.

    ``server_key`` is the only key that the server may have. With ``trust_first_use``, an unknown server is trusted, and
    remembered after the handshake. Without ``validate``, a changed key is accepted and flagged. With ``reconnect``, the
    client reconnects after the loss of its server.
    """

    link: LinkSettings = field(default_factory=LinkSettings)
    timing: ClientTiming = field(default_factory=ClientTiming)
    tag: str = ""
    connect_seconds: float = ClientOptions.connect_timeout
    first_pause: float = ClientOptions.first_pause
    longest_pause: float = ClientOptions.longest_pause
    server_key: bytes | None = None
    trust_first_use: bool = ClientOptions.trust_first_use
    validate: bool = ClientOptions.validate
    reconnect: bool = ClientOptions.reconnect
    psk: bytes | None = field(default=None, repr=False)

    def policy(self) -> ClientPolicy:
        """Return the settings of the client's machine."""
        times = self.link.times
        return ClientPolicy(
            tag=self.tag,
            reconnect=self.reconnect,
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
            raise OptionError(f"connectTimeout is {self.connect_seconds}", remedy="Use 0 to try until closed.")
        if not 0 < self.first_pause <= self.longest_pause:
            raise OptionError(
                f"the pauses between attempts are {self.first_pause} to {self.longest_pause} s",
                remedy="Make both more than 0, and the longest at least the first.",
            )

    @classmethod
    def of(cls, options: ClientOptions) -> ClientSettings:
        """Make the settings from a client's options, and read the file of the shared secret.

        Raises OptionError for options that conflict, SetupError if that file cannot be used.
        """
        secret = options.shared_secret_file
        return cls(
            link=LinkSettings.of(options),
            timing=ClientTiming(hello_ack_s=options.step_timeout, done_ack_s=options.step_timeout),
            tag=options.tag or "",
            connect_seconds=options.connect_timeout,
            first_pause=options.first_pause,
            longest_pause=options.longest_pause,
            server_key=options.server_key,
            trust_first_use=options.trust_first_use,
            validate=options.validate,
            reconnect=options.reconnect,
            psk=None if secret is None else read_shared_secret(Path(secret).expanduser()),
        )
