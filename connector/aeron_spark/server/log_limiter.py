"""Limits the number of log lines, so that no client can fill the log or hide the events of others."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

BURST: Final = 5  # lines of one event about one subject at once
LINES_PER_S: Final = 0.1  # of one event about one subject after the burst
TOTAL_PER_S: Final = 50.0  # lines of all events
PEERS_PER_S: Final = 40.0  # lines of the events that clients cause: some of the total always stay for the other events
MAX_SUBJECTS: Final = 4096  # about 1 MB


@dataclass(slots=True)
class _Bucket:
    """Tokens, of which each line takes one."""

    size: float
    per_s: float
    tokens: float
    counted_at: float

    def fill(self, now: float) -> None:
        """Add the tokens since the last call."""
        self.tokens = min(self.size, self.tokens + max(0.0, now - self.counted_at) * self.per_s)
        self.counted_at = max(now, self.counted_at)


class LogLimiter:
    """Decides which events become lines, and counts the other ones. Not thread-safe.

    For each event and subject, such as a key or an address: ``BURST`` lines at once, then one in 10 s. In all: 50 lines
    a second. At ``MAX_SUBJECTS`` the subject without events for the longest time is forgotten; the total limits remain.
    Times are in monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self._total: Final = _Bucket(TOTAL_PER_S, TOTAL_PER_S, TOTAL_PER_S, now)
        self._peers: Final = _Bucket(PEERS_PER_S, PEERS_PER_S, PEERS_PER_S, now)
        self._subjects: Final[OrderedDict[tuple[str, object], _Bucket]] = OrderedDict()  # the least recent one first
        self._suppressed: Counter[str] = Counter()
        self.suppressed_total = 0
        """The number of lines that were suppressed since the start."""

    def __len__(self) -> int:
        return len(self._subjects)

    def admit(
        self, event: str, subject: object, now: float, *, is_caused_by_peer: bool, is_vital: bool = False
    ) -> bool:
        """Return whether an event at ``now`` becomes a line; otherwise count it.

        The total limits do not suppress a vital event, such as a damaged stream: no client can cause many of them.
        """
        key = (event, subject)
        bucket = self._subjects.pop(key, None) or _Bucket(BURST, LINES_PER_S, BURST, now)
        self._subjects[key] = bucket
        if len(self._subjects) > MAX_SUBJECTS:
            self._subjects.popitem(last=False)
        totals = () if is_vital else (self._total, self._peers) if is_caused_by_peer else (self._total,)
        buckets = (bucket, *totals)
        for one in buckets:
            one.fill(now)
        is_admitted = all(one.tokens >= 1 for one in buckets)
        if is_admitted:
            for one in buckets:
                one.tokens -= 1
        else:
            self._suppressed[event] += 1
            self.suppressed_total += 1
        return is_admitted

    def take_suppressed(self) -> dict[str, int]:
        """Return the suppressed lines by event since the last call."""
        taken, self._suppressed = dict(self._suppressed), Counter()
        return taken
