"""The stages of one connection that bulk links fill, from their request until they are finished, failed or removed."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.connection.deadlines import Deadlines
from aeron_spark.errors import AeronSparkError, TransportError
from aeron_spark.server.incoming_stage import IncomingStage
from aeron_spark.server.transfer_turns import TURN_S, Submit, TransferTurns
from aeron_spark.wire import stream_rpc as rpc

MAX_FAILED: Final = 256  # stages of a connection whose errors are stored for repeated requests


@dataclass(slots=True)
class _FilledLink:
    """A bulk link that fills stages, by the numbers of their requests. It is known until it is closed.

    Two objects for one link would take its messages out of order.
    """

    link: BulkLink
    stages: dict[int, IncomingStage] = field(default_factory=dict)
    turns: TransferTurns = field(init=False)


class IncomingStages:
    """The unfinished stages of one connection. Thread-safe.

    A link and the number of a request identify a stage. Messages are received in turns, on threads that ``submit``
    gives.
    """

    def __init__(self, submit: Submit, deadlines: Deadlines) -> None:
        self._submit = submit
        self._deadlines = deadlines
        self._opening = threading.Lock()  # one request after the other: a repeated one finds the stage of the first
        self._lock = threading.Lock()
        self._links: dict[int, _FilledLink] = {}  # by number
        self._keys: dict[str, tuple[_FilledLink, int]] = {}  # by id of the stage: where it is, and its request
        self._failed: dict[str, AeronSparkError] = {}  # by id: errors of failed stages, for repeated requests

    def __len__(self) -> int:
        """Return the number of unfinished stages."""
        return len(self._keys)

    def open(self, link: BulkLink, request: int, make: Callable[[], IncomingStage | None]) -> str:
        """Add the stage that ``make`` opens; return its id, or "" if it opens none.

        A repeated request returns the id of the first. Raises the errors of ``make``, which runs before any other
        request of the connection opens a stage.
        """
        with self._opening:
            with self._lock:
                filled = self._links.get(link.number)
                found = None if filled is None else filled.stages.get(request)
            if found is not None:
                return found.stage.id
            incoming = make()
            if incoming is None:
                return ""
            return self._add(link, request, incoming)

    def get(self, stage_id: str) -> IncomingStage | None:
        """Return a stage that is not finished; None for an unknown one. Raises the error of a failed one."""
        with self._lock:
            known, failure = self._keys.get(stage_id), self._failed.get(stage_id)
            incoming = None if known is None else known[0].stages[known[1]]
        if failure is not None:
            raise copy.copy(failure)
        return incoming

    def all(self) -> list[IncomingStage]:
        """Return all stages."""
        with self._lock:
            return [filled.stages[request] for filled, request in self._keys.values()]

    def forget(self, incoming: IncomingStage) -> None:
        """Forget a finished stage."""
        incoming.stage.watch(None)
        with self._lock:
            self._remove(incoming.stage.id)

    def _add(self, link: BulkLink, request: int, incoming: IncomingStage) -> str:
        stage = incoming.stage
        with self._lock:
            filled = self._links.get(link.number)
            if filled is None:
                filled = self._links[link.number] = _FilledLink(link)
                filled.turns = TransferTurns(self._submit, self._deadlines, partial(self._receive, filled))
                link.when_received = filled.turns.wake
            filled.stages[request] = incoming
            self._keys[stage.id] = filled, request
        stage.watch(partial(self._removed, incoming))
        filled.turns.wake()  # messages may have arrived, or the link may have ended
        return stage.id

    def _remove(self, stage_id: str) -> bool:
        """Remove a stage from the tables, whose lock the caller has; return whether it was there."""
        known = self._keys.pop(stage_id, None)
        if known is None:
            return False
        filled, request = known
        del filled.stages[request]
        return True

    def _removed(self, incoming: IncomingStage, error: AeronSparkError) -> None:
        """Forget a stage that was removed, and store its error. The caller has locks of the stream."""
        with self._lock:
            if not self._remove(incoming.stage.id):
                return
            self._failed[incoming.stage.id] = error
            while len(self._failed) > MAX_FAILED:
                del self._failed[next(iter(self._failed))]
        self._submit(lambda: incoming.fail(error))  # a request may wait for its bytes

    def _receive(self, filled: _FilledLink) -> float | None:
        """Receive the messages of a bulk link as long as it has stages, which fail if the link has ended."""
        link, end = filled.link, time.monotonic() + TURN_S
        try:
            while filled.stages:
                if time.monotonic() >= end:
                    return 0.0
                data = link.receive(0.0)
                if data is None:
                    return None
                self._take(filled, data)
            link.check()
        except AeronSparkError:
            self._end(filled)
        return None

    def _take(self, filled: _FilledLink, data: memoryview) -> None:
        try:
            message = rpc.decode_bulk_message(data)
        except AeronSparkError as error:
            self._fail(filled, error)
            return
        with self._lock:
            found = filled.stages.get(message.request)
        if found is not None and found.append(message):
            self._submit(found.publish_ahead)

    def _end(self, filled: _FilledLink) -> None:
        with self._lock:
            self._links.pop(filled.link.number, None)
        self._fail(filled, TransportError(f"{filled.link.label} ended", remedy="Stage the rows again."))

    def _fail(self, filled: _FilledLink, error: AeronSparkError) -> None:
        with self._lock:
            stages = list(filled.stages.values())
        for incoming in stages:
            incoming.fail(error)
