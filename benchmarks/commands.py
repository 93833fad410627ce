"""Measures how long commands of ``aeron-spark`` take: those that need no JVM, and those that start one."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.environment import Environment
from benchmarks.measure import ROOT, Figure, measure_seconds
from benchmarks.secure_server import SecureServer, run_server
from benchmarks.trades import SCHEMA_XML

TIMEOUT_S: Final = 300.0


def run(env: Environment) -> Iterator[Figure]:
    """Run each command in turns; the figure of a kind is the slowest command's median."""
    with run_server(env, "commands") as server:
        schema = env.folder / "trades.xml"
        schema.write_text(SCHEMA_XML)
        server.new_stream()
        for kind, bar, commands in (
            ("no JVM", "<= 0.15", _without_jvm(env, server, schema)),
            ("a JVM", "<= 0.8", _with_jvm(env, server)),
        ):
            durations = env.take_turns({name: _runner(arguments) for name, arguments in commands.items()})
            yield _figure(kind, bar, durations)


def _without_jvm(env: Environment, server: SecureServer, schema: Path) -> Mapping[str, tuple[str, ...]]:
    streams_dir = str(Path(server.connection["identity"]).with_name("streams"))
    return {
        "--version": ("--version",),
        "keys show": ("keys", "show", "--identity", server.connection["identity"]),
        "sbe describe": ("sbe", "describe", str(schema)),
        "node status": ("node", "status", "--aeron-dir", env.node.aeron_dir),
        "connections list": ("connections", "list", "--streams-dir", streams_dir),
    }


def _with_jvm(env: Environment, server: SecureServer) -> Mapping[str, tuple[str, ...]]:
    return {
        "ping": ("ping", server.connection["server"], "--count", "1", *server.flags()),
        "streams list": ("streams", "list", "--server", server.connection["server"], *server.flags()),
        "recordings list": ("recordings", "list", "--aeron-dir", env.node.aeron_dir),
    }


def _runner(arguments: tuple[str, ...]) -> Callable[[], float]:
    return partial(measure_seconds, partial(_run, arguments))


def _run(arguments: tuple[str, ...]) -> None:
    completed = subprocess.run(
        SecureServer.command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=ROOT,
        env=os.environ,
    )  # fmt: skip
    if completed.returncode:
        raise RuntimeError(f"aeron-spark {' '.join(arguments)} exited with {completed.returncode}: {completed.stderr}")


def _figure(kind: str, bar: str, durations: Mapping[str, list[float]]) -> Figure:
    medians = {name: statistics.median(seconds) for name, seconds in durations.items()}
    slowest = max(medians, key=lambda name: medians[name])
    return Figure(
        f"commands that need {kind}, the slowest of {len(medians)}",
        medians[slowest],
        "s",
        bar,
        ", ".join(
            f"{name} {medians[name]:.2g} ({min(seconds):.2g} to {max(seconds):.2g})"
            for name, seconds in durations.items()
        ),
        durations,
    )
