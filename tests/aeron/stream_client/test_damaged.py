"""A damaged stream as a client sees it: listed with its state and problem, and refused with that problem."""

from __future__ import annotations

import secrets
import shutil

import pytest

from aeron_spark.client.client import Client
from aeron_spark.errors import DataLossError
from aeron_spark.server.program import Server
from tests.aeron.stream_client.conftest import Connect


@pytest.fixture(scope="module")
def client(connect: Connect) -> Client:
    return connect()


def test_a_damaged_stream_is_listed_with_its_state_and_problem(server: Server, client: Client) -> None:
    """Finding C12: `client.streams()` and `client.stream(name)` show it; reading and writing say what is wrong."""
    well, hurt = (f"s-{secrets.token_hex(4)}" for _ in range(2))
    client.create_stream(well, 2)
    store = server.streams
    shutil.copytree(store.folder / well, store.folder / hurt)  # its definition names the other stream
    with pytest.raises(DataLossError, match="has the stream"):
        store._open_stream(hurt)
    found = {one.name: one for one in client.streams()}
    assert (found[well].state, found[well].problem) == ("ok", "")
    for one in (found[hurt], client.stream(hurt)):
        assert (one.name, one.state, one.partitions, one.content) == (hurt, "damaged", (), "")
        assert f"has the stream {well!r}" in one.problem
        assert "Rename the folder to its stream's name" in one.problem
    for use in (lambda: client.reader(hurt), lambda: client.writer(hurt)):
        with pytest.raises(DataLossError, match="has the stream"):
            use()
    del store.failed[hurt]
    shutil.rmtree(store.folder / hurt)
    client.delete_stream(well)
