"""The methods that a peer can call, and the response to every call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError, RefusedError, RemoteError
from aeron_spark.protocol.message_types import Reference, Types
from aeron_spark.protocol.rpc_dispatch import CallLimits
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
from aeron_spark.protocol.rpc_objects import GlobalObjects, Proxy
from aeron_spark.protocol.session import RECORD_COST
from tests.unit.protocol.rpc_ends import RpcEnd, connected_ends

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


def connect(**limits: Any) -> tuple[RpcEnd, Service]:
    service = Service()
    client, server = connected_ends(server=RpcEnd(**limits))
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
        ("unprintable", "RemoteError", "has no text"),
        ("long", "ValueError", "xxxx"),
        ("surrogate", "ValueError", "[?]"),
        ("exit", "RemoteError", "3"),
        ("option", "OptionError", "bad option"),
    ],
)
def test_row_68_remote_exceptions_have_a_code_and_a_text_and_no_stack(kind: str, code: str, text: str) -> None:
    client, _ = connect()
    with pytest.raises(RemoteError, match=text) as caught:
        client.remote("service").fail(kind)
    assert caught.value.code == code
    assert len(caught.value.what) < 1100
    assert "Traceback" not in str(caught.value)
    assert __file__ not in str(caught.value)


def test_row_68_a_result_that_cannot_be_sent_is_an_error() -> None:
    client, _ = connect()
    with pytest.raises(RemoteError, match="its type object is not one of") as caught:
        client.remote("service").result()
    assert caught.value.code == "bad-result"


@pytest.mark.parametrize(
    ("target", "method", "code", "text"),
    [
        ("service", "bumb", "unknown-method", "did you mean 'bump'"),
        ("servise", "bump", "unknown-object", "did you mean 'service'"),
        ("service", "unlisted", "unknown-method", "unknown remote method 'unlisted'"),
        ("service", "_private", "unknown-method", "unknown remote method"),
        ("service", "__class__", "unknown-method", "unknown remote method"),
        ("service", "__init__", "unknown-method", "unknown remote method"),
        ("service", "count", "unknown-method", "unknown remote method"),
        (12, "bump", "unknown-object", "unknown remote object 12"),
    ],
)
def test_only_listed_methods_of_known_objects_are_called(target: Any, method: str, code: str, text: str) -> None:
    client, service = connect()
    with pytest.raises(RemoteError, match=text) as caught:
        client.remote(target)[method]()
    assert caught.value.code == code
    assert service.count == 0


def test_wrong_arguments_are_an_error_of_the_caller() -> None:
    client, _ = connect()
    with pytest.raises(RemoteError, match="positional argument") as caught:
        client.remote("service").bump(1, 2)
    assert caught.value.code == "TypeError"


def test_the_error_of_an_unknown_factory_suggests_the_nearest_name() -> None:
    client, _ = connect()
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


def test_a_call_that_is_not_permitted_does_not_run() -> None:
    checked = []

    def permit(target: object, method: str) -> bool:
        checked.append((target, method))
        return method == "fail"

    client, service = connect(permit=permit)
    client.peer.shared.factory("service", Service, ["bump"])
    for attempt in (client.remote("service").bump, lambda: client.create("service")):
        with pytest.raises(RefusedError) as caught:
            attempt()
        assert caught.value.reason == "not-permitted"
    with pytest.raises(RemoteError, match="a value"):
        client.remote("service").fail("value")
    assert checked == [("service", "bump"), ("service", "create"), ("service", "fail")]
    assert service.count == 0


def test_a_caller_without_permission_learns_no_names_from_a_misspelled_call() -> None:
    permitted_calls = {("service", "bumb"), ("servise", "bump"), ("servicd", "create")}
    client, _ = connect(permit=lambda target, method: (target, method) in permitted_calls)
    client.peer.shared.factory("service", Service, ["bump"])
    attempts = (client.remote("service").bumq, client.remote("servicf").bump, lambda: client.create("servce"))
    for attempt in attempts:
        with pytest.raises(RefusedError) as caught:
            attempt()
        assert caught.value.reason == "not-permitted"
    for permitted in (client.remote("service").bumb, client.remote("servise").bump, lambda: client.create("servicd")):
        with pytest.raises(RemoteError, match="unknown remote") as unknown:
            permitted()
        assert "did you mean" not in str(unknown.value)


def test_row_69_a_nested_call_that_times_out_ends_the_outer_call_with_its_error() -> None:
    client, service = connect()
    server = client.peer

    class Sleeper:
        def sleep(self, seconds: float) -> None:
            client.now += seconds

    client.objects.register(Sleeper(), ["sleep"], 1)
    service.client = server.remote(1)
    assert client.remote("service").oneway.slow_nested() is None
    with pytest.raises(RemoteError, match="waited 1 s for the response") as caught:
        client.remote("service").with_timeout(60).slow_nested()
    assert caught.value.code == "WaitTimeout"


@pytest.mark.slow
def test_row_72_twenty_thousand_one_way_calls_and_a_thousand_calls_all_run() -> None:
    client, service = connect()
    proxy = client.remote("service")
    for _ in range(20_000):
        assert proxy.oneway.bump() is None
    assert service.count == 20_000
    assert [proxy.bump() for _ in range(1000)] == list(range(20_001, 21_001))
    assert (client.peer.served.running, client.peer.served.failed_one_way) == (0, 0)


def test_one_way_calls_that_cannot_start_are_counted_and_have_no_response() -> None:
    client, _ = connect()
    client.remote("service").oneway.fail("value")
    assert client.peer.served.failed_one_way == 0
    assert [type(error) for error in client.peer.reported] == [ValueError]
    client.remote("nobody").oneway.bump()
    client.remote("service").oneway.unlisted()
    assert client.peer.served.failed_one_way == 2
    assert client.peer.served.running == 0


@pytest.mark.slow
def test_ten_thousand_concurrent_calls_have_their_responses_in_any_order() -> None:
    client, service = connect(limits=CallLimits(running=10_000))
    server = client.peer
    server.runs_at_once = False
    calls = [client.rpc.begin(Call("service", "bump"), None) for _ in range(10_000)]
    while server.served.unread:
        server.work.pop()()  # looks up further calls
    assert server.served.running == 10_000
    for work in reversed(server.work):
        work()
    for response in server.responses:
        client.rpc.take_response(response)
    results = [pending.result() for pending in calls]
    assert sorted(results) == list(range(1, 10_001))
    assert (service.count, server.served.running, len(client.rpc)) == (10_000, 0, 0)


class RefusingReferences:
    """Counts and refuses every reference."""

    def __init__(self) -> None:
        self.decoded = 0

    def resolve(self, reference: Reference) -> object:
        self.decoded += 1
        raise DataFormatError("not here", remedy="")


def test_a_request_is_counted_with_its_bytes_and_its_arguments_are_decoded_when_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, references = GlobalObjects(), RefusingReferences()
    shared.register("service", Service(), ["bump"])
    shared.factory("maker", Service, ["bump"])
    end = RpcEnd(shared)
    end.runs_at_once = False
    monkeypatch.setattr(end.objects, "resolve", references.resolve)
    argument = Reference(mine=False, target="elsewhere")
    call = encode_call(1, Call("service", "bump", (argument,)), TYPES, None)
    create = encode_object(2, Create("maker", (argument,)), TYPES, None)
    for payload, is_call in ((call, True), (create, False)):
        decoded = references.decoded
        assert end.serve(payload, is_call=is_call) is None
        assert (end.served.running, end.served.held_bytes) == (1, len(payload) + RECORD_COST)
        assert references.decoded == decoded
        end.work.pop()()
        assert references.decoded == decoded + 1
        failure = decode_return(end.responses.pop(), TYPES, None)
        assert isinstance(failure, Failure)
        assert failure.code == "bad-arguments"
        assert (end.served.running, end.served.held_bytes) == (0, 0)


def test_a_one_way_call_with_invalid_arguments_is_counted_and_has_no_response() -> None:
    client, service = connect()
    served = client.peer.served
    assert client.peer.serve(CALL.pack(0) + TYPES.encode_plain(["service", "bump", [], []])) is None
    assert (served.failed_one_way, served.running, service.count) == (1, 0, 0)


def test_a_call_above_the_limit_is_refused_as_busy_and_a_one_way_call_still_runs() -> None:
    client, service = connect(limits=CallLimits(running=1))
    server = client.peer
    server.runs_at_once = False
    assert server.serve(encode_call(1, Call("service", "bump"), TYPES, None)) is None
    assert server.served.is_full
    refused = server.serve(encode_call(2, Call("service", "bump"), TYPES, None))
    assert refused is not None
    failure = decode_return(refused, TYPES, None)
    assert isinstance(failure, Failure)
    assert failure.code == "busy"
    assert server.serve(encode_call(0, Call("service", "bump"), TYPES, None)) is None
    assert server.served.running == 2
    for work in server.work:
        work()
    assert (service.count, len(server.responses)) == (2, 1)
    assert not server.served.is_full


@given(st.binary(max_size=120))
def test_arbitrary_bytes_have_a_response_or_no_call_id(body: bytes) -> None:
    client, _ = connect()
    server = client.peer
    for payload, is_call in (
        (body, True),
        (CALL.pack(5) + body, True),
        (body, False),
        (OBJECT.pack(5, body[0] % 4 if body else 0) + body, False),
    ):
        response = server.serve(payload, is_call=is_call)
        if len(payload) < CALL.size:
            assert isinstance(server.reported.pop(), DataFormatError)
        else:
            assert response is not None or call_id_of(payload) == 0
    assert server.reported == []
    assert len(server.objects) == 0
    assert server.served.running == 0


VALUES = st.none() | st.integers(-9, 2**63) | st.text() | st.lists(st.integers(0, 9)).map(tuple)
ARGUMENTS = st.lists(VALUES, max_size=5).map(tuple)
NAMED = st.dictionaries(st.text(max_size=9), VALUES, max_size=5)


@given(st.integers(0, 2**64 - 1), st.text(min_size=1, max_size=99) | st.integers(1, 2**63), ARGUMENTS, NAMED)
def test_requests_can_be_encoded_and_decoded(number: int, target: Any, args: Any, kwargs: Any) -> None:
    call = Call(target, "method", args, kwargs)
    record = encode_call(number, call, TYPES, None)
    assert (call_id_of(record), decode_call(record, TYPES, None)) == (number, call)
    create = Create("factory", args, kwargs)
    assert decode_object(encode_object(number, create, TYPES, None), TYPES, None) == create
    delete = Delete(number or 1)
    assert decode_object(encode_object(number, delete, TYPES, None), TYPES, None) == delete


@pytest.mark.parametrize("name", ["x" * 256, ""])
def test_names_have_a_maximum_length(name: str) -> None:
    with pytest.raises(DataFormatError):
        decode_call(encode_call(1, Call("a", name), TYPES, None), TYPES, None)
    with pytest.raises(DataFormatError):
        decode_object(encode_object(1, Create(name), TYPES, None), TYPES, None)
    with pytest.raises(DataFormatError, match="target"):
        decode_call(CALL.pack(1) + TYPES.encode_plain([True, "m", [], {}]), TYPES, None)


def test_a_failure_with_any_text_can_be_encoded() -> None:
    record = encode_failure(1, Failure("c" * 999, "\ud800" + "t" * 9999), TYPES)
    failure = decode_return(record, TYPES, None)
    assert isinstance(failure, Failure)
    assert (len(failure.code), len(failure.text)) == (100, 1000)
    assert text_of(Unprintable()) == "(the exception has no text)"
