"""The locks of one server: its store, and each of its places at its media driver, belong to it alone.

    <store>/lock                                                  the store of streams
    /dev/shm/<driver>.aeron-spark-server-<data port>.lock         a UDP port of a media driver
    /dev/shm/<driver>.aeron-spark-server-ipc.lock                 the shared memory of that driver

Two servers on one media driver would share the port without an error, and clients would reach either at random. Each
lock is a flock that its holder's process id is written into: it ends with the process, whatever ends the process, and
no child of the process inherits it.

``<driver>`` comes from the real path of the driver's directory, so that each server of this machine finds the same
file: servers of other users, with another data home, or with a link to the directory, too. The file does not lie in
the directory itself, because a driver removes that when it starts.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aeron_spark.aeron.driver_server import ipc_in_use
from aeron_spark.errors import InUseError
from aeron_spark.node.locks import FileLock, MachineLock, holder_name
from aeron_spark.node.paths import SHARED_MEMORY, node_name
from aeron_spark.streams.store import lock_store
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import address_in_use

WITHOUT_SHARED_MEMORY: Final = Path("/tmp")  # every user may write there, too


class ServerLocks:
    """What one server holds from its start to its end. Not thread-safe; a forked child holds nothing of it."""

    def __init__(self) -> None:
        self._places: dict[Path, FileLock] = {}
        self._store: FileLock | None = None

    def take_places(self, aeron_dir: str, places: Iterable[ServerAddress]) -> None:
        """Take the ports, or the shared memory, of the media driver in ``aeron_dir``; those held already stay.

        Raises InUseError with the other server's process id.
        """
        wanted = {place_lock(aeron_dir, place): place for place in places}
        for path, place in sorted(wanted.items(), key=lambda one: one[0]):  # so that one of two servers has them all
            if path in self._places:
                continue
            lock = MachineLock(path)
            if not lock.try_own():
                raise _place_in_use(aeron_dir, place, holder_name(path))
            self._places[path] = lock

    def take_store(self, folder: Path) -> FileLock:
        """Take the store in ``folder``, which is made where it is missing, and give any other store back.

        Raises InUseError with the other server's process id, SetupError where the folder cannot be made.
        """
        if self._store is not None and self._store.path.parent == folder:
            return self._store
        lock = lock_store(folder)
        before, self._store = self._store, lock
        if before is not None:
            before.release()
        return lock

    def release(self) -> None:
        """Give everything back. Again, it does nothing."""
        held = [*self._places.values(), *([self._store] if self._store is not None else [])]
        self._places, self._store = {}, None
        for lock in held:
            lock.release()


def place_lock(aeron_dir: str, place: ServerAddress) -> Path:
    """Return the lock file of a place where a server listens, at the media driver in ``aeron_dir``."""
    driver = node_name(Path(os.path.realpath(aeron_dir)))
    folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else WITHOUT_SHARED_MEMORY
    return folder / f"{driver}.aeron-spark-server-{'ipc' if place.media == 'ipc' else place.data_port}.lock"


def refuse_taken_ports(places: Iterable[ServerAddress]) -> None:
    """Raise InUseError where another program has a UDP port of ``places``.

    For a machine on which the media driver does not run yet: the driver itself would have the ports of a server that
    was killed a moment ago. What else is wrong with an address, the driver says.
    """
    for place in places:
        if place.media == "udp":
            for port in (place.data_port, place.control_port):
                _refuse_taken(place.host, port)


def _refuse_taken(host: str, port: int) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise address_in_use(host, port) from error


def _place_in_use(aeron_dir: str, place: ServerAddress, pid: str) -> InUseError:
    if place.media == "ipc":
        return ipc_in_use(aeron_dir, pid)
    return InUseError(
        f"port {place.data_port} of the media driver in {aeron_dir} is served by server process {pid}",
        remedy="Stop it, or choose another port",
    )
