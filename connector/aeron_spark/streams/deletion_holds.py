"""Holds on the deletion of a store's files: while a backup copies them, no recording and no segment is deleted.

A hold delays only the deletion of files. The rows become unreadable at once, and the housekeeping deletes their files
after the last hold. A hold ends at its deadline, so that a backup that died keeps no files for long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from aeron_spark.errors import OptionError

MAX_HOLD_S: Final = 3_600.0  # a longer backup renews its hold


class DeletionHolds:
    """The holds on the files of one store. Thread-safe, without a lock. ``clock`` returns seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holds: dict[int, Hold] = {}  # by identity; single operations of a dict are atomic

    def hold(self, holder: str, seconds: float) -> Hold:
        """Hold back deletions for ``seconds``. ``holder`` says who holds them, such as ``backup``.

        A thread that reads the starts of partitions after this call finds the files from these positions on until the
        hold ends. Raises OptionError unless ``seconds`` is greater than 0 and at most MAX_HOLD_S.
        """
        made = Hold(self, holder)
        made.renew(seconds)
        return made

    @property
    def holder(self) -> str:
        """The holder of a live hold, or ""."""
        now = self._clock()
        for hold in list(self._holds.values()):
            if hold.until > now:
                return hold.holder
            self._holds.pop(id(hold), None)
        return ""

    def set_end(self, hold: Hold, seconds: float) -> None:
        """Let a hold end in ``seconds``; 0 ends it now."""
        if seconds:
            hold.until = self._clock() + seconds
            self._holds[id(hold)] = hold
        else:
            self._holds.pop(id(hold), None)


class Hold:
    """A hold on deletions, until ``release`` or its deadline. A context manager that releases it."""

    def __init__(self, holds: DeletionHolds, holder: str) -> None:
        self.holder: Final = holder
        self.until = 0.0
        """The deadline, in seconds of the store's clock."""
        self._holds = holds

    def renew(self, seconds: float) -> None:
        """Let the hold end in ``seconds`` from now. Raises OptionError; see :meth:`DeletionHolds.hold`."""
        if not (math.isfinite(seconds) and 0 < seconds <= MAX_HOLD_S):
            raise OptionError(
                f"a hold of deletions for {seconds!r} seconds",
                remedy=f"Hold them for more than 0 and at most {MAX_HOLD_S:g} s, and renew the hold.",
            )
        self._holds.set_end(self, seconds)

    def release(self) -> None:
        """End the hold now; the next housekeeping deletes the files that waited for it."""
        self._holds.set_end(self, 0)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
