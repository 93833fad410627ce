"""The folders of this project, and separate programs that use it, for tests that kill and count processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.class_data import QUICK

ROOT: Final = Path(__file__).resolve().parents[1]
CONNECTOR: Final = ROOT / "connector"
JAR: Final = next((CONNECTOR / "aeron_spark" / "jars").glob("aeron-all-*.jar"), Path("aeron-all.jar"))


class Program(subprocess.Popen[str]):
    """A process that a failed ``with`` block kills; Popen would wait for its end without a deadline."""

    def send(self, line: str) -> None:
        assert self.stdin is not None  # it is a pipe
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


def python_environ(**more: str) -> dict[str, str]:
    """Return environment variables with which a Python finds the package and the tests, and ``more`` ones."""
    return {**os.environ, "PYTHONPATH": f"{CONNECTOR}{os.pathsep}{ROOT}", **more}


def start_interpreter(*arguments: str, environ: Mapping[str, str] | None = None, **options: Any) -> Program:
    """Start a Python that can import the package and the tests; by default its input and output are pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return Program([sys.executable, *arguments], env=python_environ(**(environ or {})), text=True, **(pipes | options))


def start_module(module: str, *arguments: str, environ: Mapping[str, str] | None = None, **options: Any) -> Program:
    """Start a module of the package or of the tests in a separate process, as ``start_python`` does."""
    return start_interpreter("-m", module, *arguments, environ=environ, **options)


def start_python(code: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Program:
    """Start ``code`` in a separate Python process that can import the package; its input and output are pipes."""
    return start_interpreter("-W", "error", "-c", code, *arguments, environ=environ, stderr=subprocess.STDOUT)


def start_foreign_driver(
    aeron_dir: Path, main: str = "io.aeron.driver.MediaDriver", *options: str
) -> subprocess.Popen[bytes]:
    """Start a media driver without this package."""
    return subprocess.Popen(
        [
            "java",
            QUICK,
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "-cp",
            str(JAR),
            f"-Daeron.dir={aeron_dir}",
            "-Daeron.threading.mode=SHARED",
            "-Daeron.dir.delete.on.shutdown=true",
            *options,
            main,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
