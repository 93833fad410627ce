"""The command line, in this process or in one of its own, and nodes that are gone afterwards."""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.aeron import client as clients
from aeron_spark.cli.main import main
from aeron_spark.direct import archives, publisher
from aeron_spark.process_cache import ProcessCache
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


def run(*arguments: str, **environ: str) -> Said:
    """Run ``aeron-spark`` with ``arguments`` in this process, which has a JVM already."""
    done = pipe(b"", *arguments, **environ)
    return Said(done.code, done.out.decode(), done.err)


def pipe(given: bytes, *arguments: str, **environ: str) -> Piped:
    """Run ``aeron-spark`` with ``arguments`` in this process, with ``given`` on its standard input."""
    out, err = io.BytesIO(), io.BytesIO()
    kept = what_is_kept()
    with pytest.MonkeyPatch.context() as changed, standard_input(given), warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, value in environ.items():
            changed.setenv(name, value)
        changed.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
        changed.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True))
        try:
            code = main(arguments)
        finally:
            end_of_process(kept)
            said = out.getvalue(), err.getvalue().decode()
    return Piped(code, *said)


@contextmanager
def standard_input(given: bytes) -> Iterator[None]:
    """Let descriptor 0 be a file of these bytes: commands read it below Python's own ``sys.stdin``."""
    before = os.dup(0)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(given)
            file.seek(0)
            os.dup2(file.fileno(), 0)
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


Kept = tuple[frozenset[object], frozenset[object], frozenset[object]]


def what_is_kept() -> Kept:
    """Return which publications, clients and nodes this process keeps now: fixtures of other tests use them."""
    return publisher.PUBLICATIONS.cached_keys(), clients.CLIENTS.cached_keys(), archives.HELD_NODES.cached_keys()


def end_of_process(before: Kept) -> None:
    """Give back what a command keeps until its process ends: publications, clients with their sessions, nodes."""
    caches: tuple[ProcessCache[Any, Any], ...] = (publisher.PUBLICATIONS, clients.CLIENTS, archives.HELD_NODES)
    for cache, was in zip(caches, before, strict=True):
        for key in cache.cached_keys() - was:
            cache.take(key).close()


def run_program(*arguments: str, **environ: str) -> Said:
    """Run ``aeron-spark`` with ``arguments`` in a process of its own, as a user does."""
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
