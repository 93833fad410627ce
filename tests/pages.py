"""The code blocks of README.md and docs/: which there are, and what an HTML comment says about each to the tests.

A block of Python or shell is executed by ``tests/spark/test_pages.py``, which runs the blocks of a section (from one
``##`` to the next) in order. A comment on the line above a block changes that:

* ``<!-- not executed: REASON -->``. The reason begins as one of :data:`REASONS`; the block is only compiled.
* ``<!-- in the background -->``: a program that runs on, such as a server, until the section ends.
* ``<!-- before this block: CODE -->``, on one line or several: Python that makes what the text takes for granted.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PYTHON: Final = frozenset({"python"})
SHELL: Final = frozenset({"sh"})
NOT_CODE: Final = frozenset({"", "text", "mermaid"})
# Pages that `make docs` writes: their texts have tests of their own.
GENERATED: Final = frozenset({"docs/behaviours.md", "docs/command-line.md", "docs/options.md"})
# Pages whose blocks do not run as they stand yet.
# How a reason for not executing a block may begin, and what such a block would do.
REASONS: Final = {
    "it installs packages": "replace what is tested by a release",
    "it needs Databricks": "run on a cluster that no test has",
    "it changes this machine": "set the kernel or mount something, for all programs",
    "it runs the tests": "run what runs it",
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
    """A code block: where its code begins (``line``, from 1), and what the comment above it says."""

    line: int
    language: str
    code: str
    reason: str = ""  # why it is not executed; empty for a block that is
    before: str = ""
    in_background: bool = False

    @property
    def is_python(self) -> bool:
        """Whether it is Python, and not shell."""
        return self.language in PYTHON


@dataclass(frozen=True, slots=True)
class Section:
    """The code blocks between one ``##`` and the next; ``page`` is a path below the repository."""

    page: str
    heading: str
    blocks: tuple[Block, ...]

    @property
    def executed(self) -> tuple[Block, ...]:
        """The blocks that the test executes."""
        return tuple(block for block in self.blocks if not block.reason)


def pages(root: Path = ROOT) -> list[str]:
    """Return the pages that people write, as paths below ``root``."""
    found = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [name for path in found if (name := path.relative_to(root).as_posix()) not in GENERATED]


def sections(page: str, root: Path = ROOT) -> list[Section]:
    """Return the sections of a page that have code."""
    return parse(page, (root / page).read_text(encoding="utf-8"))


def parse(page: str, text: str) -> list[Section]:
    """Return the sections of a text that have code. Raises ValueError for a block or a comment that is not clear."""
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
            raise ValueError(f"{where}: {reason!r} begins as none of the reasons in tests/pages.py: {list(REASONS)}")
        yield Block(line, language, code, reason=reason)
    elif comment.startswith(_BEFORE):
        yield Block(line, language, code, before=textwrap.dedent(comment.removeprefix(_BEFORE)).strip())
    elif comment == _BACKGROUND:
        yield Block(line, language, code, in_background=True)
    else:
        raise ValueError(f"{where}: the comment {comment!r} above a code block says nothing that tests/pages.py knows")
