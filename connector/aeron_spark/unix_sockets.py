"""Unix sockets that only their owner may use, at paths of any length."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.errors import InUseError, SetupError

MAX_ADDRESS_BYTES: Final = 107  # of a Unix socket's name in the kernel, without its final zero
OWNER_ONLY: Final = 0o600
PROBE_TIMEOUT_S: Final = 0.2  # for a connect to the socket of another process; it needs no response
BACKLOG: Final = 128
RETRY_INTERVAL_S: Final = 0.005  # while the backlog is full


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``, with mode 0600. Replaces the file of a process that has ended.

    Raises InUseError if another process listens there, SetupError if the path cannot be used.
    """
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listening.fileno(), OWNER_ONLY)  # the file gets this mode when it is made, independent of the umask
        with _address(path) as address:
            listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _unusable(path, error) from error
    except BaseException:
        listening.close()
        raise
    return listening


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Return a socket that is connected to ``path``; each of its calls waits ``timeout_s`` at most.

    Raises OSError if nothing listens there, the file's mode does not allow it, or no call is accepted within that time.
    Raises SetupError for too long a name.
    """
    end = time.monotonic() + timeout_s
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        with _address(path) as address:
            while True:
                try:
                    connected.connect(address)
                    break
                except BlockingIOError:  # the backlog is full; the system does not wait
                    if time.monotonic() >= end:
                        raise
                    time.sleep(RETRY_INTERVAL_S)
    except BaseException:
        connected.close()
        raise
    return connected


@contextmanager
def _address(path: Path) -> Iterator[bytes]:
    """Yield a short name of ``path``: a long path is reached through an open file of its folder."""
    name = os.fsencode(path)
    if len(name) <= MAX_ADDRESS_BYTES:
        yield name
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = os.fsencode(f"/proc/self/fd/{folder}/{path.name}")
        if len(short) > MAX_ADDRESS_BYTES:
            raise SetupError(
                f"the socket {path} cannot be used: its file name has {len(os.fsencode(path.name))} bytes, and the "
                f"system allows {MAX_ADDRESS_BYTES - len(short) + len(os.fsencode(path.name))} there",
                remedy="Give the socket a shorter name (adminSocket).",
            )
        yield short
    finally:
        os.close(folder)


def _remove_stale(path: Path) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, error) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise SetupError(
            f"the socket {path} cannot be made: a file of another kind has that name",
            remedy="Remove the file, or choose another name (adminSocket).",
        )
    try:
        connect(path, PROBE_TIMEOUT_S).close()
    except OSError as error:
        if error.errno not in (errno.ECONNREFUSED, errno.ENOENT):
            raise _unusable(path, error) from error
    else:
        raise InUseError(
            f"the socket {path} is in use by another process", remedy="Stop it, or choose another path (adminSocket)."
        )
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> SetupError:
    return SetupError(
        f"the socket {path} cannot be made: {error.strerror or error}",
        remedy="Choose a path in a folder of this user (adminSocket).",
    )
