"""Verifies the server's key during the client's handshake."""

from __future__ import annotations

from aeron_spark.protocol.access import ServerName, ServerTrust, pinned_key_differs, verify_server_key


class ServerKeyVerifier:
    """Compares the key that a server shows with the key that the client expects. For one thread.

    With ``pinned``, only that key is accepted. Otherwise ``first_use`` and ``validate`` are as for
    :func:`verify_server_key`.
    """

    def __init__(
        self, server: ServerName, *, pinned: bytes | None = None, first_use: bool = True, validate: bool = True
    ) -> None:
        self.known: bytes | None = None  # from the key store, which the client asks before each handshake
        self.key = b""  # the last key that was accepted; empty before
        self.trust = ServerTrust()  # the result for that key
        self._server = server
        self._pinned = pinned
        self._first_use = first_use
        self._validate = validate

    def verify(self, key: bytes) -> None:
        """Accept the key that the server shows, or raise IdentityError."""
        if self._pinned is None:
            self.trust = verify_server_key(
                self._server, self.known, key, first_use=self._first_use, validate=self._validate
            )
        elif self._pinned == key:
            self.trust = ServerTrust()
        else:
            raise pinned_key_differs(self._server, self._pinned, key)
        self.key = key
