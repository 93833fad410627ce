"""Runs programs of Aeron's own jar, which do not use this package, each in a separate process."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.programs import JAR
from tests.waiting import poll_until

JAVA: Final = (
    "java",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx128m",
)
TIMEOUT_S: Final = 120.0  # for events that take milliseconds on an idle machine


class Program:
    """A running program of Aeron's jar."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def output(self) -> str:
        """The text that the program has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for_output(self, pattern: str) -> re.Match[str]:
        """Wait until the output of the program matches ``pattern``; return the match."""

        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.output)
            if match is None and self.process.poll() is not None:
                raise AssertionError(
                    f"the program ended ({self.process.returncode}) before it printed {pattern!r}: {self.output}"
                )
            return match

        return poll_until(found, TIMEOUT_S, f"a program to print {pattern!r}", state=lambda: self.output[-500:])


@contextmanager
def run_program(folder: Path, main: str, aeron_dir: Path | str, **properties: object) -> Iterator[Program]:
    """Run the main class ``io.aeron.{main}`` while the block lasts; ``a__b`` sets the property ``aeron.a.b``.

    The program's output goes to a log file in ``folder``.
    """
    log = folder / f"{main.rpartition('.')[2]}-{len(list(folder.iterdir()))}.log"
    settings = [f"-Daeron.{name.replace('__', '.')}={value}" for name, value in properties.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*JAVA, "-cp", str(JAR), f"-Daeron.dir={aeron_dir}", *settings, f"io.aeron.{main}"],
            stdin=subprocess.PIPE,  # never written: some programs wait for a line, and must run until the block ends
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
            process.stdin.close()


def run_sample(
    folder: Path, name: str, aeron_dir: Path | str, channel: str, stream_id: int, **more: object
) -> AbstractContextManager[Program]:
    """Run the program ``io.aeron.samples.{name}`` on a stream while the block lasts."""

    return run_program(
        folder, f"samples.{name}", aeron_dir, sample__channel=channel, sample__streamId=stream_id, **more
    )
