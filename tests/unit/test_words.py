"""The pages stay short, and each sentence stands once."""

from __future__ import annotations

from typing import Final

import pytest

from tools.words import LONGEST_PAGE, count_words, is_generated, main, read_pages, repeated_sentences, sentences

MOST_WORDS: Final = 69_000  # of all pages


def test_no_long_sentence_stands_twice() -> None:
    assert repeated_sentences(read_pages()) == {}


def test_a_page_that_people_write_is_short() -> None:
    pages = {page: text for page, text in read_pages().items() if not is_generated(page)}
    long = [page for page, text in pages.items() if count_words(text) > LONGEST_PAGE]
    assert long == [], "split the page, or shorten it"


def test_all_pages_together_have_a_limit() -> None:
    assert sum(count_words(text) for text in read_pages().values()) <= MOST_WORDS


def test_sentences_are_found_in_paragraphs_items_and_cells_without_marks() -> None:
    text = (
        "# A title\n\nOne `sentence` over\ntwo lines. A *second* one: [here](page.md#a).\n\n"
        "* an item\n  on two lines\n1. another\n\n| A cell. | x \\| y. | a phrase |\n\n"
        "```sh\nnot. This.\n```\n<!-- nor\nthis -->\nend"
    )
    assert list(sentences(text)) == [
        "One sentence over two lines.", "A second one: here.", "an item on two lines", "another", "A cell.", "x \\| y.",
        "end",
    ]  # fmt: skip


def test_a_repeated_sentence_is_found_with_its_pages_if_it_is_long() -> None:
    long = "This sentence has more words than eight, and it stands twice."
    pages = {"a.md": f"Before. {long} It stands. It stands.", "b.md": f"| {long.replace('stands', '`stands`')} |"}
    assert repeated_sentences(pages) == {long: ["a.md", "b.md"]}


def test_words_have_a_letter_or_a_digit() -> None:
    assert count_words("| a | 1.5 | - |\n|---|---|---|\n* `x`") == 3


def test_the_command_prints_the_pages_and_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("docs/options.md (generated)") for line in lines)
    assert lines[-1].endswith("in all")
