"""A network that is cut for a while."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.net.programs import (
    NOT_AFTER,
    NOT_BEFORE,
    Program,
    Programs,
    await_received,
    events,
    eventually,
    received,
)

SHORT, LONG = "short", "long"


@pytest.mark.full("six JVMs; a changed mapping is an outage, too")
def test_row_52_an_outage_of_a_second_is_not_noticed_and_row_51_and_row_57_a_long_one_is_in_time_and_resumed(
    programs: Programs,
) -> None:
    server, short, long = programs.pair(SHORT, LONG)
    for client in (short, long):
        client.ask("connect")
    _outage_of_a_second(programs, server, {SHORT: short, LONG: long})

    programs.site.cut(2)
    began = time.monotonic()
    for tag, first in ((LONG, 1_000), (SHORT, 1_000)):
        server.ask("send", tag=tag, first=first, count=1_000)
    long.ask("send", first=1_000, count=1_000)
    short.ask("send", first=1_000, count=1_000)
    await_received(server, SHORT, 2_000)
    await_received(short, SHORT, 2_000)
    for side in (server, long):
        told = eventually(partial(events, side, LONG), lambda told: "disconnect" in told)
        assert told == ["init", "connect", "disconnect"], side.ask("statistics")
        [gone] = [at for at, name, tag in side.ask("statistics")["events"] if (name, tag) == ("disconnect", LONG)]
        assert NOT_BEFORE < gone - began < NOT_AFTER
    assert received(server, LONG)["count"] == received(long, LONG)["count"] == 1_000
    programs.site.heal()
    await_received(server, LONG, 2_000)
    await_received(long, LONG, 2_000)
    for side in (server, long):
        assert events(side, LONG) == ["init", "connect", "disconnect", "resume"]
    for side in (server, short):
        assert events(side, SHORT) == ["init", "connect"]


def _outage_of_a_second(programs: Programs, server: Program, clients: dict[str, Program]) -> None:
    programs.site.cut()
    for tag, client in clients.items():
        server.ask("send", tag=tag, count=1_000)
        client.ask("send", count=1_000)
    time.sleep(1.0)
    for tag, client in clients.items():
        assert received(server, tag)["count"] == received(client, tag)["count"] == 0
    programs.site.heal()
    for tag, client in clients.items():
        await_received(server, tag, 1_000)
        await_received(client, tag, 1_000)
        assert events(server, tag) == events(client, tag) == ["init", "connect"]
