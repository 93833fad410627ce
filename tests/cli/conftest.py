"""Runs the command line in this process or in a separate one, and provides nodes that end with the tests."""

from __future__ import annotations

import io
import json
import os
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
from aeron_spark.direct import archive_recordings, writing
from aeron_spark.process import ProcessCache
from aeron_spark.streams import archive_mark
from tests.aeron.ended import check_ended_endpoints, ended_endpoints
from tests.aeron.streams import own_node
from tests.cli.running_servers import home_of
from tests.ports import free_ports
from tests.programs import python_environ

__all__ = ["check_ended_endpoints", "ended_endpoints"]


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects of its output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class BytesResult:
    """Exit code of a command, its output as bytes, and its errors as text."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects of its output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: str, **environ: str) -> Result:
    """Run ``aeron-spark`` with ``arguments`` in this process, which shares its JVM with other tests."""
    done = pipe(b"", *arguments, **environ)
    return Result(done.code, done.out.decode(), done.err)


def pipe(input_bytes: bytes, *arguments: str, **environ: str) -> BytesResult:
    """Run ``aeron-spark`` with ``arguments`` in this process, with ``input_bytes`` as standard input."""
    out, err = io.BytesIO(), io.BytesIO()
    before = cached_keys()
    with pytest.MonkeyPatch.context() as changed, standard_input(input_bytes), warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, value in environ.items():
            changed.setenv(name, value)
        changed.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
        changed.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True))
        try:
            code = main(arguments)
        finally:
            close_new_entries(before)
            output = out.getvalue(), err.getvalue().decode()
    return BytesResult(code, *output)


@contextmanager
def standard_input(input_bytes: bytes) -> Iterator[None]:
    """Replace file descriptor 0, which commands read directly, by a file with these bytes."""
    before = os.dup(0)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(input_bytes)
            file.seek(0)
            os.dup2(file.fileno(), 0)
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


CachedKeys = tuple[frozenset[object], frozenset[object], frozenset[object]]


def cached_keys() -> CachedKeys:
    """Return the keys of the publications, clients and nodes that this process has cached for other tests."""
    caches = (writing.PUBLICATIONS, clients.CLIENTS, archive_recordings.HELD_NODES)
    publications, aeron_clients, nodes = (cache.cached_keys() for cache in caches)
    return publications, aeron_clients, nodes


def close_new_entries(before: CachedKeys) -> None:
    """Close the publications, clients and nodes that a command cached, as the end of its process would."""
    caches: tuple[ProcessCache[Any, Any], ...] = (writing.PUBLICATIONS, clients.CLIENTS, archive_recordings.HELD_NODES)
    for cache, was in zip(caches, before, strict=True):
        for key in cache.cached_keys() - was:
            cache.take(key).close()


def run_program(*arguments: str, **environ: str) -> Result:
    """Run ``aeron-spark`` with ``arguments`` in a separate process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "aeron_spark", *arguments],
        env=python_environ(**environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def begin(*arguments: str, **environ: str) -> subprocess.Popen[bytes]:
    """Start ``aeron-spark`` with pipes for its input, output and errors."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "aeron_spark", *arguments],
        env=python_environ(**environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="session")
def worker_node(run_name: str) -> Iterator[node.NodeHandle]:
    """A node of this worker's tests, with small terms and segments.

    Workers do not share it, because a driver has one server for IPC.
    """
    with own_node(run_name, term_length="64k", ipc_term_length="64k", segment_length="64k") as handle:
        yield handle


@pytest.fixture(scope="module")
def shared(worker_node: node.NodeHandle) -> Iterator[Path]:
    """The directory of a node for the tests of a module. Each test uses other stream ids.

    A server's store beside the archive is empty before the module, and removed after it.
    """
    yield Path(worker_node.aeron_dir)
    shutil.rmtree(f"{worker_node.archive_dir}.streams", ignore_errors=True)
    shutil.rmtree(Path(worker_node.archive_dir) / archive_mark.MARKS_FOLDER, ignore_errors=True)


@pytest.fixture
def address() -> str:
    """A loopback address for a server, without a control port."""
    return f"127.0.0.1:{free_ports()[0]}"


@pytest.fixture
def client(tmp_path: Path, shared: Path) -> dict[str, str]:
    """The environment of a client with its own keys, on the media driver of the server."""
    return home_of(tmp_path / "client", shared)
