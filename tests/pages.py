"""Finds the code blocks of README.md and docs/, and the HTML comments that control their execution.

``tests/spark/test_pages.py`` executes the blocks of Python and shell of a section (from one ``##`` to the next) in
order. A comment on the line above a block changes this:

* ``<!-- not executed: REASON -->``: the block is only compiled. The reason begins as one of :data:`REASONS`.
* ``<!-- in the background -->``: the block is a program that runs until the section ends, such as a server.
* ``<!-- before this block: CODE -->``, on one or more lines: Python that prepares what the text assumes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.programs import ROOT

PYTHON: Final = frozenset({"python"})
SHELL: Final = frozenset({"sh"})
NOT_CODE: Final = frozenset({"", "text", "mermaid"})
# Pages that `make docs` writes; their texts have separate tests.
GENERATED: Final = frozenset({"docs/command-line.md", "docs/options.md", "docs/promises.md"})
# The allowed beginnings of a reason for not executing a block, and what the block would do.
REASONS: Final = {
    "it installs packages": "replace the tested package by a release",
    "it needs Databricks": "run on a cluster, which the tests do not have",
    "it needs an Aeron Cluster": "read the log of a server of Aeron; other tests start one",
    "it needs Aeron's C media driver": "build it; `make test-peers` does so, and tests it",
    "it runs a job": "read a stream into a table; tests/spark/test_jobs.py does so",
    "it changes this machine": "change kernel settings or mounts for all programs",
    "it runs the tests": "run the tests again, from a test",
}

_BLOCK: Final = re.compile(
    r"^(?P<heading>\#\#[ ][^\n]*)$"
    r"|(?:^[ ]*<!--(?P<comment>(?:(?!-->).)*?)-->[ ]*\n\n?)?"
    r"^(?P<indent>[ ]*)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_BEFORE: Final = "before this block:"
_NOT: Final = "not executed:"
_BACKGROUND: Final = "in the background"


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: the line of its code, from 1, and the values of the comment above it."""

    line: int
    language: str
    code: str
    reason: str = ""  # for not executing the block; empty if it is executed
    before: str = ""
    in_background: bool = False

    @property
    def is_python(self) -> bool:
        """Whether the block is Python; otherwise it is shell."""
        return self.language in PYTHON


@dataclass(frozen=True, slots=True)
class Section:
    """The code blocks between one ``##`` and the next; ``page`` is a path relative to the repository."""

    page: str
    heading: str
    blocks: tuple[Block, ...]

    @property
    def executed(self) -> tuple[Block, ...]:
        """The blocks that the tests execute."""
        return tuple(block for block in self.blocks if not block.reason)


def pages(root: Path = ROOT) -> list[str]:
    """Return the pages that are not generated, as paths relative to ``root``."""
    found = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [name for path in found if (name := path.relative_to(root).as_posix()) not in GENERATED]


def sections(page: str, root: Path = ROOT) -> list[Section]:
    """Return the sections with code of a page."""
    return parse(page, (root / page).read_text(encoding="utf-8"))


def parse(page: str, text: str) -> list[Section]:
    """Return the sections with code of a text. Raises ValueError for an unknown language or comment."""
    found: dict[str, list[Block]] = {}
    heading = ""
    for match in _BLOCK.finditer(text):
        if match["heading"]:
            heading = match["heading"].removeprefix("## ")
            continue
        line = text.count("\n", 0, match.start("code")) + 1
        found.setdefault(heading, []).extend(_blocks(f"{page}:{line}", line, match))
    return [Section(page, heading, tuple(blocks)) for heading, blocks in found.items() if blocks]


def _blocks(where: str, line: int, match: re.Match[str]) -> Iterator[Block]:
    language, comment = match["language"].strip(), (match["comment"] or "").strip()
    if language in NOT_CODE:
        return
    if language not in PYTHON | SHELL:
        raise ValueError(f"{where}: unknown language {language!r}, expected one of: python, sh, text, mermaid")
    code = textwrap.dedent(match["code"])
    if not comment:
        yield Block(line, language, code)
    elif comment.startswith(_NOT):
        reason = comment.removeprefix(_NOT).strip()
        if not reason.startswith(tuple(REASONS)):
            raise ValueError(
                f"{where}: {reason!r} does not begin as one of the reasons in tests/pages.py: {list(REASONS)}"
            )
        yield Block(line, language, code, reason=reason)
    elif comment.startswith(_BEFORE):
        yield Block(line, language, code, before=textwrap.dedent(comment.removeprefix(_BEFORE)).strip())
    elif comment == _BACKGROUND:
        yield Block(line, language, code, in_background=True)
    else:
        raise ValueError(f"{where}: the comment {comment!r} above a code block is unknown, see tests/pages.py")
