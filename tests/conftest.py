"""For every test: directories of the run, a printed seed, and a check for leaked resources."""

from __future__ import annotations

import gc
import os
import random
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from aeron_spark.aeron import jvm
from tests import budget, class_data, failures, marks, sampling, shared_nodes
from tests.leaks import (
    RUN_PREFIX,
    RUN_VARIABLE,
    SHARED_MEMORY,
    TIMEOUT_VARIABLE,
    leaks_since,
    remove_leaks,
    take_snapshot,
)
from tests.nodes import new_aeron_dir, remove_node
from tests.shared_nodes import SharedNodes

SEED = "AERON_SPARK_SEED"  # an environment variable, so that the workers of a parallel run get it
# time for stopped resources to end; at the end of the run, this includes the idle timeout of an embedded node
LEAK_TIMEOUT_S = float(os.environ.get(TIMEOUT_VARIABLE, "60"))

# `make test` must have the same result for the same code each time; `make soak` tries other examples, from its seed.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
# `make check` runs often, so it uses fewer examples: the first ones of `make test`.
settings.register_profile("quick", parent=settings.get_profile("repeatable"), max_examples=30)
settings.register_profile("soak", max_examples=2_000, deadline=None, database=None)

_run = pytest.StashKey[tuple[str, Path, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    budget.pytest_addoption(parser)
    failures.pytest_addoption(parser)
    sampling.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Set the name and the directories of the run, before a module of the package reads the environment."""
    seed = int(os.environ.get(SEED, "1"))
    run = f"{RUN_PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
    home = Path(tempfile.mkdtemp(prefix=f"{run}-"))
    shared = SharedNodes.of(config, home)
    config.stash[_run] = run, home, seed
    chosen = config.getoption("--hypothesis-profile", None)
    settings.load_profile("soak" if SEED in os.environ else chosen or "repeatable")
    for name in [name for name in os.environ if name.startswith("AERON_SPARK_") and name != SEED]:
        del os.environ[name]
    directories = {
        "XDG_DATA_HOME": shared.data,
        "XDG_CONFIG_HOME": home / "config",
        "XDG_CACHE_HOME": home / "cache",
        "XDG_STATE_HOME": home / "state",
        "AERON_SPARK_DATA_HOME": shared.data / "aeron-spark",
        "AERON_SPARK_CONFIG_HOME": home / "config" / "aeron-spark",
        "AERON_SPARK_AERON_DIR": (SHARED_MEMORY if SHARED_MEMORY.is_dir() else home) / run,
        "MPLCONFIGDIR": home / "matplotlib",
        "IPYTHONDIR": home / "ipython",
        "SPARK_LOCAL_DIRS": home / "spark",
        # otherwise Spark's workers use the first `python3` on the path
        "PYSPARK_PYTHON": Path(sys.executable),
        "PYSPARK_DRIVER_PYTHON": Path(sys.executable),
    }
    for name, path in directories.items():
        os.environ[name] = str(path)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        directories[name].mkdir(mode=0o700, exist_ok=True)  # the workers share the folder of nodes
    os.environ[RUN_VARIABLE] = run
    if config.option.markexpr != "soak":  # a soak runs long enough for Java's second compiler
        os.environ[jvm.OPTIONS_VARIABLE] = shlex.join(class_data.java_options())
    enable_signals()
    config.pluginmanager.register(marks, "marks")
    config.pluginmanager.register(sampling, "sampling")
    config.pluginmanager.register(shared_nodes)
    config.pluginmanager.register(shared, shared_nodes.NAME)
    budget.register(config, run)
    failures.register(config, run)


def enable_signals() -> None:
    """Enable SIGINT and SIGHUP for the programs that tests start.

    A shell starts a command in the background with SIGINT ignored, and nohup with SIGHUP; programs inherit this.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(
            signal.SIGHUP, lambda number, frame: None
        )  # this process ignores it, a program gets the default action


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect thousands of tests without garbage collection, and exclude their objects from it afterwards.

    The processor time of the collection falls by a tenth or more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_run][1], ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seeds here, because pytest prints no header with ``-q``."""
    terminalreporter.write_line(f"seed: {config.stash[_run][2]} ({SEED} sets it)")
    if config.pluginmanager.hasplugin("randomly"):
        order = config.getoption("randomly_seed")
        terminalreporter.write_line(f"random order: {order} (make test ORDER=random ARGS=--randomly-seed={order})")


@pytest.fixture(scope="session")
def run_name(pytestconfig: pytest.Config) -> str:
    """The name of this test run, which its directories in /dev/shm begin with."""
    return pytestconfig.stash[_run][0]


@pytest.fixture(scope="session", autouse=True)
def check_leaks_of_the_run(run_name: str) -> Iterator[None]:
    before = take_snapshot()
    yield
    leaks = leaks_since(before, run_name, timeout_s=LEAK_TIMEOUT_S, strict=True)
    if leaks:
        remove_leaks(before, run_name, strict=True)
    assert not leaks, "leaks of the whole run:\n" + "\n".join(leaks)


@pytest.fixture(autouse=True)
def check_leaks_of_the_test(check_leaks_of_the_run: None, run_name: str) -> Iterator[None]:
    """Check after the fixtures of one test have ended; fixtures of wider scopes are checked at the end of the run."""
    before = take_snapshot()
    yield
    leaks = leaks_since(before, run_name, timeout_s=LEAK_TIMEOUT_S)
    if leaks:
        remove_leaks(before, run_name)
    assert not leaks, "leaks of this test:\n" + "\n".join(leaks)


@pytest.fixture
def aeron_dir(run_name: str) -> Path:
    """A path for the directory of a media driver of one test, which must remove the directory."""
    return new_aeron_dir(run_name)


@pytest.fixture
def own_dir(aeron_dir: Path) -> Iterator[Path]:
    """The directory of a node that the test may start and kill; it is stopped and removed after the test."""
    yield aeron_dir
    remove_node(aeron_dir)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers from the printed seed, different for each test."""
    return random.Random(request.config.stash[_run][2] ^ zlib.crc32(request.node.nodeid.encode()))
