"""The demo, as ``make demo`` runs it, with fewer flights; the whole of them is `make demo` itself."""

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
from tests.e2e.processes import ROOT
from tests.leaks import SHARED_MEMORY
from tests.waiting import poll_until

TIMEOUT_S: Final = 580.0  # the demo takes one minute on an idle machine
PNG: Final = b"\x89PNG\r\n\x1a\n"


pytestmark = pytest.mark.full("`make demo` runs the whole of it; tests/unit/demo has its parts")


class Demo:
    """A running demo; all it makes in temporary folders is in ``place``."""

    def __init__(self, place: Path, *arguments: str, **environ: str) -> None:
        self.temporary = place / "temporary"
        self.temporary.mkdir()
        self.picture = place / "pictures" / "flights.png"
        self.printed = place / "printed"
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

    def end(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def await_line(self, words: str) -> None:
        poll_until(
            lambda: any(words in line for line in self.lines) or self.process.poll() is not None,
            TIMEOUT_S,
            f"the demo to say {words!r}",
            state=lambda: "\n".join(self.lines),
        )

    def left(self) -> list[str]:
        """What is left of it in its temporary folder and in shared memory, and of its network."""
        ours = f"aeron-spark-demo-{self.process.pid}-*"
        places = (*self.temporary.glob("aeron-spark-demo-*"), *SHARED_MEMORY.glob(ours), *NAMED.glob(ours))
        return [str(path) for path in places]

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(TIMEOUT_S)


def test_the_demo_ends_with_what_it_counted(tmp_path: Path) -> None:
    with Demo(tmp_path, "--rows", "3000", "--seconds", "2") as demo:
        code = demo.end()
        assert code == 0, "\n".join(demo.lines)
        result = "3000 rows in, 3000 rows out, 0 lost, 0 repeated"
        assert demo.lines[-2:] == [f"demo act two ok: {result}", f"demo ok: {result}"]
        assert f"Flights, compared row by row: {result}" in demo.lines
        assert any("micro-batches" in line for line in demo.lines)
        assert any("rows/s" in line for line in demo.lines)
        assert any("2013-07" in line for line in demo.lines), "the table of months"
        assert demo.picture.read_bytes().startswith(PNG)
        (second,) = [line for line in demo.lines if line.startswith("Second act: ")]
        seen = next(line for line in demo.lines if line.startswith("The server sees the sender at "))
        if why_not():
            assert "over loopback, without NAT" in second
            assert " at 127.0.0.1:" in seen
        else:
            assert "behind NAT" in second
            assert " at 203.0.113.254:" in seen, "the router's address, and not the client's own"
        assert demo.left() == []


@pytest.mark.parametrize(
    ("act", "number", "words"),
    [
        ("one", signal.SIGTERM, "starting a plain Aeron subscriber"),
        ("one", signal.SIGINT, "starting the process that publishes"),
        ("two", signal.SIGTERM, "The server sees the sender"),
    ],
)
def test_a_demo_that_is_stopped_leaves_nothing(tmp_path: Path, act: str, number: signal.Signals, words: str) -> None:
    with Demo(tmp_path, "--rows", "3000", "--seconds", "600", "--act", act) as demo:
        demo.await_line(words)
        demo.process.send_signal(number)
        assert demo.end() == 130, "\n".join(demo.lines)
        assert demo.lines[-1] == "demo stopped"
        assert demo.left() == []


def test_a_demo_whose_producer_is_killed_fails_and_leaves_nothing(tmp_path: Path) -> None:
    with Demo(tmp_path, "--rows", "3000", "--seconds", "600") as demo:
        demo.await_line("It publishes some flights first")
        (producer,) = [
            child for child in psutil.Process(demo.process.pid).children() if "demo.producer" in child.cmdline()
        ]
        producer.kill()
        assert demo.end() == 1, "\n".join(demo.lines)
        assert demo.lines[-1].startswith("demo failed: the producer ended with exit code -9")
        assert demo.left() == []
