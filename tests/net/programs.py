"""Starts, controls, suspends and kills the programs of a test in their namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aeron_spark import node
from tests.net.namespaces import SERVER, SERVER6, Namespace, Site
from tests.net.program import RESPONSE_PREFIX
from tests.nodes import new_aeron_dir, remove_node
from tests.programs import python_environ
from tests.waiting import suspend

TIMEOUT_S: Final = 60.0  # for work that is slow only on a slow machine
# The peer of a lost program notices the loss after the expiry of 4 s, which begins when Aeron reports it: after 5 s
# without a status message, or 10 s without any packet.
MIN_LOSS_S: Final = 5 + 4 - 2  # on a slow machine, the last status message may have arrived some time ago
MAX_LOSS_S: Final = 10 + 4 + 6  # with some time for a slow machine
ADDRESS: Final = f"{SERVER}:20121"
ADDRESS6: Final = f"[{SERVER6}]:20121"


class Program:
    """A process of :mod:`tests.net.program` in a namespace. The constructor does not wait until it is ready."""

    def __init__(self, namespace: Namespace, log: Path, role: str, options: dict[str, Any]) -> None:
        self.role, self.options, self.namespace, self.log_path = role, options, namespace, log
        self._responses: queue.Queue[str | None] = queue.Queue()
        self._ready = False
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                namespace.command(sys.executable, "-m", "tests.net.program", role, json.dumps(options)),
                env=python_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def await_ready(self) -> Program:
        """Wait until the program has started."""
        if not self._ready:
            assert "ready" in self.response()
            self._ready = True
        return self

    def request(self, do: str, *, response_timeout_s: float = TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        self.send_request(do, **arguments)
        return self.response(response_timeout_s)

    def send_request(self, do: str, **arguments: Any) -> None:
        """Send a request without waiting for the response."""
        self.await_ready()
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def response(self, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        try:
            line = self._responses.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"the {self.role} sent no response for {timeout_s:g} s:\n{self._log()}") from None
        assert line is not None, f"the {self.role} ended:\n{self._log()}"
        response: dict[str, Any] = json.loads(line)
        assert "raised" not in response, f"{self.role}: {response['raised']}\n{self._log()}"
        return response

    def suspend(self) -> None:
        suspend(self.process.pid)

    def resume(self) -> None:
        """Continue the process with SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def request_end(self) -> None:
        """Close the program's input, which ends it."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        """End the program. If it does not end in time, kill it and fail."""
        self.request_end()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the {self.role} did not end:\n{self._log()}") from None
        self._end()

    def _end(self) -> None:
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        self.request_end()
        self.process.stdout.close()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith(RESPONSE_PREFIX):
                self._responses.put(line.removeprefix(RESPONSE_PREFIX))
        self._responses.put(None)

    def _log(self) -> str:
        return self.log_path.read_text(errors="replace")[-4000:]


class Programs:
    """All programs of a test, and the directories of their drivers."""

    def __init__(self, site: Site, folder: Path, run_name: str) -> None:
        self.site = site
        self._folder = folder
        self._run_name = run_name
        self._running: list[Program] = []
        self._dirs: list[Path] = []

    def driver(self, namespace: Namespace, **options: Any) -> Program:
        """Start a media driver in a new directory."""
        return self._start(namespace, "driver", {"dir": self._new_dir(), **options})

    def server(self, driver: Program | None = None, address: str = ADDRESS, **more: Any) -> Program:
        """Start a server on a driver, or with a node that it starts. All servers of a test have the same key."""
        home = self._folder / "server"
        home.mkdir(mode=0o700, exist_ok=True)
        options = {**self._place(driver), "home": str(home), "address": address, "more": more}
        return self._start(self.site.server, "server", options)

    def clients(self, on: Program | Namespace, *tags: str, address: str = ADDRESS, **more: Any) -> Program:
        """Start clients on a driver, or with a new node in a namespace. They do not connect yet."""
        driver, namespace = (on, on.namespace) if isinstance(on, Program) else (None, on)
        options = {**self._place(driver), "tags": list(tags), "address": address, "more": more}
        return self._start(namespace, "clients", options)

    def restart(self, program: Program) -> Program:
        """Start a killed program again with the same options."""
        return self._start(program.namespace, program.role, program.options).await_ready()

    def pair(
        self, *tags: str, bind: str = ADDRESS, address: str = ADDRESS, server: Mapping[str, Any] | None = None,
        **driver: Any,
    ) -> tuple[Program, ...]:  # fmt: skip
        """Start a server, and for each tag a client: the first behind r1, the second behind r2.

        Each program has a driver in its process, which needs half as many JVMs as :meth:`apart`. ``server`` has further
        server options.
        """
        home = self._folder / "server"
        home.mkdir(mode=0o700, exist_ok=True)
        own = {"own_driver": True, **driver}
        serving = {"dir": self._new_dir(), "home": str(home), "address": bind, "more": dict(server or {}), **own}
        started = [self._start(self.site.server, "server", serving)]
        for namespace, tag in zip(self.site.clients, tags, strict=False):
            options = {"dir": self._new_dir(), "tags": [tag], "address": address, "more": {}, **own}
            started.append(self._start(namespace, "clients", options))
        return tuple(program.await_ready() for program in started)

    def apart(self, *tags: str) -> tuple[Program, ...]:
        """Start programs as ``pair`` does, but each driver in a separate process, which a test can suspend."""
        server = self.server(self.driver(self.site.server))
        clients = [
            self.clients(self.driver(namespace), tag) for namespace, tag in zip(self.site.clients, tags, strict=False)
        ]
        return tuple(program.await_ready() for program in (server, *clients))

    def nodes(self, *tags: str) -> tuple[Program, ...]:
        """Start programs as ``pair`` does, but each on a node, which the package restarts."""
        server = self.server()
        clients = [self.clients(namespace, tag) for namespace, tag in zip(self.site.clients, tags, strict=False)]
        for program in (server, *clients):
            program.await_ready()
        return (server, *clients)

    def driver_of(self, program: Program) -> Program:
        """Return the driver of a program, or the program itself if it contains its driver."""
        if program.options.get("own_driver"):
            return program
        directory = program.options["dir"]
        return next(one for one in self._running if one.role == "driver" and one.options["dir"] == directory)

    def kill_node_of(self, program: Program) -> None:
        """Kill the node that the package has started for a program."""
        status = node.status(program.options["dir"])
        assert status.pid is not None, status
        os.kill(status.pid, signal.SIGKILL)

    def close(self) -> None:
        """End all programs, drivers last, and remove the directories that killed programs left."""
        failed: list[str] = []
        for role in ("clients", "server", "driver"):
            programs = [program for program in self._running if program.role == role]
            for program in programs:
                program.resume()
                program.request_end()
            for program in programs:
                try:
                    program.close()
                except AssertionError as error:
                    failed.append(str(error))
        for directory in self._dirs:
            remove_node(directory)  # it may still be in its idle timeout
        assert not failed, "\n".join(failed)

    def _new_dir(self) -> str:
        self._dirs.append(new_aeron_dir(self._run_name))
        return str(self._dirs[-1])

    def _place(self, driver: Program | None) -> dict[str, Any]:
        if driver is None:
            return {"dir": self._new_dir(), "own_node": True}
        return {"dir": driver.await_ready().options["dir"]}

    def _start(self, namespace: Namespace, role: str, options: dict[str, Any]) -> Program:
        log = self._folder / f"{len(self._running)}-{role}.log"
        program = Program(namespace, log, role, options)
        self._running.append(program)
        return program


def events(program: Program, tag: str) -> list[str]:
    """Return the events of one connection, in order."""
    return [name for _, name, event_tag in program.request("statistics")["events"] if event_tag == tag]


def received(program: Program, tag: str) -> dict[str, Any]:
    """Return the numbers of messages received from, or by, one client."""
    counts: dict[str, Any] = program.request("statistics")["received"].get(tag, {"count": 0, "bytes": 0, "wrong": []})
    return counts


def await_received(program: Program, tag: str, count: int, seconds: float = TIMEOUT_S) -> None:
    """Wait until ``count`` messages from number 0 on have arrived, once and in order."""
    counts = eventually(lambda: received(program, tag), lambda counts: counts["count"] >= count, seconds)
    assert (counts["count"], counts["wrong"]) == (count, []), program.request("statistics")


def eventually(
    read: Callable[[], Any], is_enough: Callable[[Any], bool], seconds: float = TIMEOUT_S, interval_s: float = 0.1
) -> Any:
    """Call ``read`` until ``is_enough`` accepts its value, or the time is over; return the last value."""
    end = time.monotonic() + seconds
    while True:
        value = read()
        if is_enough(value) or time.monotonic() > end:
            return value
        time.sleep(interval_s)
