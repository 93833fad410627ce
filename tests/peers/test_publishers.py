"""Publishers in Go and Rust, over Java's and Aeron's C media driver: aeron-spark reads their messages unchanged."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pytest

from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import Stream
from tests.peers.publishing import (
    GO,
    RUST,
    TIMEOUT_S,
    channel_of,
    messages_of_many_lengths,
    publish,
    receive_json,
    received,
)
from tests.sbe_orders import SCHEMA, encode_order

pytestmark = pytest.mark.peers
every_publisher = pytest.mark.parametrize("program", [GO, RUST])


def flags(stream: Stream) -> list[str]:
    """Return the options of ``receive`` that name a stream."""
    return ["--channel", stream.channel, "--stream-id", str(stream.id), "--aeron-dir", stream.handle.aeron_dir]


@every_publisher
@pytest.mark.parametrize("medium", ["ipc", "udp"])
def test_messages_of_a_publisher_are_received_byte_for_byte(
    node: NodeHandle, program: str, medium: str, rng: random.Random
) -> None:
    stream = Stream(node, channel_of(medium)).record()
    messages = messages_of_many_lengths(rng)
    publish(program, node.aeron_dir, stream.channel, stream.id, messages)
    assert received(len(messages), flags(stream)) == messages


@every_publisher
def test_messages_cross_from_the_c_driver_to_a_node_over_udp(
    c_node: NodeHandle, java_node: NodeHandle, program: str, rng: random.Random
) -> None:
    stream = Stream(java_node, channel_of("udp")).record()
    messages = messages_of_many_lengths(rng)
    publish(program, c_node.aeron_dir, stream.channel, stream.id, messages)
    assert received(len(messages), flags(stream)) == messages


@every_publisher
def test_sbe_messages_of_a_publisher_become_rows(java_node: NodeHandle, program: str, tmp_path: Path) -> None:
    stream = Stream(java_node).record()
    publish(program, java_node.aeron_dir, stream.channel, stream.id, [encode_order(number) for number in range(1, 101)])
    schema = tmp_path / "orders.xml"
    schema.write_text(SCHEMA)
    sbe = ("--payload", "sbe", "--sbe-schema", str(schema), "--sbe-message", "Order")
    rows = receive_json(100, [*flags(stream), *sbe])
    assert [row["id"] for row in rows] == list(range(1, 101))
    assert [Decimal(row["price"]) for row in rows] == [Decimal(12345 * number).scaleb(-4) for number in range(1, 101)]
    assert {(row["side"], row["symbol"], row["desk"], row["note"]) for row in rows} == {("SELL", "ÄBC", "EU", "über")}
    assert all(row["fills"] == [{"quantity": 1}, {"quantity": 2}] for row in rows)


def test_each_run_of_a_publisher_is_a_recording(java_node: NodeHandle) -> None:
    stream = Stream(java_node).record()
    programs = [GO, RUST, GO]

    def stopped() -> int:
        return sum(one.stop_position is not None for one in stream.archive.recordings(stream.id))

    for number, program in enumerate(programs, 1):
        publish(program, java_node.aeron_dir, stream.channel, stream.id, [program.encode()])
        # until the driver has removed the publication, another program would continue it
        wait_for(lambda number=number: stopped() == number, TIMEOUT_S, f"{number} recordings to stop")
    lines = sorted(receive_json(len(programs), flags(stream)), key=lambda line: line["recordingId"])
    assert [line["value"] for line in lines] == programs
    assert len({line["recordingId"] for line in lines}) == len(programs)
