"""A writer id belongs to the first key that uses it, whatever grant that key has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.errors import RefusedError
from aeron_spark.protocol.grants import EVERYTHING, Grant, StreamGrant
from aeron_spark.server.stream_operations import OperationService
from aeron_spark.wire.stream_requests import (
    AbortTransaction,
    BeginTransaction,
    Begun,
    CommitEmptyTransaction,
    FindLostTransaction,
    LastTransaction,
    Transaction,
)
from tests.unit.stream_client.joined import Session, World, world_with_stream

WRITE: Final = (StreamGrant(("s",), frozenset({"write"})),)
PLAIN: Final = Grant(streams=WRITE)
NAMED: Final = Grant(streams=WRITE, writers=("edge-*",))
TRANSACTION: Final = Transaction("edge-7", "run", 0, producer="producer")
BEGIN: Final = BeginTransaction("s", TRANSACTION)
REQUESTS: Final = (
    BEGIN,
    LastTransaction("s", "edge-7", ""),
    FindLostTransaction("s", "edge-7", 0, ""),
    CommitEmptyTransaction("s", replace(TRANSACTION, number=100), 1.0),
    AbortTransaction("s", TRANSACTION),
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_with_stream(tmp_path / "streams", monkeypatch, 1) as made:
        made.connect(1.0)
        yield made


def connected(world: World, key: bytes, grant: Grant) -> OperationService:
    """Connect a client with this key and grant."""
    session: Any = Session(world)
    session.peer = PeerInfo(key * 32)
    session.grant = grant
    assert world.server is not None
    world.server.service.serve(session)
    handler: OperationService = session.service
    return handler


@pytest.mark.parametrize("grant", [EVERYTHING, NAMED, PLAIN], ids=["all", "writers=", "no writers="])
def test_a_key_does_not_write_under_the_id_that_another_key_has_used(world: World, grant: Grant) -> None:
    first, other = connected(world, b"a", grant), connected(world, b"b", PLAIN)
    assert isinstance(first.execute(BEGIN), Begun)
    for request in REQUESTS:
        with pytest.raises(RefusedError, match="the writer id 'edge-7' belongs to another key") as refused:
            other.execute(request)
        assert refused.value.reason == "not-permitted"
    assert isinstance(first.execute(BEGIN), Begun)


@pytest.mark.parametrize("grant", [EVERYTHING, NAMED], ids=["all", "writers="])
def test_a_key_writes_under_an_id_that_is_granted_by_name_also_after_another_key(world: World, grant: Grant) -> None:
    other, granted = connected(world, b"b", PLAIN), connected(world, b"a", grant)
    for handler in (other, granted, other):
        assert isinstance(handler.execute(BEGIN), Begun)


def test_a_key_does_not_write_under_an_id_that_its_grant_does_not_name(world: World) -> None:
    client = connected(world, b"a", NAMED)
    with pytest.raises(RefusedError, match="your key may not write under the writer id 'desk'"):
        client.execute(BeginTransaction("s", replace(TRANSACTION, writer="desk")))
