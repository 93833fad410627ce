"""Which key a server may have: the store is asked before an attempt, and judges what the server shows during it."""

from __future__ import annotations

from concurrent.futures import Executor, Future

from aeron_spark.client.settings import ClientSettings
from aeron_spark.errors import AeronSparkError, UsageError
from aeron_spark.protocol.access import PeerStore, ServerName, ServerTrust, judge_server, pinned_key_differs


class ServerKeyVerifier:
    """For the agent alone. The store, which is files or the program's own, is asked in ``pool``."""

    def __init__(self, store: PeerStore, server: ServerName, settings: ClientSettings, pool: Executor) -> None:
        self.key = b""  # the one that the server has proved; empty before
        self.trust = ServerTrust()
        self._store = store
        self._server = server
        self._settings = settings
        self._pool = pool
        self._asked: Future[bytes | None] | None = None
        self._known: bytes | None = None

    @property
    def asked(self) -> bool:
        """Whether the store was asked, and its answer not taken yet."""
        return self._asked is not None

    def ready(self) -> bool:
        """Ask the store, or take its answer: whether that is there. Raises AeronSparkError where it failed."""
        if self._asked is None:
            self._asked = self._pool.submit(self._store.server_key, self._server)
        if not self._asked.done():
            return False
        asked, self._asked = self._asked, None
        try:
            self._known = asked.result()
        except AeronSparkError:
            raise
        except Exception as error:  # of a store of the program's own
            raise UsageError(f"the store of keys failed: {error!r}") from error
        return True

    def verify(self, key: bytes) -> None:
        """Take the key that the server shows. Raises IdentityError for one that it may not have."""
        settings, wanted = self._settings, self._settings.server_key
        if wanted is None:
            self.trust = judge_server(
                self._server, self._known, key, first_use=settings.trust_first_use, validate=settings.validate
            )
        elif wanted == key:
            self.trust = ServerTrust()
        else:
            raise pinned_key_differs(self._server, wanted, key)
        self.key = key
