"""Decides which clients a server admits, and what they may do, by bans, the grants of their keys and filters."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from aeron_spark.options import LiveOptions
from aeron_spark.protocol.access import Candidate, PeerStore
from aeron_spark.protocol.grants import EVERYTHING, UNKNOWN_KEY
from aeron_spark.protocol.refusals import Refusal, undecided
from aeron_spark.protocol.server_events import Decision
from aeron_spark.server.ban_file import StoredBans


class ClientAccess:
    """The access of clients to one server. Thread-safe.

    The option ``allowAnyKey`` gives every grant to a key that the store does not know. The store may read files and the
    filters may be the program's functions, so the event loop has threads decide.
    """

    def __init__(self, store: PeerStore, options: LiveOptions, bans: StoredBans) -> None:
        self._store: Final = store
        self._bans: Final = bans
        self._options: Final = options
        self._deciders: Final = ThreadPoolExecutor(options.value.deciders, thread_name_prefix="aeron-spark-decider")

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
