"""The stream service executes a request only if the client's grant has the action that the request needs."""

from __future__ import annotations

import logging
from itertools import combinations
from typing import Any, Final

import pytest

from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.protocol.access import Grant
from aeron_spark.server.stream_service import StreamRequestHandler
from aeron_spark.streams.store import Condition
from aeron_spark.wire.stream_rpc import (
    RESPONSES,
    AbortTransaction,
    AwaitCommits,
    BeginTransaction,
    CommitEmptyTransaction,
    CommitTransaction,
    CreateStream,
    DeleteStream,
    DescribeStream,
    FindBoundary,
    FindLostTransaction,
    FindPosition,
    FinishStage,
    LastTransaction,
    ListStreams,
    OpenStage,
    PartitionStates,
    PurgeStream,
    RenewLease,
    Request,
    StartRead,
    StopRead,
    decode_response,
    encode_request,
)

READ, WRITE, MANAGE = "read", "write", "manage"
ACTIONS: Final = (READ, WRITE, MANAGE)
NAME: Final = "flights"
STAGE: Final = OpenStage(NAME, "w", "run", 0, True, "producer", 0, 0, "raw", b"", 1, 1)

# A request of each class that names a stream, and the actions of which the client's grant needs one.
REQUESTS: Final[list[tuple[Request[Any], frozenset[str]]]] = [
    (DescribeStream(NAME), frozenset(ACTIONS)),
    (DescribeStream(NAME, accept_damaged=True), frozenset(ACTIONS)),
    (CreateStream(NAME, 1, 0, 0.0, 0), frozenset({MANAGE})),
    (DeleteStream(NAME), frozenset({MANAGE})),
    (PurgeStream(NAME), frozenset({MANAGE})),
    (PartitionStates(NAME), frozenset({READ, WRITE})),
    (FindBoundary(NAME, 0, 0, 64, 64, None, False), frozenset({READ})),
    (FindPosition(NAME, 0), frozenset({READ})),
    (AwaitCommits(NAME, (0,), 0.0), frozenset({READ})),
    (StartRead(NAME, 0, 0, 64, 1, 1), frozenset({READ})),
    (LastTransaction(NAME, "w", "producer"), frozenset({WRITE})),
    (BeginTransaction(NAME, "w", "run", 0, True, "producer"), frozenset({WRITE})),
    (FindLostTransaction(NAME, "w", 0, "stamp"), frozenset({WRITE})),
    (STAGE, frozenset({WRITE})),
    (FinishStage(NAME, "1", 0, 0.0), frozenset({WRITE})),
    (CommitTransaction(NAME, "w", "run", 0, "producer", (), 0, 0.0), frozenset({WRITE})),
    (CommitEmptyTransaction(NAME, "w", "run", 0, "producer", 0.0), frozenset({WRITE})),
    (AbortTransaction(NAME, "w", "run", 0), frozenset({WRITE})),
    (RenewLease(NAME, "reader", {0: 0}, 60.0), frozenset({READ})),
]
WITHOUT_A_STREAM: Final = {ListStreams, StopRead}  # one lists the granted streams, one concerns only its own link


class Admitted(Exception):
    """The request was granted and reached the store."""


class Service:
    """A stand-in for the stream service; its store raises Admitted."""

    def __init__(self, grant: Grant | None) -> None:
        self._grant = grant

    def grant_of(self, connection: object) -> Grant | None:
        return self._grant

    def store(self) -> Any:
        raise Admitted


class Connection:
    """A stand-in for a connection."""

    label = "the connection of the test"


def handler(grant: Grant | None) -> StreamRequestHandler:
    return StreamRequestHandler(Service(grant), Connection())  # type: ignore[arg-type]


def name_of(value: object) -> str:
    return type(value).__name__


def test_the_table_has_each_request_that_names_a_stream() -> None:
    assert {*(type(request) for request, _ in REQUESTS), *WITHOUT_A_STREAM} == set(RESPONSES)


@pytest.mark.parametrize(("request_", "needed"), REQUESTS, ids=name_of)
def test_a_request_is_executed_only_for_keys_with_its_action(request_: Any, needed: frozenset[str]) -> None:
    """No other test notices that a key with only `read` could delete the rows of a stream."""
    for count in range(len(ACTIONS) + 1):
        for granted in combinations(ACTIONS, count):
            grant = Grant(streams=((NAME, frozenset(granted)), ("another", frozenset(ACTIONS))))
            if needed & set(granted):
                with pytest.raises(Admitted):
                    handler(grant).execute(request_)
            else:
                with pytest.raises(RefusedError, match=f"your key may not .* stream '{NAME}'"):
                    handler(grant).execute(request_)


@pytest.mark.parametrize("request_", [request for request, _ in REQUESTS], ids=name_of)
def test_a_request_is_executed_for_an_unlimited_key_and_on_a_server_without_authorised_keys(request_: Any) -> None:
    for grant in (Grant(), None):
        with pytest.raises(Admitted):
            handler(grant).execute(request_)


def test_the_response_to_a_failed_or_invalid_request_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.streams")
    refusing = handler(Grant(streams=()))
    with pytest.raises(RefusedError, match="your key may not manage stream"):
        decode_response(DeleteStream(NAME), refusing.handle(encode_request(DeleteStream(NAME))))
    with pytest.raises(DataFormatError, match="these bytes are not a request"):
        decode_response(DeleteStream(NAME), refusing.handle(b"\xc1"))
    assert [record.getMessage().split(" failed: ")[0] for record in caplog.records] == [
        "DeleteStream of the connection of the test",
        "a request of the connection of the test",
    ]


class Store:
    """A store with two damaged streams, whose descriptions are short."""

    failed: Final = {NAME: "damaged", "secret": "damaged"}

    def all(self) -> list[object]:
        return []

    def condition(self, name: str) -> Condition:
        return Condition("damaged", self.failed[name])

    def definition(self, name: str) -> None:
        return None


@pytest.mark.parametrize("granted", ACTIONS)
def test_a_list_has_only_streams_on_which_the_key_has_an_action(granted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "store", lambda _: Store())
    listing = encode_request(ListStreams())
    seen = {
        grant: [one.name for one in decode_response(ListStreams(), handler(grant).handle(listing)).streams]
        for grant in (Grant(streams=((NAME, frozenset({granted})), ("secret", frozenset()))), Grant(), None)
    }
    assert list(seen.values()) == [[NAME], [NAME, "secret"], [NAME, "secret"]]
