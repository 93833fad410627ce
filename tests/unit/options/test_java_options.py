"""The declarations that the Spark source in Java reads are those of Python, and both give the golden answers."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ReadOptions
from tests.jvm_options import answer
from tests.programs import ROOT
from tools.java_options import PATH, java_options

GOLDEN: Final = [
    json.loads(line) for line in (ROOT / "tests/golden/spark/options.jsonl").read_text(encoding="utf-8").splitlines()
]


def test_the_file_of_the_jar_is_generated() -> None:
    assert PATH.read_text(encoding="utf-8") == java_options(), "run `make docs`"


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["case"])
def test_options_have_the_golden_values_or_error(golden: dict[str, Any]) -> None:
    assert answer(golden["options"], streaming=golden["streaming"]) == golden["answer"]


def test_the_python_format_refuses_the_option_of_the_other() -> None:
    with pytest.raises(OptionError, match=r"only for format\('aeron-jvm'\), not for format\('aeron'\)"):
        ReadOptions.parse({"channel": "aeron:ipc", "streamId": "1001", "sbeTable": "{}"}, streaming=True)
