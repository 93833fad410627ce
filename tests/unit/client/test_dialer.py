"""A dialer that is closed while it opens a transport."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.client import aeron_dialer
from aeron_spark.client.aeron_dialer import AeronDialer
from aeron_spark.client.settings import ClientSettings
from aeron_spark.errors import EndedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions
from aeron_spark.transport.api import ServerAddress


class Opened:
    """The handle of a node, or the lease of an Aeron client."""

    aeron_dir = "/dev/shm/aeron"
    client = SimpleNamespace()

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_dial_during_close_releases_what_it_has_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    first, fresh, lease = Opened(), Opened(), Opened()
    options = ClientOptions.parse("127.0.0.1:20121", {})
    handle: Any = first
    dialer = AeronDialer(options, ClientSettings(), MemoryPeerStore(), handle, ServerAddress("ipc"), None)

    def lease_while_another_thread_closes(aeron_dir: str) -> Opened:
        dialer.close(is_loop_ended=True)
        return lease

    monkeypatch.setattr(aeron_dialer.node, "ensure", lambda *arguments, **options: fresh)
    monkeypatch.setattr(aeron_dialer, "lease_client", lease_while_another_thread_closes)
    with pytest.raises(EndedError, match="the client is closed"):
        dialer.dial()
    assert (first.is_closed, fresh.is_closed, lease.is_closed) == (True, True, True)
