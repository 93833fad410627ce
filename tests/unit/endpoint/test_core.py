"""Tests of one connection, or of two that exchange frames by function calls, in virtual time."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from aeron_spark.endpoint.sender import MAX_UNSEQUENCED, MAX_UNSEQUENCED_PER_FRAME
from aeron_spark.errors import (
    ConnectError,
    DataFormatError,
    EndedError,
    OptionError,
    RefusedError,
    SessionLost,
    WaitTimeout,
)
from aeron_spark.protocol.frames import RecordKind, decode, decode_close, encode_close, encode_refused
from aeron_spark.protocol.session import RECORD_COST, closed_error
from aeron_spark.protocol.transfers import encode_failed
from tests.unit.endpoint.virtual_core import FRAME, LIMITS, TIMES, End, exchange, transmit

MESSAGE = RecordKind.MESSAGE
MEASURES = replace(TIMES, measures_round_trip=True)


def test_messages_of_one_frame_are_delivered_together_and_need_no_immediate_response() -> None:
    one, other = End(), End()
    one.link.budget = 0
    assert one.push(MESSAGE, b"a") == 1
    assert one.push(RecordKind.MESSAGE_ACK_WANTED, b"b", b"c") == 2
    one.link.budget = 1
    one.core.sender.flush()
    wanted = RecordKind.MESSAGE_ACK_WANTED
    assert transmit(one, other) == [(MESSAGE, [(MESSAGE, b"a"), (wanted, b"b"), (wanted, b"c")])]
    assert other.core.messages_received == 3
    assert (one.frame(), other.frame()) == (None, None)


def test_each_record_goes_to_what_it_is_for_and_a_transfer_ends_after_the_messages_before_it() -> None:
    one, other = End(), End()
    kinds = (
        RecordKind.MESSAGE,
        RecordKind.CALL,
        RecordKind.OBJECT,
        RecordKind.RETURN,
        RecordKind.TRANSFER_START,
        RecordKind.TRANSFER_DATA,
        RecordKind.TRANSFER_FINISHED,
        RecordKind.TRANSFER_FAILED,
        RecordKind.MESSAGE,
    )
    one.together(
        *((kind, encode_failed(1, "") if kind == RecordKind.TRANSFER_FAILED else bytes([kind])) for kind in kinds)
    )
    assert [kind for kind, _ in transmit(one, other)] == [
        RecordKind.RETURN,
        RecordKind.TRANSFER_START,
        RecordKind.TRANSFER_DATA,
        RecordKind.MESSAGE,
        RecordKind.TRANSFER_FINISHED,
        RecordKind.TRANSFER_FAILED,
        RecordKind.MESSAGE,
        RecordKind.CALL,
        RecordKind.OBJECT,
    ]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_message_is_confirmed_or_refused_by_its_number_and_a_refusal_without_a_waiter_is_reported(
    *, is_refused: bool
) -> None:
    one, other = End(), End()
    futures = [one.core.sender.begin_confirmed(content, 1.0).future for content in (b"a", b"b")]
    assert one.core.usage["acknowledgements"] == 2
    error = RefusedError("no listener", reason="no-listener")
    second = (2).to_bytes(8, "big")
    if is_refused:
        other.push(RecordKind.REFUSED, encode_refused(2, error))
        other.push(RecordKind.REFUSED, encode_refused(0, error))
    else:
        other.push(RecordKind.DELIVERED, second)
        other.push(RecordKind.DELIVERED, second)
    exchange(one, other, 0.0)
    assert [confirmed.done() for confirmed in futures] == [False, True]
    failure = futures[1].exception()
    assert (str(failure) if failure else None) == (str(error) if is_refused else None)
    assert [str(reported) for reported in one.reported] == ([str(error)] if is_refused else [])
    one.core.end(closed_error())
    assert isinstance(futures[0].exception(), EndedError)
    assert one.core.usage["acknowledgements"] == 0


def test_a_refusal_by_the_peer_raises_in_the_thread_that_sends_the_transfer() -> None:
    one, other = End(replace(LIMITS, buffer_bytes=20_000)), End()
    sent: list[bytes] = []

    def refuse_first() -> None:
        sent.append(one.link.frames[-1])
        if len(sent) == 1:
            other.push(RecordKind.TRANSFER_FAILED, encode_failed(1, "too large", by_receiver=True))
            transmit(other, one)

    one.link.on_send = refuse_first
    with pytest.raises(RefusedError, match="refused the transfer: too large"):
        one.core.transfers.send(RecordKind.CALL, bytes(3_000), 0.0)
    assert len(sent) == 1
    assert one.reported == []


@pytest.mark.parametrize("is_request", [False, True])
def test_a_refusal_of_a_sent_transfer_ends_the_request_that_it_carried_or_is_reported(*, is_request: bool) -> None:
    one, other = End(replace(LIMITS, buffer_bytes=20_000)), End()
    response: Future[bytes] = Future()
    if is_request:
        assert one.core.transfers.begin(RecordKind.CALL, bytes(1_001), response, None) is None
    else:
        one.core.transfers.send(RecordKind.RETURN, bytes(1_001), 0.0)
    other.push(RecordKind.TRANSFER_FAILED, encode_failed(1, "too late", by_receiver=True, reason="busy"))
    assert transmit(other, one) == []
    (error,) = [response.exception(0)] if is_request else one.reported
    assert isinstance(error, RefusedError)
    assert error.reason == "busy"
    assert "too late" in error.what
    assert len(one.reported) == (not is_request)


def test_an_invalid_record_is_reported_and_the_other_records_of_its_frame_are_processed() -> None:
    one, other = End(), End()
    one.together((RecordKind.TRANSFER_FAILED, b"short"), (RecordKind.REFUSED, bytes(8)), (RecordKind.CALL, b"call"))
    assert transmit(one, other) == [(RecordKind.CALL, b"call")]
    assert [type(error) for error in other.reported] == [DataFormatError, DataFormatError]


@pytest.mark.parametrize(("payload", "keeps"), [(encode_close(True), True), (encode_close(False), False), (b"", False)])
def test_a_close_of_the_peer_is_returned_after_the_other_records(payload: bytes, *, keeps: bool) -> None:
    one, other = End(), End()
    one.together((MESSAGE, b"last"), (RecordKind.CLOSE, payload))
    frame = one.frame()
    assert frame is not None
    assert other.receive(frame, 0.0) == (keeps, None)
    assert other.new() == [(MESSAGE, [(MESSAGE, b"last")])]


def test_a_close_has_the_reason_of_the_peer_unless_that_is_invalid() -> None:
    error = RefusedError("banned", reason="banned")
    closing = decode_close(memoryview(encode_close(False, error)))
    assert not closing.keep_session
    assert isinstance(closing.error, RefusedError)
    assert closing.error.reason == "banned"
    assert decode_close(memoryview(b"\x01{")) == (True, None)


def test_a_deferred_response_is_sent_after_the_peer_has_acknowledged() -> None:
    one, other = End(), End()
    assert one.push(MESSAGE, bytes(1_000)) == 1
    one.core.sender.reply(RecordKind.RETURN, bytes(900))
    assert one.core.sender.deferred_bytes == 900 + RECORD_COST
    assert one.push(MESSAGE, bytes(900)) == 0
    begun = one.core.sender.begin_push(MESSAGE, bytes(800))  # after the response
    assert begun is not None
    transmit(one, other)
    assert one.frame() is None
    assert not begun.done()
    transmit(other, one)  # the acknowledgement of 1,000 bytes
    assert one.core.sender.deferred_bytes == 0
    assert begun.done()
    assert transmit(one, other)[0] == (RecordKind.RETURN, bytes(900))
    assert one.frame() is None
    assert not one.core.sender.drain(0.0)
    assert one.core.unacknowledged_bytes > 0


def test_the_connection_of_a_peer_that_does_not_read_its_responses_ends_with_an_error_that_has_the_numbers() -> None:
    one = End()
    one.push(MESSAGE, bytes(1_000))
    one.core.sender.reply(RecordKind.RETURN, bytes(1_000))
    assert one.tick(0.0) is None
    one.core.sender.reply(RecordKind.RETURN, bytes(1_000))
    with pytest.raises(RefusedError, match="2256 bytes wait, limit 2000"):
        one.tick(0.0)


def test_a_ping_is_answered_in_the_next_frame_and_ends_once() -> None:
    one, other = End(), End()
    one.now = 10.0
    pings = [one.core.begin_ping(3.0), one.core.begin_ping(3.0)]
    assert transmit(one, other, 10.0) == []
    assert transmit(one, other, 10.0) == []
    pongs = [other.frame(), other.frame()]
    for pong in (*pongs, *pongs):
        assert pong is not None
        one.receive(pong, 12.5)
    assert [ping.result() for ping in pings] == [2.5, 2.5]
    assert one.core.usage["pings"] == 0


def test_a_ping_without_a_pong_ends_at_its_deadline_and_its_pong_is_too_late() -> None:
    one, other = End(), End()
    one.now = 10.0
    ping = one.core.begin_ping(3.0)
    transmit(one, other, 12.9)
    one.now = 12.9
    assert ping.remaining_s == pytest.approx(0.1)
    one.now = 13.0
    with pytest.raises(WaitTimeout, match="waited 3 s for the response of connection 00000007 to a ping") as caught:
        ping.result()
    assert caught.value.remedy
    assert one.core.usage["pings"] == 0
    assert transmit(other, one, 13.0) == []


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_ping_with_an_invalid_timeout_is_an_error(seconds: float) -> None:
    one = End()
    with pytest.raises(OptionError, match="timeout"):
        one.core.begin_ping(seconds)
    assert one.core.usage["pings"] == 0


def test_a_ping_is_refused_while_no_link_is_connected() -> None:
    one = End(attached=False)
    with pytest.raises(ConnectError, match="is not connected"):
        one.core.begin_ping(3.0)
    assert one.core.usage["pings"] == 0


def test_the_queue_of_unsequenced_records_is_bounded_but_accepts_a_close() -> None:
    one = End(budget=0)
    for _ in range(MAX_UNSEQUENCED + 5):
        one.core.sender.push_unsequenced(RecordKind.PONG, bytes(8))
    one.core.sender.push_unsequenced(RecordKind.CLOSE, b"\x00")
    one.link.budget = 1_000
    one.core.sender.flush()
    frames = [decode(frame).records for frame in one.link.frames]
    assert max(map(len, frames)) <= MAX_UNSEQUENCED_PER_FRAME
    sent = [kind for records in frames for kind, _, _ in records]
    assert sent == [RecordKind.PONG] * MAX_UNSEQUENCED + [RecordKind.CLOSE]


def test_pongs_and_a_close_fit_into_the_frames_that_the_peer_takes() -> None:
    """Regression: after 128 pings of a peer that takes small frames, the sender raised OptionError."""
    one, other = End(), End()
    other.link.room, other.link.budget = 992, 0
    one.together(*((RecordKind.PING, number.to_bytes(8, "big")) for number in range(MAX_UNSEQUENCED_PER_FRAME)))
    transmit(one, other)
    other.core.sender.push_unsequenced(
        RecordKind.CLOSE, encode_close(False, RefusedError("x" * 2_000, reason="banned"))
    )
    other.link.budget = 1_000
    other.core.sender.flush()
    frames = [decode(frame) for frame in other.link.frames]
    *pongs, close = [record for frame in frames for record in frame.records]
    assert [int.from_bytes(payload, "big") for _, _, payload in pongs] == [*range(MAX_UNSEQUENCED_PER_FRAME)]
    assert [len(frame.records) for frame in frames] == [69, 59, 1]
    assert close == (RecordKind.CLOSE, 0, b"\0")


def test_a_held_sender_sends_pongs_and_acknowledgements_but_no_sequenced_record() -> None:
    one, other = End(), End()
    one.push(MESSAGE, b"a")
    other.core.sender.hold(True)
    other.push(MESSAGE, b"held")
    assert other.frame() is None
    transmit(one, other)
    other.tick(1.0)
    transmit(other, one, 1.0)
    assert one.core.session.acknowledged == 1
    other.core.sender.push_unsequenced(RecordKind.PONG, bytes(8))
    pong = other.frame()
    assert pong is not None
    assert [kind for kind, _, _ in decode(pong).records] == [RecordKind.PONG]
    other.core.sender.hold(False)
    assert transmit(other, one, 1.0) == [(MESSAGE, [(MESSAGE, b"held")])]


def test_unsequenced_records_are_lost_with_their_link_and_sequenced_ones_are_not() -> None:
    one, other = End(), End()
    one.push(MESSAGE, b"kept")
    one.link.budget = 0
    one.core.sender.push_unsequenced(RecordKind.PONG, bytes(8))
    one.detach(1.0)
    one.core.sender.flush()
    one.attach(0, 2.0)
    one.core.sender.flush()
    assert transmit(one, other, 2.0) == [(MESSAGE, [(MESSAGE, b"kept")])]
    assert one.frame() is None


def test_a_link_whose_peer_claims_unsent_records_loses_the_session() -> None:
    one = End()
    with pytest.raises(SessionLost, match="the peer claims 3 received records"):
        one.attach(3, 1.0)


@pytest.mark.parametrize("is_response", [False, True])
def test_a_link_whose_peer_takes_only_shorter_records_loses_the_session(*, is_response: bool) -> None:
    """Regression: the thread that sends raised OptionError at each attempt, and a response waited for ever."""
    one = End()
    one.push(MESSAGE, b"a" * 500)
    if is_response:
        one.push(MESSAGE, b"b" * 500)
        one.core.sender.reply(RecordKind.RETURN, b"c" * 800)
        assert one.core.sender.deferred_bytes
    one.detach(1.0)
    room = (500 if is_response else 499) + FRAME - one.link.max_record_bytes
    with pytest.raises(SessionLost, match=r"a record of [58]00 bytes waits for the peer, whose new link takes records"):
        one.attach(0, 1.0, room)
    with pytest.raises(SessionLost):
        one.attach(0, 2.0)


def test_a_session_that_waits_too_long_for_a_link_ends_the_connection() -> None:
    one = End()
    one.detach(1.0)
    assert one.core.deadline() == 61.0
    assert one.tick(60.9, connected=False) is None
    with pytest.raises(SessionLost):
        one.tick(61.0, connected=False)


def test_a_keep_alive_is_due_after_its_interval_without_a_frame() -> None:
    one, other = End(), End()
    for sender, receiver in ((one, other), (other, one)):
        sender.push(MESSAGE, b"", now=10.0)
        transmit(sender, receiver, 10.0)
    one.tick(10.5)
    transmit(one, other, 10.5)  # its acknowledgement
    assert one.core.deadline() == 25.0
    one.tick(24.9)
    assert one.frame() is None
    one.tick(25.0)
    assert transmit(one, other, 25.1) == []  # a ping, which is answered
    one.tick(25.1)
    assert one.frame() is None
    assert transmit(other, one, 25.2) == []  # no caller waits for the pong


def test_a_link_expires_after_its_silence_and_the_next_link_has_the_whole_expiry() -> None:
    one = End()
    assert one.tick(1.0, connected=False) is None
    assert one.core.deadline() == 5.0
    assert one.tick(4.0) is None
    assert one.tick(4.5, connected=False) is None
    assert one.tick(8.4, connected=False) is None
    assert one.tick(8.5, connected=False) == 4.0
    one.attach(0, 9.0)
    assert one.tick(9.5, connected=False) is None
    assert one.tick(13.5, connected=False) == 4.0


@pytest.mark.parametrize("sends", [True, False])
def test_the_link_of_a_peer_that_is_stopped_expires_although_aeron_is_connected(sends: bool) -> None:
    """E1: a stopped server, or frames that go nowhere. Records that the peer has not acknowledged are sent again."""
    one, other = End(), End()
    one.push(MESSAGE, b"heard", now=1.0)
    transmit(one, other, 1.0)
    other.push(MESSAGE, b"", now=2.0)
    transmit(other, one, 2.0)
    lost = list[tuple[int, bytes]]()
    for now in range(3, 32):
        if sends and now % 10 == 0:
            one.push(MESSAGE, str(now).encode(), now=float(now))
            lost.append((MESSAGE, str(now).encode()))
        assert one.tick(float(now)) is None, now
        one.link.frames.clear()  # to a peer that does not read them
    assert one.core.deadline() == 32.0
    assert one.tick(32.0) == 30.0
    one.detach(32.0)
    other.detach(32.0)
    one.attach(other.core.session.received, 40.0)
    other.attach(one.core.session.received, 40.0)
    one.core.sender.flush()
    assert (transmit(one, other, 40.0) if sends else []) == ([(MESSAGE, lost)] if sends else [])


def test_an_idle_link_whose_peer_answers_stays() -> None:
    one, other = End(), End()
    frames = 0
    for now in range(1, 300):
        for sender, receiver in ((one, other), (other, one)):
            assert sender.tick(float(now)) is None
            while sender.link.frames:
                transmit(sender, receiver, float(now))
                frames += 1
    assert frames <= 2 * 300 / TIMES.keep_alive_seconds  # as few as with acknowledgements as keep-alives


def test_a_question_is_due_after_silence_although_this_end_sends() -> None:
    one, other = End(), End()
    for now in range(1, 15):
        one.push(MESSAGE, b"", now=float(now))
        transmit(one, other, float(now))
        assert one.tick(float(now)) is None
        assert one.frame() is None
    one.tick(15.0)
    assert one.link.frames
    exchange(one, other, 15.0)
    assert one.core.deadline() == 30.0


def test_a_peer_that_does_not_read_but_sends_keep_alives_keeps_its_link() -> None:
    """Its listeners are too slow: it reads neither records nor pings."""
    one, other = End(), End()
    other.core.hold(True)
    for now in range(1, 300):
        assert one.tick(float(now)) is None
        one.link.frames.clear()
        assert other.tick(float(now)) is None
        while other.link.frames:
            transmit(other, one, float(now))


def test_an_end_that_was_suspended_asks_before_it_gives_its_link_up() -> None:
    one, other = End(), End()
    assert one.tick(500.0) is None
    assert one.link.frames
    assert one.core.deadline() == 515.0
    exchange(one, other, 500.1)
    assert one.tick(515.0) is None


def test_the_next_link_has_the_whole_time_for_its_first_frame() -> None:
    one = End()
    one.tick(15.0)
    assert one.tick(30.0) == 30.0
    one.attach(0, 31.0)
    assert one.tick(45.9) is None
    assert one.frame() is None
    assert one.tick(46.0) is None
    assert one.frame() is not None
    assert one.tick(60.9) is None
    assert one.tick(61.0) == 30.0


def test_an_acknowledgement_is_due_after_its_delay_unless_acknowledgements_are_paused() -> None:
    one, other = End(), End()
    one.push(MESSAGE, b"")
    transmit(one, other)
    assert other.core.deadline() == 0.5
    other.core.hold(True)
    assert other.core.is_paused
    assert other.core.deadline() == 15.0
    other.tick(0.5)
    assert other.frame() is None
    other.push(MESSAGE, b"", now=0.5)
    transmit(other, one, 0.5)
    assert one.core.session.acknowledged == 0
    other.now = 0.6
    other.core.hold(False)  # the acknowledgement is due, and sent at once
    transmit(other, one, 0.6)
    assert one.core.session.acknowledged == 1


def test_a_connection_that_refuses_accepts_nothing_until_a_link_is_attached() -> None:
    one = End()
    one.push(MESSAGE, b"before")
    one.detach(1.0)
    one.core.sender.refuse(EndedError("stopped", remedy="Connect"))
    assert one.core.refuses_records
    for _ in range(2):
        with pytest.raises(EndedError, match="stopped"):
            one.push(MESSAGE, b"")
    with pytest.raises(EndedError, match="stopped"):
        one.push(MESSAGE, b"", b"")
    with pytest.raises(EndedError, match="stopped"):
        one.core.sender.begin_push(MESSAGE, b"")
    one.attach(0, 2.0)
    assert not one.core.refuses_records
    assert one.push(MESSAGE, b"after") == 1
    assert one.core.session.pending == 2


def test_a_closed_connection_raises_its_first_error_and_has_nothing_to_do() -> None:
    one, other = End(), End()
    other.push(MESSAGE, b"late")
    one.push(MESSAGE, bytes(1_000))
    one.core.sender.reply(RecordKind.RETURN, bytes(1_000))
    ping = one.core.begin_ping(3.0)
    assert [kind for kind, _, _ in one.core.end(closed_error())] == [MESSAGE]
    assert one.core.end(EndedError("a later one", remedy="")) == []
    with pytest.raises(EndedError, match="the connection is closed"):
        one.push(MESSAGE, b"")
    with pytest.raises(EndedError):
        transmit(other, one)
    with pytest.raises(EndedError):
        ping.result()
    assert (one.core.held_bytes, one.core.usage["pings"]) == (0, 0)
    one.link.frames.clear()
    one.core.sender.reply(RecordKind.RETURN, b"late")
    one.core.sender.push_unsequenced(RecordKind.PONG, bytes(8))
    assert (one.core.held_bytes, one.core.deadline(), one.tick(999.0, connected=False)) == (0, None, None)
    assert one.frame() is None


def test_a_thread_that_sends_on_a_replaced_link_also_sends_the_first_frame_of_the_new_one() -> None:
    """The event loop attaches the new link and flushes, while the other thread has the lock for sending."""
    one, other = End(), End()

    def replace_link() -> None:
        one.detach(0.0)
        one.attach(0, 0.0)
        one.core.sender.flush()
        assert not one.link.frames

    one.link.on_send = replace_link
    one.push(MESSAGE, b"a")
    assert transmit(one, other) == [(MESSAGE, [(MESSAGE, b"a")])]


def test_a_thread_without_room_raises_the_error_of_a_connection_that_has_ended_meanwhile() -> None:
    one = End(budget=0)
    one.push(MESSAGE, bytes(1_000))
    one.link.budget = 1
    one.link.on_send = lambda: one.core.end(closed_error())
    with pytest.raises(EndedError, match="the connection is closed"):
        one.core.sender.push(MESSAGE, bytes(1_000), one.now)


def test_a_frame_after_a_gap_is_an_error_and_changes_no_state() -> None:
    one, other = End(), End()
    one.push(MESSAGE, b"lost")
    one.frame()
    one.push(MESSAGE, b"after a gap")
    with pytest.raises(DataFormatError, match="record 0 is missing"):
        transmit(one, other)
    assert other.core.session.received == 0


def test_the_limit_of_a_record_is_only_lowered() -> None:
    one = End(replace(LIMITS, buffer_bytes=20_000))
    for longest in (500, 800):
        one.attach(0, 0.0, longest + FRAME - one.link.max_record_bytes)
        one.link.room = FRAME
        assert one.core.session.limits.max_record_bytes == 500


def test_the_round_trip_is_measured_at_a_new_link_and_at_intervals_while_frames_flow() -> None:
    one, other = End(times=MEASURES), End()
    one.tick(0.0)
    assert one.core.round_trip is None
    transmit(one, other, 0.0)
    assert transmit(other, one, 0.25) == []  # no thread waits for this pong
    assert one.core.round_trip == 0.25
    for now in range(1, 15):
        one.push(MESSAGE, b"a", now=float(now))
        transmit(one, other, float(now))
        one.tick(float(now))
        assert one.frame() is None
    assert one.core.deadline() == 15.0
    one.tick(15.0)
    transmit(one, other, 15.0)
    exchange(one, other, 15.5)
    assert one.core.round_trip == 0.5


def test_a_measurement_that_its_link_lost_is_replaced_by_one_on_the_next_link() -> None:
    one, other = End(times=MEASURES), End()
    one.tick(0.0)
    transmit(one, other, 0.0)
    late = other.frame()
    assert late is not None
    one.attach(0, 3.0)
    one.tick(3.0)
    one.receive(late, 4.0)
    assert one.core.round_trip is None
    other.attach(0, 3.0)
    transmit(one, other, 3.0)
    transmit(other, one, 3.5)
    assert one.core.round_trip == 0.5


def test_a_connection_that_does_not_measure_ignores_the_pong_of_a_measurement() -> None:
    one, other = End(), End()
    other.core.sender.push_unsequenced(RecordKind.PONG, (2**63 + 1).to_bytes(8, "big"))
    assert transmit(other, one) == []
    assert one.core.round_trip is None


def test_a_connection_is_active_when_sequenced_records_are_sent_or_received() -> None:
    one, other = End(), End()
    one.core.sender.push_unsequenced(RecordKind.ACK)
    transmit(one, other, 5.0)
    assert (one.core.idle_seconds(5.0), other.core.idle_seconds(5.0)) == (5.0, 5.0)
    one.push(MESSAGE, b"a", now=7.0)
    transmit(one, other, 7.0)
    assert (one.core.idle_seconds(7.0), other.core.idle_seconds(7.0)) == (0.0, 0.0)
