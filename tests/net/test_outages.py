"""Connections survive an outage of the network."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.net.programs import MAX_LOSS_S, MIN_LOSS_S, Program, Programs, await_received, events, eventually, received

SHORT, LONG = "short", "long"


@pytest.mark.full("six JVMs; a changed mapping is an outage, too")
def test_row_52_a_short_outage_is_no_disconnect_and_row_51_and_row_57_a_long_one_is_noticed_in_time_and_resumed(
    programs: Programs,
) -> None:
    server, short, long = programs.pair(SHORT, LONG)
    for client in (short, long):
        client.request("connect")
    _outage_of_a_second(programs, server, {SHORT: short, LONG: long})

    programs.site.cut(2)
    cut_at = time.monotonic()
    for tag, first in ((LONG, 1_000), (SHORT, 1_000)):
        server.request("send", tag=tag, first=first, count=1_000)
    long.request("send", first=1_000, count=1_000)
    short.request("send", first=1_000, count=1_000)
    await_received(server, SHORT, 2_000)
    await_received(short, SHORT, 2_000)
    for endpoint in (server, long):
        names = eventually(partial(events, endpoint, LONG), lambda names: "disconnect" in names)
        assert names == ["init", "connect", "disconnect"], endpoint.request("statistics")
        [disconnected_at] = [
            at for at, name, tag in endpoint.request("statistics")["events"] if (name, tag) == ("disconnect", LONG)
        ]
        assert MIN_LOSS_S < disconnected_at - cut_at < MAX_LOSS_S
    assert received(server, LONG)["count"] == received(long, LONG)["count"] == 1_000
    programs.site.heal()
    await_received(server, LONG, 2_000)
    await_received(long, LONG, 2_000)
    for endpoint in (server, long):
        assert events(endpoint, LONG) == ["init", "connect", "disconnect", "resume"]
    for endpoint in (server, short):
        assert events(endpoint, SHORT) == ["init", "connect"]


def _outage_of_a_second(programs: Programs, server: Program, clients: dict[str, Program]) -> None:
    programs.site.cut()
    for tag, client in clients.items():
        server.request("send", tag=tag, count=1_000)
        client.request("send", count=1_000)
    time.sleep(1.0)
    for tag, client in clients.items():
        assert received(server, tag)["count"] == received(client, tag)["count"] == 0
    programs.site.heal()
    for tag, client in clients.items():
        await_received(server, tag, 1_000)
        await_received(client, tag, 1_000)
        assert events(server, tag) == events(client, tag) == ["init", "connect"]
