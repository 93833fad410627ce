"""Counts the words of README.md and of each page of docs/, and finds sentences that stand twice.

``python -m tools.words`` prints both. A word is text between blanks that has a letter or a digit, code and tables
included. A sentence is part of a paragraph, of an item of a list, or of a cell of a table that ends
with a full stop; code blocks have none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LONGEST_PAGE: Final = 2_500
SHORT_SENTENCE: Final = 8  # words; a sentence of more may stand once only
# Pages that the code's own tables make. Those tables decide their length; their texts stand in the code.
GENERATED: Final = (
    "docs/command-line.md", "docs/commands/", "docs/events.md", "docs/options.md", "docs/performance/figures.md",
    "docs/promises.md", "docs/stream-requests.md",
)  # fmt: skip

_BLOCK: Final = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_ITEM: Final = re.compile(r"^[ ]*(?:[*-]|\d+\.)[ ]+")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END: Final = re.compile(r"(?<=[.:!?])[ ]+(?=[A-Z0-9`*\"'(\[])")


def read_pages(root: Path = ROOT) -> dict[str, str]:
    """Return the texts of README.md and of the pages in docs/ and its folders, by path relative to ``root``."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def is_generated(page: str) -> bool:
    """Whether code makes the whole page."""
    return page.startswith(GENERATED)


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return sum(1 for word in text.split() if any(character.isalnum() for character in word))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without marks for links, emphasis and code."""
    for part in _parts(_BLOCK.sub("\n", text)):
        plain = re.sub(r"[`*]", "", _LINK.sub(r"\1", part))
        yield from (" ".join(sentence.split()) for sentence in _END.split(plain))


def _parts(text: str) -> Iterator[str]:
    """Yield the paragraphs, items of lists and cells of tables; headings are none of them."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts_part = not line.strip() or line.startswith(("#", "|")) or _ITEM.match(line) is not None
        if starts_part and lines:
            yield " ".join(lines)
            lines = []
        if line.startswith("|"):
            cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            yield from (cell for cell in cells if cell.endswith((".", ":", "!", "?")))  # others are phrases
        elif line.strip() and not line.startswith("#"):
            lines.append(_ITEM.sub("", line).strip())


def repeated_sentences(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Return each sentence of more than :data:`SHORT_SENTENCE` words that stands twice, with its pages."""
    found: dict[str, list[str]] = {}
    for page, text in pages.items():
        for sentence in sentences(text):
            if count_words(sentence) > SHORT_SENTENCE:
                found.setdefault(sentence, []).append(page)
    return {sentence: places for sentence, places in found.items() if len(places) > 1}


def main() -> int:
    """Print the words of each page and the repeated sentences; return 1 if there is such a sentence."""
    pages = read_pages()
    counts = {page: count_words(text) for page, text in pages.items()}
    for page, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:>7,} {page}{' (generated)' if is_generated(page) else ''}")
    print(f"{sum(counts.values()):>7,} in all")
    repeated = repeated_sentences(pages)
    for sentence, places in repeated.items():
        print(f"{len(places)} times, in {', '.join(dict.fromkeys(places))}: {sentence}")
    return 1 if repeated else 0


if __name__ == "__main__":
    sys.exit(main())
