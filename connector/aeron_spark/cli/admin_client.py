"""The admin socket of this machine's server, for its commands. Loads neither Aeron nor the options: it is fast."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from aeron_spark import unix_sockets
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    OptionError,
    RefusedError,
    SetupError,
    TransportError,
    WaitTimeout,
)
from aeron_spark.protocol.admin_messages import SOCKET_NAME, decode_response, encode_request
from aeron_spark.texts import NANOS, parse_duration_ns

TIMEOUT_S: Final = 10.0  # for each line of the response
MAX_LINE_BYTES: Final = 64 << 20
FIND_IT: Final = "Start the server, or name it with --config, --streams-dir or --admin-socket"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def admin_options(command: _Command) -> _Command:
    """Add the options by which a command finds the server. ``socket_path`` takes their values."""
    for option in (
        click.option(
            "--admin-socket", metavar="PATH", type=click.Path(path_type=Path), help="The server's admin socket."
        ),
        click.option(
            "--streams-dir", metavar="PATH", type=click.Path(path_type=Path), help="The server's folder of streams."
        ),
        click.option(
            "--config", metavar="FILE", type=click.Path(path_type=Path),
            help="The server's TOML file; its adminSocket, streamsDir and aeronDir find the server.  [default: the "
            "server on this user's node]",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def socket_path(config: Path | None, streams_dir: Path | None, admin_socket: Path | None) -> Path:
    """Return the path of a server's admin socket. Raises OptionError for a wrong configuration file."""
    configured = {} if config is None else read_admin_options(config)
    if admin_socket is not None:
        return admin_socket
    if streams_dir is None and "adminsocket" in configured:
        return Path(configured["adminsocket"])
    folder = streams_dir or configured.get("streamsdir") or _default_store(configured.get("aerondir"))
    return Path(folder) / SOCKET_NAME


def ask(path: Path, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """Execute a command of the server at ``path``, and return its result. Raises as :func:`ask_all`."""
    results = list(ask_all(path, command, arguments, timeout_s))
    if len(results) != 1:
        raise DataFormatError(
            f"the server sent {len(results)} results, expected one", remedy="Use the command of the server's release."
        )
    return results[0]


def ask_all(
    path: Path, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S
) -> Iterator[Mapping[str, Any]]:
    """Execute a command of the server at ``path``, and yield its results.

    Raises the command's error; ConnectError if no server listens there, RefusedError if this user may not connect,
    WaitTimeout if a line does not arrive within ``timeout_s``, DataFormatError for a server of another release.
    """
    with _connect(path, timeout_s) as connected:
        try:
            with suppress(BrokenPipeError):  # the server may have refused already, and its response can be read
                connected.sendall(encode_request(command, arguments or {}))
            for line in _lines(connected, path):
                outcome, has_more = decode_response(line)
                if isinstance(outcome, AeronSparkError):
                    raise outcome
                if outcome is not None:
                    yield outcome
                if not has_more:
                    return
        except TimeoutError as error:
            if isinstance(error, WaitTimeout):
                raise
            raise WaitTimeout(
                f"the server at {path} did not respond within {timeout_s:g} s",
                remedy="Try again. If this repeats, the machine is overloaded or the server is stuck: see its log.",
            ) from None
        except OSError as error:
            raise _ended(path, error.strerror or str(error)) from error
    raise _ended(path, "it ended")


def _connect(path: Path, timeout_s: float) -> socket.socket:
    try:
        return unix_sockets.connect(path, timeout_s)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise ConnectError(f"no server runs at the admin socket {path}", remedy=f"{FIND_IT}.") from None
    except PermissionError:
        raise RefusedError(
            f"this user is not permitted to use the admin socket {path}",
            remedy="Run the command as the server's user, or as root.",
        ) from None
    except OSError as error:  # the backlog of a server that accepts nothing is full
        raise WaitTimeout(
            f"the server at {path} does not accept a connection: {error.strerror or error}",
            remedy="Try again. If this repeats, the server is stuck: see its log.",
        ) from error


def _lines(connected: socket.socket, path: Path) -> Iterator[bytes]:
    with connected.makefile("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                raise _ended(path, f"after {len(line)} bytes of a line")
            yield line


def _ended(path: Path, cause: str) -> TransportError:
    return TransportError(
        f"the server at {path} closed the connection before its response: {cause}",
        remedy="Check whether the server still runs.",
    )


def duration_seconds(flag: str, text: str) -> float:
    """Return a duration such as 1h in seconds. Raises OptionError, with the flag, for another text."""
    try:
        return parse_duration_ns(text) / NANOS
    except ValueError as error:
        raise OptionError(f"{flag} is {text!r}, expected {error}", remedy=f"For example {flag} 1h.") from None


def read_admin_options(config: Path) -> dict[str, str]:
    """Return the options of a TOML file, by their names in lower case without separators."""
    from aeron_spark.files import read_toml

    try:
        options = read_toml(config)
    except (SetupError, DataFormatError) as error:
        raise OptionError(error.what, remedy=error.remedy) from None
    return {name.lower().replace("_", "").replace("-", ""): str(value) for name, value in options.items()}


def _default_store(aeron_dir: str | None) -> str:
    """Return the folder of streams of a server without streamsDir: it is beside the archive of the node."""
    from aeron_spark.node.lifecycle import local_node_paths
    from aeron_spark.node.state_files import read_record

    paths = local_node_paths(aeron_dir, None, os.environ)
    running = read_record(paths.record) if paths.record.exists() else None
    return f"{paths.archive_dir if running is None else running.archive_dir}.streams"
