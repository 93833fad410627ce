"""A client lists a damaged stream with its state and problem, and cannot read or write it."""

from __future__ import annotations

import secrets
import shutil

import pytest

from aeron_spark.client.client import Client
from aeron_spark.errors import DataLossError
from aeron_spark.server.server import Server
from tests.aeron.stream_client.conftest import Connect


@pytest.fixture(scope="module")
def client(connect: Connect) -> Client:
    return connect()


def test_a_damaged_stream_is_listed_with_its_state_and_problem(server: Server, client: Client) -> None:
    """`client.streams()` and `client.stream(name)` list it; readers and writers raise its problem."""
    intact, damaged = (f"s-{secrets.token_hex(4)}" for _ in range(2))
    client.create_stream(intact, 2)
    store = server.streams
    shutil.copytree(store.folder / intact, store.folder / damaged)  # its definition names the other stream
    with pytest.raises(DataLossError, match="has the stream"):
        store._open_stream(damaged)
    found = {one.name: one for one in client.streams()}
    assert (found[intact].state, found[intact].problem) == ("ok", "")
    for one in (found[damaged], client.stream(damaged)):
        assert (one.name, one.state, one.partitions, one.content) == (damaged, "damaged", (), "")
        assert f"has the stream {intact!r}" in one.problem
        assert "Rename the folder to its stream's name" in one.problem
    for use in (lambda: client.reader(damaged), lambda: client.writer(damaged)):
        with pytest.raises(DataLossError, match="has the stream"):
            use()
    del store.failed[damaged]
    shutil.rmtree(store.folder / damaged)
    client.delete_stream(intact)
