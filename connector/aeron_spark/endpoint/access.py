"""Whether a server admits a client: by bans, grants and filters, and by the room for the logs of its link.

A full file system ends the media driver's process, because the driver's logs are sparse files that it maps. So each
link counts with all pages of its logs, before any of them is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from aeron_spark.endpoint.loop import Loop
from aeron_spark.errors import REFUSALS, RefusedError
from aeron_spark.keys.bans import StoredBans
from aeron_spark.node.paths import TERMS_PER_LOG, Space, reserve_of
from aeron_spark.node.settings import MIB
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.access import Candidate, PeerStore
from aeron_spark.protocol.grants import EVERYTHING, UNKNOWN_KEY, Grant
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.sources import IpAddress, Refusal, undecided
from aeron_spark.transport.api import ChannelSettings

MEASURE_INTERVAL_S: Final = 1.0  # a measurement asks for the size of each log: some milliseconds for 1,000 connections
KEY_SHARE: Final = 7  # a key may have so many times the bytes that remain free: seven eighths of them all
FEW_LINKS: Final = 4  # a key with fewer may take what remains; one with more leaves room for so many links of others
REMEDY: Final = "Close unused connections and readers, or ask the server's operator to enlarge its /dev/shm."

Decision = Refusal | Grant
"""The decision of bans, grants and filters on a client."""


class ClientAccess:
    """The access of clients to one server. Thread-safe.

    The option ``allowAnyKey`` gives every grant to a key that the store does not know. The store may read files and the
    filters may be the program's functions, so the event loop has threads of a pool decide.
    """

    def __init__(self, store: PeerStore, options: LiveOptions, bans: StoredBans, loop: Loop) -> None:
        self._store: Final = store
        self._bans: Final = bans
        self._options: Final = options
        self._deciders: Final = loop.executor(options.value.deciders, "aeron-spark-decider")

    @property
    def keys(self) -> KeyPair:
        """The server's own key pair. Raises SetupError if the store cannot be used."""
        return self._store.identity()

    def address_refusal(self, address: IpAddress) -> Refusal | None:
        """Return the refusal of an address that is banned now, or None."""
        return self._bans.address_refusal(address)

    def decide_soon(self, candidate: Candidate, answer: Callable[[Decision], None]) -> None:
        """Decide on a candidate in another thread, which calls ``answer``; not after ``close``."""

        def decided(done: Future[Decision]) -> None:
            if not done.cancelled():
                answer(done.result())

        with suppress(RuntimeError):  # the pool takes no more work, because the server or the process is ending
            self._deciders.submit(self._decide, candidate).add_done_callback(decided)

    def current(self, candidate: Candidate) -> Decision:
        """Return the decision of bans and grants on a client that was admitted before. Raises what the store raises.

        The filters do not apply: the program's functions may depend on the time of the call.
        """
        address, key = candidate.address, candidate.key
        ban = self._bans.key_refusal(key) or (None if address is None else self._bans.address_refusal(address))
        if ban is not None:
            return ban
        grant = self._store.grant(candidate.key)
        if grant is None:
            return EVERYTHING if self._options.value.allow_any_key else UNKNOWN_KEY
        return grant.refusal(candidate.tag, candidate.address, time.time()) or grant

    def close(self) -> None:
        """Decide on no further clients."""
        self._deciders.shutdown(wait=False, cancel_futures=True)

    def _decide(self, candidate: Candidate) -> Decision:
        try:
            decision = self.current(candidate)
            return (
                decision
                if isinstance(decision, Refusal)
                else self._options.value.filters.refusal(candidate) or decision
            )
        except Exception as error:
            return undecided(error)


def link_bytes(settings: ChannelSettings) -> int:
    """Return the bytes of the two logs of a link: the server chooses the terms of one, and its client of the other."""
    return TERMS_PER_LOG * (settings.term_bytes + settings.longest_peer_term)


class LogSpace:
    """Measures the space of a media driver's file system, and subtracts the links since then. For the event loop."""

    def __init__(self, measure: Callable[[], Space], clock: Callable[[], float] = time.monotonic) -> None:
        """``measure`` returns the space without the bytes that present logs may still take (``driver_space``)."""
        self._measure: Final = measure
        self._clock: Final = clock
        self._measured_at = float("-inf")
        self._room = 0  # bytes for further links

    def take(self, needed: int, *, opening: int, own: int) -> RefusedError | None:
        """Count a link whose logs have ``needed`` bytes, or return why it may not be opened.

        ``opening`` links have no log of their client yet; ``own`` is the number of links that the client's key has.
        """
        now = self._clock()
        if now >= self._measured_at + MEASURE_INTERVAL_S:
            try:
                space = self._measure()
            except OSError as error:  # such as a process without a free descriptor
                what = f"the server cannot find out how much shared memory is free: {error.strerror}"
                return RefusedError(what, remedy=REFUSALS["server-error"].remedy, reason="server-error")
            self._measured_at = now
            self._room = space.free - reserve_of(space) - opening * needed
        remaining = self._room - needed
        if remaining < 0:
            return RefusedError(
                f"the server's shared memory has no room for the logs of another link ({needed / MIB:.0f} MiB)",
                remedy=REMEDY,
                reason="full",
            )
        if own >= FEW_LINKS and KEY_SHARE * remaining < max(own + 1, KEY_SHARE * FEW_LINKS) * needed:
            return RefusedError(
                f"your key has {own} links, and the server keeps the rest of its shared memory for other keys",
                remedy=REFUSALS["key-limit"].remedy,
                reason="key-limit",
            )
        self._room = remaining
        return None
