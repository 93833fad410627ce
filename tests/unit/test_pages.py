"""Each code block of README.md and docs/ is valid; tests/spark/test_pages.py executes it unless it has a reason."""

from __future__ import annotations

import ast
import subprocess
from typing import Final

import pytest

from tests.pages import Block, pages, parse, sections

BLOCKS: Final = [(page, block) for page in pages() for section in sections(page) for block in section.blocks]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=lambda value: str(getattr(value, "line", value)))
def test_every_block_is_valid_python_or_shell(page: str, block: Block) -> None:
    if block.is_python:
        ast.parse(block.code)
        ast.parse(block.before)
    else:
        subprocess.run(["bash", "-n", "-c", block.code], check=True, capture_output=True)


def test_blocks_are_found_by_section_and_keep_their_lines() -> None:
    text = "# p\n\n```python\none\n```\n\n## a\n\n1. b\n\n   ```sh\n   two\n     more\n   ```\n\n```text\nno\n```\n"
    first, second = parse("p.md", text)
    assert (first.heading, first.blocks) == ("", (Block(4, "python", "one\n"),))
    assert (second.heading, second.blocks) == ("a", (Block(12, "sh", "two\n  more\n"),))


@pytest.mark.parametrize(
    ("comment", "block"),
    [
        ("<!-- not executed: it needs Databricks -->\n", Block(5, "python", "x\n", reason="it needs Databricks")),
        ("<!-- in the background -->\n\n", Block(6, "python", "x\n", in_background=True)),
        ("<!-- before this block:\nif a:\n    b\n-->\n", Block(8, "python", "x\n", before="if a:\n    b")),
    ],
)  # fmt: skip
def test_a_comment_above_a_block_controls_its_execution(comment: str, block: Block) -> None:
    (section,) = parse("p.md", f"text <!-- another --> text\n\n{comment}```python\nx\n```\n")
    assert section.blocks == (block,)
    assert section.executed == (() if block.reason else (block,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```java\nx\n```\n", r"p.md:2: unknown language 'java'"),
        (
            "<!-- not executed: it is long -->\n```sh\nx\n```\n",
            r"p.md:3: 'it is long' does not begin as one of the reasons",
        ),
        ("<!-- not executed -->\n```sh\nx\n```\n", r"the comment 'not executed' above a code block is unknown"),
    ],
)
def test_an_unknown_language_or_comment_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse("p.md", text)
