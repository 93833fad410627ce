"""The node of a server, and the locks by which one server at most uses a store and a port.

    <store>/lock                                       the store of streams
    <folder>/<driver>.aeron-spark-server-<port>.lock   a UDP port of a media driver, by its data port
    <folder>/<driver>.aeron-spark-server-ipc.lock      the shared memory of that driver

Without the locks, two servers could share a port of one media driver without an error, and each client would reach
either at random. Each lock is a flock on a file with the process id of its owner. The kernel releases the lock when the
process ends; child processes do not inherit it.

``<driver>`` comes from the real path of the driver's directory. All servers that can use the driver find the same file:
also those with another data home, or with a symbolic link to the directory. ``<folder>`` is
/dev/shm/aeron-spark-locks-<user id>, for its user only, so that no other user can lock the file first. If other users
can write the driver's files, too, it is /dev/shm, so that their servers find the file. It is outside the driver's
directory, because a driver deletes its directory when it starts.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from aeron_spark import node
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import CNC_FILE
from aeron_spark.aeron.driver import ipc_in_use
from aeron_spark.aeron.endpoint_transport import AeronServerTransport
from aeron_spark.aeron.guard import has_guard
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import ConnectError, InUseError, SetupError
from aeron_spark.facts import Bus
from aeron_spark.node import NodeHandle
from aeron_spark.node.locks import FileLock, MachineLock, current_owner_text, is_locked
from aeron_spark.node.paths import SHARED_MEMORY, node_name, space_of, unclaimed_path
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.options import LiveOptions
from aeron_spark.process import has_ended
from aeron_spark.streams.store import StreamStore, has_streams, ignore_progress, lock_store
from aeron_spark.streams.store_parts import StoreParts, StreamSettings
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import address_in_use
from aeron_spark.waiting import wait_for

FALLBACK_FOLDER: Final = Path("/tmp")  # writable for every user, as /dev/shm is
PRIVATE_FOLDER: Final = "aeron-spark-locks-"  # and the user's id
PRIVATE_MODE: Final = 0o700
ROOT: Final = 0


class ServerLocks:
    """The locks that one server owns from its start to its end. Not thread-safe; a forked child owns none of them."""

    def __init__(self) -> None:
        self._addresses: dict[Path, FileLock] = {}
        self._store: FileLock | None = None

    def lock_addresses(self, aeron_dir: str, addresses: Iterable[ServerAddress]) -> None:
        """Lock UDP ports, or the shared memory, of the media driver in ``aeron_dir``. Existing locks stay.

        Raises InUseError with the other server's process id.
        """
        by_path = {address_lock_path(aeron_dir, address): address for address in addresses}
        # in one order: of two servers that start at the same time, one gets all addresses
        for path, address in sorted(by_path.items(), key=lambda item: item[0]):
            if not self._try_lock(path):
                raise _in_use(aeron_dir, address, current_owner_text(path))

    def try_lock_address(self, aeron_dir: str, address: ServerAddress) -> bool:
        """Lock an address of the media driver in ``aeron_dir``; return False if another server has it."""
        return self._try_lock(address_lock_path(aeron_dir, address))

    def _try_lock(self, path: Path) -> bool:
        if path in self._addresses:
            return True
        lock = MachineLock(path)
        if not lock.try_own():
            return False
        self._addresses[path] = lock
        return True

    def lock_store(self, folder: Path) -> FileLock:
        """Lock the store in ``folder``, which is created if it is missing, and release any other store.

        Raises InUseError with the other server's process id, SetupError if the folder cannot be created.
        """
        if self._store is not None and self._store.path.parent == folder:
            return self._store
        lock = lock_store(folder)
        before, self._store = self._store, lock
        if before is not None:
            before.release()
        return lock

    def release(self) -> None:
        """Release all locks. Further calls do nothing."""
        locks = [*self._addresses.values(), *([self._store] if self._store is not None else [])]
        self._addresses, self._store = {}, None
        for lock in locks:
            lock.release()


def address_lock_path(aeron_dir: str, address: ServerAddress) -> Path:
    """Return the lock file of an address on which a server listens, at the media driver in ``aeron_dir``.

    Creates its folder. Raises SetupError if that is impossible, or if the folder is not for its user only.
    """
    driver = Path(os.path.realpath(aeron_dir))
    folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else FALLBACK_FOLDER
    user = _only_user_of(driver)
    if user is not None:
        folder = _private_folder(folder / f"{PRIVATE_FOLDER}{user}", user)
    name = "ipc" if address.media == "ipc" else address.data_port
    return folder / f"{node_name(driver)}.aeron-spark-server-{name}.lock"


def _only_user_of(driver: Path) -> int | None:
    """Return the only user, besides root, who can use the media driver in a directory; None if there are others."""
    own = os.geteuid()
    try:
        owner = os.lstat(driver).st_uid
    except OSError:
        return own  # this user's node will make it, or fail
    if own not in (owner, ROOT):
        return None
    try:
        is_shared = bool(os.stat(driver / CNC_FILE).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except OSError:  # no driver has run there
        is_shared = False
    return None if is_shared else owner


def _private_folder(path: Path, user: int) -> Path:
    """Return the folder ``path`` of a user, or one beside it if another user has that; create it if it is missing."""
    while True:
        folder = unclaimed_path(path, user)
        try:
            folder.mkdir(mode=PRIVATE_MODE)
            os.chown(folder, user, -1)  # root may use the media driver of another user
        except FileExistsError:
            pass  # it is the user's, or another user has made it since
        except OSError as error:
            raise SetupError(
                f"the folder {folder} for locks cannot be created: {error.strerror}",
                remedy=f"Let all users create files in {path.parent}: chmod 1777 {path.parent}",
            ) from error
        try:
            found = os.lstat(folder)
        except FileNotFoundError:
            continue
        if found.st_uid != user:
            continue
        if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != PRIVATE_MODE:
            raise SetupError(
                f"{folder} is not a folder with mode {PRIVATE_MODE:o}, so other users could lock files in it",
                remedy=f"Stop the servers of user {user}, and remove it.",
            )
        return folder


def check_ports_free(addresses: Iterable[ServerAddress]) -> None:
    """Raise InUseError if another program uses a UDP port of ``addresses``.

    Only for a media driver that does not run yet: a running driver may still use the ports of a server that was killed
    a moment ago. Other errors of an address are left to the driver.
    """
    for address in addresses:
        if address.media == "udp":
            for port in (address.data_port, address.control_port):
                error = bind_error(address.host, port)
                if error is not None and error.errno == errno.EADDRINUSE:
                    raise address_in_use(address.host, port) from error


def bind_error(host: str, port: int) -> OSError | None:
    """Return the error of a socket that listens on a UDP port and is closed at once, or None."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        return error
    return None


def _in_use(aeron_dir: str, address: ServerAddress, pid: str) -> InUseError:
    if address.media == "ipc":
        return ipc_in_use(aeron_dir, pid)
    return InUseError(
        f"port {address.data_port} of the media driver in {aeron_dir} is served by server process {pid}",
        remedy="Stop it, or choose another port",
    )


LOG: Final = logging.getLogger("aeron_spark.server")

NO_HEARTBEAT: Final = float("inf")
ANSWER_POLL_S: Final = 0.02  # the driver of a node writes a heartbeat each 0.1 s, another one each second
SILENT_AFTER_S: Final = 3.0  # without a heartbeat, until the log says that the server waits
# A node that was stopped for longer than Aeron's timeouts ends soon after it continues. The server then starts another.
STEADY_S: Final = 2.0
# The shortest that an archive allows, so that the terms of a stream decide: a segment has at least one term.
SEGMENT_LENGTH: Final = "1MiB"
GUARD_RISK: Final = (
    "a sender that reaches the server's ports can fill its memory with logs of any length, make it send packets to "
    "addresses of other hosts, and slow down or end connections; their messages stay secret and unchanged"
)
GUARD_REMEDY: Final = "Let aeron-spark start the driver, or load the guard into it: docs/driver-guard.md"


class ServerNode:
    """Opens the transport and the store of a server on this machine's node. Locks the addresses and the store.

    The constructor only locks, and raises InUseError if another process uses a port or the store: such a refusal comes
    before a media driver or a JVM starts. The first use of the transport or the store starts the node. The store emits
    its facts on ``facts``.
    """

    def __init__(self, live: LiveOptions, facts: Bus) -> None:
        self._facts: Final = facts
        self._live: Final = live
        self._locks: Final = ServerLocks()
        self._starting: Final = threading.Lock()
        self._handle: NodeHandle | None = None
        self._is_started_here = False
        self._is_foreign = False  # the last media driver was another program's, which starts it again
        self._locked_addresses: Sequence[ServerAddress] = ()
        options = live.value
        status = node.status(options.aeron_dir)
        self._expected_aeron_dir: Final = status.aeron_dir
        try:
            self.lock_addresses(options.addresses)
            store = self._store_folder("" if status.state == "foreign" else status.archive_dir)
            if store is not None:
                self._locks.lock_store(store)
            if status.state in ("absent", "stale"):
                check_ports_free(options.addresses)
        except BaseException:
            self._locks.release()
            raise

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._expected_aeron_dir if self._handle is None else self._handle.aeron_dir

    @property
    def is_started_here(self) -> bool:
        """Whether this object has started the node."""
        return self._is_started_here

    def start(self) -> None:
        """Start the node if it does not run, and wait until its media driver answers: its process may be stopped.

        Raises the errors of ``open_transport``, and WaitTimeout if the driver does not answer within the time that a
        node has for its start.
        """
        heartbeats: set[float] = set()
        began_at = time.monotonic()
        answered_at: float | None = None
        is_logged = False

        def is_answering() -> bool:
            nonlocal answered_at, is_logged
            heartbeats.add(self._heartbeat())
            if self._is_started_here:
                return True
            if len(heartbeats - {NO_HEARTBEAT}) > 1:
                answered_at = answered_at or time.monotonic()
                is_steady = time.monotonic() - answered_at >= STEADY_S
                return not is_logged or (is_steady and node.status(self._live.value.aeron_dir).runs)
            if not is_logged and time.monotonic() - began_at > SILENT_AFTER_S:
                is_logged = True
                LOG.warning("the media driver in %s does not answer; the server waits for it", self.aeron_dir)
            return False

        wait_for(
            is_answering,
            node.START_TIMEOUT,
            f"the media driver in {self.aeron_dir} to answer",
            remedy="Continue its process if it is stopped (kill -CONT), or run 'aeron-spark node stop --force'.",
            sleep=lambda _: time.sleep(ANSWER_POLL_S),
        )

    def _heartbeat(self) -> float:
        """Return a number that differs after each heartbeat of the driver. Starts the node if it does not run."""
        with self._starting:
            if self._handle is not None and has_ended(self._handle.pid):
                self._handle.close()
                self._handle = None
        try:
            found = driver_liveness(Path(self._running().aeron_dir), now=0.0)
        except ConnectError:  # its process exists, and has written no heartbeat for some time
            return NO_HEARTBEAT
        return NO_HEARTBEAT if found is None else found.heartbeat_age

    @property
    def folders(self) -> dict[str, Path]:
        """The folders whose disks get the rows, by name, once the node runs: ``store`` and ``archive``."""
        if self._handle is None or not self._handle.archive_dir:
            return {}
        folder = self._store_folder(self._handle.archive_dir)
        archive = {"archive": Path(self._handle.archive_dir)}
        return archive if folder is None else {"store": folder, **archive}

    @property
    def has_streams(self) -> bool:
        """Whether the store has streams. Starts the node if it does not run."""
        folder, archive_dir = self.store_folder, self._running().archive_dir
        return folder is not None and bool(archive_dir) and has_streams(folder, Path(archive_dir))

    @property
    def store_folder(self) -> Path | None:
        """The folder of the store; None if another program's media driver has no archive. Starts the node."""
        return self._store_folder(self._running().archive_dir)

    def lock_addresses(self, addresses: Sequence[ServerAddress]) -> None:
        """Lock addresses at the media driver; earlier locks stay. Raises InUseError if another server has one."""
        self._locks.lock_addresses(self.aeron_dir, addresses)
        self._locked_addresses = addresses

    def try_lock_addresses(self, addresses: Sequence[ServerAddress]) -> list[ServerAddress]:
        """Lock the addresses that no other server has at the media driver, and return them. Starts the node."""
        aeron_dir = self._running().aeron_dir
        return [address for address in addresses if self._locks.try_lock_address(aeron_dir, address)]

    def open_transport(self) -> AeronServerTransport:
        """Open a transport; start the node if it does not run.

        Raises InUseError if another process uses the store, and the errors of ``node.ensure``.
        """
        with self._starting:
            # A killed node leaves its directory. Only ``ensure`` finds out whether it lives, and starts another one.
            before, self._handle = self._handle, self._ensured()
        if before is not None:
            before.close()
        return AeronServerTransport(
            client_of(self.aeron_dir),
            idle=self._live.value.idle,
            max_message=self._live.value.longest_message,
            ipc_lock=address_lock_path(self.aeron_dir, ServerAddress(media="ipc")),
            is_locked=is_locked,
        )

    def open_streams(
        self, is_ending: Callable[[], bool], progress: Callable[[int, int], object] = ignore_progress
    ) -> StreamStore:
        """Open the store; start the node if it does not run. ``is_ending``: whether the server is closing.

        ``progress`` is called with the numbers of recovered streams and of all streams.

        Raises SetupError if no aeron-spark node runs the driver, InUseError if another process uses the store.
        """
        handle = self._running()
        folder = self._store_folder(handle.archive_dir)
        if folder is None or not handle.archive_dir:
            raise _cannot_store(handle)
        lock = self._locks.lock_store(folder)
        settings = StreamSettings(
            options=lambda: self._live.value,
            log_bytes=space_of(Path(handle.aeron_dir)).total // 2,  # the rest is for the links of clients
        )
        parts = StoreParts(embedded(handle), settings, facts=self._facts)
        return StreamStore(folder, parts, lock=lock, is_closing=is_ending, progress=progress)

    def storage_problem(self) -> str:
        """Return why the node cannot store streams, or ""; "" also before the node runs."""
        handle = self._handle
        return "" if handle is None or handle.archive_dir else str(_cannot_store(handle))

    def guard_problem(self) -> SetupError | None:
        """Return the error to report if the media driver has no guard; it shows one only after it guarded a channel."""
        if has_guard(self.aeron_dir):
            return None
        what = f"the media driver in {self.aeron_dir} has no guard: {GUARD_RISK}"
        return SetupError(what, remedy=GUARD_REMEDY)

    def close(self) -> None:
        """Release the node and all locks. Further calls do nothing."""
        if self._handle is not None:
            self._handle.close()
        self._locks.release()

    def _running(self) -> NodeHandle:
        """Return the handle of the node, which the first call starts."""
        with self._starting:
            if self._handle is None:
                self._handle = self._ensured()
            return self._handle

    def _ensured(self) -> NodeHandle:
        """Start the node if it does not run. The first call locks the addresses and the store there.

        Both may differ from those that the constructor expected: a start chooses another directory when the shared
        memory is too small, and another process may have started the node meanwhile.
        """
        handle = node.ensure(
            self._live.value.aeron_dir,
            sync_level=self._live.value.sync_level,
            at_start={"segment_length": SEGMENT_LENGTH},
            wait_s=0.0 if self._is_foreign else None,
        )
        self._is_foreign = handle.foreign
        self._is_started_here = self._is_started_here or handle.is_started_here
        if self._handle is None:
            try:
                self._locks.lock_addresses(handle.aeron_dir, self._locked_addresses)
                folder = self._store_folder(handle.archive_dir)
                if folder is not None:
                    self._locks.lock_store(folder)
            except BaseException:
                handle.close()
                raise
        return handle

    def _store_folder(self, archive_dir: str) -> Path | None:
        if self._live.value.streams_dir is not None:
            return Path(self._live.value.streams_dir)
        return Path(f"{archive_dir}.streams") if archive_dir else None


def _cannot_store(handle: NodeHandle) -> SetupError:
    """Return the error for a node without an archive, or another program's media driver."""
    if handle.foreign:
        return SetupError(
            f"the server cannot store streams: the media driver in {handle.aeron_dir} belongs to another program and "
            "has no archive of aeron-spark",
            remedy="Start the server with a separate aeronDir.",
        )
    return SetupError(
        f"the server cannot store streams: the node of {handle.aeron_dir} was started without an archive",
        remedy="Stop the server and the node (aeron-spark node stop), then start the server, which starts a node with "
        "an archive.",
    )
