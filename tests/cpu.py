"""Measures the CPU seconds of a test run: of its pytest and of all processes that it started.

A process belongs to the run if it descends from the run's pytest, or if its environment has the run's name. The
environment identifies a node, which has its own session and whose parent has ended. The kernel adds the time of an
ended process to its parent if the parent waited for it. For other ended processes, such as the workers of PySpark's
daemons, the meter uses the last measured time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.leaks import RUN_VARIABLE

SAMPLE_INTERVAL_S: Final = 1.0
# A process has its parent's environment until it executes its program, so a young one is checked again.
YOUNG_S: Final = 3.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
HAS_PROC: Final = Path("/proc/self/stat").exists()
MAX_READINGS: Final = 20  # limits the readings of one update, because some processes may end all the time


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """The CPU time of a process; ``ticks`` includes ``waited``, the time of the ended children that it waited for."""

    pid: int
    parent: int
    ticks: int
    started: int
    waited: int = 0


def parse_stat(text: str) -> ProcessTime:
    """Parse ``/proc/PID/stat``; the command in it may contain blanks and brackets."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    own, waited = (sum(int(field) for field in fields[at : at + 2]) for at in (11, 13))
    return ProcessTime(int(pid), int(fields[1]), own + waited, int(fields[19]), waited)


def list_processes() -> frozenset[int]:
    """Return the pids of all processes of the machine; none on a system without ``/proc``."""
    return frozenset(int(name) for name in os.listdir("/proc") if name.isdigit()) if HAS_PROC else frozenset()


def read_process(pid: int) -> ProcessTime | None:
    """Return the CPU time of a process; None if it has ended, and its parent has waited for it."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None


def _first_line(path: str) -> str:
    with open(path) as file:
        return file.readline()


def busy_seconds(stat: str) -> float:
    """Return the CPU seconds of all processes since the machine's start, from the text of ``/proc/stat``."""
    user, nice, system, _, _, irq, softirq = (int(field) for field in stat.split("\n", 1)[0].split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_S


@dataclass(frozen=True, slots=True)
class CpuSample:
    """The CPU seconds of the run and of all processes until one moment, and its time, in seconds."""

    ours: float
    everything: float
    clock: float

    def others_since(self, before: CpuSample, processors: int) -> float:
        """Return the share of the machine, from 0 to 1, that other processes have used since ``before``."""
        others = (self.everything - before.everything) - (self.ours - before.ours)
        available = processors * (self.clock - before.clock)
        return min(1.0, max(0.0, others / available)) if available > 0 else 0.0


def sample_machine(ours: float) -> CpuSample:
    """Return a sample of the machine; ``ours`` are the CPU seconds of the run."""
    return CpuSample(ours, busy_seconds(_first_line("/proc/stat")) if HAS_PROC else ours, time.monotonic())


def own_ticks() -> float:
    """Return the ticks of this process and of the ended children that it waited for."""
    times = os.times()  # has the numbers of /proc/self/stat, and costs a hundredth
    return (times.user + times.system + times.children_user + times.children_system) * TICKS_PER_S


class Starts:
    """Counts the processes that this process starts, so that the meter can skip scans of the machine."""

    EVENTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"})

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._count_start)

    def _count_start(self, event: str, _: object) -> None:
        if event in self.EVENTS:
            self.count += 1


STARTS: Final = Starts()  # an audit hook cannot be removed, so the module adds only one


def run_of(pid: int) -> str | None:
    """Return the name of the test run in the environment of a process."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # ended meanwhile, or of another user
        return None
    key = f"{RUN_VARIABLE}=".encode()
    values = [entry for entry in environment.split(b"\0") if entry.startswith(key)]
    return values[0].removeprefix(key).decode(errors="replace") if values else None


class Account:
    """The CPU seconds of one run, updated from repeated lists of the machine's processes."""

    def __init__(
        self,
        root: int,
        run: str,
        run_of: Callable[[int], str | None] = run_of,
        read_process: Callable[[int], ProcessTime | None] = read_process,
    ) -> None:
        self._root = root
        self._run = run
        self._run_of = run_of
        self._read_process = read_process
        self._ours: dict[tuple[int, int], ProcessTime] = {}
        self._others: set[int] = set()  # pids of processes that are not the run's; most of a machine's are not
        self._ended_ticks = 0
        self._max_ticks = 0.0

    def update(self, pids: frozenset[int], now_ticks: float) -> float:
        """Update from the processes at ``now_ticks`` after the machine's start; return the run's CPU seconds.

        Does not read again the others, of which a machine has many.
        """
        self._others &= pids  # the pid of an ended process may be used again
        seen = {pid: process for pid in pids - self._others if (process := self._read_process(pid))}
        ours = self._consistent({(p.pid, p.started): p for p in seen.values() if self._is_ours(p, seen, now_ticks)})
        self._ended_ticks += self._lost_ticks(ours)
        self._ours = ours
        self._max_ticks = max(self._max_ticks, self._ended_ticks + sum(process.ticks for process in ours.values()))
        return self._max_ticks / TICKS_PER_S

    @property
    def is_alone(self) -> bool:
        """Whether the run had only its pytest at the last update."""
        return all(process.pid == self._root for process in self._ours.values())

    def update_alone(self, ticks: float) -> float:
        """Return the run's CPU seconds from those of its pytest, which has started no process since the last update."""
        self._max_ticks = max(self._max_ticks, self._ended_ticks + ticks)
        return self._max_ticks / TICKS_PER_S

    def _consistent(self, ours: dict[tuple[int, int], ProcessTime]) -> dict[tuple[int, int], ProcessTime]:
        """Read the run's processes again, until between two readings none ended and none waited for another one.

        A reading takes some ms, and up to 800 ms while another thread of this process computes. If a process ends in
        between, after its parent was read and before it was read itself, its time would count twice:
        now as lost, and later as a time that its parent waited for.
        """
        for _ in range(MAX_READINGS):
            read = [process for pid, _ in ours if (process := self._read_process(pid))]
            again = {key: process for process in read if (key := (process.pid, process.started)) in ours}
            if {key: p.waited for key, p in again.items()} == {key: p.waited for key, p in ours.items()}:
                return again
            ours = again
        return ours

    def _is_ours(self, process: ProcessTime, seen: Mapping[int, ProcessTime], now_ticks: float) -> bool:
        key = (process.pid, process.started)
        if process.pid == self._root or key in self._ours:
            return True
        if any(ancestor == self._root for ancestor in self._ancestors(process, seen)):
            return True
        if self._run_of(process.pid) == self._run:
            return True
        if now_ticks - process.started > YOUNG_S * TICKS_PER_S:
            self._others.add(process.pid)
        return False

    @staticmethod
    def _ancestors(process: ProcessTime, seen: Mapping[int, ProcessTime]) -> Iterator[int]:
        visited = {process.pid}
        parent = process.parent
        while parent in seen and parent not in visited:
            yield parent
            visited.add(parent)
            parent = seen[parent].parent

    def _lost_ticks(self, living: Mapping[tuple[int, int], ProcessTime]) -> int:
        """Return the ticks of processes that ended since the last update, and for which no living process waited."""
        before = {process.pid: process for process in self._ours.values()}
        now = {process.pid: process for process in living.values()}
        lost: dict[int | None, int] = {}  # by the process that may have waited
        for key, ended in self._ours.items():
            if key not in living:
                above = next((ancestor for ancestor in self._ancestors(ended, before) if ancestor in now), None)
                lost[above] = lost.get(above, 0) + ended.ticks
        return sum(
            ticks if above is None else max(0, ticks - (now[above].waited - before[above].waited))
            for above, ticks in lost.items()
        )


class Meter:
    """Measures one run's CPU seconds on request, and once a second to catch short processes."""

    def __init__(self, run: str) -> None:
        self._account = Account(os.getpid(), run)
        self._lock = threading.Lock()
        self._starts = -1  # value of STARTS.count at the last scan of the machine
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-meter", daemon=True)
        self._thread.start()

    def seconds(self) -> float:
        """Return the CPU seconds of this run so far."""
        with self._lock:
            if not HAS_PROC:
                return own_ticks() / TICKS_PER_S
            starts = STARTS.count
            if starts == self._starts and self._account.is_alone:
                return self._account.update_alone(own_ticks())
            self._starts = starts
            now_ticks = float(Path("/proc/uptime").read_text().split()[0]) * TICKS_PER_S
            return self._account.update(list_processes(), now_ticks)

    def sample(self) -> CpuSample:
        """Return the CPU seconds used so far."""
        return sample_machine(self.seconds())

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_INTERVAL_S):
            self.seconds()
