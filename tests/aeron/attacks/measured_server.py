"""``aeron-spark server`` in a process whose memory is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

import aeron_spark
from aeron_spark import node
from aeron_spark.client.client import Client
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.protocol.keypair import public_text
from tests.nodes import new_aeron_dir
from tests.server_processes import ServerProcess

# Java's heap, which has a bound, is resident from the start.
RESIDENT_HEAP: Final = {"JAVA_TOOL_OPTIONS": "-XX:+AlwaysPreTouch"}
TIMEOUT_S: Final = 60.0


@contextmanager
def separate_nodes(run_name: str, count: int, **settings: Any) -> Iterator[list[NodeHandle]]:
    """Start so many nodes, and stop them at the end of the ``with`` block."""
    directories = [new_aeron_dir(run_name) for _ in range(count)]
    try:
        with ExitStack() as stack:
            yield [stack.enter_context(node.ensure(directory, **settings)) for directory in directories]
    finally:
        for directory in directories:
            node.stop(directory, force=True, timeout=20)


class MeasuredServer(ServerProcess):
    """A server on ``own_node``, with files in ``folder``, and a key for good clients, which use ``clients_node``.

    ``clients`` has further lines of its clients file.
    """

    def __init__(self, own_node: NodeHandle, clients_node: NodeHandle, folder: Path, clients: str = "") -> None:
        self._folder, self._clients_node = folder, clients_node
        file = folder / "clients"
        good = ensure_identity(folder / "good")
        file.write_text(f"streams=*:all partitions=20000 name=good {public_text(good.public)}\n{clients}")
        file.chmod(0o600)
        options = ("--authorized-keys", str(file), "--max-partitions", "20000")
        super().__init__(own_node.aeron_dir, folder, *options, **RESIDENT_HEAP)
        self.start()

    def connect(self) -> Client:
        """Connect as the good client."""
        return aeron_spark.connect(
            self.address, identity=str(self._folder / "good"), aeron_dir=self._clients_node.aeron_dir,
            trust_first_use=True, known_servers=str(self._folder / "known"),
        )  # fmt: skip

    def memory(self) -> int:
        """Return the resident bytes of the server's process."""
        return memory_of(self.process.pid)

    def close(self) -> None:
        """End the server."""
        self.stop(TIMEOUT_S)


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process, without shared memory: the logs of its links, which the driver frees."""
    memory = psutil.Process(pid).memory_info()
    return int(memory.rss - memory.shared)
