"""The stream service executes a request only if the client's grant has the action that the request needs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import pytest

from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.errors import DataFormatError, OptionError, RefusedError
from aeron_spark.facts import Bus
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol.grants import EVERYTHING, STREAM_ACTIONS, Grant, StreamGrant
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_messages import Call, Failure, encode_call
from aeron_spark.server.event_table import EVENTS
from aeron_spark.server.stream_operations import HANDLERS, OperationService, RunningCommits
from aeron_spark.streams.store import Condition
from aeron_spark.wire.stream_requests import (
    METHOD,
    OPERATIONS,
    SERVICE,
    AbortTransaction,
    AlterStream,
    AwaitCommits,
    BeginTransaction,
    CommitEmptyTransaction,
    CommitTransaction,
    CreateStream,
    DeleteStream,
    DescribeStream,
    EndStream,
    FindBoundary,
    FindLostTransaction,
    FindPosition,
    FinishStage,
    LastTransaction,
    ListLeases,
    ListStages,
    ListStreams,
    ListWriters,
    MeasureLags,
    MeasureStream,
    OpenStage,
    PartitionStates,
    PurgeStream,
    ReleaseLease,
    ReleaseWriter,
    RenameStream,
    RenewLease,
    ReopenStream,
    Request,
    StartRead,
    StopRead,
    StreamRequest,
    Transaction,
    decode_response,
    encode_request,
)
from tests.unit.server.requests import call_of, handle
from tests.unit.stream_client.joined import world_with_stream

READ, WRITE, CREATE, MANAGE, PURGE = "read", "write", "create", "manage", "purge"
ALL_ACTIONS: Final = frozenset(STREAM_ACTIONS)
NAME: Final = "flights"
TRANSACTION: Final = Transaction("w", "run", 0, True, "producer")
STAGE: Final = OpenStage(NAME, TRANSACTION, 0, 0, "raw", b"", 1, 1)

# A request of each class that names a stream, and the actions of which the client's grant needs one.
REQUESTS: Final[list[tuple[Request[Any], frozenset[str]]]] = [
    (DescribeStream(NAME), ALL_ACTIONS),
    (DescribeStream(NAME, accept_damaged=True), ALL_ACTIONS),
    (MeasureStream(NAME), ALL_ACTIONS),
    (CreateStream(NAME, 1, 0, 0.0, 0), frozenset({CREATE})),
    (AlterStream(NAME, retention_bytes=1), frozenset({MANAGE})),
    (EndStream(NAME), frozenset({MANAGE})),
    (ReopenStream(NAME), frozenset({MANAGE})),
    (ListWriters(NAME), frozenset({MANAGE})),
    (ReleaseWriter(NAME, "w"), frozenset({MANAGE})),
    (ListStages(NAME), frozenset({MANAGE})),
    (ListLeases(NAME), frozenset({MANAGE})),
    (ReleaseLease(NAME, "reader"), frozenset({MANAGE})),
    (RenameStream(NAME, "new"), frozenset({MANAGE})),
    (DeleteStream(NAME), frozenset({PURGE})),
    (PurgeStream(NAME), frozenset({PURGE})),
    (PartitionStates(NAME), frozenset({READ, WRITE})),
    (FindBoundary(NAME, 0, 0, 64, 64, None, False), frozenset({READ})),
    (FindPosition(NAME, 0), frozenset({READ})),
    (MeasureLags(NAME, ((0, 0),)), frozenset({READ})),
    (AwaitCommits(NAME, (0,), 0.0), frozenset({READ})),
    (StartRead(NAME, 0, 0, 64, 1, 1), frozenset({READ})),
    (LastTransaction(NAME, "w", "producer"), frozenset({WRITE})),
    (BeginTransaction(NAME, TRANSACTION), frozenset({WRITE})),
    (FindLostTransaction(NAME, "w", 0, "stamp"), frozenset({WRITE})),
    (STAGE, frozenset({WRITE})),
    (FinishStage(NAME, "1", 0, 0.0), frozenset({WRITE})),
    (CommitTransaction(NAME, TRANSACTION, (), 0, 0.0), frozenset({WRITE})),
    (CommitEmptyTransaction(NAME, TRANSACTION, 0.0), frozenset({WRITE})),
    (AbortTransaction(NAME, TRANSACTION), frozenset({WRITE})),
    (RenewLease(NAME, "reader", ((0, 0),), 60.0), frozenset({READ})),
]
WITHOUT_A_STREAM: Final = {ListStreams, StopRead}  # one lists the granted streams, one concerns only its own link


class Admitted(Exception):
    """The request was granted and reached the store."""


class Store:
    """A store with two damaged streams, whose descriptions are short. ``get`` raises Admitted."""

    failed: Final = {NAME: "damaged", "secret": "damaged"}
    names: Final = [NAME, "secret"]

    def __contains__(self, name: str) -> bool:
        return name in self.failed

    def get(self, name: str) -> NoReturn:
        raise Admitted

    def create(self, name: str, *_: object, **__: object) -> NoReturn:
        raise Admitted

    def delete(self, name: str) -> NoReturn:
        raise Admitted

    def rename(self, *_: object) -> NoReturn:
        raise Admitted

    def renamed_to(self, name: str) -> None:
        return None

    def condition(self, name: str) -> Condition:
        return Condition("damaged", self.failed[name])

    def definition(self, name: str) -> None:
        return None


class Service:
    """A stand-in for the stream service."""

    def __init__(self) -> None:
        self.options = LiveOptions(ServerOptions())
        self.refusal: RefusedError | None = None
        self.is_draining = False
        self.facts = Bus()
        self.loop = Loop("test")
        self.commits = RunningCommits(self.loop)
        self._store = Store()

    def store(self) -> Any:
        return self._store

    def check_write(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def check_draining(self) -> None:
        if self.is_draining:
            raise RefusedError("the server is about to end", reason="draining")


class Connection:
    """A stand-in for a connection."""

    label = "the connection of the test"
    peer = PeerInfo(b"k" * 32)
    for_program = None

    def __init__(self, grant: Grant) -> None:
        self.grant = grant


def handler(grant: Grant) -> OperationService:
    return OperationService(Service(), Connection(grant))  # type: ignore[arg-type]


def granted_to(name: str, *actions: Any) -> Grant:
    """Return a grant of these actions; it allows to create ``new``, for the request that renames a stream to it."""
    new = StreamGrant(("new",), frozenset({"create"}))
    return Grant(streams=(StreamGrant((name,), frozenset(actions)), StreamGrant(("another",), ALL_ACTIONS), new))


def name_of(value: object) -> str:
    return type(value).__name__


def test_each_operation_has_a_function_and_an_event_of_its_fields() -> None:
    assert set(HANDLERS) == set(OPERATIONS)
    for kind, operation in OPERATIONS.items():
        assert issubclass(kind, StreamRequest) == bool(operation.actions)
        if operation.event:
            assert {*EVENTS[operation.event].fields} - {"name"} <= {*kind.__struct_fields__}


def test_the_table_has_each_request_that_names_a_stream() -> None:
    assert {*(type(request) for request, _ in REQUESTS), *WITHOUT_A_STREAM} == set(OPERATIONS)


@pytest.mark.parametrize(("request_", "needed"), REQUESTS, ids=name_of)
def test_a_request_is_executed_only_for_keys_with_its_action(request_: Any, needed: frozenset[str]) -> None:
    """No other test notices that a key with only `read` could delete the rows of a stream."""
    for count in range(len(STREAM_ACTIONS) + 1):
        for granted in combinations(STREAM_ACTIONS, count):
            service = handler(granted_to(NAME, *granted))
            if needed & set(granted):
                assert is_admitted(service, request_)
            else:
                expected = RefusedError if granted or needed == {CREATE} else OptionError
                with pytest.raises(expected) as raised:
                    service.execute(request_)
                text = f"your key may not {' or '.join(one for one in STREAM_ACTIONS if one in needed)} stream '{NAME}'"
                assert str(raised.value).startswith(text if expected is RefusedError else f"unknown stream '{NAME}'")


@pytest.mark.parametrize("request_", [request for request, _ in REQUESTS], ids=name_of)
def test_a_request_is_executed_for_a_key_with_all_grants(request_: Any) -> None:
    assert is_admitted(handler(EVERYTHING), request_)


@pytest.mark.parametrize("request_", [request for request, _ in REQUESTS], ids=name_of)
def test_requests_that_need_disk_space_are_refused_while_a_disk_is_nearly_full(request_: Any) -> None:
    full = Service()
    full.refusal = RefusedError("the disk is nearly full", reason="disk-full")
    service = OperationService(full, Connection(EVERYTHING))  # type: ignore[arg-type]
    if isinstance(request_, CreateStream | BeginTransaction | OpenStage | CommitTransaction):
        with pytest.raises(RefusedError, match="the disk is nearly full"):
            service.execute(request_)
    else:
        assert is_admitted(service, request_)


@pytest.mark.parametrize("request_", [request for request, _ in REQUESTS], ids=name_of)
def test_a_draining_server_refuses_requests_that_begin_a_transaction_or_a_stage(request_: Any) -> None:
    """The commits that run are in ``RunningCommits``, which refuses further ones."""
    draining = Service()
    draining.is_draining = True
    service = OperationService(draining, Connection(EVERYTHING))  # type: ignore[arg-type]
    if isinstance(request_, BeginTransaction | OpenStage | CommitEmptyTransaction):
        with pytest.raises(RefusedError) as refused:
            service.execute(request_)
        assert refused.value.reason == "draining"
    else:
        assert is_admitted(service, request_)


@pytest.mark.parametrize("request_", [request for request, needed in REQUESTS if needed != {CREATE}], ids=name_of)
def test_a_stream_without_any_granted_action_is_unknown_and_not_suggested(request_: Any) -> None:
    errors = []
    for name in (NAME, "flightz"):  # one exists
        with pytest.raises(OptionError) as raised:
            handler(Grant()).execute(msgspec.structs.replace(request_, stream=name))
        errors.append(str(raised.value).replace(name, "NAME"))
    assert errors[0] == errors[1]
    assert NAME not in errors[1]


@pytest.mark.parametrize("request_", [request for request, _ in REQUESTS], ids=name_of)
def test_a_request_is_refused_without_its_grant_before_its_fields_are_decoded(request_: Any) -> None:
    """A key without a grant must not make the server decode what costs it much."""
    tag = type(request_).__struct_config__.tag
    data = msgspec.msgpack.encode({"type": tag, "stream": NAME, "positions": {1: [{2: b"no field"}]}})
    with pytest.raises((OptionError, RefusedError), match=f"unknown stream '{NAME}'|your key may not create"):
        decode_response(request_, handle(handler(Grant()), data))
    with pytest.raises(DataFormatError, match="these bytes are not a request"):
        decode_response(request_, handle(handler(EVERYTHING), data))


def is_admitted(service: OperationService, request_: Any) -> bool:
    """Return whether the request passes the checks of grants."""
    if isinstance(request_, DescribeStream) and request_.accept_damaged:
        return service.execute(request_).state == "damaged"  # type: ignore[union-attr]
    with pytest.raises(Admitted):
        service.execute(request_)
    return True


def test_the_response_to_a_failed_or_invalid_request_is_a_failure_of_its_call() -> None:
    refusing = handler(granted_to(NAME, READ))
    for data, error, text, what in (
        (encode_request(DeleteStream(NAME)), RefusedError, "your key may not purge stream", "DeleteStream"),
        (b"\xc1", DataFormatError, "these bytes are not a request", "a request"),
    ):
        call = call_of(refusing, data)
        with pytest.raises(error, match=text) as caught:
            refusing.run(call)
        assert (call.what, call.request) == (what, None)
        with pytest.raises(error, match=text):
            decode_response(DeleteStream(NAME), refusing.encode(call, None, caught.value))


def test_a_request_is_one_argument_of_the_method_for_requests() -> None:
    service = handler(EVERYTHING)
    unknown = service.look_up(Call(SERVICE, "handel"))
    assert unknown == Failure("unknown-method", "unknown remote method 'handel'; did you mean 'handle'?")
    for args, kwargs in (((), {}), ((b"", b""), {}), (("text",), {}), ((b"",), {"data": b""}), ((), {"data": b""})):
        call = call_of(service, b"")
        call.payload = encode_call(1, Call(SERVICE, METHOD, args, kwargs), Types(), None)
        failure = service.run(call)
        assert isinstance(failure, Failure)
        assert failure.code == "bad-arguments"


@pytest.mark.parametrize("granted", STREAM_ACTIONS)
def test_a_list_has_only_streams_on_which_the_key_has_an_action(granted: str) -> None:
    listing = encode_request(ListStreams())
    for grant, names in (
        (granted_to(NAME, granted), [NAME]), (granted_to(NAME), []), (EVERYTHING, [NAME, "secret"]), (Grant(), [])
    ):  # fmt: skip
        listed = decode_response(ListStreams(), handle(handler(grant), listing))
        assert [one.name for one in listed.streams] == names


@pytest.mark.parametrize(
    ("positions", "reason"),
    [(((2, 0),), "has no partition 2"), (((-1, 0),), "has no partition -1"), (((0, 1), (0, 2)), "a partition twice")],
)
def test_positions_of_a_request_name_each_partition_of_the_stream_at_most_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: Any, reason: str
) -> None:
    with world_with_stream(tmp_path / "streams", monkeypatch, 2) as world:
        world.connect(1.0)
        for request_ in (MeasureLags("s", positions), RenewLease("s", "reader", positions, 60.0)):
            with pytest.raises(OptionError, match=reason):
                decode_response(request_, world.call(encode_request(request_), 1.0))
