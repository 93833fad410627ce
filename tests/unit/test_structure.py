"""The figures of the package's structure count what their names say."""

from __future__ import annotations

import subprocess
from textwrap import dedent

import pytest

from tools.structure import figures, read_folder, read_revision, table

FILES = {
    "connector/aeron_spark/__init__.py": "",
    "connector/aeron_spark/client/__init__.py": "from aeron_spark.client.one import First\n",
    "connector/aeron_spark/client/one.py": dedent(
        '''
        from aeron_spark.protocol import client_events

        class First(Protocol):
            def send(self, a, b):
                """Send it."""
                return self._two.send(a, b=b)

            def close(self, now):
                self._two.close(now + 1)  # a reason

            # one comment
            # of two lines
            def many(self, a, b, c, d, e, f, *, g, h):
                return self._two.few(a)
        '''
    ),
    "connector/aeron_spark/protocol/client_events.py": "@dataclass(frozen=True)\nclass First:\n    number: int\n",
    "docs/architecture.md": (
        "Row `client/one`\n\n## Walk 1: a\n`client/one`, then protocol/client_events and `client/one`\n\n## End\n"
        "`client/two`\n"
    ),
}


def test_each_figure_counts_what_its_name_says() -> None:
    assert figures(FILES) == {
        "lines": 19,
        "modules without __init__": 2,
        "modules with one importer": 2,
        "modules of less than 80 lines": 2,
        "classes": 2,
        "class names that occur twice": 1,
        "event, effect and action classes": 1,
        "protocols and abstract classes": 1,
        "methods that only pass a call on": 1,
        "functions with more than 7 parameters": 1,
        "comments": 2,
        "modules that the page names in walk 1": 2,
    }


def test_the_table_has_a_column_for_each_revision() -> None:
    text = table({"old": {"lines": 12_345, "gone": 1}, "new": {"lines": 99}})
    assert text.splitlines() == [
        "| figure | old | new |",
        "|---|---|---|",
        "| lines | 12,345 | 99 |",
        "| gone | 1 | - |",
    ]


def test_the_project_is_read_from_its_folder_and_from_git() -> None:
    for files in (read_folder(), read_revision("HEAD")):
        assert len(files) > 200
        assert {"connector/aeron_spark/__init__.py", "docs/architecture.md"} < set(files)
    with pytest.raises(subprocess.CalledProcessError):
        read_revision("no-such-revision")
