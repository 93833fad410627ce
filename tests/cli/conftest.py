"""The command line as a user starts it, and nodes that are gone afterwards."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from tests.leaks import SHARED_MEMORY

CONNECTOR = Path(__file__).resolve().parents[2] / "connector"


@dataclass(frozen=True)
class Said:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects of its output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: str, **environ: str) -> Said:
    """Run ``aeron-spark`` with ``arguments`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "aeron_spark", *arguments],
        env={**os.environ, "PYTHONPATH": str(CONNECTOR), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Piped:
    """What a command left that was given bytes and gave bytes."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects of its output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def pipe(given: bytes, *arguments: str) -> Piped:
    """Run ``aeron-spark`` with ``arguments`` and ``given`` on its standard input."""
    with begin(*arguments) as process:
        out, err = process.communicate(given, timeout=120)
    return Piped(process.returncode, out, err.decode())


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """Start ``aeron-spark`` with pipes on all sides."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "aeron_spark", *arguments],
        env={**os.environ, "PYTHONPATH": str(CONNECTOR)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def shared(run_name: str) -> Iterator[Path]:
    """A node of the module's own, with small terms and segments; each test has a stream id of its own there."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    settings = {"term_length": "64k", "ipc_term_length": "64k", "segment_length": "64k"}
    with node.ensure(aeron_dir, **settings) as handle:
        yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=30)
    shutil.rmtree(aeron_dir, ignore_errors=True)
    shutil.rmtree(Path(handle.archive_dir).parent, ignore_errors=True)


@pytest.fixture
def own(aeron_dir: Path) -> Iterator[Path]:
    """The directory of a node that the test may start and forget."""
    yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=10)
    shutil.rmtree(aeron_dir, ignore_errors=True)
