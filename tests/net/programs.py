"""The programs of a test, seen from the test: started in their namespaces, told, frozen, killed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import aeron_spark
from aeron_spark import node
from tests.leaks import SHARED_MEMORY
from tests.net.namespaces import SERVER, SERVER6, Namespace, Site
from tests.net.program import ANSWER

ROOTS: Final = (Path(aeron_spark.__file__).parents[1], Path(__file__).resolve().parents[2])
PATIENCE: Final = 60.0  # seconds for anything that is only slow because the machine is
# Somebody has gone, or is cut off: his peer is told when Aeron has noticed, after 5 s without a status message or 10 s
# without anything, and the expiry of 4 s is over.
NOT_BEFORE: Final = 5 + 4 - 2  # the last status message may have come some time ago, on a slow machine
NOT_AFTER: Final = 10 + 4 + 6  # seconds more for what looks at the time, on a slow machine
ADDRESS: Final = f"{SERVER}:20121"
ADDRESS6: Final = f"[{SERVER6}]:20121"


class Program:
    """A process of :mod:`tests.net.program` in a namespace. It need not be ready when this returns."""

    def __init__(self, namespace: Namespace, log: Path, role: str, options: dict[str, Any]) -> None:
        self.role, self.options, self.namespace, self.log_path = role, options, namespace, log
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._ready = False
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                namespace.command(sys.executable, "-m", "tests.net.program", role, json.dumps(options)),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, ROOTS))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def await_ready(self) -> Program:
        """Wait until it has started."""
        if not self._ready:
            assert "ready" in self.answer()
            self._ready = True
        return self

    def ask(self, do: str, *, patience: float = PATIENCE, **arguments: Any) -> dict[str, Any]:
        """Give an order, and return the answer."""
        self.tell(do, **arguments)
        return self.answer(patience)

    def tell(self, do: str, **arguments: Any) -> None:
        """Give an order; the answer is asked for later."""
        self.await_ready()
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Return the next answer."""
        try:
            line = self._answers.get(timeout=patience)
        except queue.Empty:
            raise AssertionError(f"the {self.role} has not answered for {patience:g} s:\n{self._log()}") from None
        assert line is not None, f"the {self.role} ended:\n{self._log()}"
        answer: dict[str, Any] = json.loads(line)
        assert "raised" not in answer, f"{self.role}: {answer['raised']}\n{self._log()}"
        return answer

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._end()

    def let_go(self) -> None:
        """Tell it to end."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        """Wait until it has ended; one that does not is killed, and that is a failure."""
        self.let_go()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the {self.role} did not end:\n{self._log()}") from None
        self._end()

    def _end(self) -> None:
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.let_go()
        assert self.process.stdout
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                self._answers.put(line.removeprefix(ANSWER))
        self._answers.put(None)

    def _log(self) -> str:
        return self.log_path.read_text(errors="replace")[-4000:]


class Programs:
    """All programs of a test, and where their drivers are."""

    def __init__(self, site: Site, folder: Path, run_name: str) -> None:
        self.site = site
        self._folder = folder
        self._run_name = run_name
        self._running: list[Program] = []
        self._dirs: list[Path] = []

    def driver(self, namespace: Namespace, **options: Any) -> Program:
        """Start a media driver in a directory of its own."""
        return self._start(namespace, "driver", {"dir": self._new_dir(), **options})

    def server(self, driver: Program | None = None, address: str = ADDRESS, **more: Any) -> Program:
        """Start a server on a driver, or on a node that it starts by itself; its key is the same each time."""
        home = self._folder / "server"
        home.mkdir(mode=0o700, exist_ok=True)
        given = {"dir": self._dir(driver), "home": str(home), "address": address, "more": more}
        return self._start(self.site.server, "server", given)

    def clients(self, place: Program | Namespace, *tags: str, address: str = ADDRESS, **more: Any) -> Program:
        """Start clients on a driver, or on a node of their own in a namespace; they do not connect yet."""
        driver, namespace = (place, place.namespace) if isinstance(place, Program) else (None, place)
        given = {"dir": self._dir(driver), "tags": list(tags), "address": address, "more": more}
        return self._start(namespace, "clients", given)

    def again(self, program: Program) -> Program:
        """Start anew what was killed."""
        return self._start(program.namespace, program.role, program.options).await_ready()

    def pair(
        self, *tags: str, bind: str = ADDRESS, address: str = ADDRESS, server: Mapping[str, Any] | None = None,
        **driver: Any,
    ) -> tuple[Program, ...]:  # fmt: skip
        """Start a server, and for each tag a client: the first behind r1, the second behind r2.

        Each has a driver in its own process: half as many JVMs as :meth:`apart` has. ``server``: its further settings.
        """
        home = self._folder / "server"
        home.mkdir(mode=0o700, exist_ok=True)
        own = {"own_driver": True, **driver}
        serving = {"dir": self._new_dir(), "home": str(home), "address": bind, "more": dict(server or {}), **own}
        started = [self._start(self.site.server, "server", serving)]
        for place, tag in zip(self.site.clients, tags, strict=False):
            given = {"dir": self._new_dir(), "tags": [tag], "address": address, "more": {}, **own}
            started.append(self._start(place, "clients", given))
        return tuple(program.await_ready() for program in started)

    def apart(self, *tags: str) -> tuple[Program, ...]:
        """As ``pair``, but each driver is a process of its own, which is frozen or lives on by itself."""
        server = self.server(self.driver(self.site.server))
        clients = [self.clients(self.driver(place), tag) for place, tag in zip(self.site.clients, tags, strict=False)]
        return tuple(program.await_ready() for program in (server, *clients))

    def nodes(self, *tags: str) -> tuple[Program, ...]:
        """As ``pair``, but everybody has a node that the package starts, and starts again."""
        server = self.server()
        clients = [self.clients(place, tag) for place, tag in zip(self.site.clients, tags, strict=False)]
        for program in (server, *clients):
            program.await_ready()
        return (server, *clients)

    def driver_of(self, program: Program) -> Program:
        """The driver that a program uses, or the program itself."""
        if program.options.get("own_driver"):
            return program
        directory = program.options["dir"]
        return next(one for one in self._running if one.role == "driver" and one.options["dir"] == directory)

    def kill_node_of(self, program: Program) -> None:
        """kill -9 of the media driver that the package has started for a program."""
        status = node.status(program.options["dir"])
        assert status.pid is not None, status
        os.kill(status.pid, signal.SIGKILL)

    def close(self) -> None:
        """End all programs, drivers last, and remove what was killed could not."""
        failed: list[str] = []
        for role in ("clients", "server", "driver"):
            some = [program for program in self._running if program.role == role]
            for program in some:
                program.thaw()
                program.let_go()
            for program in some:
                try:
                    program.close()
                except AssertionError as error:
                    failed.append(str(error))
        for directory in self._dirs:
            node.stop(directory, force=True, timeout=PATIENCE)  # one that the package has started, and still lingers
            shutil.rmtree(directory, ignore_errors=True)
            shutil.rmtree(node.local_node_paths(directory).folder, ignore_errors=True)
        assert not failed, "\n".join(failed)

    def _new_dir(self) -> str:
        self._dirs.append(SHARED_MEMORY / f"{self._run_name}-{secrets.token_hex(3)}")
        return str(self._dirs[-1])

    def _dir(self, driver: Program | None) -> str:
        return self._new_dir() if driver is None else str(driver.await_ready().options["dir"])

    def _start(self, namespace: Namespace, role: str, options: dict[str, Any]) -> Program:
        log = self._folder / f"{len(self._running)}-{role}.log"
        program = Program(namespace, log, role, options)
        self._running.append(program)
        return program


def events(program: Program, tag: str) -> list[str]:
    """What has happened to one connection, in order."""
    return [name for _, name, who in program.ask("statistics")["events"] if who == tag]


def received(program: Program, tag: str) -> dict[str, Any]:
    """What has arrived from, or at, one client."""
    got: dict[str, Any] = program.ask("statistics")["received"].get(tag, {"count": 0, "bytes": 0, "wrong": []})
    return got


def await_received(program: Program, tag: str, count: int, seconds: float = PATIENCE) -> None:
    """Wait until messages 0 to ``count`` have arrived: all, once, in order."""
    got = eventually(lambda: received(program, tag), lambda got: got["count"] >= count, seconds)
    assert (got["count"], got["wrong"]) == (count, []), program.ask("statistics")


def eventually(
    look: Callable[[], Any], enough: Callable[[Any], bool], seconds: float = PATIENCE, pause: float = 0.1
) -> Any:
    """Look until it is as it should be, or the time is over; return what was seen last."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if enough(seen) or time.monotonic() > end:
            return seen
        time.sleep(pause)


def percentile(seconds: Iterable[float], share: float) -> float:
    """The value that this share of all is not above."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
