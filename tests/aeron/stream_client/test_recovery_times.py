"""How long after the loss of a server, or of its node, the next commit and the next row come, for each kind of client.

docs/outages.md, "How long an outage lasts", has these times. ``make soak`` measures twenty losses of each kind and
prints them; one of each is in ``make test-full``, with a bound that a busy machine keeps.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

import aeron_spark
from aeron_spark import node as nodes
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node import NodeHandle
from tests.aeron.node.test_ended_programs import heartbeats, write_tomorrow
from tests.aeron.streams import own_node
from tests.server_processes import ServerProcess
from tests.waiting import poll_until

TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.02  # between two transactions of a producer
REST_S: Final = 1.0  # between an outage and the next one
SYNCHRONOUS: Final = "writer"
BUFFERED: Final = "buffered writer"
READER: Final = "reader"


class Site:
    """A server on a separate node, and three clients in this process that work until :meth:`close`."""

    def __init__(self, stack: ExitStack, run_name: str, clients_node: NodeHandle, folder: Path) -> None:
        self.node = stack.enter_context(own_node(run_name))
        self.server = ServerProcess(self.node.aeron_dir, folder)
        stack.callback(self.server.kill)
        self.server.start()
        self.client = stack.enter_context(
            aeron_spark.connect(
                self.server.address, aeron_dir=clients_node.aeron_dir, ipc="never", store=MemoryPeerStore(),
                timeout=TIMEOUT_S,
            )
        )  # fmt: skip
        self.client.create_stream("one")
        self.client.create_stream("other")
        self._stopped = threading.Event()
        self.last = dict.fromkeys((SYNCHRONOUS, BUFFERED, READER), 0.0)  # monotonic seconds of the last success
        works: tuple[Callable[[], None], ...] = (
            self._write,
            lambda: self._write_buffered(folder / "buffer"),
            self._read,
        )
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        self._reader = self.client.reader("other", follow=True)
        for thread in self._threads:
            thread.start()
        stack.callback(self._stop)

    def _stop(self) -> None:
        self._stopped.set()
        self._reader.stop()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()

    def _write(self) -> None:
        with self.client.writer("one", timeout=1.0) as out:
            while not self._stopped.wait(PAUSE_S):
                out.write([b"row"])
                while not self._stopped.is_set():
                    try:
                        out.commit()
                    except AeronSparkError:  # the outage; the same commit is repeated
                        continue
                    self.last[SYNCHRONOUS] = time.monotonic()
                    break

    def _write_buffered(self, folder: Path) -> None:
        with self.client.writer("other", buffer=folder) as out:
            while not self._stopped.wait(PAUSE_S):
                before = out.unsent
                out.write([b"row"])
                out.commit()
                if out.unsent <= before:
                    self.last[BUFFERED] = time.monotonic()

    def _read(self) -> None:
        for _ in self._reader:
            self.last[READER] = time.monotonic()

    def recover(self, lose: Callable[[Site], float]) -> dict[str, float]:
        """Cause an outage; return for each client the seconds from the moment that ``lose`` returns to a success."""
        self.await_success(time.monotonic())
        time.sleep(REST_S)
        since = lose(self)
        after = self.await_success(since)
        return {name: moment - since for name, moment in after.items()}

    def await_success(self, since: float) -> dict[str, float]:
        """Wait until each client had a success after ``since``; return the moment of the first one."""
        first: dict[str, float] = {}

        def found() -> bool:
            for name, moment in self.last.items():
                if moment > since:
                    first.setdefault(name, moment)
            return len(first) == len(self.last)

        poll_until(found, TIMEOUT_S, "each client to commit or read again", interval_s=0.005)
        return first


def kill_server(site: Site) -> float:
    """Kill the server and start it again; return the moment when it is ready."""
    site.server.kill()
    site.server.start()
    return time.monotonic()


def kill_server_of_tomorrow(site: Site) -> float:
    """Kill the server whose clock was a day ahead, and start it again; return the moment when it is ready."""
    pid = site.server.process.pid
    counters = heartbeats(Path(site.node.aeron_dir), pid)
    assert counters, "the node counts no Aeron client of the server"
    site.server.kill()
    for counter in counters:
        write_tomorrow(Path(site.node.aeron_dir), counter.id)
    site.server.start()
    return time.monotonic()


def restart_server(site: Site) -> float:
    """Stop the server and start it again; return the moment when it is ready."""
    site.server.stop(TIMEOUT_S)
    site.server.start()
    return time.monotonic()


def kill_node(site: Site) -> float:
    """Kill the node of the server only; return the moment."""
    pid = nodes.status(site.node.aeron_dir).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


LOSSES: Final = {  # and the seconds that docs/outages.md promises
    "killed server": (kill_server, 2.0),
    "killed server of tomorrow": (kill_server_of_tomorrow, 2.0),
    "restarted server": (restart_server, 1.0),
    "killed node": (kill_node, 4.0),  # the clients use another node
}


@contextmanager
def site(run_name: str, clients_node: NodeHandle, folder: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack, run_name, clients_node, folder)


@pytest.mark.full(
    "two nodes, two servers and three clients; test_client_restarts.py and test_ended_programs.py show each step"
)
@pytest.mark.parametrize("loss", LOSSES)
def test_each_client_works_again_soon_after_a_loss(loss: str, run_name: str, node: NodeHandle, tmp_path: Path) -> None:
    lose, promised_s = LOSSES[loss]
    with site(run_name, node, tmp_path) as one:
        found = one.recover(lose)
    # Aeron's own time-outs, on which the recovery must not depend, take 10 s.
    assert max(found.values()) < promised_s + 5.0, found


@pytest.mark.soak
@pytest.mark.parametrize("loss", LOSSES)
def test_twenty_losses_take_no_longer_than_promised(loss: str, run_name: str, node: NodeHandle, tmp_path: Path) -> None:
    lose, promised_s = LOSSES[loss]
    with site(run_name, node, tmp_path) as one:
        found = [one.recover(lose) for _ in range(20)]
    for name in found[0]:
        times = [each[name] for each in found]
        print(f"{loss}, {name}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    assert max(max(each.values()) for each in found) <= promised_s
