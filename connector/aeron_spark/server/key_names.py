"""Finds the public keys of clients by the names that lists and logs show."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Final

from aeron_spark.errors import RefusedError
from aeron_spark.keys.clients_file import key_name
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.keypair import PREFIX, fingerprint, parse_public


class KeyNames:
    """The names of the keys that a server knows: those of its clients file, of its connections and of its bans.

    ``connected`` and ``banned`` return the names and keys of the latter two. Thread-safe.
    """

    def __init__(
        self, store: PeerStore, connected: Callable[[], Iterable[tuple[str, bytes]]],
        banned: Callable[[], Iterable[tuple[str, bytes]]],
    ) -> None:  # fmt: skip
        self._store: Final = store
        self._connected: Final = connected
        self._banned: Final = banned

    def name(self, key: bytes) -> str:
        """Return the name of a key: that of the clients file, or one that is made from the key."""
        return key_name(key, self._store.grant(key))

    def key(self, text: str) -> bytes:
        """Return the key with this name, fingerprint or public key.

        Raises RefusedError with the most similar name for an unknown one, DataFormatError for a wrong public key.
        """
        if text.startswith(PREFIX):
            return parse_public(text)
        known = self._known()
        if text in known:
            return known[text]
        for key in known.values():
            if fingerprint(key) == text:
                return key
        raise unknown_name("key name", text, known)

    def check(self, name: str) -> None:
        """Raise RefusedError with the most similar name, unless the server knows a key of this name."""
        known = self._known()
        if name not in known:
            raise unknown_name("key name", name, known)

    def _known(self) -> dict[str, bytes]:
        in_file = ((key_name(key, grant), key) for key, grant in self._store.grants().items())
        return {name: key for names in (self._banned(), self._connected(), in_file) for name, key in names}


def unknown_name(what: str, name: str, known: Iterable[str]) -> RefusedError:
    """Return the error for a name that the server does not know, with the most similar one as remedy."""
    nearest = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean {nearest[0]!r}?" if nearest else "'aeron-spark connections list' shows those in use."
    return RefusedError(f"unknown {what} {name!r}", remedy=remedy)
