"""Files that other users must not read or change, and a client's file of known servers.

Hosts are canonical. A server over shared memory has the host ``ipc:`` with the media driver's directory, and port 0. A
change adds or removes one line; all other lines stay unchanged, byte for byte.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, SetupError, WaitTimeout
from aeron_spark.files import replace_file, sync_folder
from aeron_spark.protocol.access import ServerName, server_key_changed
from aeron_spark.protocol.keypair import parse_public, public_text
from aeron_spark.protocol.noise import derive_psk
from aeron_spark.transport.addresses import canonical_host
from aeron_spark.transport.endpoint_channels import server_address

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


IPC: Final = "ipc:"


@dataclass(frozen=True, slots=True)
class KnownServer:
    """One server with its key, a line of the file."""

    server: ServerName
    key: bytes
    comment: str = ""


def network_server(host: str, port: int) -> ServerName:
    """Return the name of a server on the network. Raises OptionError for an invalid host or port."""
    try:
        if not 0 < port <= 65535:
            raise ValueError(f"has the port {port}, expected 1 to 65535")
        canonical = canonical_host(host.removeprefix("[").removesuffix("]"))
        if not re.fullmatch("[!-~]+", canonical):
            raise ValueError("has a zone that is not the name of an interface")
        return ServerName(canonical, port)
    except ValueError as error:
        raise OptionError(f"the server {host}:{port} {error}", remedy="Write host:port.") from None


def ipc_server(aeron_dir: Path) -> ServerName:
    """Return the name of the server over the shared memory of the media driver in ``aeron_dir``."""
    return ServerName(IPC + quote(str(aeron_dir)), 0)


def parse_server(text: str) -> ServerName:
    """Parse an address as clients take it: ``host:port``, ``host:port:control``, ``[ipv6]:port`` or ``ipc:DIRECTORY``.

    The control port is no part of the name. Raises OptionError for other texts.
    """
    if text.startswith(f"{IPC}/"):
        return ipc_server(Path(unquote(text[len(IPC) :])))
    if text == IPC:
        raise OptionError(
            f"the server {text!r} has no directory",
            remedy="Write the media driver's directory, as 'aeron-spark node status' shows it: ipc:/dev/shm/NAME",
        )
    try:
        address = server_address(text).address
    except OptionError as error:
        raise OptionError(f"the server {text!r} is not valid: {error.what}", remedy=error.remedy) from None
    return network_server(address.host, address.data_port)


class KnownServers:
    """The known servers in one file. Each call reads the file, because another process may have changed it."""

    def __init__(self, path: Path) -> None:
        # Resolve a link, so that a replacement does not replace the link by a file.
        self.path = path.resolve()

    def all(self) -> Mapping[ServerName, KnownServer]:
        """Return the servers in the order of the file. Raises DataFormatError with the number of a wrong line."""
        found: dict[ServerName, KnownServer] = {}
        for number, line in enumerate(_lines(self._content()), 1):
            entry = self._entry(number, line)
            if entry is None:
                continue
            if entry.server in found:
                raise self._wrong(number, f"names {entry.server} again", "Remove one of the lines.")
            found[entry.server] = entry
        return found

    def key(self, server: ServerName) -> bytes | None:
        """Return the stored key of ``server``, or None for an unknown server."""
        entry = self.all().get(server)
        return None if entry is None else entry.key

    def trust(self, server: ServerName, key: bytes, comment: str = "") -> bool:
        """Add ``server`` with its key. Return False if it is known with this key already.

        Raises ServerKeyChanged, without a change of the file, if it is known with another key.
        """
        if not comment.isprintable():
            raise OptionError(
                f"the comment {comment!r} has characters that cannot be printed",
                remedy="Write it on one line.",
            )
        with only_writer(self.path):
            known = self.key(server)
            if known == key:
                return False
            if known is not None:
                raise server_key_changed(server, known, key)
            before = self._content()
            if before and not before.endswith(b"\n"):
                before += b"\n"
            line = f"{server.host} {server.port} {public_text(key)} {comment.strip()}".rstrip()
            replace(self.path, before + line.encode() + b"\n")
        return True

    def forget(self, server: ServerName) -> bool:
        """Remove ``server``. Return False, without a change of the file, if it is unknown.

        Wrong lines are not an error here, so that the user can correct the file.
        """
        with only_writer(self.path):
            content = self._content()
            lines = list(_lines(content))
            others = [line for line in lines if not _is_of(line, server)]
            if len(others) == len(lines):
                return False
            replace(self.path, b"".join(others))
        return True

    def _content(self) -> bytes:
        return read_public(self.path) or b""

    def _entry(self, number: int, line: bytes) -> KnownServer | None:
        try:
            return _parse(line)
        except UnicodeDecodeError:
            raise self._wrong(number, "is not UTF-8", "Correct or remove it.") from None
        except AeronSparkError as error:
            raise self._wrong(number, f"is wrong: {error.what}", error.remedy) from None

    def _wrong(self, number: int, fault: str, remedy: str) -> DataFormatError:
        return DataFormatError(f"line {number} of {self.path} {fault}", remedy=remedy)


def _lines(content: bytes) -> Iterator[bytes]:
    return iter(content.splitlines(keepends=True))


def _parse(line: bytes) -> KnownServer | None:
    text = line.decode().strip()
    if not text or text.startswith("#"):
        return None
    words = text.split(None, 3)
    if len(words) < 3:
        raise DataFormatError("it is not 'host port key [comment]'", remedy="Correct or remove it.")
    return KnownServer(_server(words[0], words[1]), parse_public(words[2]), "".join(words[3:]))


def _server(host: str, port: str) -> ServerName:
    if host.startswith(f"{IPC}/") and port == "0":
        return parse_server(host)
    if not re.fullmatch("[0-9]{1,5}", port, re.ASCII):
        raise DataFormatError(f"its port is {port!r}", remedy="Write 'host port key [comment]'.")
    return network_server(host, int(port))


def _is_of(line: bytes, server: ServerName) -> bool:
    """Whether the line is about ``server``, even if its key is wrong."""
    words = line.decode("utf-8", "replace").split(None, 2)
    try:
        return len(words) >= 2 and not words[0].startswith("#") and _server(words[0], words[1]) == server
    except AeronSparkError:
        return False
