"""Pending calls: each ends once, by its response or at its deadline, and is then removed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.endpoint.sender import Pending
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    OptionError,
    RemoteError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_messages import (
    RETURN,
    Call,
    Create,
    Delete,
    Failure,
    Request,
    call_id_of,
    decode_call,
    encode_failure,
    encode_value,
)
from tests.unit.protocol.rpc_ends import RpcEnd, connected_ends

TYPES = Types()
CALL = Call("catalog", "describe", ("flights",), {})


def value(call_id: int, result: object = None) -> bytes:
    return encode_value(call_id, result, TYPES, None)


def begin(end: RpcEnd, request: Request = CALL, *, timeout: float | None = None) -> tuple[int, Pending[Any]]:
    """Begin a call; return its id, and the wait for its response."""
    pending = end.rpc.begin(request, timeout)
    return call_id_of(end.sent[-1]), pending


def result_of(pending: Pending[Any]) -> Any:
    """Return the result of a call whose response has arrived."""
    assert pending.future.done()
    return pending.result()


def error_of(pending: Pending[Any]) -> AeronSparkError:
    """Return the error of a call that has ended, or whose deadline has passed."""
    assert pending.future.done() or pending.remaining_s == 0.0
    with pytest.raises(AeronSparkError) as caught:
        pending.result()
    return caught.value


def test_a_call_is_encoded_and_ends_with_its_response() -> None:
    end = RpcEnd()
    call_id, pending = begin(end, timeout=1)
    assert decode_call(end.sent[-1], TYPES, None) == CALL
    end.rpc.take_response(value(call_id, (1, "a")))
    assert result_of(pending) == (1, "a")
    assert len(end.rpc) == 0


def test_row_67_a_call_ends_at_its_deadline_and_not_before() -> None:
    end = RpcEnd()
    end.now = 10.0
    _, slow = begin(end, timeout=1.0)
    _, patient = begin(end, timeout=2.5)
    endless = [begin(end, timeout=0)[1], begin(end, timeout=None)[1]]
    end.now = 10.999
    assert slow.remaining_s == pytest.approx(0.001)
    end.now = 11.0
    assert isinstance(error_of(slow), WaitTimeout)
    assert slow.remaining_s == 0.0
    assert patient.remaining_s == 1.5
    end.now = 1e9
    late = error_of(patient)
    assert isinstance(late, WaitTimeout)
    assert late.what == "waited 2.5 s for the response to the call of describe() of 'catalog'"
    assert late.remedy
    assert [pending.remaining_s for pending in endless] == [None, None]
    assert len(end.rpc) == 2


class Sleeper:
    def __init__(self, side: RpcEnd) -> None:
        self.side = side

    def sleep(self, seconds: float) -> str:
        self.side.now += seconds
        return "ok"


def test_row_67_a_call_longer_than_its_timeout_fails_and_a_timeout_of_zero_has_no_limit() -> None:
    client, server = connected_ends()
    server.shared.register("sleeper", Sleeper(server), ["sleep"])
    proxy = client.remote("sleeper")
    with pytest.raises(WaitTimeout, match=r"waited 1 s for the response to the call of sleep\(\) of 'sleeper'"):
        proxy.with_timeout(1.0).sleep(2.0)
    assert proxy.with_timeout(1.0).sleep(0.2) == "ok"
    assert proxy.with_timeout(0).sleep(3600.0) == "ok"
    assert (client.rpc.late, len(client.rpc)) == (1, 0)


def test_row_71_late_and_forged_responses_are_ignored_and_counted() -> None:
    end, other = RpcEnd(), RpcEnd()
    late, overdue = begin(end, timeout=1)
    call_id, waiting = begin(end)
    end.now = 5
    error_of(overdue)
    end.rpc.take_response(value(late, "x"))
    assert (end.rpc.late, end.rpc.forged) == (1, 0)
    for forged in (call_id + 1, 2**64 - 1, 0):
        end.rpc.take_response(value(forged, "x"))
    assert (end.rpc.late, end.rpc.forged) == (1, 3)
    assert len(end.rpc) == 1
    # a response with the same id over another connection ends no call there
    other.rpc.take_response(value(call_id, "x"))
    assert other.rpc.forged == 1
    end.rpc.take_response(value(call_id, "mine"))
    assert result_of(waiting) == "mine"
    end.rpc.take_response(value(call_id, "again"))
    assert end.rpc.late == 2


def test_a_call_id_is_not_reused() -> None:
    end = RpcEnd()
    seen = set()
    for number in range(1000):
        call_id, pending = begin(end, timeout=1)
        assert call_id not in seen
        seen.add(call_id)
        if number % 2:
            end.rpc.take_response(value(call_id))
        else:
            pending.cancel()
    assert len(end.rpc) == 0


def test_a_remote_failure_has_its_code_and_text() -> None:
    end = RpcEnd()
    call_id, pending = begin(end)
    end.rpc.take_response(encode_failure(call_id, Failure("KeyError", "no such stream"), TYPES))
    with pytest.raises(RemoteError, match=r"describe\(\) of 'catalog' failed at the peer: no such stream") as caught:
        result_of(pending)
    assert caught.value.code == "KeyError"


@pytest.mark.parametrize(
    "body", [b"", b"\x00\xc1", b"\x00", b"\x02\xc0", b"\x01\xc0", b"\x01\x91\xa1a", b"\x00" + b"\x91" * 9999]
)
def test_an_invalid_response_ends_its_call_with_an_error(body: bytes) -> None:
    end = RpcEnd()
    call_id, pending = begin(end)
    end.rpc.take_response(call_id.to_bytes(8, "big") + body)
    with pytest.raises(DataFormatError):
        result_of(pending)
    assert len(end.rpc) == 0


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_a_response_or_a_format_error(payload: bytes) -> None:
    end = RpcEnd()
    _, pending = begin(end)
    for candidate in (payload, RETURN.pack(1, 0) + payload):
        try:
            end.rpc.take_response(candidate)
        except DataFormatError:
            assert len(candidate) < 8
    assert pending.future.done()


def test_close_ends_every_call_with_its_reason_and_refuses_later_calls() -> None:
    end = RpcEnd()
    calls = [begin(end)[1], begin(end, timeout=5)[1], begin(end, Create("maker"))[1], begin(end, Delete(7))[1]]
    end.rpc.close("the server was shut down")
    for pending, name in zip(calls, ("describe()", "describe()", "'maker'", "object 7"), strict=True):
        assert isinstance(error_of(pending), ConnectError)
        assert name in str(error_of(pending))
        assert "the server was shut down" in str(error_of(pending))
    assert len(end.rpc) == 0
    end.rpc.close("again")
    with pytest.raises(UsageError, match="the server was shut down"):
        begin(end)
    with pytest.raises(UsageError, match="the server was shut down"):
        end.rpc.encode_one_way(CALL)


def test_calls_in_flight_have_a_limit_and_one_way_calls_do_not_count() -> None:
    end = RpcEnd(max_in_flight=2)
    first, _ = begin(end)
    begin(end)
    with pytest.raises(UsageError, match="2 calls wait"):
        begin(end)
    assert call_id_of(end.rpc.encode_one_way(CALL)) == 0
    end.rpc.take_response(value(first))
    begin(end)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), -0.001])
def test_an_invalid_timeout_is_an_error(timeout: float) -> None:
    end = RpcEnd()
    with pytest.raises(OptionError, match="invalid timeout"):
        begin(end, timeout=timeout)
    assert len(end.rpc) == 0


def test_a_call_that_cannot_be_encoded_does_not_begin() -> None:
    end = RpcEnd()
    with pytest.raises(OptionError, match="its type object is not one of"):
        begin(end, Call("a", "b", (object(),)), timeout=1)
    with pytest.raises(OptionError, match="300 arguments"):
        begin(end, Call("a", "b", tuple(range(300))), timeout=1)
    assert len(end.rpc) == 0


def test_the_response_to_a_withdrawn_call_is_ignored() -> None:
    end = RpcEnd()
    call_id, pending = begin(end)
    pending.cancel()
    assert len(end.rpc) == 0
    end.rpc.take_response(value(call_id))
    assert end.rpc.late == 1


def test_withdrawing_a_call_looks_at_no_other_call() -> None:
    class Looked(dict[int, Any]):
        looks = 0

        def __iter__(self) -> Any:
            self.looks += len(self)
            return super().__iter__()

        def items(self) -> Any:
            self.looks += len(self)
            return super().items()

    end = RpcEnd()
    calls = [begin(end)[1] for _ in range(100)]
    end.rpc._pending = looked = Looked(end.rpc._pending)
    for pending in calls:
        pending.cancel()
    assert len(end.rpc) == looked.looks == 0


def test_ten_thousand_pending_calls_end_with_their_responses_in_any_order() -> None:
    end = RpcEnd()
    calls = dict(begin(end, timeout=60) for _ in range(10_000))
    assert len(end.rpc) == len(calls) == 10_000
    order = list(calls)
    random.Random(7).shuffle(order)
    for call_id in order:
        end.rpc.take_response(value(call_id, call_id))
        assert result_of(calls[call_id]) == call_id
    assert len(end.rpc) == 0
    assert (end.rpc.late, end.rpc.forged) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from(["begin", "respond", "expire"]), st.integers(0, 20)), max_size=60))
def test_every_call_ends_exactly_once_as_in_a_model(steps: list[tuple[str, int]]) -> None:
    end, calls, waiting = RpcEnd(), dict[int, Pending[Any]](), dict[int, float]()
    for step, number in steps:
        if step == "begin":
            call_id, calls[call_id] = begin(end, timeout=number + 1)
            waiting[call_id] = end.now + number + 1
        elif step == "respond" and waiting:
            call_id = sorted(waiting)[number % len(waiting)]
            del waiting[call_id]
            end.rpc.take_response(value(call_id, call_id))
            assert result_of(calls[call_id]) == call_id
        else:
            end.now += number
            for call_id in [call_id for call_id, deadline in waiting.items() if deadline <= end.now]:
                assert isinstance(error_of(calls[call_id]), WaitTimeout)
                del waiting[call_id]
        assert len(end.rpc) == len(waiting)
        assert {call_id for call_id, pending in calls.items() if not pending.future.done()} == set(waiting)
    end.rpc.close("end")
    for call_id in waiting:
        assert isinstance(error_of(calls[call_id]), ConnectError)
