"""With processes: a server that ends while writers commit without pause ends soon, and no row is lost or doubled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.conftest import run
from tests.cli.running_servers import TIMEOUT_S, home_of, running_server
from tests.ports import free_ports
from tests.programs import Program, start_interpreter

WRITERS = 4
# Commits without pause in one thread for each writer. It prints a line when each writer has committed three more
# transactions, once at its start and once after each line of its input; at the end, the rows of each writer.
PROGRAM = """
import json, sys, threading
import aeron_spark

MORE = 3
address, count = sys.argv[1], int(sys.argv[2])
changed, committed, is_ending = threading.Condition(), [0] * count, False

def write(number):
    with aeron_spark.connect(address) as client:
        writer = client.writer("flights", writer_id=f"desk-{number}", timeout=120.0)
        while not is_ending:
            writer.write(f"{number} {committed[number]}".encode())
            writer.commit()
            with changed:
                committed[number] += 1
                changed.notify_all()
        writer.close()

def await_more():
    with changed:
        wanted = [one + MORE for one in committed]
        assert changed.wait_for(lambda: all(map(int.__ge__, committed, wanted)), 120), (committed, wanted)
    print("more", flush=True)

threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
for thread in threads:
    thread.start()
await_more()
for _ in sys.stdin:
    await_more()
is_ending = True
for thread in threads:
    thread.join()
print(json.dumps(committed))
"""


class Writers:
    """The process of writers that commit without pause."""

    def __init__(self, process: Program) -> None:
        self._process = process

    def await_more(self) -> None:
        """Wait until each writer has committed some more transactions."""
        assert self._process.stdout.readline() == "more\n"

    def request_more(self) -> None:
        self._process.send("more")

    def end(self) -> Any:
        """End the writers, and return how many transactions each has committed."""
        printed, _ = self._process.communicate(timeout=TIMEOUT_S)
        assert self._process.returncode == 0
        return json.loads(printed)


@contextmanager
def running_writers(address: str, client: dict[str, str]) -> Iterator[Writers]:
    with start_interpreter("-W", "error", "-c", PROGRAM, address, str(WRITERS), environ=client) as process:
        yield Writers(process)


def test_a_drain_while_writers_commit_without_pause_ends_with_0_and_each_row_is_there_once(
    tmp_path: Path, shared: Path
) -> None:
    """Regression: the writers' next commits kept the server until drainTimeout, and it ended with exit code 1."""
    address = f"127.0.0.1:{free_ports()[0]}"
    client = home_of(tmp_path / "client", shared)
    arguments = (address, "--streams-dir", str(tmp_path / "streams"))
    with running_server(tmp_path / "server", shared, *arguments) as server:
        server.wait("ready")
        assert run("streams", "create", "flights", "--server", address, **client).code == 0
        with running_writers(address, client) as writers:
            writers.await_more()
            assert server.stop() == 0
            assert server.named("stopped")[0]["cut_off"] == 0
            with running_server(tmp_path / "server", shared, *arguments) as restarted:
                restarted.wait("ready")
                writers.request_more()
                writers.await_more()
                committed = writers.end()
                received = run(
                    "receive", "--stream", "flights", "--server", address, "-n", str(sum(committed)), **client
                )
                assert restarted.stop() == 0
    expected = {f"{number} {index}": 1 for number, count in enumerate(committed) for index in range(count)}
    assert Counter(received.out.splitlines()) == expected
