"""Nodes that all tests of a run share, also those of several workers of pytest.

The first test that needs a node starts it. The pytest that the user started stops all of them after its workers have
ended. A test that counts, suspends, kills or fills a node, or that has an IPC server, uses a separate node. Each test
has other stream ids and recordings (``tests/aeron/streams.py``); a server on a shared node has a separate store.

The nodes belong to a run with another name than each worker's, so that they are no leaks of a worker's test.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark import node as nodes
from aeron_spark.node import NodeHandle
from tests import budget
from tests.cpu import TICKS_PER_S, read_process
from tests.leaks import RUN_PREFIX, RUN_VARIABLE, SHARED_MEMORY

STOP_TIMEOUT_S: Final = 30.0
NAME: Final = "shared-nodes"  # of the plugin
INPUT: Final = "shared nodes"  # the key under which a worker gets the name of the run and its data folder


class SharedNodes:
    """The shared nodes of a run, below ``data``; ``run`` is the begin of their directories' names."""

    def __init__(self, run: str, data: Path, *, is_worker: bool = False) -> None:
        self.run = run
        self.data = data
        self._is_worker = is_worker

    @classmethod
    def of(cls, config: pytest.Config, home: Path) -> SharedNodes:
        """Return the nodes of the pytest that the user started, which has the folder ``home``."""
        given = getattr(config, "workerinput", {}).get(INPUT)
        if given is not None:
            return cls(given[0], Path(given[1]), is_worker=True)
        return cls(f"{RUN_PREFIX}{os.getpid()}-{secrets.token_hex(3)}", home / "data")

    @contextmanager
    def use(self, kind: str, **settings: Any) -> Iterator[NodeHandle]:
        """Use the node named ``kind``, which all users need with the same settings."""
        from tests.aeron.streams import close_client

        aeron_dir = SHARED_MEMORY / f"{self.run}-{kind}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(RUN_VARIABLE, self.run)
            handle = nodes.ensure(aeron_dir, **settings)
        with handle:
            yield handle
        close_client(aeron_dir)

    @pytest.hookimpl(trylast=True)  # after xdist has ended the workers
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Stop all nodes, remove their directories, and count their CPU seconds, which no worker has counted."""
        if self._is_worker:
            return
        for aeron_dir in SHARED_MEMORY.glob(f"{self.run}-*"):
            pid = nodes.status(aeron_dir).pid
            if pid is not None and (process := read_process(pid)):
                budget.add(session.config, process.ticks / TICKS_PER_S)
            nodes.stop(aeron_dir, force=True, timeout=STOP_TIMEOUT_S)
            shutil.rmtree(aeron_dir, ignore_errors=True)  # if the node had been killed

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which nodes to use."""
        node.workerinput[INPUT] = self.run, str(self.data)


@pytest.fixture(scope="session")
def shared_nodes(pytestconfig: pytest.Config) -> SharedNodes:
    """The nodes that all tests of the run share."""
    found = pytestconfig.pluginmanager.getplugin(NAME)
    assert isinstance(found, SharedNodes)
    return found


@pytest.fixture(scope="session")
def node_of_64k(shared_nodes: SharedNodes) -> Iterator[NodeHandle]:
    """A node with short terms and segments, so that a little data fills many."""
    with shared_nodes.use("64k", term_length="64k", ipc_term_length="64k", segment_length="64k") as handle:
        yield handle


@pytest.fixture(scope="session")
def node_of_256k(shared_nodes: SharedNodes) -> Iterator[NodeHandle]:
    """A node with short terms in segments of the usual length."""
    with shared_nodes.use("256k", term_length="256k", ipc_term_length="256k") as handle:
        yield handle


@pytest.fixture(scope="session")
def node_of_16m(shared_nodes: SharedNodes) -> Iterator[NodeHandle]:
    """A node with terms for long messages, in short segments, so that a little data fills many."""
    with shared_nodes.use("16m", term_length="16m", ipc_term_length="16m", segment_length="16m") as handle:
        yield handle
