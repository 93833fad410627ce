"""A strict schema takes new columns only from a writer that requests them and may manage the stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, RefusedError, Retry
from aeron_spark.streams.definition import ADDITIVE, STRICT
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.schema_changes import Evolution, evolve, serialize
from aeron_spark.streams.stage_files import StageHead
from aeron_spark.streams.stages import merge_content
from aeron_spark.wire.foreign_arrow import read_schema

ID = pa.field("id", pa.int64(), nullable=False)
NAME = pa.field("name", pa.string())
AT = pa.field("at", pa.timestamp("us", "UTC"))
KNOWN = serialize(pa.schema([ID, NAME]))
WIDER = serialize(pa.schema([ID, NAME, AT]))


class Staged:
    """A stage, of which only the description counts here."""

    def __init__(self, schema: bytes, *, evolves: bool = False) -> None:
        self.description = StageHead("1", "w", "r", 0, 0, 0, "arrow", schema, evolves=evolves)


def ledger_of(schema: bytes | None) -> Ledger:
    ledger = Ledger(1)
    if schema is not None:
        ledger.content, ledger.schema = "arrow", schema
    return ledger


def test_the_policy_additive_takes_the_columns_of_each_writer() -> None:
    assert evolve(KNOWN, WIDER, ADDITIVE, Evolution.NOT_REQUESTED) == WIDER


def test_a_strict_schema_takes_columns_only_if_they_are_requested_and_permitted() -> None:
    assert evolve(KNOWN, WIDER, STRICT, Evolution.PERMITTED) == WIDER
    for evolution, cause in (
        (Evolution.NOT_REQUESTED, "the data adds the columns 'at', but the stream's schema is strict"),
        (Evolution.NOT_PERMITTED, "your key does not have the grant manage, which evolveSchema needs"),
    ):
        with pytest.raises(RefusedError) as raised:
            evolve(KNOWN, WIDER, STRICT, evolution)
        error = raised.value
        assert (error.reason, error.retry) == ("schema", Retry.NEVER)
        assert cause in error.what
        ours, theirs = error.what.index("the data has:"), error.what.index("the stream has:")
        assert "at: timestamp[us, tz=UTC]" in error.what[ours:theirs]
        assert "name: string" in error.what[theirs:]
        assert "at:" not in error.what[theirs:]
        assert "evolveSchema=true" in error.remedy
        assert "streams alter" in error.remedy


@pytest.mark.parametrize("policy", [STRICT, ADDITIVE])
def test_the_same_columns_and_fewer_nullable_ones_fit_each_policy(policy: str) -> None:
    assert evolve(KNOWN, KNOWN, policy, Evolution.NOT_REQUESTED) is KNOWN
    assert evolve(KNOWN, serialize(pa.schema([ID])), policy, Evolution.NOT_REQUESTED) is KNOWN


def test_the_first_schema_needs_no_permission() -> None:
    assert evolve(None, WIDER, STRICT, Evolution.NOT_REQUESTED) == WIDER


@pytest.mark.parametrize("evolution", Evolution)
def test_no_permission_lets_a_type_change(evolution: Evolution) -> None:
    other = serialize(pa.schema([ID, pa.field("name", pa.int64())]))
    with pytest.raises(DataFormatError, match="'name' is int64"):
        evolve(KNOWN, other, STRICT, evolution)


def test_a_commit_checks_the_policy_again_for_stages_that_were_opened_before() -> None:
    """Another writer's transaction fixes the schema between the opening of a stage and its commit."""
    before = [Staged(WIDER)]
    assert merge_content(ledger_of(None), before, STRICT) == ("arrow", WIDER)
    with pytest.raises(RefusedError, match="adds the columns 'at'"):
        merge_content(ledger_of(KNOWN), before, STRICT)
    assert merge_content(ledger_of(KNOWN), before, ADDITIVE)[1] == WIDER


def test_a_commit_refuses_columns_if_the_key_lost_its_grant_since_the_stage_was_opened() -> None:
    staged = [Staged(WIDER, evolves=True)]
    assert merge_content(ledger_of(KNOWN), staged, STRICT)[1] == WIDER
    with pytest.raises(RefusedError, match="does not have the grant manage"):
        merge_content(ledger_of(KNOWN), staged, STRICT, may_evolve=False)


def test_the_tasks_of_the_first_transaction_fix_the_schema_together() -> None:
    tasks = [Staged(KNOWN), Staged(WIDER)]
    content, schema = merge_content(ledger_of(None), tasks, STRICT)
    assert content == "arrow"
    assert schema is not None
    assert read_schema(schema).names == ["id", "name", "at"]
