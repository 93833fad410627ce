"""The commands of a server's admin socket for backups: ``backup.begin``, ``backup.renew`` and ``backup.end``.

The command line copies the files; the server takes the cut, and keeps the files until the end. A command that was
killed ends its backup: the server notices that its process has ended, or, for a process of another PID namespace, that
its last request is ``LEASE_S`` old. Only one backup runs at a time. The file ``backup.json`` in the store has the last
one.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aeron_spark.backup.copying import LastBackup, read_last_backup, write_last_backup
from aeron_spark.errors import AeronSparkError, EndedError, OptionError, RefusedError
from aeron_spark.keys.bans import FILE_NAME as BAN_FILE
from aeron_spark.process import has_ended, pid_namespace
from aeron_spark.server.event_log import EventLog
from aeron_spark.streams.store import DAMAGED, READ_ONLY, RECOVERING, StreamStore
from aeron_spark.streams.store_parts import Hold
from aeron_spark.version import package_version

LEASE_S: Final = 60.0
CHANGE_TIMEOUT_S: Final = 30.0  # longest wait for the rename or the deletion of a stream, which waits for a commit
HOLDER: Final = "backup"  # of the hold on deletions, for the reports of a purge
Arguments = Mapping[str, Any]
Command = Callable[[Arguments], Any]


@dataclass(frozen=True, slots=True)
class RunningBackup:
    """A backup that has begun. ``started`` is in seconds since 1970, ``started_at`` by the monotonic clock.

    ``pid`` is the process of its command, or None if it is unknown here.
    """

    id: str
    directory: str
    started: float
    started_at: float
    streams: int
    hold: Hold
    pid: int | None


class Backups:
    """The backups of one server. Thread-safe.

    ``open_store`` returns the store, or None before its recovery has ended. ``files`` returns the result of
    ``file_paths``. ``clock`` is monotonic, ``wall`` since 1970, both in seconds.
    """

    def __init__(
        self,
        open_store: Callable[[], StreamStore | None],
        files: Callable[[], Mapping[str, str]],
        events: EventLog,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._open_store: Final = open_store
        self.config_file = ""
        """The configuration file, which a backup copies, too."""
        self._files: Final = files
        self._events: Final = events
        self._clock: Final = clock
        self._wall: Final = wall
        self._lock: Final = threading.Lock()  # guards the next two
        self._running: RunningBackup | None = None
        self._until = 0.0

    @property
    def commands(self) -> dict[str, Command]:
        """The commands by name."""
        return {"backup.begin": self.begin, "backup.renew": self.renew, "backup.end": self.end}

    @property
    def last(self) -> LastBackup | None:
        """The last backup that succeeded, also before a restart of the server."""
        store = self._open_store()
        return None if store is None else read_last_backup(store.folder)

    def begin(self, arguments: Arguments) -> Iterator[dict[str, Any]]:
        """Take the cut of all streams. Yields the facts of the backup, and then the cut of each stream.

        No stream is created, altered, renamed or deleted meanwhile. Raises RefusedError if another backup runs, if the
        streams are not recovered yet, or if some are damaged, unless ``skip_damaged``; StillWorking if the change of a
        stream takes longer than ``CHANGE_TIMEOUT_S``.
        """
        directory = arguments.get("directory")
        if not isinstance(directory, str) or not directory:
            raise OptionError("a backup needs a directory", remedy="Use 'aeron-spark server backup DIR'.")
        store = self._open_store()
        if store is None:
            raise RefusedError(
                "the server has no streams, or has not recovered them yet", remedy="Try again when it is ready."
            )
        running = self._begin(directory, store, _known_pid(arguments))
        try:
            with store.without_changes(CHANGE_TIMEOUT_S):
                begun = self._clock()
                damaged = _damaged(store)
                if damaged and arguments.get("skip_damaged") is not True:
                    raise _damaged_error(damaged)
                cuts = [stream.cut() for stream in store.all() if stream.definition.name not in damaged]
                seconds = self._clock() - begun
        except BaseException as error:
            self._finish(running)
            what = error.what if isinstance(error, AeronSparkError) else repr(error)
            self._report_failure(running, what)
            raise
        yield {
            "id": running.id, "lease_s": LEASE_S, "release": package_version(), "time": running.started,
            "cut_s": seconds, "streams_dir": str(store.folder), "store_files": [BAN_FILE], "damaged": damaged,
            "streams": len(cuts), **self._files(),
        }  # fmt: skip
        for cut in cuts:
            yield cut.to_json()

    def renew(self, arguments: Arguments) -> dict[str, Any]:
        """Keep the files of the backup ``id`` for further ``LEASE_S`` seconds. Raises EndedError if it has ended."""
        store = self._open_store()
        with self._lock:
            running, _ = self._require(arguments.get("id"), store)
            self._until = self._clock() + LEASE_S
        running.hold.renew(LEASE_S)
        return {"id": running.id}

    def end(self, arguments: Arguments) -> dict[str, Any]:
        """End the backup ``id``: with ``error`` it failed, else it has ``bytes``. Raises EndedError if it has ended."""
        store = self._open_store()
        with self._lock:
            running, opened = self._require(arguments.get("id"), store)
        error, size = arguments.get("error"), arguments.get("bytes")
        self._finish(running)
        if isinstance(error, str):
            self._report_failure(running, error)
            return {}
        seconds = self._clock() - running.started_at
        done = LastBackup(running.started, running.directory, size if isinstance(size, int) else 0, seconds)
        with suppress(OSError):  # the backup is complete; only its time is lost at a restart
            write_last_backup(opened.folder, done)
        self._events.report(
            "backup_done", directory=done.directory, bytes=done.bytes, streams=running.streams, seconds=seconds
        )
        return {}

    def check(self) -> None:
        """End a backup whose command has ended or sends no requests any more. The server calls it each second."""
        with self._lock:
            running = self._running
            if running is None:
                return
            is_killed = running.pid is not None and has_ended(running.pid)
            if not is_killed and self._clock() < self._until:
                return
            self._running = None
        running.hold.release()
        ended = f"its command, process {running.pid}, has ended"
        self._report_failure(running, ended if is_killed else f"its command sent no request for {LEASE_S:g} s")

    def _begin(self, directory: str, store: StreamStore, pid: int | None) -> RunningBackup:
        self.check()
        with self._lock:
            if self._running is not None:
                raise RefusedError(
                    f"a backup to {self._running.directory} is running", remedy="Wait for its end.", reason="busy"
                )
            running = RunningBackup(
                secrets.token_hex(8),
                directory,
                self._wall(),
                self._clock(),
                len(store.names),
                store.holds.hold(HOLDER, LEASE_S),
                pid,
            )
            self._running, self._until = running, self._clock() + LEASE_S
        return running

    def _require(self, number: object, store: StreamStore | None) -> tuple[RunningBackup, StreamStore]:
        """Return the running backup if it has this id, and the store. The caller holds the lock."""
        running = self._running
        if running is None or running.id != number or self._clock() >= self._until or store is None:
            raise EndedError(
                f"the server has ended this backup: it was restarted, or the command sent no request for {LEASE_S:g} s",
                remedy="Back up again.",
            )
        return running, store

    def _finish(self, running: RunningBackup) -> None:
        with self._lock:
            if self._running is running:
                self._running = None
        running.hold.release()

    def _report_failure(self, running: RunningBackup, error: str) -> None:
        self._events.report("backup_failed", directory=running.directory, error=error)


def _known_pid(arguments: Arguments) -> int | None:
    """Return the id of the command's process if it is one of this PID namespace."""
    pid, namespace = arguments.get("pid"), pid_namespace()
    return pid if isinstance(pid, int) and namespace and arguments.get("pid_namespace") == namespace else None


def _damaged(store: StreamStore) -> dict[str, str]:
    """Return the problems of the streams that cannot be copied, by name."""
    conditions = {name: store.condition(name) for name in store.names}
    return {name: one.problem for name, one in conditions.items() if one.state in (DAMAGED, READ_ONLY, RECOVERING)}


def _damaged_error(damaged: Mapping[str, str]) -> RefusedError:
    name, problem = next(iter(damaged.items()))
    more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    return RefusedError(
        f"stream {name!r} is damaged{more}, and a backup would lack it: {problem}",
        remedy="Restore or delete it, or back up the other streams with --skip-damaged.",
    )


def file_paths(archive_dir: str, clients_file: Path | None, identity_file: Path | None, config: str) -> dict[str, str]:
    """Return the paths that ``Backups`` gets: absolute, or ""."""
    named = {
        "clients_file": clients_file,
        "identity_file": identity_file,
        "config_file": Path(config) if config else None,
    }
    paths = {name: "" if path is None else os.path.abspath(path.expanduser()) for name, path in named.items()}
    return {"archive_dir": os.path.abspath(archive_dir), **paths}
