"""For every test: places of its own, a seed that is printed, and a look at what it left behind."""

from __future__ import annotations

import gc
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import budget, marks
from tests.leaks import PATIENCE_VARIABLE, RUN_PREFIX, RUN_VARIABLE, SHARED_MEMORY, left_since, look, remove_since

SEED = "AERON_SPARK_SEED"  # kept in the environment, where the workers of a parallel run find it
# seconds for what a test stopped to be gone; at the end an embedded node lingers after its last user
PATIENCE = float(os.environ.get(PATIENCE_VARIABLE, "60"))

# `make test` must say the same of the same code every time; `make soak` searches on, from its seed.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
# `make check` is run many times an hour: fewer examples of each property, the first of those that `make test` takes.
settings.register_profile("quick", parent=settings.get_profile("repeatable"), max_examples=30)
settings.register_profile("soak", max_examples=2_000, deadline=None, database=None)

_run = pytest.StashKey[tuple[str, Path, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    budget.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a name and homes of its own, before any module of the package can read the environment."""
    seed = int(os.environ.get(SEED, "1"))
    run = f"{RUN_PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
    home = Path(tempfile.mkdtemp(prefix=f"{run}-"))
    config.stash[_run] = run, home, seed
    chosen = config.getoption("--hypothesis-profile", None)
    settings.load_profile("soak" if SEED in os.environ else chosen or "repeatable")
    for name in [name for name in os.environ if name.startswith("AERON_SPARK_") and name != SEED]:
        del os.environ[name]
    places = {
        "XDG_DATA_HOME": home / "data",
        "XDG_CONFIG_HOME": home / "config",
        "XDG_CACHE_HOME": home / "cache",
        "XDG_STATE_HOME": home / "state",
        "AERON_SPARK_DATA_HOME": home / "data" / "aeron-spark",
        "AERON_SPARK_CONFIG_HOME": home / "config" / "aeron-spark",
        "AERON_SPARK_AERON_DIR": (SHARED_MEMORY if SHARED_MEMORY.is_dir() else home) / run,
        "MPLCONFIGDIR": home / "matplotlib",
        "IPYTHONDIR": home / "ipython",
        "SPARK_LOCAL_DIRS": home / "spark",
        # Spark's workers would otherwise be whatever `python3` is first on the path
        "PYSPARK_PYTHON": Path(sys.executable),
        "PYSPARK_DRIVER_PYTHON": Path(sys.executable),
    }
    for name, place in places.items():
        os.environ[name] = str(place)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        places[name].mkdir(mode=0o700)
    os.environ[RUN_VARIABLE] = run
    hear_signals()
    config.pluginmanager.register(marks, "marks")
    budget.register(config, run)


def hear_signals() -> None:
    """Have the programs that tests start hear SIGINT and SIGHUP.

    A shell starts a command in the background with SIGINT ignored, and nohup with SIGHUP; programs inherit this.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # this process goes on; a program gets the default


def pytest_collection_finish() -> None:
    """Spare the garbage collector what thousands of collected tests hold until the end of the run."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_run][1], ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seeds; a header would not show with ``-q``."""
    terminalreporter.write_line(f"seed: {config.stash[_run][2]} ({SEED} sets it)")
    if config.pluginmanager.hasplugin("randomly"):
        order = config.getoption("randomly_seed")
        terminalreporter.write_line(f"random order: {order} (make test ORDER=random ARGS=--randomly-seed={order})")


@pytest.fixture(scope="session")
def run_name(pytestconfig: pytest.Config) -> str:
    """The name of this test run: what is named after it in /dev/shm is known to be its own."""
    return pytestconfig.stash[_run][0]


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_of_the_run(run_name: str) -> Iterator[None]:
    before = look()
    yield
    left = left_since(before, run_name, patience=PATIENCE, strict=True)
    if left:
        remove_since(before, run_name, strict=True)
    assert not left, "left behind by the whole run:\n" + "\n".join(left)


@pytest.fixture(autouse=True)
def nothing_is_left_of_the_test(nothing_is_left_of_the_run: None, run_name: str) -> Iterator[None]:
    """Fixtures of one test are gone when this looks; those of a module or of the run have their own last look."""
    before = look()
    yield
    left = left_since(before, run_name, patience=PATIENCE)
    if left:
        remove_since(before, run_name)
    assert not left, "left behind by this test:\n" + "\n".join(left)


@pytest.fixture
def aeron_dir(run_name: str) -> Path:
    """A directory for a media driver of the test's own, not made yet. The test leaves none there."""
    return SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Chance from the printed seed, for each test its own."""
    return random.Random(request.config.stash[_run][2] ^ zlib.crc32(request.node.nodeid.encode()))
