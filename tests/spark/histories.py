"""Random histories of a stream in an archive in memory, and of a streaming query that reads it and its restarts.

The archive changes between any two steps of the query: recordings start, stop, are extended, purged, truncated,
deleted, replaced, and recorded twice. A batch is planned, read and committed, and the query can be restarted after each
of these.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.jvm_planner import MemoryLog, QueryRun

TERM: Final = 512
ARCHIVES: Final = ("embedded", "desk")
OPTIONS: Final = {
    "channel": "aeron:ipc",
    "streamId": "1001",
    "archive": "embedded,aeron:udp?endpoint=a:8010|alias=desk",
}


class MemoryArchive:
    """The recordings of a stream, as a case of the planner has them. Each message has a content of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.recordings: dict[str, dict[str, Any]] = {}
        self.doubled: set[str] = set()  # recordings with the frames of another one
        self.changed: set[str] = set()  # recordings of which something was lost
        self.now_ms = 1
        self._number = 0

    def log(self) -> dict[str, Any]:
        """Return the log as a step has it."""
        return copy.deepcopy({"archives": ARCHIVES, "recordings": list(self.recordings.values())})

    def contents(self) -> Counter[int]:
        """Return the contents of all complete messages."""
        log = MemoryLog(self.log())
        found: Counter[int] = Counter()
        for key, one in self.recordings.items():
            end = log.boundary(key, one["start"], one["end"], one["end"], None).position
            found.update(content for _, content in log.messages(key, one["start"], end))
        return found

    def change(self) -> None:
        """Change the archive in a random way."""
        self.now_ms += self.rng.choice((0, 1, 1_000))
        steps: list[tuple[Callable[[], None], int]] = [
            (self.record, 6), (self.publish, 28), (self.stop, 6), (self.extend, 4), (self.purge, 2), (self.truncate, 5),
            (self.delete, 2), (self.replace, 1), (self.double, 2),
        ]  # fmt: skip
        self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()

    def record(self) -> None:
        """Start a recording."""
        if len(self.recordings) < 5:
            self._number += 1
            self._add(f"{self.rng.choice(ARCHIVES)}/{self._number}", [])

    def publish(self) -> None:
        """Add messages to an active recording, and to those of the same publication."""
        one = self._choose(lambda one: one["active"])
        if one is not None:
            self._publish(one)

    def _publish(self, one: dict[str, Any]) -> None:
        for _ in range(self.rng.randrange(1, 9)):
            self._number += 1
            room = TERM - sum(length for length, _ in one["frames"]) % TERM
            one["frames"].append([min(self.rng.choice((32, 64, 64, 160)), room), self._number])
        end = sum(length for length, _ in one["frames"])
        # the last message can be incomplete
        tail = self.rng.choice((0, 0, 32)) if one["frames"][-1][0] > 32 else 0
        for other in self.recordings.values():
            if other["frames"] is one["frames"] and other["active"]:
                other["end"] = max(other["end"], end - tail)

    def stop(self) -> None:
        """Stop a recording, with those of the same publication."""
        one = self._choose(lambda one: one["active"])
        for other in self.recordings.values():
            if one is not None and other["frames"] is one["frames"] and other["active"]:
                other.update(active=False, stopTimestamp=self.now_ms)

    def extend(self) -> None:
        """Extend a stopped recording after its last complete message."""
        one = self._choose(lambda one: not one["active"] and one["key"] not in self.doubled)
        if one is not None:
            self._cut(one, one["end"])
            one.update(active=True, stopTimestamp=None, sessionId=self.rng.randrange(3))

    def purge(self) -> None:
        """Delete some terms of a recording from its start.

        Not of a publication that is recorded twice: after a loss of one recording, the other one can repeat messages.
        """
        one = self._choose(lambda one: one["end"] - one["start"] > TERM and one["key"] not in self.doubled)
        if one is not None:
            terms = range(one["start"] // TERM * TERM + TERM, one["end"], TERM)
            one["start"] = self.rng.choice(terms)
            self.changed.add(one["key"])

    def truncate(self) -> None:
        """Delete messages from the end of a stopped recording."""
        one = self._choose(
            lambda one: not one["active"] and one["key"] not in self.doubled and one["end"] > one["start"]
        )
        if one is not None:
            self._cut(one, self.rng.randrange(one["start"], one["end"], 32))
            self.changed.add(one["key"])
            if self.rng.random() < 0.8:  # other messages in place of those
                one.update(active=True, stopTimestamp=None)
                for _ in range(3):
                    self._publish(one)

    def delete(self) -> None:
        """Delete a stopped recording."""
        one = self._choose(lambda one: not one["active"] and one["key"] not in self.doubled)
        if one is not None:
            del self.recordings[one["key"]]
            self.changed.add(one["key"])

    def replace(self) -> None:
        """Replace a recording by one with its key, as in a new archive."""
        one = self._choose(lambda one: one["key"] not in self.doubled)
        if one is not None:
            self.changed.add(one["key"])
            self._add(one["key"], [])

    def double(self) -> None:
        """Record a publication a second time."""
        one = self._choose(lambda one: one["active"] and one["key"] not in self.doubled)
        if one is not None and one["end"] == sum(length for length, _ in one["frames"]) and len(self.recordings) < 5:
            self._number += 1
            other = self._add(f"{self.rng.choice(ARCHIVES)}/{self._number}", one["frames"])
            other.update(start=one["end"], end=one["end"])
            for name in ("initialTermId", "sessionId", "files"):
                other[name] = one[name]
            self.doubled |= {one["key"], other["key"]}

    def _add(self, key: str, frames: list[list[int]]) -> dict[str, Any]:
        self._number += 1
        self.recordings[key] = {
            "key": key, "fingerprint": f"{self._number:08x}", "start": 0, "end": 0, "active": True, "termLength": TERM,
            "initialTermId": self.rng.choice((0, 0, self._number)), "mtu": 96, "sessionId": self._number,
            "startTimestamp": self.now_ms, "stopTimestamp": None, "files": self.rng.random() < 0.8, "frames": frames,
        }  # fmt: skip
        return self.recordings[key]

    def _choose(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        found = [one for one in self.recordings.values() if wanted(one)]
        return self.rng.choice(found) if found else None

    @staticmethod
    def _cut(one: dict[str, Any], end: int) -> None:
        """Let a recording end with the last complete message at or before a position."""
        frames, at = [], 0
        for length, content in one["frames"]:
            if at + length > end:
                break
            frames.append([length, content])
            at += length
        one.update(frames=frames, end=max(at, one["start"]))


class History:
    """A query over an archive. ``cases`` has a case of the planner for each run, with the answers of Python."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.archive = MemoryArchive(self.rng)
        self.cases: list[dict[str, Any]] = []
        self.answers: list[list[dict[str, Any]]] = []
        self.read: Counter[int] = Counter()
        self.warned = ""
        self._options = {**OPTIONS, **self._some_options()}
        self._committed: str | None = None
        self._planned: str | None = None  # the end of a batch that is not committed
        self._now = 0
        self._run: QueryRun

    def _some_options(self) -> dict[str, str]:
        rng = self.rng
        options = {"payload": rng.choice(("raw", "auto")), "startingOffsets": "earliest", "failOnDataLoss": "true"}
        if rng.random() < 0.7:
            options["maxRowsPerTrigger"] = str(rng.randrange(1, 12))
        if rng.random() < 0.5:
            options["maxBytesPerTrigger"] = str(rng.randrange(1, 900))
        return options

    def play(self, runs: int) -> None:
        """Play some runs of the query, and a last one that reads all that is left."""
        for _ in range(runs):
            self._restart()
            for _ in range(self.rng.randrange(1, 5)):
                self._change()
                if not self._batch(lambda: self.rng.random() < 0.85):
                    break
        self._options["failOnDataLoss"] = "false"
        for _ in range(2):  # what stops in the last run is not a target of it
            self._restart()
            while self._batch(lambda: True):
                pass

    def _change(self) -> None:
        for _ in range(self.rng.randrange(6)):
            self.archive.change()

    def _restart(self) -> None:
        self._now += 1_000_000
        self.cases.append({"do": "query", "options": dict(self._options), "now": self._now, "steps": []})
        self.answers.append([])
        self._run = QueryRun(self._options, self._now)
        if self.rng.random() < 0.5:
            self._step(do="availableNow")

    def _step(self, **step: Any) -> dict[str, Any]:
        step |= {"log": self.archive.log(), "now": self._now}
        answer = self._run.answer(step)
        self.cases[-1]["steps"].append(step)
        self.answers[-1].append(answer)
        self.warned += "\n".join(answer["warned"])
        if "error" in answer:
            assert answer["error"]["class"] == "DataLossError", answer
            self._options["failOnDataLoss"] = "false"  # from the next run on
        return answer

    def _batch(self, goes_on: Callable[[], bool]) -> bool:
        """Plan, read and commit a batch; return whether the run goes on."""
        start = self._committed
        if start is None:
            answer = self._step(do="initial")
            if "error" in answer:
                return False
            start = answer["text"]
        if self._planned is None:
            answer = self._step(do="latest", start=start, limited=self.rng.random() < 0.9)
            if "error" in answer or (answer["text"] == start and self._committed is not None):
                return False
            self._planned = answer["text"]
        self._change_if(goes_on)
        if not goes_on():
            return False
        answer = self._step(do="between", start=start, end=self._planned)
        if "error" in answer or not goes_on():
            return False
        log = MemoryLog(self.cases[-1]["steps"][-1]["log"])
        for key, _, first, last, *_ in answer["ranges"]:
            self.read.update(content for _, content in log.messages(key, first, last))
        self._committed, self._planned = self._planned, None
        return goes_on()

    def _change_if(self, goes_on: Callable[[], bool]) -> None:
        if goes_on() and self.rng.random() < 0.3 and len(self.cases) < 4:
            self._change()

    def check(self) -> None:
        """Check that no message was read twice, and each was read unless something of its recording was lost."""
        twice = [content for content, count in self.read.items() if count > 1]
        assert not twice, twice
        log = MemoryLog(self.archive.log())
        for key, one in self.archive.recordings.items():
            end = log.boundary(key, one["start"], one["end"], one["end"], None).position
            unread = [content for _, content in log.messages(key, one["start"], end) if content not in self.read]
            assert not unread or key in self.archive.changed, (key, unread)
