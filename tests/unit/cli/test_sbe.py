"""``aeron-spark sbe describe`` prints the columns of a schema's messages, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aeron_spark.cli.main import main
from tests.sbe_orders import SCHEMA


@pytest.fixture
def schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a schema; a JVM cannot be started."""

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr("aeron_spark.aeron.jvm.start", refuse)
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    return str(path)


def test_each_column_is_a_line(schema: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sbe", "describe", schema]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[2:5] for line in lines if line[0] == "Order"] == [
        ["id", "BIGINT", "0"],
        ["price", "DECIMAL(19,4)", "0"],
        ["side", "STRING", "0"],
        ["symbol", "STRING", "0"],
        ["desk", "STRING", "2"],
        ["fills", "ARRAY<STRUCT>", "0"],
        ["fills.quantity", "BIGINT", "0"],
        ["note", "STRING", "0"],
    ]
    assert lines[-1] == ["Heartbeat", "9", "-", "-", "0", "no fields"]


def test_messages_and_mappings_are_chosen_and_json_has_an_object_for_each(
    schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--message", "1", "--decimals", "double", "--times", "id:ms", "--enums", "values", "--json"]
    assert main(["sbe", "describe", schema, *flags]) == 0
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found["message"], found["templateId"]) == ("Order", 1)
    assert [column["type"] for column in found["columns"]][:3] == ["TIMESTAMP", "DOUBLE", "STRING"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["/none.xml"], "the SBE schema '/none.xml' cannot be read"),
        (["<other/>"], "<other> is the root, expected <messageSchema>"),
        (["SCHEMA", "--message", "None"], "has no message 'None'"),
        (["SCHEMA", "--sets", "some"], "option 'sbeSets' must be names, bits or flags, not 'some'"),
    ],
)
def test_a_wrong_schema_or_option_has_exit_code_2(
    schema: str, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sbe", "describe", *(schema if one == "SCHEMA" else one for one in arguments)]) == 2
    assert reason in capsys.readouterr().err


def test_names_that_spark_takes_as_one_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA.replace('name="symbol" id="4"', 'name="ID" id="4"'))
    assert main(["sbe", "describe", str(path)]) == 0
    assert "'Order.id' and 'Order.ID', which are one name for Spark" in capsys.readouterr().err
