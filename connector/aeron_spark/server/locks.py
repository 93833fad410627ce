"""The locks of one server on its store and on each address at its media driver.

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
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aeron_spark.aeron.cnc import CNC_FILE
from aeron_spark.aeron.driver_server import ipc_in_use
from aeron_spark.errors import InUseError, SetupError
from aeron_spark.node.locks import FileLock, MachineLock, current_owner_text
from aeron_spark.node.paths import SHARED_MEMORY, node_name, unclaimed_path
from aeron_spark.streams.store_folder import lock_store
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import address_in_use

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
