"""A pytest plugin that runs a tenth of the tests marked ``sampled``, another one in each run.

These tests repeat promises that cheaper tests show, in slower worlds: kills of processes, and real networks. Each run
of ``make test`` takes a tenth of those in each folder, at least one. ``--sample=SEED`` chooses them; without it, as in
``make test-full`` and for tests that are named on the command line, all run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import pytest

SHARE: Final = 10  # one of so many tests


def add_option(parser: pytest.Parser) -> None:
    """Add the option; the plugin is registered too late for its hook."""
    parser.addoption(
        "--sample", metavar="SEED", default="", help="run a tenth of the tests marked `sampled`, chosen by the seed"
    )


def chosen(names: Sequence[str], seed: str) -> frozenset[str]:
    """Return the names of the tests that run with this seed: a tenth of each folder's, rounded up."""
    folders: dict[PurePosixPath, list[str]] = defaultdict(list)
    for name in sorted(names):
        folders[PurePosixPath(name.partition("::")[0]).parent].append(name)
    return frozenset(
        name
        for folder, tests in folders.items()
        for name in random.Random(f"{seed}:{folder}").sample(tests, -(-len(tests) // SHARE))
    )


@pytest.hookimpl(trylast=True)  # the marks of the command line have deselected theirs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--sample")
    sampled = [item for item in items if any(item.iter_markers("sampled"))] if seed else []
    running = chosen([item.nodeid for item in sampled], seed)
    left_out = [item for item in sampled if item.nodeid not in running]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if seed := config.getoption("--sample"):
        terminalreporter.write_line(f"sample: {seed} (make test SAMPLE={seed} runs the same tests marked `sampled`)")
