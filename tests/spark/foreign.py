"""Programs that never heard of this package: those that ship in Aeron's own jar, each in a process of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.waiting import poll_until

ROOT: Final = Path(__file__).resolve().parents[2]
JAR: Final = next((ROOT / "connector" / "aeron_spark" / "jars").glob("aeron-all-*.jar"), Path("aeron-all.jar"))
JAVA: Final = (
    "java",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx128m",
)
TIMEOUT_S: Final = 120.0  # of actions that are fast on an idle machine


class Program:
    """A running sample; ``output`` is what it printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until it printed something that matches."""

        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.output)
            if match is None and self.process.poll() is not None:
                raise AssertionError(
                    f"the program ended ({self.process.returncode}) without {pattern!r}: {self.output}"
                )
            return match

        return poll_until(found, TIMEOUT_S, f"a program to say {pattern!r}", state=lambda: self.output[-500:])


@contextmanager
def program(place: Path, main: str, aeron_dir: Path | str, **properties: object) -> Iterator[Program]:
    """Run one class of Aeron's jar while the block lasts; ``a__b`` is the property ``aeron.a.b``."""
    log = place / f"{main.rpartition('.')[2]}-{len(list(place.iterdir()))}.log"
    given = [f"-Daeron.{name.replace('__', '.')}={value}" for name, value in properties.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*JAVA, "-cp", str(JAR), f"-Daeron.dir={aeron_dir}", *given, f"io.aeron.{main}"],
            stdin=subprocess.PIPE,  # some ask whether to go on: nobody answers, so that they stay until they are ended
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ,
        )
        try:
            yield Program(process, log)
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=30)
            assert process.stdin is not None
            process.stdin.close()


def sample(
    place: Path, name: str, aeron_dir: Path | str, channel: str, stream_id: int, **more: object
) -> AbstractContextManager[Program]:
    """Run a sample of ``io.aeron.samples`` on a stream."""
    return program(place, f"samples.{name}", aeron_dir, sample__channel=channel, sample__streamId=stream_id, **more)


def free_port() -> int:
    """Return a UDP port that nobody has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
