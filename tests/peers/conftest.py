"""The media drivers and archives of these tests: a node, and Aeron's C media driver under Java's archive."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aeron_spark import node as nodes
from aeron_spark.node import NodeHandle
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.waiting import wait_for
from tests.aeron.archives import archive_properties, has_archive
from tests.aeron.streams import close_client, own_node
from tests.nodes import new_aeron_dir
from tests.peers.publishing import DRIVER, TERM_LENGTH, TIMEOUT_S, built
from tests.programs import start_foreign_driver
from tests.spark.conftest import shared_node, spark

__all__ = ["shared_node", "spark"]  # Spark's session, and the node on which it warms up


@pytest.fixture(scope="session")
def java_node(run_name: str) -> Iterator[NodeHandle]:
    """A node as ``aeron-spark node start`` starts it: Java's media driver and archive."""
    with own_node(run_name, term_length=TERM_LENGTH, ipc_term_length=TERM_LENGTH) as handle:
        yield handle


@pytest.fixture(scope="session")
def c_node(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeHandle]:
    """Aeron's C media driver, and a Java archive that is its client."""
    aeron_dir = new_aeron_dir(run_name)
    with _c_driver(aeron_dir) as driver, _archive(aeron_dir, tmp_path_factory.mktemp("archive")):
        with nodes.ensure(aeron_dir) as handle:
            assert (handle.foreign, handle.pid) == (True, driver.pid)
            yield handle
        close_client(aeron_dir)


@contextmanager
def _c_driver(aeron_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = {
        "AERON_DIR": str(aeron_dir),
        "AERON_DIR_DELETE_ON_SHUTDOWN": "true",
        "AERON_THREADING_MODE": "SHARED",
        "AERON_SHARED_IDLE_STRATEGY": "backoff",
        "AERON_TERM_BUFFER_LENGTH": TERM_LENGTH,
        "AERON_IPC_TERM_BUFFER_LENGTH": TERM_LENGTH,
        "AERON_TERM_BUFFER_SPARSE_FILE": "true",
    }
    process = subprocess.Popen([built(DRIVER)], env={**os.environ, **settings})
    try:
        wait_for(lambda: _runs(process) and driver_liveness(aeron_dir), TIMEOUT_S, f"the C media driver in {aeron_dir}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
            shutil.rmtree(aeron_dir, ignore_errors=True)


@contextmanager
def _archive(aeron_dir: Path, archive_dir: Path) -> Iterator[None]:
    process = start_foreign_driver(aeron_dir, "io.aeron.archive.Archive", *archive_properties(archive_dir))
    try:
        wait_for(lambda: has_archive(aeron_dir, process), TIMEOUT_S, f"an archive in {aeron_dir}")
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _runs(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"the program ended with {process.returncode}"
    return True


@pytest.fixture(scope="session", params=["java driver", "C driver"])
def node(request: pytest.FixtureRequest) -> NodeHandle:
    """One media driver with an archive after the other."""
    name = {"java driver": "java_node", "C driver": "c_node"}[request.param]
    handle: NodeHandle = request.getfixturevalue(name)
    return handle
