"""Files that survive a crash, files that another person may have made, and a server's TOML file.

A file is written completely or not at all: fsync, then an atomic replacement. The error of a full disk says so.
"""

from __future__ import annotations

import errno
import importlib
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import DataFormatError, OptionError, SetupError, TransportError

# Error numbers of the kernel for a full disk, an exhausted quota and the maximum size of a file.
NO_SPACE_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class NotRegularError(OSError):
    """A path is not that of a regular file: it is a link, a folder, a pipe or a device, or in a folder by a link."""


def open_regular(path: Path, below: Path | None = None) -> int:
    """Open a regular file for reading, and return its descriptor; never wait for it, as for a pipe or a device.

    With ``below``, a folder above the file, no folder between the two may be a link. Raises NotRegularError, OSError.
    """
    *folders, name = path.relative_to(path.parent if below is None else below).parts
    folder = os.open(path.parent if below is None else below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for one in folders:
            _require(stat.S_ISDIR, os.stat(one, dir_fd=folder, follow_symlinks=False), path)
            inner = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # first, because the open alone of a device may have an effect
        _require(stat.S_ISREG, os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _require(stat.S_ISREG, os.fstat(found), path)
    except BaseException:
        os.close(found)
        raise
    return found


def _require(is_kind: Callable[[int], bool], found: os.stat_result, path: Path) -> None:
    if not is_kind(found.st_mode):
        raise NotRegularError(
            errno.EINVAL, "it is not a regular file, or a folder on the way to it is a link", str(path)
        )


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises NotRegularError, and OSError, also for more than ``max_bytes``."""
    with open(open_regular(path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EMSGSIZE, f"it has {size} bytes, limit {max_bytes} bytes", str(path))
        return file.read(size) or b""


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``; one system call suffices unless it writes less. Raises OSError."""
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def sync_folder(folder: Path) -> None:
    """Make created, replaced and removed names in ``folder`` durable (fsync). Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, draft_suffix: str = ".new", sync: bool = True) -> None:
    """Replace ``path`` by ``data`` atomically, with mode 0600: readers see the old or the new content. Raises OSError.

    After a crash the file has the old or the new content, too, unless ``sync`` is False. Concurrent writers need
    different values of ``draft_suffix``: it names the temporary file in the same folder.
    """
    draft = path.with_name(path.name + draft_suffix)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            write_at(descriptor, data, 0)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def is_no_space(error: BaseException) -> bool:
    """Whether an error of :func:`write_failed` says that the disk has no room."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE_ERRNOS


def write_failed(path: Path, error: OSError) -> TransportError:
    """Return the error to raise after a failed write of ``path``, with a remedy for its error number."""
    if error.errno in NO_SPACE_ERRNOS:
        remedy = "Free some space on this disk, purge or delete a stream, or shorten a retention; then try again"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "Raise the server's limit of open files (ulimit -n), or let fewer tasks write at the same time"
    else:
        remedy = "Check the disk and its file system, then restart the server"
    return TransportError(f"{path} cannot be written: {error.strerror or error}", remedy=remedy)


SERVER_TABLE: Final = "server"
_TOML: Final = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # the same module; in Python since 3.11


def read_toml(path: Path) -> dict[str, object]:
    """Return the options in a server's TOML file: at its top, or in the table ``[server]``.

    Raises SetupError if the file cannot be read, DataFormatError if it is not TOML, OptionError for other tables.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}", remedy="Check its path and its mode.") from None
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path} is not UTF-8: {error.reason}", remedy="Write it as UTF-8.") from None
    toml: Any = importlib.import_module(_TOML)
    try:
        document: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise DataFormatError(f"{path} is not TOML: {error}", remedy="For example: maxConnections = 100") from None
    return _options_in(document, path)


def _options_in(document: dict[str, Any], path: Path) -> dict[str, object]:
    table = document.get(SERVER_TABLE, {})
    if not isinstance(table, dict):
        raise OptionError(
            f"{path}: {SERVER_TABLE} is a value, expected a table", remedy=f"Write [{SERVER_TABLE}] above the options."
        )
    top = {name: value for name, value in document.items() if name != SERVER_TABLE}
    duplicates = sorted(top.keys() & table.keys())
    if duplicates:
        raise OptionError(
            f"{path}: option {duplicates[0]} is given twice, at the top and in [{SERVER_TABLE}]", remedy="Give it once."
        )
    options = {**top, **table}
    for name, value in options.items():
        if isinstance(value, dict):
            raise OptionError(
                f"{path} has an unknown table [{name}]",
                remedy=f"Write the options at the top of the file or in [{SERVER_TABLE}].",
            )
    return options
