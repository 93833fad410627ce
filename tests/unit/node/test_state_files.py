from __future__ import annotations

import json
from pathlib import Path

import pytest

from aeron_spark.errors import AeronSparkError, OptionError, SetupError
from aeron_spark.node import state_files
from aeron_spark.node.settings import NodeSettings

RECORD = state_files.NodeRecord(
    pid=7,
    host="host-a",
    started=1.5,
    aeron_dir="/dev/shm/x",
    archive_dir="/a",
    archive_id=2**61,
    aeron_version="1.51.0",
    package_version="0.1.0",
    settings=NodeSettings(properties=(("aeron.x", "y"),)),
    warning="slow",
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    assert state_files.read_record(path) is None
    state_files.write_record(path, RECORD)
    assert state_files.read_record(path) == RECORD
    assert list(tmp_path.iterdir()) == [path]


def test_a_record_of_another_version_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    state_files.write_record(path, RECORD)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(SetupError, match=r"another version of aeron-spark.*Stop it with that version"):
        state_files.read_record(path)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = state_files.NodeState(12.5, 3, 1)
    state_files.write_state(tmp_path / "s", state)
    assert state_files.read_state(tmp_path / "s") == state
    assert state_files.read_state(tmp_path / "none") is None


@pytest.mark.parametrize(
    "error", [SetupError("no Java", remedy="Install it."), OptionError("odd"), AeronSparkError("x")]
)
def test_a_failure_keeps_its_class_and_text(tmp_path: Path, error: AeronSparkError) -> None:
    state_files.write_failure(tmp_path / "f", error)
    found = state_files.read_failure(tmp_path / "f")
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert state_files.read_failure(tmp_path / "none") is None
