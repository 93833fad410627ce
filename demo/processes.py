"""The processes and folders of the demo, which end or are removed with it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark import node
from demo import DemoError

SHARED_MEMORY: Final = Path("/dev/shm")
END_TIMEOUT_S: Final = 15.0  # for a process to end after SIGTERM


@contextmanager
def demo_folder() -> Iterator[tuple[Path, str]]:
    """Make a folder and run a node for this demo. Yield the folder and the media driver's directory."""
    folder = Path(tempfile.mkdtemp(prefix="aeron-spark-demo-"))
    os.environ["AERON_SPARK_DATA_HOME"] = str(folder / "node")  # later processes inherit it
    os.environ["AERON_SPARK_CONFIG_HOME"] = str(folder / "config")
    try:
        with aeron_directory("direct") as aeron_dir, node.ensure(aeron_dir) as handle:
            yield folder, handle.aeron_dir
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def aeron_directory(name: str) -> Iterator[str]:
    """Yield a new directory for a media driver in shared memory. The server or the sender starts the driver.

    At the end the driver is stopped and the directory removed.
    """
    memory = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    aeron_dir = memory / f"aeron-spark-demo-{os.getpid()}-{secrets.token_hex(3)}-{name}"
    try:
        yield str(aeron_dir)
    finally:
        node.stop(aeron_dir, force=True)
        shutil.rmtree(aeron_dir, ignore_errors=True)


class Process:
    """A process whose output goes to a file; it ends with the ``with`` block."""

    def __init__(self, name: str, command: Sequence[str | Path], output: Path) -> None:
        self.name = name
        self.output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT)

    def lines(self) -> list[str]:
        """Return the complete lines that it has written so far."""
        return self.output.read_text(errors="replace").rpartition("\n")[0].splitlines()

    def has_ended(self) -> bool:
        """Return whether it has ended. Raises DemoError with its last lines if it failed."""
        code = self._process.poll()
        if code:
            raise DemoError(f"{self.name} ended with exit code {code}: {' | '.join(self.lines()[-3:])}")
        return code is not None

    def close_input(self) -> None:
        """Close its standard input: it waits for this before it sends the rest of the flights."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Terminate it if it still runs; kill it if it does not end in time."""
        self._process.terminate()
        self.close_input()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
