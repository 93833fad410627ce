from __future__ import annotations

import zlib

import pytest

from benchmarks import server_peers, writing_peers
from benchmarks.checks import DataMismatchError, Totals, check, totals_of_corpus, totals_of_values
from benchmarks.corpora import CORPORA, QUICK_BYTES, Corpus, chosen_names

MIXED = CORPORA["40-700 B"]


def test_a_value_is_the_number_of_its_row_padded_on_the_left() -> None:
    assert Corpus("8 B", 8, 8, 20).value(17) == b"xxxxxx17"
    assert Corpus("2 B", 2, 2, 2000).value(1234) == b"12"  # as Spark's lpad cuts


def test_mixed_lengths_cover_their_range_and_have_the_stated_mean() -> None:
    lengths = [MIXED.length(row) for row in range(20_000)]
    assert set(lengths) == set(range(40, 701))
    assert sum(lengths) / len(lengths) == pytest.approx(MIXED.mean_length, rel=0.01)
    assert all(len(MIXED.value(row)) == MIXED.length(row) for row in range(100))


def test_neighbours_have_lengths_that_look_random() -> None:
    assert [MIXED.length(row) for row in range(6)] == [40, 222, 404, 587, 108, 291]


def test_the_expressions_have_the_lengths_of_the_corpus() -> None:
    assert CORPORA["180 B"].expression() == "cast(lpad(cast(id as string), cast(180 as int), 'x') as binary) value"
    assert "40 + pmod(shiftright(id * 2654435761L, 16), 661L)" in MIXED.expression()


@pytest.mark.parametrize("corpus", CORPORA.values(), ids=CORPORA)
def test_each_corpus_is_large_and_small_in_its_quick_form(corpus: Corpus) -> None:
    assert corpus.rows * corpus.mean_length > 5e8
    assert corpus.quick().rows * corpus.mean_length <= QUICK_BYTES


def test_the_totals_of_a_corpus_are_those_of_its_values() -> None:
    corpus = Corpus("4 B", 4, 4, 2)
    expected = Totals(2, 8, zlib.crc32(b"xxx0") + zlib.crc32(b"xxx1"))
    assert totals_of_corpus(corpus) == expected
    assert totals_of_values([b"xxx0", b"xxx1"] * 3) == expected.times(3)


@pytest.mark.parametrize("found", [Totals(1, 8, 9), Totals(2, 7, 9), Totals(2, 8, 8)])
def test_other_rows_bytes_or_contents_stop_the_run(found: Totals) -> None:
    check("kafka", Totals(2, 8, 9), Totals(2, 8, 9))
    with pytest.raises(DataMismatchError, match="kafka delivered Totals"):
        check("kafka", found, Totals(2, 8, 9))


@pytest.mark.parametrize("names", [tuple(CORPORA), writing_peers.SIZES, server_peers.SIZES])
def test_the_quick_form_of_each_part_has_some_of_its_corpora(names: tuple[str, ...]) -> None:
    assert chosen_names(names, quick=False) == list(names)
    chosen = chosen_names(names, quick=True)
    assert 0 < len(chosen) < len(names)
    assert set(chosen) < set(names)
