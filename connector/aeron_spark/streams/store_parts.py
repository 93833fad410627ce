"""The parts that the streams of one store share: settings, clocks, limits, and the holds on its files.

A hold delays only the deletion of files. The rows become unreadable at once, and the housekeeping deletes their files
after the last hold. A hold ends at its deadline, so that a backup that died keeps no files for long.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import OptionError, TransportError
from aeron_spark.facts import Bus
from aeron_spark.options import ServerOptions
from aeron_spark.streams.retention import AgeClock
from aeron_spark.streams.stage_files import StageSpace

DEFAULT_OPTIONS: Final = ServerOptions()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a store."""

    # No network carries these frames. The archive records them three times as fast as frames of a network's MTU.
    mtu: int = 8192
    timeout_s: float = 30.0  # longest wait for progress of Aeron
    writing_timeout_s: float = 600.0  # longest wait for another commit of the same stream
    publication_idle_s: float = 30.0  # after this time without a commit, a publication (48 MiB of memory) is closed
    stage_expiry_s: float = 3600.0  # after this time without a write, a stage is removed
    sync_stages: bool = False
    options: Callable[[], ServerOptions] = lambda: DEFAULT_OPTIONS  # the present ones, which may change
    log_bytes: int = 0  # of the logs of all open publications, once they are full; 0: no limit


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


class NoRoomToRecord(TransportError):
    """No further publication can be recorded, unless another one is closed.

    With ``is_being_freed`` enough others were closed, and the driver will delete their logs.
    """

    is_being_freed = False


class RecordedLogs:
    """Counts the bytes of the logs of all open publications, at most ``limit``; 0: no limit. Thread-safe.

    A log counts with all its terms, before they are written: a full file system ends the media driver's process. It
    counts until the driver has deleted it, some tenths of a second after its publication was closed.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit: Final = limit
        self._used = 0
        self._closed: list[tuple[int, Path]] = []  # logs that the driver deletes
        self._lock: Final = threading.Lock()  # commits of several streams open publications at the same time

    def add(self, size: int) -> None:
        """Count a log of ``size`` bytes. The first one exceeds no limit. Raises NoRoomToRecord."""
        with self._lock:
            self._forget_deleted()
            if self._limit and self._used and self._used + size > self._limit:
                error = NoRoomToRecord(
                    f"the logs of the partitions that are written now may grow to {self._used >> 20} MiB, and the "
                    f"limit is {self._limit >> 20} MiB, half of the media driver's file system",
                    remedy="Try again. If this repeats, enlarge /dev/shm, or create streams with shorter segments "
                    "(--segment).",
                )
                remaining = self._used - sum(closed for closed, _ in self._closed)
                error.is_being_freed = not remaining or remaining + size <= self._limit
                raise error
            self._used += size

    def remove(self, size: int, log_file: Path | None = None) -> None:
        """Subtract a log that was not made, or the one in ``log_file`` once this file is deleted."""
        with self._lock:
            if log_file is None:
                self._used -= size
            else:
                self._closed.append((size, log_file))

    def _forget_deleted(self) -> None:
        kept = [one for one in self._closed if one[1].exists()]
        self._used -= sum(size for size, _ in self._closed) - sum(size for size, _ in kept)
        self._closed = kept


class StoreParts:
    """The parts of a store that each of its streams uses. Threads may share them.

    ``address`` is that of the archive. ``clock`` returns seconds, monotonic; ``wall`` ns since 1970.
    """

    def __init__(
        self,
        address: ArchiveAddress,
        settings: StreamSettings | None = None,
        *,
        facts: Bus | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.address: Final = address
        self.settings: Final = settings or StreamSettings()
        self.facts: Final = facts or Bus()
        self.clock: Final = clock
        self.wall: Final = wall
        self.ages: Final = AgeClock(clock, wall)
        self.stage_space: Final = StageSpace(lambda: self.settings.options().stage_bytes)
        self.recorded_logs: Final = RecordedLogs(self.settings.log_bytes)
        self.holds: Final = DeletionHolds(clock)
        """Holds on the deletion of recordings and segments, of all streams."""
