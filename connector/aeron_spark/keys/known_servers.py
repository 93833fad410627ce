"""The file of a client's known servers: ``host port key [comment]`` per line; ``#`` begins a comment line.

Hosts are canonical. A server over shared memory has the host ``ipc:`` with the media driver's directory, and port 0. A
change adds or removes one line; all other lines stay unchanged, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError
from aeron_spark.keys import key_files
from aeron_spark.protocol.access import ServerName, server_key_changed
from aeron_spark.protocol.keypair import parse_public, public_text
from aeron_spark.transport.addresses import canonical_host
from aeron_spark.transport.endpoint_channels import server_address

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
        with key_files.only_writer(self.path):
            known = self.key(server)
            if known == key:
                return False
            if known is not None:
                raise server_key_changed(server, known, key)
            before = self._content()
            if before and not before.endswith(b"\n"):
                before += b"\n"
            line = f"{server.host} {server.port} {public_text(key)} {comment.strip()}".rstrip()
            key_files.replace(self.path, before + line.encode() + b"\n")
        return True

    def forget(self, server: ServerName) -> bool:
        """Remove ``server``. Return False, without a change of the file, if it is unknown.

        Wrong lines are not an error here, so that the user can correct the file.
        """
        with key_files.only_writer(self.path):
            content = self._content()
            lines = list(_lines(content))
            others = [line for line in lines if not _is_of(line, server)]
            if len(others) == len(lines):
                return False
            key_files.replace(self.path, b"".join(others))
        return True

    def _content(self) -> bytes:
        return key_files.read_public(self.path) or b""

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
