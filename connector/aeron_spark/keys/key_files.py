"""Reads and writes files that other users must not read or change, atomically and by one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.disk import replace_file, sync_folder
from aeron_spark.errors import OptionError, SetupError, WaitTimeout
from aeron_spark.protocol.noise import derive_psk

MAX_FILE_BYTES: Final = 4 << 20  # tens of thousands of keys
LOCK_TIMEOUT_S: Final = 10.0  # a writer needs the lock for milliseconds
LOCK_RETRY_INTERVAL_S: Final = 0.002  # another writer holds the lock for about so long
PRIVATE_MODE: Final = 0o600
OTHERS_ANY: Final = 0o077  # permissions of other users that a secret file must not have
OTHERS_WRITE: Final = 0o022


def read_secret(path: Path) -> bytes | None:
    """Return the content of a file that only this user can read, or None without the file.

    Raises SetupError for a symbolic link, which another user may have created, for another user's file, and for a file
    that others can read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SetupError(f"{path} is a symbolic link", remedy="Name the file itself.") from None
        raise _unusable(path, error) from None
    return _read(fd, path, OTHERS_ANY, "can be read or changed", f"chmod 600 {path}")


def read_shared_secret(file: str | Path | None) -> bytes | None:
    """Return the 32-byte key that is derived from the secret in this file, without the line break at its end.

    Returns None without a file.
    Raises SetupError if the file does not exist or others can read it, OptionError for a secret that is too short.
    """
    if file is None:
        return None
    path = Path(file).expanduser()
    secret = read_secret(path)
    if secret is None:
        raise SetupError(
            f"the shared secret {path} does not exist",
            remedy="Create it, for example with: (umask 077; openssl rand -base64 32 > FILE)",
        )
    try:
        return derive_psk(secret.removesuffix(b"\n").removesuffix(b"\r"))
    except OptionError as error:
        raise OptionError(f"option 'sharedSecretFile': {error.what}", remedy=error.remedy) from None


def read_public(path: Path) -> bytes | None:
    """Return the content of a file that only this user or root can change, or None without the file.

    Raises SetupError for another user's file, and for a file that others can change.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise SetupError(
            f"{path} cannot be read by user {os.geteuid()}",
            remedy=f"It has public keys only: let this user read it, for example with: chmod a+r {path}",
        ) from None
    except OSError as error:
        raise _unusable(path, error) from None
    return _read(fd, path, OTHERS_WRITE, "can be changed", f"chmod go-w {path}", root_too=True)


def replace(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` atomically, with mode 0600. Raises SetupError."""
    _make_folder(path.parent)
    try:
        replace_file(path, content, draft_suffix=f".{secrets.token_hex(8)}")  # random, for concurrent writers
    except OSError as error:
        raise _unusable(path, error) from None


def create(path: Path, content: bytes) -> bool:
    """Create ``path`` with ``content`` and mode 0600. Return False, without a change, if it exists already."""
    _make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        replace_file(draft, content)
        try:
            os.link(draft, path)
            sync_folder(path.parent)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(path, error) from None
    return True


@contextmanager
def only_writer(path: Path, seconds: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Lock the file ``path`` + ".lock" during the block. Raises WaitTimeout after ``seconds``."""
    lock = path.with_name(f"{path.name}.lock")
    _make_folder(lock.parent)
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_MODE)
    except OSError as error:
        raise _unusable(lock, error) from None
    try:
        _lock(fd, lock, seconds)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, lock: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise WaitTimeout(
                    f"waited {seconds:g} s for another process that writes keys (lock {lock})",
                    remedy="Check which process has locked the file, and try again.",
                ) from None
            time.sleep(LOCK_RETRY_INTERVAL_S)
        else:
            return


def _read(fd: int, path: Path, forbidden: int, fault: str, repair: str, *, root_too: bool = False) -> bytes:
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise SetupError(f"{path} is not a file", remedy="Name a file.")
        if found.st_uid != os.geteuid() and not (root_too and found.st_uid == 0):
            raise SetupError(
                f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}",
                remedy="Name a file of your own, or run as its owner.",
            )
        if found.st_mode & forbidden:
            raise SetupError(
                f"{path} {fault} by others (mode {stat.S_IMODE(found.st_mode):04o})",
                remedy=f"If this is the right file, run: {repair}",
            )
        with os.fdopen(fd, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(fd)
    if len(content) > MAX_FILE_BYTES:
        raise SetupError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes", remedy="Name a file of keys.")
    return content


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(path: Path, error: OSError) -> SetupError:
    return SetupError(f"{path} cannot be used ({error.strerror})", remedy="Name another path, or correct this one.")
