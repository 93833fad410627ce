"""Each request to the stream service is served to the grants that admit it, and refused to all others."""

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
    ANSWERS,
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
    decode_answer,
    encode_request,
)

READ, WRITE, MANAGE = "read", "write", "manage"
ACTIONS: Final = (READ, WRITE, MANAGE)
NAME: Final = "flights"
STAGE: Final = OpenStage(NAME, "w", "run", 0, True, "author", 0, 0, "raw", b"", 1, 1)

# For each request that names a stream: one, and the actions of which a client's key needs one.
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
    (LastTransaction(NAME, "w", "author"), frozenset({WRITE})),
    (BeginTransaction(NAME, "w", "run", 0, True, "author"), frozenset({WRITE})),
    (FindLostTransaction(NAME, "w", 0, "stamp"), frozenset({WRITE})),
    (STAGE, frozenset({WRITE})),
    (FinishStage(NAME, "1", 0, 0.0), frozenset({WRITE})),
    (CommitTransaction(NAME, "w", "run", 0, "author", (), 0, 0.0), frozenset({WRITE})),
    (CommitEmptyTransaction(NAME, "w", "run", 0, "author", 0.0), frozenset({WRITE})),
    (AbortTransaction(NAME, "w", "run", 0), frozenset({WRITE})),
    (RenewLease(NAME, "reader", {0: 0}, 60.0), frozenset({READ})),
]
WITHOUT_A_STREAM: Final = {ListStreams, StopRead}  # a list has what the client may see; a stop is of its own link


class Admitted(Exception):
    """The call came as far as the store."""


class Service:
    """What a handler needs of its service; its store raises Admitted."""

    def __init__(self, grant: Grant | None) -> None:
        self._grant = grant

    def grant_of(self, connection: object) -> Grant | None:
        return self._grant

    def store(self) -> Any:
        raise Admitted


class Connection:
    """A connection, as far as a handler needs it."""

    label = "the connection of the test"


def handler(grant: Grant | None) -> StreamRequestHandler:
    return StreamRequestHandler(Service(grant), Connection())  # type: ignore[arg-type]


def name_of(value: object) -> str:
    return type(value).__name__


def test_the_table_has_each_request_that_names_a_stream() -> None:
    assert {*(type(request) for request, _ in REQUESTS), *WITHOUT_A_STREAM} == set(ANSWERS)


@pytest.mark.parametrize(("one", "needed"), REQUESTS, ids=name_of)
def test_a_request_is_served_to_the_keys_that_may_do_its_action_and_to_no_others(
    one: Any, needed: frozenset[str]
) -> None:
    """Finding: no test noticed that a key with `read` alone could delete what is in a stream."""
    for count in range(len(ACTIONS) + 1):
        for granted in combinations(ACTIONS, count):
            grant = Grant(streams=((NAME, frozenset(granted)), ("another", frozenset(ACTIONS))))
            if needed & set(granted):
                with pytest.raises(Admitted):
                    handler(grant).answer(one)
            else:
                with pytest.raises(RefusedError, match=f"your key may not .* stream '{NAME}'"):
                    handler(grant).answer(one)


@pytest.mark.parametrize("one", [request for request, _ in REQUESTS], ids=name_of)
def test_a_request_is_served_to_a_key_without_limits_and_to_a_client_of_an_open_server(one: Any) -> None:
    for grant in (Grant(), None):
        with pytest.raises(Admitted):
            handler(grant).answer(one)


def test_an_error_and_bytes_that_are_not_a_request_are_answered_by_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.streams")
    refusing = handler(Grant(streams=()))
    with pytest.raises(RefusedError, match="your key may not manage stream"):
        decode_answer(DeleteStream(NAME), refusing.handle(encode_request(DeleteStream(NAME))))
    with pytest.raises(DataFormatError, match="these bytes are not a request"):
        decode_answer(DeleteStream(NAME), refusing.handle(b"\xc1"))
    assert [record.getMessage().split(" failed: ")[0] for record in caplog.records] == [
        "DeleteStream of the connection of the test",
        "a request of the connection of the test",
    ]


class Store:
    """Two streams, both damaged, so that there is little to say of them."""

    failed: Final = {NAME: "damaged", "secret": "damaged"}

    def all(self) -> list[object]:
        return []

    def condition(self, name: str) -> Condition:
        return Condition("damaged", self.failed[name])

    def definition(self, name: str) -> None:
        return None


@pytest.mark.parametrize("granted", ACTIONS)
def test_a_list_has_the_streams_that_a_key_may_do_something_with(granted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "store", lambda _: Store())
    listing = encode_request(ListStreams())
    seen = {
        grant: [one.name for one in decode_answer(ListStreams(), handler(grant).handle(listing)).streams]
        for grant in (Grant(streams=((NAME, frozenset({granted})), ("secret", frozenset()))), Grant(), None)
    }
    assert list(seen.values()) == [[NAME], [NAME, "secret"], [NAME, "secret"]]
