"""The public names of the classes that programs use. An editor lists them: each new one is a decision."""

from __future__ import annotations

from typing import Final

import pytest

import aeron_spark
from aeron_spark import aio

ENDPOINT: Final = {
    *("closed", "expose", "factory", "on_connect", "on_disconnect", "on_error", "on_init", "on_resume", "register"),
    *("register_error", "register_type", "tampered", "wait_closed"),
}
STREAMS: Final = {
    *("alter_stream", "create_stream", "delete_stream", "end_stream", "purge_stream", "release_lease"),
    *("release_writer", "rename_stream", "reopen_stream", "stream", "stream_leases", "stream_writers", "streams"),
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


@pytest.mark.parametrize("cls", NAMES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_class_has_exactly_its_public_names(cls: type) -> None:
    assert {name for name in dir(cls) if not name.startswith("_")} == NAMES[cls]
