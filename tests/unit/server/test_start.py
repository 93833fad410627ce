"""A start of a server that fails leaves nothing open, and can be repeated. The end closes what the start has opened."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from aeron_spark.errors import TransportError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.admin_messages import SOCKET_NAME
from aeron_spark.server.event_log import EventReported
from aeron_spark.server.server import Server
from aeron_spark.server.server_node import ServerNode
from tests.memory_transport import MemoryNetwork, MemoryServerTransport
from tests.ports import free_port


class Started:
    """A server with pages and an admin socket over a network in memory, which takes the place of its node."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.network = MemoryNetwork(window=1 << 20)
        self.socket = folder / SOCKET_NAME
        self.closed: list[str] = []
        node: dict[str, Any] = {
            "start": lambda _: None, "store_folder": folder, "has_streams": False, "guard_problem": lambda _: None,
            "open_transport": lambda _: MemoryServerTransport(self.network),
            "try_lock_addresses": lambda *_: [],
        }  # fmt: skip
        for name, value in node.items():
            monkeypatch.setattr(ServerNode, name, value)
        self.server = Server(
            f"127.0.0.1:{free_port()}", store=MemoryPeerStore(), allow_any_key=True, http=f"127.0.0.1:{free_port()}",
            aeron_dir=str(folder / "aeron"), streams_dir=str(folder / "streams"),
        )  # fmt: skip
        self.events: list[str] = []
        self.server._facts.on(EventReported, lambda event: self.events.append(event.name))

    def is_served(self) -> bool:
        """Whether the pages and the admin socket are served."""
        at = self.server.http_address
        if at is not None:
            with urlopen(f"http://{at}/healthz") as page:
                assert page.status == 200
        assert self.socket.exists() == (at is not None)
        return at is not None


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    one = Started(tmp_path, monkeypatch)
    yield one
    one.server.close()


def test_a_start_that_fails_leaves_nothing_open_and_can_be_repeated(started: Started) -> None:
    started.network.refusal = "permission denied"
    for _ in range(2):
        with pytest.raises(TransportError, match="permission denied"):
            started.server.start()
        assert not started.is_served()
        assert started.events == []
    started.network.refusal = ""
    started.server.start()
    assert started.is_served()
    assert started.events[:2] == ["started", "listening"]


def test_the_end_closes_what_the_start_has_opened_and_a_second_end_does_nothing(started: Started) -> None:
    before = set(threading.enumerate())
    started.server.start()
    assert started.is_served()
    for _ in range(2):
        started.server.close()
        assert not started.is_served()
    assert started.events.count("stopped") == 1
    assert [one.name for one in set(threading.enumerate()) - before if one.name.startswith("aeron-spark")] == []


def test_a_server_that_was_not_started_ends_without_an_event(started: Started) -> None:
    started.server.close()
    assert started.events == []
