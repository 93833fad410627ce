"""Two sessions that exchange frames by function calls, and lose links between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aeron_spark.errors import DataFormatError, OptionError, RefusedError, UsageError
from aeron_spark.protocol.frames import MIN_BATCH_RECORDS, Frame, RecordKind, decode, encode
from aeron_spark.protocol.session import RECORD_COST, Pushed, Session
from tests.unit.protocol.session_pair import FRAME, LIMITS, attached_pair, next_frame, payloads, reattach, transmit_all


def test_row_59_pushed_records_arrive_in_order() -> None:
    one, other = attached_pair(replace(LIMITS, buffer_bytes=100_000_000))
    sent = payloads(100_000)
    assert one.push_many(RecordKind.MESSAGE, sent, 0.0) == (100_000, Pushed.ACCEPTED)
    assert transmit_all(one, other) == sent
    assert other.received == 100_000


def test_records_of_push_and_push_many_and_of_all_kinds_have_one_order() -> None:
    one, other = attached_pair()
    one.push(RecordKind.MESSAGE, b"a", 0.0, flags=1)
    one.push_many(RecordKind.CALL, [b"b", bytearray(b"c"), memoryview(b"d")], 0.0, flags=2)
    one.push(RecordKind.RETURN, b"e", 0.0)
    expected = [(1, 1, b"a"), (4, 2, b"b"), (4, 2, b"c"), (4, 2, b"d"), (5, 0, b"e")]
    assert other.receive(next_frame(one), 0.0) == expected


def test_a_buffer_that_changes_after_its_push_is_sent_unchanged() -> None:
    one, other = attached_pair()
    data = bytearray(b"before")
    one.push(RecordKind.MESSAGE, data, 0.0)
    data[:] = b"after!"
    assert transmit_all(one, other) == [b"before"]


def test_a_frame_holds_as_many_records_as_fit_and_splits_none() -> None:
    one, _ = attached_pair()
    one.push_many(RecordKind.MESSAGE, [bytes(100)] * 10, 0.0)
    assert [next_frame(one, max_bytes=16 + 4 * 106).sequenced for _ in range(3)] == [4, 4, 2]
    assert one.take(FRAME, 0.0) is None
    one.push_many(RecordKind.MESSAGE, [b""] * MIN_BATCH_RECORDS, 0.0)
    assert next_frame(one, max_bytes=16 + 6 * MIN_BATCH_RECORDS).sequenced == MIN_BATCH_RECORDS


def test_unsequenced_records_are_first_in_a_frame_and_are_not_kept() -> None:
    one, other = attached_pair()
    one.push(RecordKind.MESSAGE, b"m", 0.0)
    frame = next_frame(one, unsequenced=[(RecordKind.PING, 0, bytes(8))])
    assert other.receive(frame, 0.0) == [(66, 0, bytes(8)), (1, 0, b"m")]
    reattach(one, other, 1.0)
    assert one.take(FRAME, 1.0) is None


def test_a_record_too_large_for_a_frame_is_refused_and_changes_nothing() -> None:
    one, _ = attached_pair()
    with pytest.raises(OptionError, match="Send it as a transfer"):
        one.push(RecordKind.MESSAGE, bytes(10_001), 0.0)
    with pytest.raises(OptionError, match="Send it as a transfer"):
        one.push_many(RecordKind.MESSAGE, [b"fits", bytes(10_001)], 0.0)
    assert (one.pending, one.buffered_bytes) == (0, 0)
    assert one.push(RecordKind.MESSAGE, bytes(10_000), 0.0) is Pushed.ACCEPTED


def test_a_frame_that_is_too_small_for_the_next_record_is_an_error() -> None:
    one, _ = attached_pair()
    one.push(RecordKind.MESSAGE, bytes(1_000), 0.0)
    with pytest.raises(OptionError, match="does not fit into a frame"):
        one.take(1_000, 0.0)
    with pytest.raises(OptionError, match="no room for 1 unsequenced records"):
        one.take(20, 0.0, [(RecordKind.PING, 0, bytes(8))])
    assert next_frame(one).sequenced == 1


@pytest.mark.parametrize("kind", [RecordKind.PING, RecordKind.CLOSE, RecordKind.BATCH, 0, 99])
def test_only_sequenced_kinds_are_pushed(kind: int) -> None:
    one, _ = attached_pair()
    with pytest.raises(OptionError, match="are not sequenced"):
        one.push(kind, b"", 0.0)
    with pytest.raises(OptionError, match="are sequenced"):
        one.take(FRAME, 0.0, [(RecordKind.MESSAGE, 0, b"")])


def test_row_57_records_pushed_during_an_outage_arrive_once_and_in_order() -> None:
    one, other = attached_pair(replace(LIMITS, buffer_bytes=1_000_000))
    sent = payloads(1_000)
    one.push_many(RecordKind.MESSAGE, sent[:300], 0.0)
    arrived = [bytes(p) for _, _, p in other.receive(next_frame(one, max_bytes=1_016), 0.0)]
    next_frame(one, max_bytes=1_016)  # lost in the outage
    one.detach(1.0)
    other.detach(1.0)
    one.push_many(RecordKind.MESSAGE, sent[300:], 2.0)
    reattach(one, other, 3.0)
    arrived += transmit_all(one, other, 3.0)
    assert arrived == sent


def test_row_55_a_resumed_session_knows_the_received_records_of_both_ends() -> None:
    one, other = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(10), 0.0)
    other.receive(next_frame(one, max_bytes=16 + 4 * 10), 0.0)
    next_frame(one)
    one.detach(1.0)
    other.detach(1.0)
    assert one.attach(other.received, 2.0) == 6
    assert (one.acknowledged, one.pending, one.waiting) == (4, 6, 6)
    assert other.attach(one.received, 2.0) == 0
    assert next_frame(one, 2.0).first == 4


def test_an_acknowledgement_in_the_middle_of_a_frame_releases_only_the_acknowledged_records() -> None:
    one, _ = attached_pair()
    one.push_many(RecordKind.MESSAGE, [bytes(10), bytes(20), bytes(30)], 0.0)
    next_frame(one)
    one.receive(Frame(2, 0, [(65, 0, memoryview(b""))], 0), 0.0)
    assert (one.pending, one.buffered_bytes) == (1, 30 + RECORD_COST)
    one.detach(1.0)
    assert one.attach(2, 1.0) == 1
    assert [len(p) for _, _, p in next_frame(one, 1.0).records] == [30]


def test_records_that_the_peer_acknowledges_after_the_attachment_are_not_sent_again() -> None:
    one, _ = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(5), 0.0)
    next_frame(one)
    one.detach(1.0)
    assert one.attach(1, 1.0) == 4  # claimed by the peer before it received the last frames
    assert next_frame(one, 1.0, max_bytes=16 + 10).first == 1
    one.receive(Frame(4, 0, [(64, 0, memoryview(b""))], 0), 1.0)
    frame = next_frame(one, 1.0)
    assert (frame.first, frame.records) == (4, [(1, 0, payloads(5)[4])])
    assert one.buffered_bytes == 4 + RECORD_COST


def test_repeated_records_are_dropped_and_acknowledged_and_new_records_are_returned() -> None:
    one, other = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(3), 0.0)
    first = next_frame(one)
    assert len(other.receive(first, 0.0)) == 3
    other.take(FRAME, 1.0)
    assert other.receive(first, 1.0) == []
    assert other.ack_due(2.0)
    mixed = encode(
        0,
        1,
        [(RecordKind.PING, 0, b"1"), *[(RecordKind.MESSAGE, 0, n) for n in payloads(3, 1)], (RecordKind.PONG, 0, b"2")],
    )
    assert other.receive(decode(b"".join(mixed)), 2.0) == [(66, 0, b"1"), (1, 0, payloads(1, 3)[0]), (67, 0, b"2")]
    assert other.received == 4


def test_a_gap_is_an_error_and_changes_no_state() -> None:
    one, other = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(2), 0.0)
    other.push(RecordKind.MESSAGE, b"", 0.0)
    other.take(FRAME, 0.0)
    next_frame(one, max_bytes=16 + 10)
    one.receive(Frame(0, 0, [(1, 0, memoryview(b""))], 1), 0.0)
    lost_one_before = next_frame(one)
    assert (lost_one_before.first, lost_one_before.ack) == (1, 1)
    with pytest.raises(DataFormatError, match="record 0 is missing before record 1"):
        other.receive(lost_one_before, 0.0)
    assert (other.received, other.pending, other.ack_due(99.0)) == (0, 1, False)


def test_an_acknowledgement_of_an_unsent_record_is_an_error_and_changes_no_state() -> None:
    one, _ = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(2), 0.0)
    next_frame(one, max_bytes=16 + 10)
    with pytest.raises(DataFormatError, match="it acknowledges 2 records, but 1 were sent"):
        one.receive(Frame(2, 0, [(1, 0, memoryview(b"x"))], 1), 0.0)
    assert (one.received, one.acknowledged) == (0, 0)


def test_an_older_acknowledgement_has_no_effect() -> None:
    one, _ = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(2), 0.0)
    next_frame(one)
    for ack in (2, 1, 0):
        one.receive(Frame(ack, 0, [(65, 0, memoryview(b""))], 0), 0.0)
    assert (one.acknowledged, one.pending) == (2, 0)


def test_an_acknowledgement_is_due_after_a_time_or_a_number_of_bytes_and_is_part_of_any_frame() -> None:
    one, other = attached_pair()
    assert not other.ack_due(99.0)
    one.push(RecordKind.MESSAGE, b"x", 0.0)
    other.receive(next_frame(one), 1.0)
    assert other.take(FRAME, 1.0) is None
    assert other.deadline() == 1.0 + LIMITS.ack_seconds
    assert not other.ack_due(1.0)
    assert other.ack_due(1.0 + LIMITS.ack_seconds)
    ack = next_frame(other, 2.0)
    assert (ack.ack, ack.records) == (1, [(65, 0, b"")])
    assert other.take(FRAME, 3.0) is None  # once
    one.push(RecordKind.MESSAGE, bytes(5_000), 3.0)
    other.receive(next_frame(one, 3.0), 3.0)
    assert other.ack_due(3.0)
    other.push(RecordKind.MESSAGE, b"y", 3.0)
    frame = next_frame(other, 3.0)
    assert (frame.ack, [kind for kind, _, _ in frame.records]) == (2, [1])
    assert not other.ack_due(99.0)


def test_an_acknowledgement_is_never_acknowledged() -> None:
    one, other = attached_pair()
    one.push(RecordKind.MESSAGE, b"x", 0.0)
    transmit_all(one, other)
    one.receive(next_frame(other, 1.0), 1.0)
    assert (one.take(FRAME, 99.0), other.take(FRAME, 99.0)) == (None, None)


@pytest.mark.parametrize("peer_received", [1, 6])
def test_a_peer_whose_count_contradicts_the_session_loses_the_session(peer_received: int) -> None:
    one, _ = attached_pair()
    one.push_many(RecordKind.MESSAGE, payloads(5), 0.0)
    next_frame(one)
    one.receive(Frame(2, 0, [(65, 0, memoryview(b""))], 0), 0.0)
    one.detach(1.0)
    with pytest.raises(
        RefusedError, match=f"claims {peer_received} received records, but 2 were acknowledged and 5 sent"
    ):
        one.attach(peer_received, 1.0)
    with pytest.raises(RefusedError, match="the session is lost"):
        one.push(RecordKind.MESSAGE, b"", 1.0)
    assert not one.attached


def test_a_lost_or_closed_session_raises_its_first_reason_from_every_call() -> None:
    one, other = attached_pair()
    one.push(RecordKind.MESSAGE, b"x", 0.0)
    assert "does not know it; it is unknown whether 1 messages" in str(one.lose("the server does not know it"))
    one.close()
    assert "does not know it" in str(one.lose("another reason"))
    other.close()
    other.detach(1.0)
    calls: list[Any] = [
        lambda s: s.push(RecordKind.MESSAGE, b"", 0.0),
        lambda s: s.take(FRAME, 0.0),
        lambda s: s.receive(Frame(0, 0, [], 0), 0.0),
        lambda s: s.attach(0, 0.0),
        lambda s: s.check(0.0),
    ]
    for call in calls:
        with pytest.raises(RefusedError, match="does not know it"):
            call(one)
        with pytest.raises(UsageError, match="the session is closed"):
            call(other)


def test_a_session_without_a_link_neither_sends_nor_receives() -> None:
    one = Session(LIMITS, 0.0)
    with pytest.raises(UsageError, match="cannot send"):
        one.take(FRAME, 0.0)
    with pytest.raises(UsageError, match="cannot receive"):
        one.receive(Frame(0, 0, [], 0), 0.0)
    one.attach(0, 0.0)
    with pytest.raises(UsageError, match="Detach that link first"):
        one.attach(0, 0.0)
    one.detach(1.0)
    one.detach(50.0)  # changes nothing
    assert one.deadline() == 121.0
