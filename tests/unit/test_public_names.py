"""The public names of the classes that programs use. An editor lists them: each new one is a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import aeron_spark
from aeron_spark import aio
from aeron_spark.keys.stores import MemoryPeerStore
from tests.unit.endpoint.endpoints import TIMEOUT_S, World

ENDPOINT: Final = {
    *("closed", "expose", "factory", "on_connect", "on_disconnect", "on_error", "on_init", "on_resume", "register"),
    *("register_error", "register_type", "tampered", "wait_closed"),
}
STREAMS: Final = {
    *("alter_stream", "create_stream", "delete_stream", "end_stream", "purge_stream", "release_lease"),
    *("release_writer", "rename_stream", "reopen_stream", "stream", "stream_leases", "stream_stages", "stream_usage"),
    *("stream_writers", "streams"),
    *("reader", "writer"),
}
NAMES: Final[dict[type, set[str]]] = {
    aeron_spark.Client: ENDPOINT
    | STREAMS
    | {
        *("begin_connecting", "bulk_link", "close", "connect", "connected", "connection", "create", "delete", "error"),
        *("offer", "on_lost", "on_message", "on_reconnect", "on_stopped", "ping", "reconnect"),
        *("remote", "send", "send_file", "send_many", "server_key", "state", "to"),
    },
    aeron_spark.Server: ENDPOINT
    | {
        *("addresses", "aeron_dir", "close", "connections", "drain", "events", "grant_of", "http_address"),
        *("on_message", "public_key", "readiness", "reload", "run", "start", "statistics", "streams"),
    },
    aeron_spark.Connection: {
        *("close", "closed", "connected", "connected_at", "create", "delete", "id", "id_text", "is_ipc", "key"),
        *("label", "last_result", "max_message", "on_disconnect", "on_message", "ping", "register", "remote"),
        *("remote_address", "remote_key_changed", "remote_port", "send", "send_file", "send_many", "tag"),
        "unregister",
    },
    aio.Client: STREAMS
    | {
        *("close", "connect", "create", "delete", "error", "on_connect", "on_disconnect", "on_error", "on_lost"),
        *("on_message", "on_reconnect", "on_stopped", "open", "ping", "reconnect", "register", "register_type"),
        *("remote", "send", "send_file", "send_many", "server_key", "state"),
    },
}


ATTRIBUTES: Final[dict[type, set[str]]] = {aeron_spark.Connection: {"data"}}  # of the instances alone


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()


@pytest.mark.parametrize("cls", NAMES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_class_has_exactly_its_public_names(cls: type) -> None:
    assert public_names(cls) == NAMES[cls]


def test_a_client_and_its_connection_have_the_public_names_of_their_classes(world: World) -> None:
    server, client = world.pair()
    check_names(client)
    check_names(client.connection)
    check_names(server.connections[0])


def test_a_client_of_asyncio_has_the_public_names_of_its_class(world: World) -> None:
    world.server()

    async def check() -> None:
        async with aio.Client(lambda _: world.client_endpoint(), TIMEOUT_S) as client:
            check_names(client)

    asyncio.run(check())


def test_a_server_has_the_public_names_of_its_class(aeron_dir: Path, tmp_path: Path) -> None:
    server = aeron_spark.Server(
        "ipc:", store=MemoryPeerStore(), aeron_dir=str(aeron_dir), streams_dir=str(tmp_path), allow_any_key=True
    )
    check_names(server)
    server.close()
    check_names(server)


def check_names(instance: object) -> None:
    """Check the names of an instance: its class may not know an attribute that ``__init__`` or a later call sets."""
    cls = type(instance)
    assert public_names(instance) == NAMES[cls] | ATTRIBUTES.get(cls, set())


def public_names(instance: object) -> set[str]:
    """Return the names that an editor lists."""
    return {name for name in dir(instance) if not name.startswith("_")}
