"""Executes the code of each section of README.md and docs/, in order, with a node and, if needed, a server.

The test replaces only addresses, stream ids, keys, and the folders /tmp and /data in the code.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from aeron_spark import Client, Server
from aeron_spark.aeron.client import lease_client
from aeron_spark.node import NodeHandle
from aeron_spark.spark import LagListener
from tests.pages import Block, Section, pages, sections
from tests.ports import free_address, free_ports
from tests.programs import ROOT
from tests.spark.queries import patient_starts
from tests.waiting import poll_until

SECTIONS: Final = [section for page in pages() for section in sections(page) if section.executed]
SERVER: Final = re.compile(r"(?:feeds\.example|localhost|0\.0\.0\.0|127\.0\.0\.1):20121")
STARTS_SERVER: Final = "aeron_spark.Server("
CHANNEL: Final = re.compile(r"endpoint=[\w.-]+:\d+")
STREAM_ID: Final = re.compile(r"(stream-?id\W{1,4})(\d+)", re.IGNORECASE)
METRICS: Final = '":9465"'  # of a LagListener; other runs of the tests on this machine may use the port
FOLDER: Final = re.compile(r"(?<![\w.])/(?:data|tmp)/")
IDLE_STATUS: Final = "Waiting for data to arrive"  # Spark's status of a query that has read all rows
KEY_PLACEHOLDER: Final = "aeron-spark:..."
TIMEOUT_S: Final = 120.0  # of actions that are fast on an idle machine


@pytest.fixture(scope="module", autouse=True)
def client(shared_node: NodeHandle) -> Iterator[None]:
    """An Aeron client of this process, which lives longer than a section."""
    with closing(lease_client(shared_node.aeron_dir)):
        yield


@pytest.fixture
def config_home() -> Iterator[Path]:
    """The user's folder of keys, which does not exist, as before the first use of the package."""
    folder = Path(os.environ["AERON_SPARK_CONFIG_HOME"])
    saved = folder.with_name("saved")
    folder.mkdir(parents=True, exist_ok=True)
    folder.rename(saved)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    saved.rename(folder)


class SectionRun:
    """The execution of a section: its folder, its Python names, and the programs that it has started."""

    def __init__(self, section: Section, folder: Path, spark: SparkSession) -> None:
        self._section = section
        self._spark = spark
        self._folder = folder
        self._names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
        self._command_folder = self._make_command()
        self.server = free_address()
        self._channel = f"endpoint=127.0.0.1:{free_ports()[0]}"
        self._first_id = 10_000 * (1 + SECTIONS.index(section))
        self._threads: list[threading.Thread] = []
        self._programs: list[subprocess.Popen[str]] = []
        self._errors: list[BaseException] = []

    @property
    def needs_server(self) -> bool:
        """Whether the section uses a server that it does not start."""
        blocks = self._section.executed
        starts_server = any(block.in_background or STARTS_SERVER in block.code for block in blocks)
        return not starts_server and any(SERVER.search(block.before + block.code) for block in blocks)

    def execute(self, block: Block) -> None:
        """Run a block. A block in the background runs until :meth:`end`."""
        where = f"{self._section.page}:{block.line}"
        if block.is_python:
            thread = threading.Thread(target=self._python, args=(block,), daemon=True)
            self._threads.append(thread)
            thread.start()
            if not block.in_background:
                thread.join(TIMEOUT_S)
                assert not thread.is_alive(), f"{where} still runs. Does it need the comment `in the background`?"
                self._raise()
        else:
            self._programs.append(self._shell(block))
            if not block.in_background:
                output, _ = self._programs[-1].communicate(timeout=TIMEOUT_S)
                assert self._programs[-1].returncode == 0, f"{where}\n{output}"
        if block.in_background and SERVER.search(block.code):
            poll_until(self._is_server_listening, TIMEOUT_S, f"the server of {where} to listen")

    def end(self) -> None:
        """Stop the section's queries, close its clients and servers, and end its programs.

        Raises the first error of one of its threads.
        """
        try:
            poll_until(self._close_all, TIMEOUT_S, "the Python code of the section to end")
        finally:
            for program in self._programs:
                if program.poll() is None:
                    self._interrupt(program)
        self._raise()

    def _close_all(self) -> bool:
        """Stop queries and close objects; return whether all Python code has ended."""
        for query in self._spark.streams.active:
            if query.status["message"] == IDLE_STATUS:  # a query that is stopped while it starts leaves processes
                query.stop()
        for value in [value for value in self._names.values() if isinstance(value, Client | Server | LagListener)]:
            if isinstance(value, LagListener):
                self._spark.streams.removeListener(value)
            value.close()
        return not any(thread.is_alive() for thread in self._threads)

    def _interrupt(self, program: subprocess.Popen[str]) -> None:
        os.killpg(program.pid, signal.SIGINT)
        try:
            output, _ = program.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            raise
        assert program.returncode == 0, output

    def _raise(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

    def _is_server_listening(self) -> bool:
        """Return whether the server's port is in use, or the server has failed."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", int(self.server.split(":")[1])))
            except OSError:
                return True
        return bool(self._errors) or any(program.poll() is not None for program in self._programs)

    def _python(self, block: Block) -> None:
        try:
            # In Java, each thread has a separate active session, which a writer uses to find its format.
            java = SparkSession._get_j_spark_session_class(self._spark._jvm)
            java.setActiveSession(self._spark._jsparkSession)
            # The empty lines let a traceback show the line numbers of the page.
            for first, code in ((1, block.before), (block.line, block.code)):
                text = "\n" * (first - 1) + self._replace_addresses(code)
                exec(compile(text, str(ROOT / self._section.page), "exec"), self._names)
        except BaseException as error:
            self._errors.append(error)

    def _shell(self, block: Block) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self._replace_addresses(block.code)],
            env=self._environ(), cwd=self._folder, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _replace_addresses(self, code: str) -> str:
        """Return the code with this test's addresses, stream ids, folders and key."""
        code = SERVER.sub(self.server, code)
        code = CHANNEL.sub(self._channel, code)
        code = STREAM_ID.sub(lambda match: f"{match[1]}{self._first_id + int(match[2])}", code)
        code = code.replace(METRICS, '":0"')
        code = FOLDER.sub(f"{self._folder}/", code)
        return code.replace(KEY_PLACEHOLDER, self._server_key()) if KEY_PLACEHOLDER in code else code

    def _server_key(self) -> str:
        command = ["aeron-spark", "keys", "show", "--server"]
        return subprocess.run(
            command, env=self._environ(), text=True, stdout=subprocess.PIPE, check=True
        ).stdout.strip()

    def _environ(self) -> dict[str, str]:
        """Return the environment of the section's shells, including changes by its Python code."""
        paths = os.pathsep.join([str(ROOT / "connector"), str(ROOT)])
        return os.environ | {"PATH": f"{self._command_folder}:{os.environ['PATH']}", "PYTHONPATH": paths}

    def _make_command(self) -> Path:
        """Make a command ``aeron-spark`` that runs this source tree; return its folder."""
        folder = self._folder / "bin"
        folder.mkdir()
        command = folder / "aeron-spark"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m aeron_spark "$@"\n')
        command.chmod(0o755)
        return folder


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.page}: {section.heading}")
def test_the_code_of_a_section_runs(
    section: Section, spark: SparkSession, config_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = SectionRun(section, tmp_path, spark)
    with patch.dict(os.environ), patient_starts(), ExitStack() as stack:
        if run.needs_server:
            given = {"streams_dir": str(tmp_path / "streams"), "handshakes_per_second": 0, "allow_any_key": True}
            server = stack.enter_context(Server(run.server, **given))
            server.on_message(dict, lambda connection, message: None)  # as the server of the first section of a page
        stack.callback(run.end)
        for block in section.executed:
            run.execute(block)
