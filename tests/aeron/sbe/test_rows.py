"""Messages that are left out are counted in the log, and a wrong schema is a warning."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from aeron_spark.log.sbe_rows import SbeBatches, SbeRows
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import OnMalformed, SbeSettings
from aeron_spark.sbe.table import DecodeTable, MessageColumns
from tests.sbe_orders import SCHEMA, encode_heartbeat, encode_order


def order_table(**settings: object) -> DecodeTable:
    columns = MessageColumns(load_schema(SCHEMA), SbeSettings(messages=("Order",), **settings))
    return columns.table(pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize(
    ("messages", "level", "text"),
    [
        ([encode_heartbeat()], logging.WARNING, "one: 1 SBE messages are not of the chosen types or schema"),
        ([encode_order(1), encode_heartbeat()], logging.INFO, "one: 1 SBE messages are not of the chosen types"),
        ([encode_order(1), b"", b"x"], logging.WARNING, "one: 2 malformed SBE messages were left out"),
    ],
)
def test_messages_that_are_left_out_are_counted(
    messages: list[bytes], level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.spark")
    rows = SbeRows(order_table(mode=OnMalformed.DROPMALFORMED), ["id"], "one")
    list(rows.decode(pa.array(messages, pa.binary()), None, None))
    rows.report()
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().startswith(text)


def test_metadata_of_received_batches_follow_their_messages() -> None:
    batch = pa.record_batch(
        {"value": pa.array([encode_heartbeat(), encode_order(5)], pa.binary()), "position": pa.array([0, 64])}
    )
    (rows,) = SbeBatches(order_table(), "all", has_metadata=True).decode(batch)
    assert rows.to_pydict() == {"id": [5], "_aeron_position": [64]}
    (rows,) = SbeBatches(order_table(), "all", has_metadata=False).decode(batch)
    assert rows.to_pydict() == {"id": [5]}
