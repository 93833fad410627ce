"""Tests of one connection machine, or of two that exchange frames by function calls, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aeron_spark.errors import DataFormatError, EndedError, RefusedError, SessionLost
from aeron_spark.protocol.connection_machine import (
    KEEP_SESSION,
    MAX_UNSEQUENCED,
    MAX_UNSEQUENCED_PER_FRAME,
    ConfirmDelivery,
    ConnectionMachine,
    Deliver,
    EndConnection,
    LinkExpired,
    PeerClosed,
    Received,
    Report,
    ResolvePing,
    SendFrame,
    TakeRequest,
    TakeResponse,
    TakeTransferRecord,
    TransferRefused,
    close_payload,
    closed_error,
)
from aeron_spark.protocol.frames import RecordKind, decode
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.session import RECORD_COST, Pushed, SessionLimits
from aeron_spark.protocol.transfers import encode_failed

LIMITS = SessionLimits(
    buffer_bytes=2_000, buffer_seconds=60.0, retention_seconds=60.0, ack_bytes=1_000, ack_seconds=0.5,
    max_record_bytes=1_000,
)  # fmt: skip
TIMES = Times(expiry_seconds=4.0, linger_seconds=0.0, keep_alive_seconds=15.0, ping_seconds=3.0, retention_seconds=60.0)
FRAME = 4_000


def machine(limits: SessionLimits = LIMITS, *, attached: bool = True) -> ConnectionMachine:
    one = ConnectionMachine(limits, TIMES, 0.0)
    if attached:
        one.attach(0, 0.0)
    return one


def transmit(sender: ConnectionMachine, receiver: ConnectionMachine, now: float = 0.0) -> Received:
    """Transmit one frame, and fail if the sender has none."""
    plaintext = sender.take(FRAME, now)
    assert plaintext is not None
    return receiver.receive(decode(b"".join(plaintext)), now)


def test_messages_of_one_frame_are_one_effect_and_need_no_immediate_response() -> None:
    one, other = machine(), machine()
    assert one.push(RecordKind.MESSAGE, b"a", 0.0) is Pushed.ACCEPTED
    assert one.push_many(RecordKind.MESSAGE_ACK_WANTED, [b"b", b"c"], 0.0) == (2, Pushed.ACCEPTED)
    received = transmit(one, other)
    (effect,) = received.effects
    assert isinstance(effect, Deliver)
    assert [bytes(payload) for _, _, payload in effect.messages] == [b"a", b"b", b"c"]
    assert (received.frame_due, received.made_room) == (False, False)
    assert one.take(FRAME, 0.0) is None


def test_each_record_has_its_effect_and_a_transfer_ends_after_the_messages_before_it() -> None:
    one, other = machine(), machine()
    for kind in (
        RecordKind.MESSAGE,
        RecordKind.CALL,
        RecordKind.OBJECT,
        RecordKind.RETURN,
        RecordKind.TRANSFER_START,
        RecordKind.TRANSFER_DATA,
        RecordKind.TRANSFER_FINISHED,
        RecordKind.TRANSFER_FAILED,
        RecordKind.DELIVERED,
        RecordKind.MESSAGE,
    ):
        one.push(kind, encode_failed(1, "") if kind == RecordKind.TRANSFER_FAILED else bytes(7) + bytes([kind]), 0.0)
    effects = transmit(one, other).effects
    kinds = [(type(effect), getattr(effect, "kind", getattr(effect, "number", None))) for effect in effects]
    assert kinds == [
        (TakeRequest, RecordKind.CALL),
        (TakeRequest, RecordKind.OBJECT),
        (TakeResponse, None),
        (TakeTransferRecord, RecordKind.TRANSFER_START),
        (TakeTransferRecord, RecordKind.TRANSFER_DATA),
        (Deliver, None),
        (TakeTransferRecord, RecordKind.TRANSFER_FINISHED),
        (TakeTransferRecord, RecordKind.TRANSFER_FAILED),
        (ConfirmDelivery, RecordKind.DELIVERED),
        (Deliver, None),
    ]


def test_a_refusal_by_the_peer_ends_an_outgoing_transfer_and_is_an_effect_if_the_transfer_has_ended() -> None:
    one, other = machine(), machine()
    first, second = one.begin_transfer(), one.begin_transfer()
    assert (first, second) == (1, 2)
    other.push(RecordKind.TRANSFER_FAILED, encode_failed(first, "too large", by_receiver=True), 0.0)
    assert transmit(other, one).effects == ()
    one.check_transfer(second)
    with pytest.raises(RefusedError, match="refused the transfer: too large"):
        one.check_transfer(first)
    refusal = one.end_transfer(first)
    assert refusal is not None
    assert "too large" in refusal.what
    assert one.end_transfer(second) is None
    one.check_transfer(first)
    other.push(RecordKind.TRANSFER_FAILED, encode_failed(second, "too late", by_receiver=True, reason="busy"), 0.0)
    (effect,) = transmit(other, one).effects
    assert isinstance(effect, TransferRefused)
    assert (effect.number, effect.error.reason) == (second, "busy")
    assert "too late" in effect.error.what


def test_an_invalid_record_is_reported_and_the_other_records_of_its_frame_are_processed() -> None:
    one, other = machine(), machine()
    one.push(RecordKind.TRANSFER_FAILED, b"short", 0.0)
    one.push(RecordKind.CALL, b"call", 0.0)
    report, request = transmit(one, other).effects
    assert isinstance(report, Report)
    assert isinstance(report.error, DataFormatError)
    assert request == TakeRequest(RecordKind.CALL, memoryview(b"call"))


@pytest.mark.parametrize(("payload", "keeps"), [(bytes([KEEP_SESSION]), True), (b"\x00", False), (b"", False)])
def test_a_close_of_the_peer_is_an_effect(payload: bytes, *, keeps: bool) -> None:
    one, other = machine(), machine()
    one.push_unsequenced(RecordKind.CLOSE, payload)
    assert transmit(one, other).effects == (PeerClosed(keeps),)


def test_a_deferred_response_is_sent_after_the_peer_has_acknowledged() -> None:
    one, other = machine(), machine()
    assert one.push(RecordKind.MESSAGE, bytes(1_000), 0.0) is Pushed.ACCEPTED
    one.reply(RecordKind.RETURN, bytes(900), 0.0)
    assert one.deferred_bytes == 900 + RECORD_COST
    assert one.push(RecordKind.MESSAGE, bytes(900), 0.0) is Pushed.FULL
    transmit(one, other)
    received = transmit(other, one)  # the acknowledgement of 1,000 bytes
    assert (received.made_room, received.frame_due, one.deferred_bytes) == (True, True, 0)
    assert transmit(one, other).effects[0] == TakeResponse(memoryview(bytes(900)))
    assert not one.has_waiting
    assert one.unacknowledged


def test_the_connection_of_a_peer_that_does_not_read_its_responses_ends_with_an_error_that_has_the_numbers() -> None:
    one = machine()
    one.push(RecordKind.MESSAGE, bytes(1_000), 0.0)
    one.reply(RecordKind.RETURN, bytes(1_000), 0.0)
    assert one.tick(True, 0.0) == ()
    one.reply(RecordKind.RETURN, bytes(1_000), 0.0)
    (effect,) = one.tick(True, 0.0)
    assert isinstance(effect, EndConnection)
    assert isinstance(effect.error, RefusedError)
    assert "2256 bytes wait, limit 2000" in effect.error.what


def test_a_ping_is_answered_in_the_next_frame_and_ends_once() -> None:
    one, other = machine(), machine()
    first, second = one.start_ping(3.0, 10.0), one.start_ping(3.0, 10.0)
    assert (first, second) == (0, 1)
    assert one.ping_deadline == 13.0
    received = transmit(one, other, 10.0)
    assert (received.effects, received.frame_due) == ((), True)
    pongs = other.take(FRAME, 10.0)
    assert pongs is not None
    frame = decode(b"".join(pongs))
    assert one.receive(frame, 12.5).effects == (ResolvePing(0, 2.5), ResolvePing(1, 2.5))
    assert one.receive(frame, 12.5).effects == ()
    assert one.pings == 0
    assert one.ping_deadline is None


def test_a_ping_without_a_pong_ends_at_its_deadline_and_its_pong_is_too_late() -> None:
    one, other = machine(), machine()
    one.start_ping(3.0, 10.0)
    assert one.deadline() == 13.0
    assert one.tick(True, 12.9) == ()
    transmit(one, other, 12.9)
    assert one.tick(True, 13.0) == (ResolvePing(0, None),)
    assert transmit(other, one, 13.0).effects == ()
    assert one.tick(True, 13.1) == ()


def test_the_queue_of_unsequenced_records_is_bounded_but_accepts_a_close() -> None:
    one = machine()
    for _ in range(MAX_UNSEQUENCED + 5):
        one.push_unsequenced(RecordKind.PONG, bytes(8))
    one.push_unsequenced(RecordKind.CLOSE, b"\x00")
    sent: list[int] = []
    while (plaintext := one.take(FRAME, 0.0)) is not None:
        records = decode(b"".join(plaintext)).records
        assert len(records) <= MAX_UNSEQUENCED_PER_FRAME
        sent += [kind for kind, _, _ in records]
    assert sent == [RecordKind.PONG] * MAX_UNSEQUENCED + [RecordKind.CLOSE]


def test_pongs_and_a_close_fit_into_the_frames_that_the_peer_takes() -> None:
    """Regression: after 128 pings of a peer that takes small frames, the sender raised OptionError."""
    one, other = machine(), machine()
    for number in range(MAX_UNSEQUENCED_PER_FRAME):
        one.push_unsequenced(RecordKind.PING, number.to_bytes(8, "big"))
    transmit(one, other)
    error = RefusedError("x" * 2_000, reason="banned")
    other.push_unsequenced(RecordKind.CLOSE, close_payload(False, error))
    frames = []
    while (plaintext := other.take(992, 0.0)) is not None:
        frames.append(decode(b"".join(plaintext)))
    *pongs, close = [record for frame in frames for record in frame.records]
    assert [int.from_bytes(payload, "big") for _, _, payload in pongs] == [*range(MAX_UNSEQUENCED_PER_FRAME)]
    assert [len(frame.records) for frame in frames] == [69, 59, 1]
    assert close == (RecordKind.CLOSE, 0, b"\0")


def test_a_held_machine_sends_pongs_and_acknowledgements_but_no_sequenced_record() -> None:
    one, other = machine(), machine()
    one.push(RecordKind.MESSAGE, b"a", 0.0)
    other.push(RecordKind.MESSAGE, b"held", 0.0)
    assert other.take(FRAME, 0.0, is_held=True) is None
    transmit(one, other)
    acknowledgement = other.take(FRAME, 1.0, is_held=True)
    assert acknowledgement is not None
    one.receive(decode(b"".join(acknowledgement)), 1.0)
    assert one.session.acknowledged == 1
    other.push_unsequenced(RecordKind.PONG, bytes(8))
    pong = other.take(FRAME, 1.0, is_held=True)
    assert pong is not None
    assert [kind for kind, _, _ in decode(b"".join(pong)).records] == [RecordKind.PONG]
    (effect,) = transmit(other, one, 1.0).effects
    assert isinstance(effect, Deliver)


def test_unsequenced_records_are_lost_with_their_link_and_sequenced_ones_are_not() -> None:
    one, other = machine(), machine()
    one.push(RecordKind.MESSAGE, b"kept", 0.0)
    one.take(FRAME, 0.0)
    one.push_unsequenced(RecordKind.PONG, bytes(8))
    one.detach(1.0)
    assert one.take(FRAME, 1.0) is None
    assert one.attach(0, 2.0) == 1
    (effect,) = transmit(one, other, 2.0).effects
    assert isinstance(effect, Deliver)
    assert one.take(FRAME, 2.0) is None


def test_a_link_whose_peer_claims_unsent_records_loses_the_session() -> None:
    one = machine()
    with pytest.raises(SessionLost, match="the peer claims 3 received records"):
        one.attach(3, 1.0)


@pytest.mark.parametrize("is_response", [False, True])
def test_a_link_whose_peer_takes_only_shorter_records_loses_the_session(*, is_response: bool) -> None:
    """Regression: the thread that sends raised OptionError at each attempt, and a response waited for ever."""
    one = machine()
    one.push(RecordKind.MESSAGE, b"a" * 500, 0.0)
    if is_response:
        one.push(RecordKind.MESSAGE, b"b" * 500, 0.0)
        one.reply(RecordKind.RETURN, b"c" * 800, 0.0)
        assert one.deferred_bytes
    one.detach(1.0)
    one.limit_record(500 if is_response else 499)
    with pytest.raises(SessionLost, match=r"a record of [58]00 bytes waits for the peer, whose new link takes records"):
        one.attach(0, 1.0)
    with pytest.raises(SessionLost):
        one.attach(0, 2.0)


def test_a_session_that_waits_too_long_for_a_link_ends_the_connection() -> None:
    one = machine()
    one.detach(1.0)
    assert one.deadline() == 61.0
    assert one.tick(False, 60.9) == ()
    (effect,) = one.tick(False, 61.0)
    assert isinstance(effect, EndConnection)
    assert isinstance(effect.error, SessionLost)


def test_a_keep_alive_is_due_after_its_interval_without_a_frame() -> None:
    one, other = machine(), machine()
    for sender, receiver in ((one, other), (other, one)):
        sender.push(RecordKind.MESSAGE, b"", 10.0)
        transmit(sender, receiver, 10.0)
    transmit(one, other, 10.5)  # its acknowledgement
    assert one.deadline() == 25.0
    assert one.tick(True, 24.9) == ()
    assert one.tick(True, 25.0) == (SendFrame(),)
    assert one.tick(True, 25.1) == ()
    assert transmit(one, other, 25.1) == Received((), True, False)  # a ping, which is answered
    assert one.take(FRAME, 25.1) is None
    assert transmit(other, one, 25.2).effects == ()  # no caller waits for the pong


def test_a_link_expires_after_its_silence_and_the_next_link_has_the_whole_expiry() -> None:
    one = machine()
    assert one.tick(False, 1.0) == ()
    assert one.deadline() == 5.0
    assert one.tick(True, 4.0) == ()
    assert one.tick(False, 4.5) == ()
    assert one.tick(False, 8.4) == ()
    assert one.tick(False, 8.5) == (LinkExpired(4.0),)
    one.attach(0, 9.0)
    assert one.tick(False, 9.5) == ()
    assert one.tick(False, 13.5) == (LinkExpired(4.0),)


def answer(one: ConnectionMachine, other: ConnectionMachine, now: float) -> None:
    """Let two machines exchange what they have to send."""
    while one.has_waiting or other.has_waiting:
        for sender, receiver in ((one, other), (other, one)):
            if sender.has_waiting:
                transmit(sender, receiver, now)


@pytest.mark.parametrize("sends", [True, False])
def test_the_link_of_a_peer_that_is_stopped_expires_although_aeron_is_connected(sends: bool) -> None:
    """E1: a stopped server, or frames that go nowhere. Records that the peer has not acknowledged are sent again."""
    one, other = machine(), machine()
    one.push(RecordKind.MESSAGE, b"heard", 1.0)
    transmit(one, other, 1.0)
    other.push(RecordKind.MESSAGE, b"", 2.0)
    transmit(other, one, 2.0)
    lost = list[bytes]()
    for now in range(3, 32):
        if sends and now % 10 == 0:
            one.push(RecordKind.MESSAGE, str(now).encode(), float(now))
            lost.append(str(now).encode())
        assert LinkExpired(30.0) not in one.tick(True, float(now)), now
        one.take(FRAME, float(now))  # to a peer that does not read it
    assert one.deadline() == 32.0
    assert LinkExpired(30.0) in one.tick(True, 32.0)
    one.detach(32.0)
    other.detach(32.0)
    one.attach(other.session.received, 40.0)
    other.attach(one.session.received, 40.0)
    effects = transmit(one, other, 40.0).effects if sends else ()
    assert [bytes(payload) for effect in effects for _, _, payload in effect.messages] == lost  # type: ignore[union-attr]


def test_an_idle_link_whose_peer_answers_stays() -> None:
    one, other = machine(), machine()
    frames = 0
    for now in range(1, 300):
        for sender, receiver in ((one, other), (other, one)):
            effects = sender.tick(True, float(now))
            assert effects in ((), (SendFrame(),))
            if effects:
                transmit(sender, receiver, float(now))
                frames += 1
    assert frames <= 2 * 300 / TIMES.keep_alive_seconds  # as few as with acknowledgements as keep-alives


def test_a_question_is_due_after_silence_although_this_end_sends() -> None:
    one, other = machine(), machine()
    for now in range(1, 15):
        one.push(RecordKind.MESSAGE, b"", float(now))
        transmit(one, other, float(now))
        assert one.tick(True, float(now)) == ()
    assert one.tick(True, 15.0) == (SendFrame(),)
    answer(one, other, 15.0)
    assert one.deadline() == 30.0


def test_a_peer_that_does_not_read_but_sends_keep_alives_keeps_its_link() -> None:
    """Its listeners are too slow: it reads neither records nor pings."""
    one, other = machine(), machine()
    other.pause_acks(True)
    for now in range(1, 300):
        assert LinkExpired(30.0) not in one.tick(True, float(now))
        one.take(FRAME, float(now))
        assert LinkExpired(30.0) not in other.tick(True, float(now))
        if other.has_waiting:
            transmit(other, one, float(now))


def test_an_end_that_was_suspended_asks_before_it_gives_its_link_up() -> None:
    one, other = machine(), machine()
    assert one.tick(True, 500.0) == (SendFrame(),)
    assert one.deadline() == 515.0
    answer(one, other, 500.1)
    assert one.tick(True, 515.0) == ()


def test_the_next_link_has_the_whole_time_for_its_first_frame() -> None:
    one = machine()
    one.tick(True, 15.0)
    assert LinkExpired(30.0) in one.tick(True, 30.0)
    one.attach(0, 31.0)
    assert one.tick(True, 45.9) == ()
    assert one.tick(True, 46.0) == (SendFrame(),)
    assert one.tick(True, 60.9) == ()
    assert LinkExpired(30.0) in one.tick(True, 61.0)


def test_an_acknowledgement_is_due_after_its_delay_unless_acknowledgements_are_paused() -> None:
    one, other = machine(), machine()
    one.push(RecordKind.MESSAGE, b"", 0.0)
    transmit(one, other)
    assert other.deadline() == 0.5
    other.pause_acks(True)
    assert other.deadline() == 15.0
    assert other.tick(True, 0.5) == ()
    other.push(RecordKind.MESSAGE, b"", 0.5)
    assert not transmit(other, one, 0.5).made_room
    other.pause_acks(False)
    assert other.tick(True, 0.6) == (SendFrame(),)
    assert transmit(other, one, 0.6).made_room


def test_a_machine_that_refuses_accepts_nothing_until_a_link_is_attached() -> None:
    one = machine()
    one.push(RecordKind.MESSAGE, b"before", 0.0)
    one.detach(1.0)
    one.refuse(EndedError("stopped", remedy="Connect"))
    for _ in range(2):
        with pytest.raises(EndedError, match="stopped"):
            one.push(RecordKind.MESSAGE, b"", 1.0)
    with pytest.raises(EndedError, match="stopped"):
        one.push_many(RecordKind.MESSAGE, [b""], 1.0)
    one.attach(0, 2.0)
    assert one.push(RecordKind.MESSAGE, b"after", 2.0) is Pushed.ACCEPTED
    assert one.session.pending == 2


def test_a_closed_machine_raises_its_first_error_and_has_no_effects() -> None:
    one, other = machine(), machine()
    other.push(RecordKind.MESSAGE, b"late", 0.0)
    one.push(RecordKind.MESSAGE, bytes(1_000), 0.0)
    one.reply(RecordKind.RETURN, bytes(1_000), 0.0)
    one.start_ping(3.0, 0.0)
    one.close(closed_error())
    one.close(EndedError("a later one", remedy=""))
    with pytest.raises(EndedError, match="the connection is closed"):
        one.push(RecordKind.MESSAGE, b"", 0.0)
    with pytest.raises(EndedError):
        transmit(other, one)
    assert (one.deferred_bytes, one.pings, one.session.buffered_bytes) == (0, 0, 0)
    assert (one.take(FRAME, 0.0), one.deadline(), one.tick(False, 999.0)) == (None, None, ())


def test_a_frame_after_a_gap_is_an_error_and_changes_no_state() -> None:
    one, other = machine(), machine()
    one.push(RecordKind.MESSAGE, b"lost", 0.0)
    one.take(FRAME, 0.0)
    one.push(RecordKind.MESSAGE, b"after a gap", 0.0)
    with pytest.raises(DataFormatError, match="record 0 is missing"):
        transmit(one, other)
    assert other.session.received == 0


def test_the_limit_of_a_record_is_only_lowered() -> None:
    one = machine(replace(LIMITS, buffer_bytes=20_000))
    one.limit_record(500)
    one.limit_record(800)
    assert one.session.limits.max_record_bytes == 500


def measuring() -> ConnectionMachine:
    """Return a machine that measures the round trip, with a link."""
    one = ConnectionMachine(LIMITS, replace(TIMES, measures_round_trip=True), 0.0)
    one.attach(0, 0.0)
    return one


def test_the_round_trip_is_measured_at_a_new_link_and_at_intervals_while_frames_flow() -> None:
    one, other = measuring(), machine()
    assert one.tick(True, 0.0) == (SendFrame(),)
    assert one.round_trip is None
    transmit(one, other, 0.0)
    assert transmit(other, one, 0.25).effects == ()  # no thread waits for this pong
    assert one.round_trip == 0.25
    for now in range(1, 15):
        one.push(RecordKind.MESSAGE, b"a", float(now))
        transmit(one, other, float(now))
        assert one.tick(True, float(now)) == ()
    assert one.deadline() == 15.0
    assert one.tick(True, 15.0) == (SendFrame(),)
    transmit(one, other, 15.0)
    transmit(other, one, 15.5)
    assert one.round_trip == 0.5


def test_a_measurement_that_its_link_lost_is_replaced_by_one_on_the_next_link() -> None:
    one, other = measuring(), machine()
    one.tick(True, 0.0)
    transmit(one, other, 0.0)
    late = other.take(FRAME, 0.0)
    assert late is not None
    one.attach(0, 3.0)
    assert one.tick(True, 3.0) == (SendFrame(),)
    one.receive(decode(b"".join(late)), 4.0)
    assert one.round_trip is None
    other.attach(0, 3.0)
    transmit(one, other, 3.0)
    transmit(other, one, 3.5)
    assert one.round_trip == 0.5


def test_a_machine_that_does_not_measure_ignores_the_pong_of_a_measurement() -> None:
    one, other = machine(), machine()
    other.push_unsequenced(RecordKind.PONG, (2**63 + 1).to_bytes(8, "big"))
    assert transmit(other, one).effects == ()
    assert one.round_trip is None


def test_a_session_is_active_when_sequenced_records_are_sent_or_received() -> None:
    one, other = machine(), machine()
    one.push_unsequenced(RecordKind.ACK)
    transmit(one, other, 5.0)
    assert (one.session.active_at, other.session.active_at) == (0.0, 0.0)
    one.push(RecordKind.MESSAGE, b"a", 6.0)
    transmit(one, other, 7.0)
    assert (one.session.active_at, other.session.active_at) == (7.0, 7.0)
