"""The turns of a transfer between the server and one bulk link: no transfer keeps a thread while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from aeron_spark.connection.deadlines import Deadlines

TURN_S: Final = 0.2  # after which a transfer lets others have its thread

Submit = Callable[[Callable[[], object]], object]  # runs work on a thread that clients' keys share in turn


class TransferTurns:
    """Runs the turns of one transfer, one at a time, with ``submit``. Thread-safe.

    ``turn`` transfers what it can without a wait, for at most TURN_S. It returns the seconds until the next turn, or
    None: :meth:`wake` begins the next one. It must not raise an error.
    """

    def __init__(self, submit: Submit, deadlines: Deadlines, turn: Callable[[], float | None]) -> None:
        self._submit = submit
        self._deadlines = deadlines
        self._turn = turn
        self._lock = threading.Lock()
        self._is_active = False  # a turn runs, or waits for a thread
        self._is_woken = False  # since the last turn began

    def wake(self) -> None:
        """Begin a turn; if one runs, begin another one after it."""
        with self._lock:
            self._is_woken = True
            if self._is_active:
                return
            self._is_active = True
        self._submit(self._run)

    def _run(self) -> None:
        with self._lock:
            self._is_woken = False
        pause_s: float | None = None
        try:
            pause_s = self._turn()
        finally:
            with self._lock:
                goes_on = self._is_active = self._is_woken or pause_s == 0.0
        if goes_on:
            self._submit(self._run)
        elif pause_s is not None:
            paused: Future[None] = Future()
            paused.add_done_callback(lambda _: self.wake())
            self._deadlines.add(paused, None, pause_s)
