"""Units of sizes and times are unambiguous in documents: ``2m`` was 2 MiB and 2 minutes in the same table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node.settings import parse_requested
from aeron_spark.options import values
from aeron_spark.options.declaration import Option, all_options
from aeron_spark.stream_client.operations import Retention, parse_retention

DOCS = Path(__file__).resolve().parents[3] / "docs"
AMBIGUOUS = re.compile(r"-?\d+(?:\.\d+)?\s*m")
SIZES = ("SIZE",)
DURATIONS = ("DURATION", "DURATION-OR-ZERO", "MOMENT")


@pytest.mark.parametrize(
    "option", [one for one in all_options() if one.type.metavar in (*SIZES, *DURATIONS)], ids=lambda one: f"{one.name}"
)
def test_defaults_and_examples_have_unambiguous_units(option: Option) -> None:
    for text in filter(None, (option.default, option.batch_default, option.example)):
        assert not AMBIGUOUS.fullmatch(text), text
        if option.type.metavar in SIZES:
            assert re.fullmatch(r"\d+(?:[KMGT]iB)?", text), text


def test_the_generated_pages_do_not_use_the_unit_m() -> None:
    for page in (DOCS / "options.md", DOCS / "command-line.md", *(DOCS / "commands").glob("*.md")):
        text = page.read_text(encoding="utf-8").replace("`2m` is 2 MiB for a size and 2 minutes", "")
        assert re.findall(r"\b\d+m\b", text) == [], page


def test_m_is_valid_for_an_option_that_is_only_a_size_or_only_a_time() -> None:
    assert values.parse_size("2m", 0, values.INT64_MAX) == values.parse_size("2MiB", 0, values.INT64_MAX) == 2 << 20
    assert values.parse_duration_ns("2m") == values.parse_duration_ns("2min") == 120 * values.NANOS
    assert (
        parse_requested({"term_length": "1m"}) == parse_requested({"term_length": "1MiB"}) == {"term_length": 1 << 20}
    )


@pytest.mark.parametrize(
    ("text", "meant"), [("64m", "64MiB or 64min"), ("64", "64B or 64s"), ("10GiB,1.5m", "1.5MiB or 1.5min")]
)
def test_an_ambiguous_retention_is_refused_with_both_meanings(text: str, meant: str) -> None:
    with pytest.raises(OptionError, match="may be a size or a time") as raised:
        parse_retention(text)
    assert raised.value.remedy == f"Write {meant}."


def test_a_retention_with_an_unambiguous_unit_is_accepted() -> None:
    assert parse_retention("64MiB") == Retention(bytes=64 << 20)
    assert parse_retention("64min") == Retention(seconds=3840.0)
    assert parse_retention("64B") == Retention(bytes=64)
    assert parse_retention("10GiB,7d") == Retention(bytes=10 << 30, seconds=604_800.0)
