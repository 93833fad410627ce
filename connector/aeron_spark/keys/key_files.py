"""Files that others must not read, or not change: refused when they could, replaced whole, by one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.errors import OptionError, SetupError, WaitTimeout
from aeron_spark.protocol.noise import derive_psk

LARGEST: Final = 4 << 20  # bytes: tens of thousands of keys
LOCK_TIMEOUT: Final = 10.0  # seconds; a writer holds the lock for milliseconds
LOCK_RETRY: Final = 0.002  # seconds between two attempts
PRIVATE: Final = 0o600
OTHERS: Final = 0o077  # what a secret allows nobody else
OTHERS_WRITE: Final = 0o022


def read_secret(path: Path) -> bytes | None:
    """Return what only this user can read; None where there is no such file.

    Raises SetupError for a link, which others may have laid, for another user's file, and for one that others may read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SetupError(f"{path} is a symbolic link", remedy="Name the file itself.") from None
        raise _unusable(path, error) from None
    return _read(fd, path, OTHERS, "can be read or changed")


def read_shared_secret(path: Path) -> bytes:
    """Return the pre-shared key that the secret in this file stands for; a line break at its end does not count.

    Raises SetupError where there is no such file, or others can read it, OptionError for a secret that is too short.
    """
    secret = read_secret(path)
    if secret is None:
        raise SetupError(f"there is no shared secret in {path}", remedy="For example: openssl rand -base64 32 > FILE")
    try:
        return derive_psk(secret.removesuffix(b"\n").removesuffix(b"\r"))
    except OptionError as error:
        raise OptionError(f"option 'sharedSecretFile': {error.what}", remedy=error.remedy) from None


def read_public(path: Path) -> bytes | None:
    """Return what only this user (or root) can change; None where there is no such file. Raises SetupError likewise."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    return _read(fd, path, OTHERS_WRITE, "can be changed", root_too=True)


def replace(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``, mode 0600: readers, and whoever comes after a crash, see the old or the new."""
    with _draft(path, content) as draft:
        os.replace(draft, path)


def create(path: Path, content: bytes) -> bool:
    """Make ``path`` with ``content``, mode 0600; False, and nothing changed, where something is there already."""
    with _draft(path, content) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
    return True


@contextmanager
def only_writer(path: Path, seconds: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the lock beside ``path``, or raise WaitTimeout after ``seconds``. The lock's file stays."""
    lock = path.with_name(f"{path.name}.lock")
    _make_folder(lock.parent)
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
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
                    remedy="Look what holds the lock, and try again.",
                ) from None
            time.sleep(LOCK_RETRY)
        else:
            return


@contextmanager
def _draft(path: Path, content: bytes) -> Iterator[str]:
    """Give a file of ``content`` beside ``path``; what is done with it lasts, and what is left of it goes."""
    _make_folder(path.parent)
    try:
        fd, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, PRIVATE)
            file.write(content)
            file.flush()
            os.fsync(fd)
        yield draft
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise _unusable(path, error) from None
    finally:
        Path(draft).unlink(missing_ok=True)


def _read(fd: int, path: Path, forbidden: int, what: str, *, root_too: bool = False) -> bytes:
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
                f"{path} {what} by others (mode {stat.S_IMODE(found.st_mode):04o})",
                remedy=f"Where that is the file you mean, run: chmod 600 {path}",
            )
        with os.fdopen(fd, "rb", closefd=False) as file:
            content = file.read(LARGEST + 1)
    finally:
        os.close(fd)
    if len(content) > LARGEST:
        raise SetupError(f"{path} is larger than {LARGEST:,} bytes", remedy="Name a file of keys.")
    return content


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(path: Path, error: OSError) -> SetupError:
    return SetupError(f"{path} cannot be used ({error.strerror})", remedy="Name another place, or mend this one.")
