"""A reader without Aeron: what it asks the server, and in which order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aeron_spark.errors import ConnectError, DataFormatError
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.stream_requests import AwaitCommits, CommittedPartitions
from tests.unit.stream_client.joined import World


def committing_after(world: World, requests: int, monkeypatch: pytest.MonkeyPatch) -> StreamSession:
    """Return a session of a reader; after so many of its requests another client commits the stream's first row."""
    session = world.stream_session()
    call, answered = session.call, 0

    def call_then_commit(request: Any, **named: Any) -> Any:
        nonlocal answered
        answer = call(request, **named)
        answered += 1
        if answered == requests:
            with StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw") as out:
                out.write([b"first"])
        return answer

    monkeypatch.setattr(session, "call", call_then_commit)
    return session


@pytest.mark.parametrize("requests", range(1, 5))
def test_a_reader_that_sees_the_first_rows_knows_their_payload(
    world: World, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    """Regression: a reader asked for the payload before the ends; with the first commit in between it failed."""
    session = committing_after(world, requests, monkeypatch)
    readers = [StreamReader(session, "s", start="latest", follow=True) for _ in range(3)]
    assert any(readers[-1].positions.values())
    for reader in readers:
        assert reader.payload == "raw" or not any(reader.positions.values())


def test_wrong_epochs_of_a_server_are_an_error_of_this_package(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the reader raised ValueError."""
    session = world.stream_session()
    call = session.call

    def answer_wrongly(request: Any, **named: Any) -> Any:
        found = call(request, **named)
        if not isinstance(found, CommittedPartitions):
            return found
        wrong = tuple(msgspec.structs.replace(one, epochs=b"x") for one in found.partitions)
        return msgspec.structs.replace(found, partitions=wrong)

    monkeypatch.setattr(session, "call", answer_wrongly)
    with pytest.raises(DataFormatError, match="the server described partition 0 of stream 's' in an unknown way"):
        StreamReader(session, "s")


def test_a_stopped_reader_ends_if_its_connection_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a reader of a client that was closed meanwhile raised ConnectError, and did not end."""
    session = world.stream_session()
    reader = StreamReader(session, "s", follow=True)
    call = session.call

    def close_in_call(request: Any, **named: Any) -> Any:
        if isinstance(request, AwaitCommits):
            reader.stop()
            raise ConnectError("the connection is closed", remedy="Connect again.")
        return call(request, **named)

    monkeypatch.setattr(session, "call", close_in_call)
    monkeypatch.setattr(session.client, "closed", True, raising=False)
    assert list(reader) == []
