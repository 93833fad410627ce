"""The planner gives the golden answers, as the planner of the Spark source in Java does."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.jvm_planner import planner_answer
from tests.programs import ROOT

GOLDEN: Final = [
    json.loads(line) for line in (ROOT / "tests/golden/spark/planner.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["case"])
def test_a_case_has_the_golden_answer(golden: dict[str, Any]) -> None:
    assert planner_answer(golden) == golden["answer"]
