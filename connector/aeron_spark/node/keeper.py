"""The node process, ``python -m aeron_spark.node.keeper '<json>'``: runs the media driver and the archive.

A signal handler sets no ``threading.Event``, which would deadlock: Python runs a handler between any two instructions
of the main thread, even while that thread has locked the event's lock in ``wait()``. ``set()`` in the handler would
wait for this lock for ever.

The process ends on a signal, or when it has been unused for some time. Rules:
* It keeps ``alive.lock`` locked until its end. If that lock is free, the node has ended, even if its files exist.
* It stops as unused only while it has locked ``users.lock`` exclusively, no other Aeron client is connected, and no
  recording is active.
* Its log has the reason of its end, and ``failed.json`` the reason of a failed start.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from aeron_spark.aeron import driver
from aeron_spark.errors import AeronSparkError, InUseError, SetupError, TransportError
from aeron_spark.files import replace_file
from aeron_spark.node import lifecycle, locks, paths, settings, state_files
from aeron_spark.node.archive_repair import repair_recordings
from aeron_spark.node.paths import NodePaths
from aeron_spark.node.settings import RECEIVE_BUFFER, NodeSettings, archive_context, driver_context, settings_from_json
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.process import FreePages
from aeron_spark.version import package_version


class KeeperStop:
    """A request that a signal handler makes and the main thread waits for, without a lock."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @property
    def number(self) -> int | None:
        """The first signal that requested the stop, or None without a request."""
        return self._number

    def make(self, number: int) -> None:
        """Make the request, in a handler of this signal; the wait ends immediately."""
        if self._number is None:
            self._number = number
        with suppress(BlockingIOError):  # the pipe is full of earlier requests
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a request. Return whether it was made."""
        if self._number is None:
            select.select([self._read], [], [], seconds)
        return self._number is not None

    def close(self) -> None:
        """Close the pipe. The handlers must have been replaced before."""
        os.close(self._read)
        os.close(self._write)


POLL_INTERVAL_S: Final = 0.5  # a lost driver or an unused node may be noticed so late
SEE_OPERATIONS: Final = "See docs/node.md. The next user of the node starts it again."
ALIVE_LOCK_TIMEOUT_S: Final = 2.0  # a node process starts only if no other runs; if it waits, another was faster
ARCHIVE_ID: Final = "archive-id"


class NodeProcess:
    """One node from its start to its end."""

    def __init__(self, node: NodePaths, settings: NodeSettings, warning: str) -> None:
        self._node = node
        self._settings = settings
        self._warning = warning
        self._stop = KeeperStop()  # open until the process ends, because a signal can arrive at any time
        self._alive = locks.FileLock(node.alive_lock)
        self._users = locks.FileLock(node.users_lock)
        self._archive_lock: locks.FileLock | None = None
        self._driver: driver.EmbeddedDriver | None = None
        self._archive_id = 0
        self._last_used = 0.0

    def run(self) -> None:
        """Start the node, wait until it must stop, and stop it. Raises AeronSparkError if it cannot start or fails."""
        self._handle_signals()
        self._start()
        self._handle_signals()  # again, because the start of a JVM replaces handlers
        try:
            self._update_state()
            if self._stop.number is None:
                # Before the record, because a process that finds it may already use the node.
                self._node.progress.unlink(missing_ok=True)
                state_files.write_record(self._node.record, self._record())
                write_line(f"ready: media driver in {self._node.aeron_dir}, settings {self._settings}")
            self._serve()
        finally:
            self._end()

    def _start(self) -> None:
        self._alive.acquire(ALIVE_LOCK_TIMEOUT_S, "another node in this directory to end")
        previous_pid = locks.owner_pid(self._node.alive_lock)
        self._alive.write_owner()
        self._node.record.unlink(missing_ok=True)
        self._node.state.unlink(missing_ok=True)
        self._write_stage("removing the files of an earlier node")
        paths.remove_dead_driver(self._node.aeron_dir, previous_pid)
        if self._settings.archive:
            self._archive_lock = paths.lock_archive(self._node.archive_dir)
            self._archive_id = archive_id(self._node.archive_dir)
        self._write_stage("starting the Java virtual machine")
        driver.start_driver_jvm(dict(self._settings.properties))
        if self._settings.archive:
            self._write_stage("repairing recordings")
            for repaired in repair_recordings(self._node.archive_dir, driver.crc32c):
                write_line(str(repaired))
        self._write_stage("starting the media driver" + (" and the archive" if self._settings.archive else ""))
        self._driver = self._launch()

    def _write_stage(self, stage: str) -> None:
        lifecycle.write_stage(self._node.progress, stage)

    def _launch(self) -> driver.EmbeddedDriver:
        receive_buffer = settings.granted_buffer(socket.SO_RCVBUF, RECEIVE_BUFFER)
        return driver.EmbeddedDriver(
            driver_context(self._settings, str(self._node.aeron_dir), receive_buffer),
            archive_context(self._settings, str(self._node.archive_dir), self._archive_id),
        )

    def _serve(self) -> None:
        self._last_used = time.time()
        free_pages = FreePages()
        failure = ""
        while not self._stop.wait(POLL_INTERVAL_S):
            free_pages.return_if_due()
            try:
                self._check_health()
                self._close_ended_clients()
                if self._is_unused():
                    write_line(f"stopping: unused for {self._settings.linger:g} s")
                    return
                failure = ""
            # A full disk, or no free descriptor, must not end the driver: its clients may not need either.
            except OSError as error:
                if str(error) != failure:
                    failure = str(error)
                    write_line(f"the node goes on, and tries again: {failure}")

    def _is_unused(self) -> bool:
        """Update the state. Return whether the node was unused for its linger time; new users then wait for its end."""
        if self._update_state():
            self._last_used = time.time()
            return False
        used_at = max(self._last_used, self._node.users_lock.stat().st_mtime)
        if time.time() - used_at < self._settings.linger or self._node.stay.exists() or not self._users.try_acquire():
            return False
        is_unused = False
        try:
            is_unused = not self._update_state()  # new users wait for the lock, so the node remains unused
        finally:
            if not is_unused:
                self._users.release()
        return is_unused

    def _update_state(self) -> bool:
        """Write the numbers of clients and recordings to the state file. Return whether the node is used."""
        assert self._driver is not None
        usage = self._driver.usage()
        names = usage.recorded[: state_files.MAX_NAMES] if usage.recordings else ()
        state = state_files.NodeState(time.monotonic(), usage.clients, usage.recordings, names)
        state_files.write_state(self._node.state, state)
        if state.clients or state.recordings:
            return True
        if self._users.is_acquired:
            return False
        if not self._users.try_acquire():
            return True
        self._users.release()
        return False

    def _close_ended_clients(self) -> None:
        assert self._driver is not None
        for client in self._driver.close_ended_clients():
            write_line(f"closed Aeron client {client.client_id}: process {client.pid} has ended")

    def _check_health(self) -> None:
        assert self._driver is not None
        found = driver_liveness(self._node.aeron_dir)
        if found is None or not found.alive:
            raise TransportError(f"the media driver in {self._node.aeron_dir} stopped working", remedy=SEE_OPERATIONS)
        if failure := self._driver.failure():
            raise TransportError(failure, remedy=SEE_OPERATIONS)

    def _record(self) -> state_files.NodeRecord:
        return state_files.NodeRecord(
            pid=os.getpid(),
            host=state_files.this_host(),
            started=time.time(),
            aeron_dir=str(self._node.aeron_dir),
            archive_dir=str(self._node.archive_dir) if self._settings.archive else "",
            archive_id=self._archive_id,
            aeron_version=driver.aeron_version(),
            package_version=package_version(),
            settings=self._settings,
            warning=self._warning,
        )

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A handler must not lock, print or raise, because it interrupts the main thread between any two instructions.
        self._stop.make(number)
        if self._alive.is_acquired:
            with suppress(OSError):  # a failing disk must not prevent the stop, which removes the record again
                self._node.record.unlink(missing_ok=True)  # new users must not use this node any more

    def _end(self) -> None:
        if self._stop.number is not None:
            write_line(f"stopping: {signal.Signals(self._stop.number).name}")
        with suppress(OSError):  # a failing disk must not prevent the close, which ends recordings in an orderly way
            for path in (self._node.record, self._node.state, self._node.stay):
                path.unlink(missing_ok=True)
            self._write_stage("stopping")
        if self._driver is not None:
            self._driver.close()
        self._node.progress.unlink(missing_ok=True)
        for lock in (self._archive_lock, self._alive, self._users):
            if lock is not None:
                lock.release()
        write_line("stopped")


def archive_id(archive_dir: Path) -> int:
    """Return the archive's permanent id from its file in ``archive_dir``; create the file if it is missing.

    Raises SetupError if the file has no id.
    """
    path = archive_dir / ARCHIVE_ID
    if not path.exists():
        replace_file(path, str(secrets.randbits(62)).encode())
    text = path.read_text().strip()
    if not text.isdigit():
        raise SetupError(
            f"{path} has {text[:40]!r}, expected an archive's id of digits",
            remedy="Restore the file, or remove it for a new id.",
        )
    return int(text)


def write_line(text: str) -> None:
    """Write a line to the log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%S%z"), f"[{os.getpid()}]", text, flush=True)


def main(argument: str) -> int:
    """Run the node that ``argument`` describes; return the exit code."""
    os.umask(0o077)
    values = json.loads(argument)
    node = NodePaths(
        aeron_dir=Path(values["aeron_dir"]),
        archive_dir=Path(values["archive_dir"]),
        folder=Path(values["folder"]),
        config_home=Path(values["config_home"]),
        chosen=bool(values["chosen"]),
    )
    wanted = settings_from_json(values["settings"])
    try:
        NodeProcess(node, wanted, str(values["warning"])).run()
    except AeronSparkError as error:
        write_line(f"failed: {traceback.format_exc()}")
        state_files.write_failure(node.failure, _busy_control_error(error, wanted.control) or error)
        return 1
    except Exception as error:  # each failure must be in the log and in failed.json
        write_line(f"failed: {traceback.format_exc()}")
        failure = f"the node failed: {type(error).__name__}: {error}"
        state_files.write_failure(node.failure, TransportError(failure, remedy=f"See its log, {node.log}."))
        return 1
    return 0


def _busy_control_error(error: AeronSparkError, control: str) -> InUseError | None:
    """Return the error for a start that failed because another program uses the UDP port of ``control``, else None."""
    if not control or "Address already in use" not in error.what:
        return None
    owner = udp_port_owner(int(control.rpartition(":")[2]))
    return InUseError(
        f"the archive of the node cannot listen at {control}: {owner or 'another process'} uses that UDP port",
        remedy="If that is an archive of yours, use it in place of a node: name it with the options 'archive' and "
        "'aeronDir'. Else stop it, or give another --control address.",
    )


def udp_port_owner(port: int) -> str | None:
    """Return the process that uses a UDP port, such as ``process 7 (java)``; None if this user may not see it."""
    inodes: set[str] = set()
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        with suppress(OSError):
            rows = (line.split() for line in Path(table).read_text().splitlines()[1:])
            inodes |= {f"socket:[{row[9]}]" for row in rows if int(row[1].rpartition(":")[2], 16) == port}
    for folder in Path("/proc").glob("[0-9]*/fd") if inodes else ():
        with suppress(OSError):  # the process has ended, or is another user's
            if any(os.readlink(one) in inodes for one in folder.iterdir()):
                return f"process {folder.parent.name} ({(folder.parent / 'comm').read_text().strip()})"
    return None


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # everything is closed; threads of the JVM must not delay the end
