"""kill -9 of either end, and of either end's media driver."""

from __future__ import annotations

import time

import pytest

from tests.net.programs import NOT_AFTER, Programs, await_received, events, eventually

STAYS, GOES = "stays", "goes"
PATIENCE = 40.0
GIVEN_UP = (
    10 - 1
)  # seconds until a driver that lives gives up a program that was killed; twice a second it says it lives
EXPIRY = 4


@pytest.mark.full("seven JVMs; tests/aeron/node and tests/aeron/stream_store kill nodes on one machine")
def test_row_51_a_killed_client_is_noticed_once_and_in_time_and_another_comes_back_after_its_driver_was_killed(
    programs: Programs,
) -> None:
    server, stays, goes = programs.nodes(STAYS, GOES)
    for tag, client in ((STAYS, stays), (GOES, goes)):
        client.ask("connect")
        client.ask("send", count=100)
        await_received(server, tag, 100)
    goes.kill()
    killed = time.monotonic()
    programs.kill_node_of(stays)
    stays.ask("send", first=100, count=100)
    server.ask("send", tag=STAYS, count=100)
    await_received(server, STAYS, 200)
    await_received(stays, STAYS, 100)
    for side in (server, stays):
        told = events(side, STAYS)
        assert [name for name in told if name != "disconnect"] == ["init", "connect", "resume"]
        assert told.count("disconnect") <= 1
    eventually(lambda: events(server, GOES), lambda told: "disconnect" in told, PATIENCE)
    gone = [(at, name) for at, name, tag in server.ask("statistics")["events"] if tag == GOES]
    assert [name for _, name in gone] == ["init", "connect", "disconnect"]
    assert GIVEN_UP + EXPIRY < gone[-1][0] - killed < NOT_AFTER


@pytest.mark.full(
    "its JVMs take 14 CPU seconds; tests/aeron/stream_store and tests/aeron/node kill nodes on one machine"
)
def test_after_a_killed_server_driver_connections_resume(programs: Programs) -> None:
    server, client = programs.nodes(STAYS)
    client.ask("connect")
    client.ask("send", count=100)
    await_received(server, STAYS, 100)
    programs.kill_node_of(server)
    client.ask("send", first=100, count=100)
    server.ask("send", tag=STAYS, count=100)
    await_received(server, STAYS, 200)
    await_received(client, STAYS, 100)
    for side in (server, client):
        told = events(side, STAYS)
        assert [name for name in told if name != "disconnect"] == ["init", "connect", "resume"]
        assert told.count("disconnect") <= 1


@pytest.mark.full("five JVMs; tests/aeron/stream_client kills servers on one machine")
def test_row_54_after_a_killed_server_its_clients_connect_anew_and_are_told_of_the_lost_session(
    programs: Programs,
) -> None:
    server, client = programs.apart(STAYS)
    client.ask("connect")
    client.ask("send", count=100)
    await_received(server, STAYS, 100)
    server.kill()
    again = programs.again(server)
    told = eventually(lambda: events(client, STAYS), lambda told: told.count("connect") == 2, PATIENCE)
    assert told == ["init", "connect", "disconnect", "init", "connect"]
    assert any("SessionLost" in error for error in client.ask("statistics")["errors"])
    client.ask("send", count=100)
    await_received(again, STAYS, 100)
