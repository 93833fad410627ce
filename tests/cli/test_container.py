"""The commands of deploy/Dockerfile, without Docker: the installation, the server as process 1, the health check."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.waiting import wait_for
from tests.ports import free_ports
from tests.programs import CONNECTOR
from tests.unit.deploy.dockerfile import environment, instructions, only
from tests.wheels import build_wheel

TIMEOUT_S: Final = 60.0  # of an operation of another process on a slow machine
INSTALL_TIMEOUT_S: Final = 600.0  # it downloads the requirements
NAMESPACE: Final = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
# The shell becomes the server, so that this is process 1.
READ_ONLY: Final = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@dataclass(frozen=True)
class Container:
    """The environment and the command ``aeron-spark`` of a container; its output is in ``folder``."""

    folder: Path
    command: Sequence[str]
    environ: dict[str, str]

    def words(self, words: Sequence[str]) -> list[str]:
        """Return the words of an instruction with this container's command, without tini."""
        start = words.index("--") + 1 if "--" in words else 0
        assert words[start] == "aeron-spark"
        return [*self.command, *words[start + 1 :]]

    def health(self) -> subprocess.CompletedProcess[str]:
        """Run the health check."""
        return subprocess.run(
            self.words(only("HEALTHCHECK").words), env=self.environ, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip

    @contextmanager
    def run(self, *arguments: str, read_only: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run the entry point as process 1 of its namespace, with a folder that it cannot write."""
        guard = () if read_only is None else ("sh", "-c", READ_ONLY, str(read_only))
        command = [*NAMESPACE, *guard, *self.words(only("ENTRYPOINT").words), *arguments]
        with (
            (self.folder / "output").open("w") as output,
            (self.folder / "log").open("w") as log,
            subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    @property
    def output(self) -> str:
        """The standard output of the last run."""
        return (self.folder / "output").read_text()

    @property
    def log(self) -> str:
        """The standard error of the last run."""
        return (self.folder / "log").read_text()


def container(folder: Path, aeron_dir: Path, command: Sequence[str], **more: str) -> Container:
    """Return a container with the variables of the image, and its folders in ``folder``."""
    data = {name: value.replace("/var/lib/aeron-spark", str(folder / "data")) for name, value in environment().items()}
    inherited = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    return Container(folder, command, inherited | data | {"AERON_SPARK_AERON_DIR": str(aeron_dir)} | more)


def child_of(process: subprocess.Popen[bytes]) -> int:
    """Return the process in the namespace; it is process 1 there."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    status = Path(f"/proc/{child}/status").read_text()
    (numbers,) = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    assert numbers[-1] == "1"
    return int(child)


def serve_and_stop(one: Container, *arguments: str, read_only: Path | None = None) -> None:
    """Run the server until its health check succeeds, and stop it as ``docker stop`` does.

    ``arguments`` are further ones of the server.
    """
    assert one.health().returncode == 1  # no server yet
    defaults = [word for instruction in instructions("CMD") for word in instruction.words]
    address = f"127.0.0.1:{free_ports()[0]}"
    with one.run(address, "--allow-any-key", *defaults, *arguments, read_only=read_only) as process:

        def is_listening() -> bool:
            assert process.poll() is None, one.log
            return address in one.output

        wait_for(is_listening, TIMEOUT_S, "the server to listen")
        wait_for(lambda: one.health().returncode == 0, TIMEOUT_S, "the health check to succeed")
        os.kill(child_of(process), signal.Signals[only("STOPSIGNAL").text])
        assert process.wait(TIMEOUT_S) == 0, one.log
        assert all(line.startswith("{") for line in one.log.splitlines())  # as JSON
    assert one.health().returncode == 1


@pytest.fixture
def driver(aeron_dir: Path) -> Iterator[Path]:
    """The folder of the media driver, which ends with the namespace, at the latest."""
    yield aeron_dir
    shutil.rmtree(aeron_dir, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    """Skip the tests where processes cannot have their own namespace."""
    done = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        pytest.skip(f"no process namespaces: {done.stderr.strip()}")


def test_the_server_runs_as_process_1_and_is_healthy_and_stops_at_the_signal(tmp_path: Path, driver: Path) -> None:
    program = (sys.executable, "-m", "aeron_spark")
    serve_and_stop(container(tmp_path, driver, program, PYTHONPATH=str(CONNECTOR), HOME=str(tmp_path)))


@pytest.mark.full("it downloads and installs the requirements; the test above runs the same commands")
def test_the_installed_package_serves_with_an_empty_home_and_read_only_files(tmp_path: Path, driver: Path) -> None:
    wheel = build_wheel(tmp_path)
    prefix, home = tmp_path / "prefix", tmp_path / "home"
    for folder in (home, tmp_path / "of-pip"):
        folder.mkdir()
    venv.create(prefix, with_pip=True)
    path = f"{prefix / 'bin'}:{os.environ['PATH']}"
    (install,) = [one.text for one in instructions("RUN") if "pip install" in one.text]
    done = subprocess.run(
        ["sh", "-c", install.replace("/tmp/wheel", str(wheel.parent))], capture_output=True, text=True,
        env={"PATH": path, "HOME": str(tmp_path / "of-pip")}, timeout=INSTALL_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one = container(tmp_path, driver, (str(prefix / "bin" / "aeron-spark"),), PATH=path, HOME=str(home))
    # The server refuses the option http without the extra that the image installs.
    serve_and_stop(one, "--http", f"127.0.0.1:{free_ports()[0]}", read_only=prefix)
    assert list(home.iterdir()) == []
