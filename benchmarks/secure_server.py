"""Runs ``aeron-spark server`` on the node of the run, with its default settings, and creates streams on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aeron_spark.keys.stores import ensure_identity
from aeron_spark.protocol.keypair import public_text
from benchmarks.environment import Environment
from benchmarks.measure import ROOT
from benchmarks.programs import await_end

PORT: Final = 21590  # data port; the control port is the next one
MAX_CONNECTIONS: Final = 200  # of the key of all clients
SERVER_START_S: Final = 300.0
COMMAND_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class SecureServer:
    """A running server. ``connection`` has the options of the connector that lead to it."""

    pid: int
    connection: dict[str, str]
    env: Environment

    def new_stream(self, partitions: int = 1) -> str:
        """Create a new stream with the command line, and return its name."""
        name = f"bench-{self.env.new_stream_id()}"
        subprocess.run(
            [
                *self.command("streams", "create", name, "--partitions", str(partitions)),
                "--server", self.connection["server"], *self.flags(),
            ],
            check=True, stdout=subprocess.DEVNULL, timeout=COMMAND_S, cwd=ROOT,
        )  # fmt: skip
        return name

    def options(self, stream: str, **more: object) -> dict[str, str]:
        """Return the options of the connector for a stream."""
        return {**self.connection, "stream": stream, **{name: str(value) for name, value in more.items()}}

    def new_stream_options(self, **more: object) -> dict[str, str]:
        """Create a new stream, and return the options for it."""
        return self.options(self.new_stream(), **more)

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """Return the command line of ``aeron-spark`` in this Python."""
        return [sys.executable, "-m", "aeron_spark", *arguments]

    def flags(self) -> list[str]:
        """Return the flags of a command that connects to the server, without its address."""
        names = {"--identity": "identity", "--server-key": "serverKey", "--aeron-dir": "aeronDir"}
        return [part for flag, name in names.items() for part in (flag, self.connection[name])]


@contextmanager
def run_server(env: Environment, name: str) -> Iterator[SecureServer]:
    """Run a server on the environment's node, with its files in a folder of this name; stop it at the end.

    Its settings are the defaults, but for the rate of handshakes and the number of connections: all clients have one
    address and one key here.
    """
    folder = env.folder / name
    folder.mkdir()
    key = public_text(ensure_identity(folder / "server.key").public)
    client = public_text(ensure_identity(folder / "client.key").public)
    authorized_keys = folder / "authorized_keys"
    authorized_keys.write_text(f"all name=benchmarks connections={MAX_CONNECTIONS} {client}\n")
    address = f"127.0.0.1:{PORT}:{PORT + 1}"
    command = SecureServer.command(
        "server", address, "--aeron-dir", env.node.aeron_dir, "--identity", str(folder / "server.key"),
        "--authorized-keys", str(authorized_keys), "--streams-dir", str(folder / "streams"),
        "--handshakes-per-second", "0",
    )  # fmt: skip
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=os.environ)
    killer = threading.Timer(SERVER_START_S, process.kill)
    killer.start()
    assert process.stdout is not None
    try:
        if not any(line.startswith("listening") for line in iter(process.stdout.readline, "")):
            raise RuntimeError(
                f"the server exited with {process.wait()} before it listened (killed after {SERVER_START_S:g} s): "
                f"{(folder / 'server.log').read_text()}"
            )
        killer.cancel()
        connection = {
            "server": address, "identity": str(folder / "client.key"), "serverKey": key,
            "aeronDir": env.node.aeron_dir,
        }  # fmt: skip
        yield SecureServer(process.pid, connection, env)
    finally:
        killer.cancel()
        process.terminate()
        await_end(process)
        process.stdout.close()
