from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measure import Figure, describe_machine, jar_version


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (0.85, ">= 0.85", True),
        (0.84, ">= 0.85", False),
        (1.25, "<= 1.25", True),
        (1.3, "<= 1.25", False),
        (9, "", None),
    ],
)
def test_a_target_is_met_or_missed(value: float, target: str, met: bool | None) -> None:
    assert Figure("f", value, "s", target).met is met


def test_the_machine_is_described_with_its_cores_and_versions() -> None:
    machine = describe_machine()
    assert machine["cores"] >= 1
    assert machine["pyspark"]


def test_the_version_of_a_jar_is_in_its_name(tmp_path: Path) -> None:
    for name in ("kafka-clients-3.9.2.jar", "kafka-clients-test-1.0.jar"):
        (tmp_path / name).touch()
    assert jar_version(tmp_path, "kafka-clients") == "3.9.2"
    assert jar_version(tmp_path, "aeron-all") == ""
