"""The program of docs/python-client.md that copies rows from SQLite has each row in the stream once, in order.

It is killed at seeded moments of its calls, and so is the server; then it is started again, by its last token alone.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import aeron_spark
from aeron_spark.node import NodeHandle
from tests.aeron.streams import own_node
from tests.pages import sections
from tests.programs import ROOT, python_environ
from tests.server_processes import ServerProcess, connect, started_server

PAGE = "docs/python-client.md"
HEADING = "Resume exactly once"
ROWS = 60
ROWS_OF_TRANSACTION = 3
TIMEOUT_S = 300.0  # of one run, which waits for a killed server, on a busy machine
STREAMS = {"direct": "orders", "buffered": "orders-of-edge"}


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name, term_length="16m", ipc_term_length="16m", segment_length="16m") as handle:
        yield handle


class Export:
    """The page's program, with the addresses and folders of the test."""

    def __init__(self, server: ServerProcess, node: NodeHandle, folder: Path, form: str) -> None:
        self.stream = STREAMS[form]
        self._server = server
        self._node = node
        self._environ = python_environ(**{"AERON_SPARK_CONFIG_HOME": str(folder / "config")})
        self._database = folder / "orders.db"
        self._file = folder / "export.py"
        self._file.write_text(self._text(form, folder))
        with closing(sqlite3.connect(self._database)) as made, made:
            made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, amount REAL)")
        with self._client() as client:
            client.create_stream(self.stream)

    def _text(self, form: str, folder: Path) -> str:
        [section] = [one for one in sections(PAGE) if one.heading == HEADING]
        first, second = (block.code for block in section.executed)
        text = first if form == "direct" else first.partition("database = ")[0] + second
        connect = f'aeron_spark.connect("{self._server.address}", aeron_dir="{self._node.aeron_dir}", ipc="never"'
        text, connects = re.subn(r'aeron_spark\.connect\("localhost:20121"', connect, text)
        text, limits = re.subn("LIMIT 100", f"LIMIT {ROWS_OF_TRANSACTION}", text)
        # On a busy machine, the last run has many transactions of killed runs to send.
        text, flushes = re.subn(r"buffered\.flush\(\)", f"buffered.flush({TIMEOUT_S / 2})", text)
        assert (connects, limits, flushes) == (1, 1, form == "buffered")
        assert text.count('"/tmp/') == (1 if form == "direct" else 2)
        return text.replace('"/tmp/', f'"{folder}/')

    def add_rows(self, first: int, end: int) -> None:
        with closing(sqlite3.connect(self._database)) as source, source:
            rows = [(number, f"item {number}", number / 4) for number in range(first, end)]
            source.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)

    def run(self, *, kill_server_at: int = 0, kill_at: int = 0) -> int | None:
        """Run the program; return the number of its calls, or None if it was killed.

        At call ``kill_server_at`` the server is killed and started again, at ``kill_at`` the program is killed.
        """
        command = [sys.executable, "-m", "tests.e2e.killed_program", self._file, "export", kill_server_at, kill_at]
        with subprocess.Popen(
            list(map(str, command)), env=self._environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            try:
                line = program.stdout.readline()
                if line == "announced\n":
                    self._server.kill()
                    self._server.start()
                out, errors = program.communicate(timeout=TIMEOUT_S)
            finally:
                program.kill()
        if program.returncode == -9:
            return None
        assert program.returncode == 0, errors
        return int((out or line).split()[-1])

    def committed(self) -> list[dict[str, object]]:
        """Return all rows of the stream."""
        with self._client() as client:
            return [row for batch in client.reader(self.stream) for row in batch.to_pylist()]

    def _client(self) -> aeron_spark.Client:
        return connect(self._server.address, self._node.aeron_dir, timeout=60.0)


@pytest.fixture(params=sorted(STREAMS))
def export(request: pytest.FixtureRequest, node: NodeHandle, tmp_path: Path) -> Iterator[Export]:
    with started_server(node, tmp_path) as server:
        yield Export(server, node, tmp_path, request.param)


def expected(rows: int) -> list[dict[str, object]]:
    return [{"id": number, "item": f"item {number}", "amount": number / 4} for number in range(1, rows + 1)]


def kill_and_resume(export: Export, rng: random.Random, kills: int) -> None:
    """Run the program with kills at moments of its first run, and once without; each row is in the stream once."""
    export.add_rows(1, ROWS + 1)
    calls = export.run()
    assert calls is not None
    assert export.committed() == expected(ROWS)
    rows = before = ROWS
    killed = between = 0
    for number in range(kills):
        export.add_rows(rows + 1, rows + ROWS + 1)
        rows += ROWS
        kill_server_at = rng.choice([0, rng.randrange(1, calls)])
        is_killed = export.run(kill_at=rng.randrange(1, calls), kill_server_at=kill_server_at) is None
        found = export.committed()
        assert found == expected(len(found)), f"after kill {number}"
        assert len(found) % ROWS_OF_TRANSACTION == 0
        killed += is_killed
        between += is_killed and before < len(found) < rows
        before = len(found)
    assert killed >= kills // 2
    assert between >= kills // 4, f"only {between} of {killed} kills were between two transactions"
    export.run()
    assert export.committed() == expected(rows)


@pytest.mark.sampled
def test_each_row_is_in_the_stream_once_in_spite_of_kills(export: Export, rng: random.Random) -> None:
    kill_and_resume(export, rng, 2)


@pytest.mark.full("forty runs of a program with a JVM, and half as many of a server")
def test_each_row_is_in_the_stream_once_in_spite_of_many_kills(export: Export, rng: random.Random) -> None:
    kill_and_resume(export, rng, 20)


def test_the_program_of_the_page_is_short() -> None:
    [section] = [one for one in sections(PAGE) if one.heading == HEADING]
    assert all(len(block.code.splitlines()) <= 30 for block in section.executed)
    assert os.linesep.join(block.code for block in section.executed).count("last_token") == 1
