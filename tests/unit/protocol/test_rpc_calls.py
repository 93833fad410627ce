"""Pending calls: each ends once, by its response or at its deadline, and is then removed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import ConnectError, DataFormatError, OptionError, RemoteError, UsageError, WaitTimeout
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_calls import Calls
from aeron_spark.protocol.rpc_messages import (
    RETURN,
    Call,
    Create,
    Delete,
    Failure,
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


def begin(calls: Calls, token: object, *, now: float = 0.0, timeout: float | None = None) -> int:
    return call_id_of(calls.begin(CALL, now=now, timeout=timeout, token=token))


def result_of(calls: Calls, payload: bytes) -> tuple[object, object]:
    """Return the token and the result of the call that this response ends."""
    response = calls.take_response(payload)
    assert response is not None
    return response.token, calls.result_of(response)


def test_a_call_is_encoded_and_ends_with_its_response() -> None:
    calls = Calls(TYPES)
    record = calls.begin(CALL, now=0, timeout=1, token="mine")
    assert decode_call(record, TYPES, None) == CALL
    assert result_of(calls, value(call_id_of(record), (1, "a"))) == ("mine", (1, "a"))
    assert len(calls) == 0


def test_row_67_a_call_ends_at_its_deadline_and_not_before() -> None:
    calls = Calls(TYPES)
    begin(calls, "slow", now=10, timeout=1.0)
    begin(calls, "patient", now=10, timeout=2.5)
    begin(calls, "endless", now=10, timeout=0)
    begin(calls, "endless, too", now=10, timeout=None)
    assert calls.deadline() == 11
    assert calls.expire(10.999) == []
    (ended,) = calls.expire(11.0)
    assert ended.token == "slow"
    assert isinstance(ended.error, WaitTimeout)
    assert "describe() of 'catalog' within 1 s" in str(ended.error)
    assert [one.token for one in calls.expire(1e9)] == ["patient"]
    assert len(calls) == 2
    assert calls.deadline() is None


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
    with pytest.raises(WaitTimeout, match=r"sleep\(\) of 'sleeper' within 1 s"):
        proxy.with_timeout(1.0).sleep(2.0)
    assert proxy.with_timeout(1.0).sleep(0.2) == "ok"
    assert proxy.with_timeout(0).sleep(3600.0) == "ok"
    assert (client.calls.late, len(client.calls)) == (1, 0)


def test_row_71_late_and_forged_responses_are_ignored_and_counted() -> None:
    calls, other = Calls(TYPES), Calls(TYPES)
    late = begin(calls, "late", timeout=1)
    waiting = begin(calls, "waiting")
    calls.expire(5)
    assert calls.take_response(value(late, "x")) is None
    assert (calls.late, calls.forged) == (1, 0)
    for forged in (waiting + 1, 2**64 - 1, 0):
        assert calls.take_response(value(forged, "x")) is None
    assert (calls.late, calls.forged) == (1, 3)
    assert len(calls) == 1
    # a response with the same id over another connection ends no call there
    assert other.take_response(value(waiting, "x")) is None
    assert other.forged == 1
    assert result_of(calls, value(waiting, "mine")) == ("waiting", "mine")
    assert calls.take_response(value(waiting, "again")) is None
    assert calls.late == 2


def test_a_call_id_is_not_reused() -> None:
    calls = Calls(TYPES)
    seen = set()
    for number in range(1000):
        call_id = begin(calls, number, timeout=1)
        assert call_id not in seen
        seen.add(call_id)
        if number % 2:
            calls.take_response(value(call_id))
    calls.expire(2)
    assert len(calls) == 0


def test_a_remote_failure_has_its_code_and_text() -> None:
    calls = Calls(TYPES)
    call_id = begin(calls, "t")
    with pytest.raises(RemoteError, match=r"describe\(\) of 'catalog' failed at the peer: no such stream") as caught:
        result_of(calls, encode_failure(call_id, Failure("KeyError", "no such stream"), TYPES))
    assert caught.value.code == "KeyError"


@pytest.mark.parametrize(
    "body", [b"", b"\x00\xc1", b"\x00", b"\x02\xc0", b"\x01\xc0", b"\x01\x91\xa1a", b"\x00" + b"\x91" * 9999]
)
def test_an_invalid_response_ends_its_call_with_an_error(body: bytes) -> None:
    calls = Calls(TYPES)
    call_id = begin(calls, "t")
    with pytest.raises(DataFormatError):
        result_of(calls, call_id.to_bytes(8, "big") + body)
    assert len(calls) == 0


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_a_response_or_a_format_error(payload: bytes) -> None:
    calls = Calls(TYPES)
    begin(calls, "t")
    for candidate in (payload, RETURN.pack(1, 0) + payload):
        try:
            response = calls.take_response(candidate)
        except DataFormatError:
            assert len(candidate) < 8
            continue
        assert response is None or response.token == "t"


def test_close_ends_every_call_with_its_reason_and_refuses_later_calls() -> None:
    calls = Calls(TYPES)
    begin(calls, 1)
    begin(calls, 2, timeout=5)
    calls.begin(Create("maker"), now=0, timeout=None, token=3)
    calls.begin(Delete(7), now=0, timeout=None, token=4)
    ended = calls.close("the server was shut down")
    assert [one.token for one in ended] == [1, 2, 3, 4]
    for one, name in zip(ended, ("describe()", "describe()", "'maker'", "object 7"), strict=True):
        assert isinstance(one.error, ConnectError)
        assert name in str(one.error)
        assert "the server was shut down" in str(one.error)
    assert calls.close("again") == []
    assert calls.expire(1e9) == []
    with pytest.raises(UsageError, match="the server was shut down"):
        begin(calls, 3)
    with pytest.raises(UsageError, match="the server was shut down"):
        calls.encode_one_way(CALL)


def test_calls_in_flight_have_a_limit_and_one_way_calls_do_not_count() -> None:
    calls = Calls(TYPES, max_in_flight=2)
    first = begin(calls, 1)
    begin(calls, 2)
    with pytest.raises(UsageError, match="2 calls wait"):
        begin(calls, 3)
    assert call_id_of(calls.encode_one_way(CALL)) == 0
    calls.take_response(value(first))
    begin(calls, 3)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), -0.001])
def test_an_invalid_timeout_is_an_error(timeout: float) -> None:
    calls = Calls(TYPES)
    with pytest.raises(OptionError, match="invalid timeout"):
        begin(calls, 1, timeout=timeout)
    assert len(calls) == 0


def test_a_call_that_cannot_be_encoded_does_not_begin() -> None:
    calls = Calls(TYPES)
    with pytest.raises(OptionError, match="its type object is not one of"):
        calls.begin(Call("a", "b", (object(),)), now=0, timeout=1, token=1)
    with pytest.raises(OptionError, match="300 arguments"):
        calls.begin(Call("a", "b", tuple(range(300))), now=0, timeout=1, token=1)
    assert len(calls) == 0
    assert calls.deadline() is None


def test_the_response_to_a_withdrawn_call_is_ignored() -> None:
    calls = Calls(TYPES)
    call_id = begin(calls, "token")
    assert calls.withdraw("token")
    assert not calls.withdraw("token")
    assert calls.take_response(value(call_id)) is None
    assert calls.late == 1


def test_withdrawing_a_call_looks_at_no_other_call() -> None:
    class Looked(dict[int, Any]):
        looks = 0

        def __iter__(self) -> Any:
            self.looks += len(self)
            return super().__iter__()

        def items(self) -> Any:
            self.looks += len(self)
            return super().items()

    calls = Calls(TYPES)
    tokens = [object() for _ in range(100)]
    for token in tokens:
        begin(calls, token)
    calls._pending = looked = Looked(calls._pending)
    assert all(calls.withdraw(token) for token in tokens)
    assert len(calls) == looked.looks == 0
    assert not any(calls.withdraw(token) for token in tokens)
    assert not calls._ids


def test_ten_thousand_pending_calls_end_with_their_responses_in_any_order() -> None:
    calls = Calls(TYPES)
    ids = {begin(calls, number, timeout=60): number for number in range(10_000)}
    assert len(calls) == len(ids) == 10_000
    order = list(ids)
    random.Random(7).shuffle(order)
    for call_id in order:
        assert result_of(calls, value(call_id, call_id)) == (ids[call_id], call_id)
    assert len(calls) == 0
    assert calls.expire(1e9) == []
    assert (calls.late, calls.forged) == (0, 0)


def test_deadlines_of_ended_calls_do_not_accumulate() -> None:
    calls = Calls(TYPES)
    begin(calls, "first", now=0, timeout=1000)
    for number in range(10_000):
        calls.take_response(value(begin(calls, number, now=number * 0.001, timeout=30)))
        assert len(calls._deadlines) < 100
    assert [one.token for one in calls.expire(1000)] == ["first"]


@given(st.lists(st.tuples(st.sampled_from(["begin", "respond", "expire"]), st.integers(0, 20)), max_size=60))
def test_every_call_ends_exactly_once_as_in_a_model(steps: list[tuple[str, int]]) -> None:
    calls, now, waiting, ended = Calls(TYPES), 0.0, dict[int, float](), list[object]()
    for step, number in steps:
        if step == "begin":
            waiting[begin(calls, len(waiting) + len(ended), now=now, timeout=number + 1)] = now + number + 1
        elif step == "respond" and waiting:
            call_id = sorted(waiting)[number % len(waiting)]
            del waiting[call_id]
            one = calls.take_response(value(call_id))
            assert one is not None
            ended.append(one.token)
        else:
            now += number
            expired = calls.expire(now)
            due = [call_id for call_id, deadline in waiting.items() if deadline <= now]
            assert len(expired) == len(due)
            ended += [one.token for one in expired]
            for call_id in due:
                del waiting[call_id]
        assert len(calls) == len(waiting)
        first = calls.deadline()
        assert not waiting or (first is not None and first <= min(waiting.values()))
    ended += [one.token for one in calls.close("end")]
    assert sorted(ended) == list(range(len(ended)))  # type: ignore[type-var]
