"""The demo's own processes, and the places it works in: all gone at the end, however it comes."""

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
from demo import Failed

SHARED_MEMORY: Final = Path("/dev/shm")
PATIENCE: Final = 15.0  # seconds for a process to end when it is told to


@contextmanager
def workshop() -> Iterator[tuple[Path, str]]:
    """Make a folder, run a media driver with archive for this demo alone, and yield the folder and its directory."""
    place = Path(tempfile.mkdtemp(prefix="aeron-spark-demo-"))
    os.environ["AERON_SPARK_DATA_HOME"] = str(place / "node")  # whatever is started later inherits it
    os.environ["AERON_SPARK_CONFIG_HOME"] = str(place / "config")
    try:
        with aeron_directory("direct") as aeron_dir, node.ensure(aeron_dir) as handle:
            yield place, handle.aeron_dir
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def aeron_directory(name: str) -> Iterator[str]:
    """Yield a new directory for a media driver in shared memory; whoever first uses it starts the driver.

    In the end the driver is stopped, and the directory removed.
    """
    memory = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    aeron_dir = memory / f"aeron-spark-demo-{os.getpid()}-{secrets.token_hex(3)}-{name}"
    try:
        yield str(aeron_dir)
    finally:
        node.stop(aeron_dir, force=True)
        shutil.rmtree(aeron_dir, ignore_errors=True)


class Process:
    """A process that writes to a file; it ends with the ``with`` block."""

    def __init__(self, name: str, command: Sequence[str | Path], output: Path) -> None:
        self.name = name
        self.output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT)

    def lines(self) -> list[str]:
        """Return the whole lines it has written so far."""
        return self.output.read_text(errors="replace").rpartition("\n")[0].splitlines()

    def ended(self) -> bool:
        """Whether it ended well; raise Failed with its last words where it failed."""
        code = self._process.poll()
        if code:
            raise Failed(f"{self.name} ended with exit code {code}: {' | '.join(self.lines()[-3:])}")
        return code is not None

    def go_on(self) -> None:
        """Let it go on: it reads to the end of its standard input, and waits there."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it, if it has not ended yet."""
        self._process.terminate()
        self.go_on()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
