"""The demo as ``make demo`` runs it, with fewer flights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from demo.namespaces import NAMED, why_not
from tests.leaks import SHARED_MEMORY
from tests.programs import ROOT
from tests.waiting import poll_until

TIMEOUT_S: Final = 580.0  # the demo takes one minute on an idle machine
PNG: Final = b"\x89PNG\r\n\x1a\n"


pytestmark = pytest.mark.full("`make demo` runs the whole demo; tests/unit/demo has its parts")


class Demo:
    """A running demo; its temporary folders are in ``folder``."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.picture = folder / "pictures" / "flights.png"
        self.printed = folder / "printed"
        with self.printed.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "demo", "--picture", str(self.picture), *arguments],
                cwd=ROOT,
                env=os.environ | {"TMPDIR": str(self.temporary), **environ},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def lines(self) -> list[str]:
        return self.printed.read_text().splitlines()

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def await_line(self, words: str) -> None:
        poll_until(
            lambda: any(words in line for line in self.lines) or self.process.poll() is not None,
            TIMEOUT_S,
            f"the demo to print {words!r}",
            state=lambda: "\n".join(self.lines),
        )

    def leaks(self) -> list[str]:
        """Return the demo's remaining files in its temporary folder, shared memory and network namespaces."""
        pattern = f"aeron-spark-demo-{self.process.pid}-*"
        paths = (*self.temporary.glob("aeron-spark-demo-*"), *SHARED_MEMORY.glob(pattern), *NAMED.glob(pattern))
        return [str(path) for path in paths]

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(TIMEOUT_S)


def test_the_demo_ends_with_the_result_of_its_comparison(tmp_path: Path) -> None:
    with Demo(tmp_path, "--rows", "3000", "--seconds", "2") as demo:
        code = demo.wait()
        assert code == 0, "\n".join(demo.lines)
        result = "3000 rows in, 3000 rows out, 0 lost, 0 repeated"
        assert demo.lines[-2:] == [f"demo act two ok: {result}", f"demo ok: {result}"]
        assert f"Flights, compared row by row: {result}" in demo.lines
        assert any("micro-batches" in line for line in demo.lines)
        assert any("rows/s" in line for line in demo.lines)
        assert any("2013-07" in line for line in demo.lines), "the table of months"
        assert demo.picture.read_bytes().startswith(PNG)
        (act_two,) = [line for line in demo.lines if line.startswith("Second act: ")]
        address_line = next(line for line in demo.lines if line.startswith("The server sees the sender at "))
        if why_not():
            assert "over loopback, without NAT" in act_two
            assert " at 127.0.0.1:" in address_line
        else:
            assert "behind NAT" in act_two
            assert " at 203.0.113.254:" in address_line, "it is not the router's address"
        assert demo.leaks() == []


@pytest.mark.parametrize(
    ("act", "number", "words"),
    [
        ("one", signal.SIGTERM, "starting a plain Aeron subscriber"),
        ("one", signal.SIGINT, "starting the process that publishes"),
        ("two", signal.SIGTERM, "The server sees the sender"),
    ],
)
def test_a_stopped_demo_leaves_no_files(tmp_path: Path, act: str, number: signal.Signals, words: str) -> None:
    with Demo(tmp_path, "--rows", "3000", "--seconds", "600", "--act", act) as demo:
        demo.await_line(words)
        demo.process.send_signal(number)
        assert demo.wait() == 130, "\n".join(demo.lines)
        assert demo.lines[-1] == "demo stopped"
        assert demo.leaks() == []


def test_a_demo_with_a_killed_producer_fails_and_leaves_no_files(tmp_path: Path) -> None:
    with Demo(tmp_path, "--rows", "3000", "--seconds", "600") as demo:
        demo.await_line("It publishes some flights first")
        (producer,) = [
            child for child in psutil.Process(demo.process.pid).children() if "demo.producer" in child.cmdline()
        ]
        producer.kill()
        assert demo.wait() == 1, "\n".join(demo.lines)
        assert demo.lines[-1].startswith("demo failed: the producer ended with exit code -9")
        assert demo.leaks() == []
