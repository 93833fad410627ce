"""What a peer may call, and that every call is answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError, RemoteError
from aeron_spark.protocol.message_types import Reference, Types
from aeron_spark.protocol.rpc_dispatch import Dispatcher, ErrorCodes, Invocation, Outcome
from aeron_spark.protocol.rpc_messages import (
    CALL,
    OBJECT,
    Call,
    Create,
    Delete,
    Failure,
    call_id_of,
    decode_call,
    decode_object,
    decode_return,
    encode_call,
    encode_failure,
    encode_object,
    text_of,
)
from aeron_spark.protocol.rpc_objects import ConnectionObjects, GlobalObjects, Proxy
from aeron_spark.protocol.session import RECORD_COST
from tests.unit.protocol.remote_sides import Side, sides

TYPES = Types()


class Unregistered(Exception):
    pass


class Registered(Exception):
    pass


class Narrow(ValueError):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Service:
    def __init__(self) -> None:
        self.count = 0
        self.client: Proxy | None = None

    def fail(self, kind: str) -> None:
        errors: dict[str, BaseException] = {
            "value": ValueError("a value"),
            "key": KeyError("k"),
            "empty": ValueError(),
            "narrow": Narrow("narrow"),
            "registered": Registered("mine"),
            "unregistered": Unregistered("theirs"),
            "unprintable": Unprintable(),
            "long": ValueError("x" * 100_000),
            "surrogate": ValueError("\ud800"),
            "exit": SystemExit(3),
            "option": OptionError("bad option", remedy="Use another"),
        }
        raise errors[kind]

    def result(self) -> object:
        return object()

    def bump(self) -> int:
        self.count += 1
        return self.count

    def slow_nested(self) -> str:
        assert self.client is not None
        return str(self.client.with_timeout(1.0).sleep(2.0))

    def _private(self) -> str:
        return "private"

    def unlisted(self) -> str:
        return "unlisted"


def joined(**limits: Any) -> tuple[Side, Service]:
    service = Service()
    client, server = sides(server=Side(**limits))
    server.shared.register("service", service, ["fail", "result", "bump", "slow_nested"])
    server.errors.register(Registered, "my-code")
    return client, service


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        ("value", "ValueError", "a value"),
        ("key", "KeyError", "'k'"),
        ("empty", "ValueError", "ValueError"),
        ("narrow", "ValueError", "narrow"),
        ("registered", "my-code", "mine"),
        ("unregistered", "RemoteError", "theirs"),
        ("unprintable", "RemoteError", "cannot be had"),
        ("long", "ValueError", "xxxx"),
        ("surrogate", "ValueError", "[?]"),
        ("exit", "RemoteError", "3"),
        ("option", "OptionError", "bad option"),
    ],
)
def test_row_68_remote_exceptions_have_a_code_and_a_text_and_no_stack(kind: str, code: str, text: str) -> None:
    client, _ = joined()
    with pytest.raises(RemoteError, match=text) as caught:
        client.remote("service").fail(kind)
    assert caught.value.code == code
    assert len(caught.value.what) < 1100
    assert "Traceback" not in str(caught.value)
    assert __file__ not in str(caught.value)


def test_row_68_a_result_that_cannot_be_sent_is_an_error_and_not_silence() -> None:
    client, _ = joined()
    with pytest.raises(RemoteError, match="a object is none of") as caught:
        client.remote("service").result()
    assert caught.value.code == "bad-result"


@pytest.mark.parametrize(
    ("target", "method", "code", "text"),
    [
        ("service", "bumb", "unknown-method", "did you mean 'bump'"),
        ("servise", "bump", "unknown-object", "did you mean 'service'"),
        ("service", "unlisted", "unknown-method", "no remote method 'unlisted'"),
        ("service", "_private", "unknown-method", "no remote method"),
        ("service", "__class__", "unknown-method", "no remote method"),
        ("service", "__init__", "unknown-method", "no remote method"),
        ("service", "count", "unknown-method", "no remote method"),
        (12, "bump", "unknown-object", "no remote object 12"),
    ],
)
def test_only_listed_methods_of_known_objects_are_called(target: Any, method: str, code: str, text: str) -> None:
    client, service = joined()
    with pytest.raises(RemoteError, match=text) as caught:
        client.remote(target)[method]()
    assert caught.value.code == code
    assert service.count == 0


def test_wrong_arguments_are_an_error_of_the_caller() -> None:
    client, _ = joined()
    with pytest.raises(RemoteError, match="positional argument") as caught:
        client.remote("service").bump(1, 2)
    assert caught.value.code == "TypeError"


def test_unknown_factories_are_named_by_their_nearest() -> None:
    client, _ = joined()
    client.peer.shared.factory("service", Service, ["bump"])
    assert client.create("service").bump() == 1
    with pytest.raises(RemoteError, match="did you mean 'service'") as caught:
        client.create("servce")
    assert caught.value.code == "unknown-factory"
    client.peer.shared.factory("broken", lambda: 7, ["bump"])
    with pytest.raises(RemoteError, match="int has no method 'bump'") as caught:
        client.create("broken")
    assert caught.value.code == "bad-result"
    assert len(client.peer.objects) == 1


def test_what_is_not_permitted_does_not_run() -> None:
    asked = []

    def permit(target: object, method: str) -> bool:
        asked.append((target, method))
        return method == "fail"

    client, service = joined(permit=permit)
    client.peer.shared.factory("service", Service, ["bump"])
    for attempt in (client.remote("service").bump, lambda: client.create("service")):
        with pytest.raises(RemoteError) as caught:
            attempt()
        assert caught.value.code == "not-permitted"
    with pytest.raises(RemoteError, match="a value"):
        client.remote("service").fail("value")
    assert asked == [("service", "bump"), ("service", "create"), ("service", "fail")]
    assert service.count == 0


def test_row_69_a_nested_call_that_is_late_ends_the_outer_one_with_its_error() -> None:
    client, service = joined()
    server = client.peer

    class Sleeper:
        def sleep(self, seconds: float) -> None:
            client.now += seconds

    client.objects.register(Sleeper(), ["sleep"], 1)
    service.client = server.remote(1)
    assert client.remote("service").oneway.slow_nested() is None
    with pytest.raises(RemoteError, match="within 1 seconds") as caught:
        client.remote("service").with_timeout(60).slow_nested()
    assert caught.value.code == "WaitTimeout"


def test_row_72_many_one_way_calls_all_arrive_and_a_thousand_answered_ones_are_counted() -> None:
    client, service = joined()
    proxy = client.remote("service")
    for _ in range(20_000):
        assert proxy.oneway.bump() is None
    assert service.count == 20_000
    assert [proxy.bump() for _ in range(1000)] == list(range(20_001, 21_001))
    assert (client.peer.dispatcher.running, client.peer.dispatcher.failed_one_way) == (0, 0)


def test_one_way_calls_that_fail_are_counted_and_not_answered() -> None:
    client, _ = joined()
    client.remote("service").oneway.fail("value")
    assert client.peer.dispatcher.failed_one_way == 0
    client.remote("nobody").oneway.bump()
    client.remote("service").oneway.unlisted()
    assert client.peer.dispatcher.failed_one_way == 2
    assert client.peer.dispatcher.running == 0


def test_ten_thousand_calls_taken_before_the_first_ends_are_all_answered_in_any_order() -> None:
    client, service = joined()
    dispatcher = client.peer.dispatcher
    records = [
        client.calls.begin(Call("service", "bump"), now=0, timeout=None, token=number) for number in range(10_000)
    ]
    taken = [dispatcher.call(record) for record in records]
    assert dispatcher.running == 10_000
    answered = set()
    for invocation in reversed(taken):
        assert isinstance(invocation, Invocation)
        answer = dispatcher.finish(invocation, invocation.run())
        assert answer is not None
        response = client.calls.take_response(answer)
        assert response is not None
        assert client.calls.result_of(response)
        answered.add(response.token)
    assert answered == set(range(10_000))
    assert (service.count, dispatcher.running, len(client.calls)) == (10_000, 0, 0)


class Picky:
    """Refuses every value, as a program's own class may."""

    def __init__(self) -> None:
        self.decoded = 0

    def refer(self, value: object) -> Reference | None:
        return None

    def resolve(self, reference: Reference) -> object:
        self.decoded += 1
        raise DataFormatError("not here", remedy="")


def test_a_request_is_counted_with_its_bytes_and_its_arguments_are_decoded_when_it_runs() -> None:
    shared, picky = GlobalObjects(), Picky()
    shared.register("service", Service(), ["bump"])
    shared.factory("maker", Service, ["bump"])
    objects = ConnectionObjects(shared, lambda *_: None)
    dispatcher = Dispatcher(TYPES, objects, ErrorCodes(), references=picky)
    argument = Reference(mine=False, target="elsewhere")
    call = encode_call(1, Call("service", "bump", (argument,)), TYPES, None)
    create = encode_object(2, Create("maker", (argument,)), TYPES, None)
    for payload, take in ((call, dispatcher.call), (create, dispatcher.object_request)):
        taken = take(payload)
        assert isinstance(taken, Invocation)
        assert (dispatcher.running, dispatcher.running_bytes) == (1, len(payload) + RECORD_COST)
        decoded = picky.decoded
        answer = dispatcher.finish(taken, taken.run())
        assert picky.decoded == decoded + 1
        assert answer is not None
        failure = decode_return(answer, TYPES, None)
        assert isinstance(failure, Failure)
        assert failure.code == "bad-arguments"
        assert (dispatcher.running, dispatcher.running_bytes) == (0, 0)


def test_a_one_way_call_whose_arguments_cannot_be_read_is_counted_and_not_answered() -> None:
    client, service = joined()
    dispatcher = client.peer.dispatcher
    taken = dispatcher.call(CALL.pack(0) + TYPES.encode_plain(["service", "bump", [], []]))
    assert isinstance(taken, Invocation)
    assert dispatcher.finish(taken, taken.run()) is None
    assert (dispatcher.failed_one_way, dispatcher.running, service.count) == (1, 0, 0)


def test_above_the_limit_a_call_is_told_busy_and_one_way_calls_still_run() -> None:
    client, _ = joined(max_running=1)
    dispatcher = client.peer.dispatcher
    first = dispatcher.call(encode_call(1, Call("service", "bump"), TYPES, None))
    assert isinstance(first, Invocation)
    assert dispatcher.full
    refused = dispatcher.call(encode_call(2, Call("service", "bump"), TYPES, None))
    assert isinstance(refused, bytes)
    failure = decode_return(refused, TYPES, None)
    assert isinstance(failure, Failure)
    assert failure.code == "busy"
    one_way = dispatcher.call(encode_call(0, Call("service", "bump"), TYPES, None))
    assert isinstance(one_way, Invocation)
    dispatcher.finish(one_way, Outcome())
    dispatcher.finish(first, first.run())
    assert not dispatcher.full


@given(st.binary(max_size=120))
def test_any_bytes_are_a_request_that_is_answered_or_have_no_call_id(body: bytes) -> None:
    client, _ = joined()
    dispatcher = client.peer.dispatcher
    for payload, take in (
        (body, dispatcher.call),
        (CALL.pack(5) + body, dispatcher.call),
        (body, dispatcher.object_request),
        (OBJECT.pack(5, body[0] % 4 if body else 0) + body, dispatcher.object_request),
    ):
        try:
            answer = take(payload)
        except DataFormatError:
            assert len(payload) < CALL.size
            continue
        assert isinstance(answer, bytes) or call_id_of(payload) == 0
    assert len(client.peer.objects) == 0
    assert dispatcher.running == 0


VALUES = st.none() | st.integers(-9, 2**63) | st.text() | st.lists(st.integers(0, 9)).map(tuple)
ARGUMENTS = st.lists(VALUES, max_size=5).map(tuple)
NAMED = st.dictionaries(st.text(max_size=9), VALUES, max_size=5)


@given(st.integers(0, 2**64 - 1), st.text(min_size=1, max_size=99) | st.integers(1, 2**63), ARGUMENTS, NAMED)
def test_requests_come_back_as_they_were_sent(number: int, target: Any, args: Any, kwargs: Any) -> None:
    call = Call(target, "method", args, kwargs)
    record = encode_call(number, call, TYPES, None)
    assert (call_id_of(record), decode_call(record, TYPES, None)) == (number, call)
    create = Create("factory", args, kwargs)
    assert decode_object(encode_object(number, create, TYPES, None), TYPES, None) == create
    delete = Delete(number or 1)
    assert decode_object(encode_object(number, delete, TYPES, None), TYPES, None) == delete


@pytest.mark.parametrize("name", ["x" * 256, ""])
def test_names_have_limits(name: str) -> None:
    with pytest.raises(DataFormatError):
        decode_call(encode_call(1, Call("a", name), TYPES, None), TYPES, None)
    with pytest.raises(DataFormatError):
        decode_object(encode_object(1, Create(name), TYPES, None), TYPES, None)
    with pytest.raises(DataFormatError, match="target"):
        decode_call(CALL.pack(1) + TYPES.encode_plain([True, "m", [], {}]), TYPES, None)


def test_a_failure_can_always_be_told() -> None:
    record = encode_failure(1, Failure("c" * 999, "\ud800" + "t" * 9999), TYPES)
    failure = decode_return(record, TYPES, None)
    assert isinstance(failure, Failure)
    assert (len(failure.code), len(failure.text)) == (100, 1000)
    assert text_of(Unprintable()) == "(its text cannot be had)"
