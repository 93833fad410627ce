"""The node process: ``python -m aeron_spark.node.keeper '<json>'``. It holds the media driver and the archive, and ends
when it is told to, or when nobody has used it for a while.

Rules:
* It lives as long as it holds ``alive.lock``; whoever finds that lock free may call the node dead, whatever files say.
* It stops of its own accord only while it holds ``users.lock`` exclusively, sees no other Aeron client, and records
  nothing.
* It never goes silently: whatever ends it is in its log, and what keeps it from starting is in ``failed.json``.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from aeron_spark.aeron import driver as aeron
from aeron_spark.errors import AeronSparkError, SetupError, TransportError
from aeron_spark.node import locks, paths, settings, start_progress, state_files
from aeron_spark.node.archive_repair import repair_recordings
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.paths import NodePaths
from aeron_spark.node.settings import (
    RECEIVE_BUFFER,
    NodeSettings,
    archive_context,
    driver_context,
    settings_from_json,
)
from aeron_spark.node.signals import StopRequest
from aeron_spark.version import package_version

POLL_INTERVAL_S: Final = 0.5  # seconds between two looks at who uses the node
ALIVE_TIMEOUT: Final = 2.0  # seconds: a start begins only when no keeper lives, so somebody else was quicker
ARCHIVE_ID: Final = "archive-id"


class Keeper:
    """One node, from its start to its end."""

    def __init__(self, places: NodePaths, settings: NodeSettings, warning: str) -> None:
        self._places = places
        self._settings = settings
        self._warning = warning
        self._stop = StopRequest()  # open until the process ends: a signal can come at any time
        self._alive = locks.FileLock(places.alive_lock)
        self._users = locks.FileLock(places.users_lock)
        self._archive_lock: locks.FileLock | None = None
        self._driver: aeron.EmbeddedDriver | None = None
        self._archive_id = 0

    def run(self) -> None:
        """Start, serve, stop; raise AeronSparkError where it cannot start or has failed."""
        self._listen()
        self._start()
        self._listen()  # again, because starting a JVM takes signals over
        try:
            self._in_use()
            if self._stop.number is None:
                state_files.write_record(self._places.record, self._record())
                self._places.progress.unlink(missing_ok=True)
                write_line(f"ready: media driver in {self._places.aeron_dir}, settings {self._settings}")
            self._serve()
        finally:
            self._end()

    def _start(self) -> None:
        self._alive.acquire(ALIVE_TIMEOUT, "another node in this directory to be gone")
        before = locks.owner(self._places.alive_lock)
        self._alive.write_owner()
        self._places.record.unlink(missing_ok=True)
        self._places.state.unlink(missing_ok=True)
        self._stage("removing what an earlier node left")
        paths.remove_dead_driver(self._places.aeron_dir, before)
        if self._settings.archive:
            self._archive_lock = paths.take_archive(self._places.archive_dir)
            self._archive_id = archive_id(self._places.archive_dir)
        self._stage("starting the Java virtual machine")
        aeron.start_driver_jvm(dict(self._settings.properties))
        if self._settings.archive:
            self._stage("repairing recordings")
            for tail in repair_recordings(self._places.archive_dir, aeron.crc32c):
                write_line(str(tail))
        self._stage("starting the media driver" + (" and the archive" if self._settings.archive else ""))
        self._driver = self._launch()

    def _stage(self, stage: str) -> None:
        start_progress.write_stage(self._places.progress, stage)

    def _launch(self) -> aeron.EmbeddedDriver:
        receive_buffer = settings.granted_buffer(socket.SO_RCVBUF, RECEIVE_BUFFER)
        return aeron.EmbeddedDriver(
            driver_context(self._settings, str(self._places.aeron_dir), receive_buffer),
            archive_context(self._settings, str(self._places.archive_dir), self._archive_id),
        )

    def _serve(self) -> None:
        last_used = time.time()
        while not self._stop.wait(POLL_INTERVAL_S):
            self._check_health()
            if self._in_use():
                last_used = time.time()
            elif time.time() - max(last_used, self._places.users_lock.stat().st_mtime) >= self._settings.linger:
                if self._places.stay.exists() or not self._users.try_acquire():
                    continue
                if not self._in_use():  # nobody can come now: new users wait for the lock
                    write_line(f"stopping: unused for {self._settings.linger:g} s")
                    return
                self._users.release()

    def _in_use(self) -> bool:
        """Look who is there, and write it down."""
        assert self._driver is not None
        recordings = self._driver.recordings()
        names = tuple(self._driver.recorded()[: state_files.MOST_NAMES]) if recordings else ()
        state = state_files.NodeState(time.monotonic(), self._driver.clients(), recordings, names)
        state_files.write_state(self._places.state, state)
        if state.clients or state.recordings:
            return True
        if self._users.held:
            return False
        if not self._users.try_acquire():
            return True
        self._users.release()
        return False

    def _check_health(self) -> None:
        assert self._driver is not None
        found = driver_liveness(self._places.aeron_dir)
        if found is None or not found.alive:
            raise TransportError(f"the media driver in {self._places.aeron_dir} stopped working")
        if failure := self._driver.failure():
            raise TransportError(failure)

    def _record(self) -> state_files.NodeRecord:
        return state_files.NodeRecord(
            pid=os.getpid(),
            host=state_files.this_host(),
            started=time.time(),
            aeron_dir=str(self._places.aeron_dir),
            archive_dir=str(self._places.archive_dir) if self._settings.archive else "",
            archive_id=self._archive_id,
            aeron_version=aeron.aeron_version(),
            package_version=package_version(),
            settings=self._settings,
            warning=self._warning,
        )

    def _listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock, print or raise: the main thread may be in the middle of anything.
        self._stop.make(number)
        if self._alive.held:
            with suppress(OSError):  # of the disk: the node stops all the same, and tries again to remove the record
                self._places.record.unlink(missing_ok=True)  # from now on no new user may count on it

    def _end(self) -> None:
        if self._stop.number is not None:
            write_line(f"stopping: {signal.Signals(self._stop.number).name}")
        for path in (self._places.record, self._places.state, self._places.stay):
            path.unlink(missing_ok=True)
        self._stage("stopping")
        if self._driver is not None:
            self._driver.close()
        self._places.progress.unlink(missing_ok=True)
        for lock in (self._archive_lock, self._alive, self._users):
            if lock is not None:
                lock.release()
        write_line("stopped")


def archive_id(archive_dir: Path) -> int:
    """Return the id this archive has for good; it lies beside the recordings, because it is theirs."""
    path = archive_dir / ARCHIVE_ID
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.write_text(str(secrets.randbits(62)))
        draft.replace(path)
    text = path.read_text().strip()
    if not text.isdigit():
        raise SetupError(f"{path} does not hold an archive's id", remedy="Restore it, or remove it for a new one.")
    return int(text)


def write_line(text: str) -> None:
    """Write a line to the log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%S%z"), f"[{os.getpid()}]", text, flush=True)


def main(argument: str) -> int:
    """Run the node that ``argument`` describes; return the exit code."""
    os.umask(0o077)
    values = json.loads(argument)
    places = NodePaths(
        aeron_dir=Path(values["aeron_dir"]),
        archive_dir=Path(values["archive_dir"]),
        folder=Path(values["folder"]),
        config_home=Path(values["config_home"]),
        chosen=bool(values["chosen"]),
    )
    try:
        Keeper(places, settings_from_json(values["settings"]), str(values["warning"])).run()
    except AeronSparkError as error:
        write_line(f"failed: {traceback.format_exc()}")
        state_files.write_failure(places.failure, error)
        return 1
    except Exception as error:  # nothing may end a node without a trace
        write_line(f"failed: {traceback.format_exc()}")
        state_files.write_failure(places.failure, TransportError(f"the node failed: {type(error).__name__}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # everything is closed; threads of a JVM must not keep the process
