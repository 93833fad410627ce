"""Which key a server may have."""

from __future__ import annotations

from aeron_spark.protocol.access import ServerName, ServerTrust, judge_server, pinned_key_differs


class ServerKeyVerifier:
    """Compares the key that a server shows with the one it is known by.

    With ``pinned`` the server may have that key alone. Else ``first_use`` and ``validate`` are as for
    :func:`judge_server`. ``key`` is the last key that a server has shown and may have, empty before; ``trust`` says
    what follows from it. For one thread.
    """

    def __init__(
        self, server: ServerName, *, pinned: bytes | None = None, first_use: bool = True, validate: bool = True
    ) -> None:
        self.known: bytes | None = None  # by the key store, which is asked before each handshake
        self.key = b""
        self.trust = ServerTrust()
        self._server = server
        self._pinned = pinned
        self._first_use = first_use
        self._validate = validate

    def verify(self, key: bytes) -> None:
        """Take the key that the server shows. Raises IdentityError for one that it may not have."""
        if self._pinned is None:
            self.trust = judge_server(self._server, self.known, key, first_use=self._first_use, validate=self._validate)
        elif self._pinned == key:
            self.trust = ServerTrust()
        else:
            raise pinned_key_differs(self._server, self._pinned, key)
        self.key = key
