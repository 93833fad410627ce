"""A dialer finds out whether the server is on this machine, and can be closed while it opens a transport."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aeron_spark
from aeron_spark.client import aeron_dialer
from aeron_spark.client.aeron_dialer import AeronDialer, is_own_address
from aeron_spark.errors import DataFormatError, EndedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions


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
    dialer = AeronDialer("127.0.0.1:20121", MemoryPeerStore(), {"ipc": "never"})
    opened: Any = (first, fresh)
    handles = iter(opened)

    monkeypatch.setattr(aeron_dialer, "AeronClientTransport", lambda *_, **__: None)
    monkeypatch.setattr(aeron_dialer, "lease_client", lambda aeron_dir: Opened())
    monkeypatch.setattr(aeron_dialer.node, "ensure", lambda *_, **__: next(handles))
    dialer.dial()

    def lease_while_another_thread_closes(aeron_dir: str) -> Opened:
        dialer.close(is_loop_ended=True)
        return lease

    monkeypatch.setattr(aeron_dialer, "lease_client", lease_while_another_thread_closes)
    with pytest.raises(EndedError, match="the client is closed"):
        dialer.dial()
    assert (first.is_closed, fresh.is_closed, lease.is_closed) == (True, True, True)


def test_a_dial_after_close_starts_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a closed client that tried to connect again started a node, which stayed for a while."""
    dialer = AeronDialer("127.0.0.1:20121", MemoryPeerStore(), {"ipc": "never"})
    dialer.close(is_loop_ended=True)
    monkeypatch.setattr(aeron_dialer.node, "ensure", lambda *_, **__: pytest.fail("a node was started"))
    with pytest.raises(EndedError, match="the client is closed"):
        dialer.dial()


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("localhost:1", True),
        ("127.0.0.9:1", True),
        ("[::1]:1", True),
        ("203.0.113.7:1", False),  # of a network for documentation
        ("feeds.example:1", False),
    ],
)
def test_row_22_a_server_on_this_machine_may_share_its_memory(address: str, is_own: bool) -> None:
    assert is_own_address(ClientOptions.parse(address).server_address.host) is is_own


def test_a_network_address_of_this_machine_is_its_own() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.7", 9))  # sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no network: {error}")
        assert is_own_address(probe.getsockname()[0])


def test_a_wrong_line_in_known_servers_is_refused_before_the_media_driver_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression: connect() took 27 s to say so."""
    known = tmp_path / "known_servers"
    known.write_text("feeds.example 20121\n")
    monkeypatch.setattr(aeron_dialer.node, "ensure", lambda *_, **__: pytest.fail("it starts a node"))
    with pytest.raises(DataFormatError, match=r"line 1 of .* is wrong: it is not 'host port key"):
        aeron_spark.connect("feeds.example:20121", known_servers=str(known))
