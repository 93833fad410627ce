"""Peers notice, or survive, SIGKILL of a client, a server and their media drivers."""

from __future__ import annotations

import time

import pytest

from tests.net.programs import MAX_LOSS_S, Programs, await_received, events, eventually

SURVIVING, KILLED = "surviving", "killed"
TIMEOUT_S = 40.0
CLIENT_TIMEOUT_S = 10 - 1  # until a driver gives up a killed program, whose last keep-alive may be 1 s old
EXPIRY_S = 4


@pytest.mark.full("seven JVMs; tests/aeron/node and tests/aeron/stream_store kill nodes on one machine")
def test_row_51_a_killed_client_is_noticed_once_in_time_and_a_client_resumes_after_its_driver_was_killed(
    programs: Programs,
) -> None:
    server, surviving, killed = programs.nodes(SURVIVING, KILLED)
    for tag, client in ((SURVIVING, surviving), (KILLED, killed)):
        client.request("connect")
        client.request("send", count=100)
        await_received(server, tag, 100)
    killed.kill()
    killed_at = time.monotonic()
    programs.kill_node_of(surviving)
    surviving.request("send", first=100, count=100)
    server.request("send", tag=SURVIVING, count=100)
    await_received(server, SURVIVING, 200)
    await_received(surviving, SURVIVING, 100)
    for endpoint in (server, surviving):
        names = events(endpoint, SURVIVING)
        assert [name for name in names if name != "disconnect"] == ["init", "connect", "resume"]
        assert names.count("disconnect") <= 1
    eventually(lambda: events(server, KILLED), lambda names: "disconnect" in names, TIMEOUT_S)
    ended = [(at, name) for at, name, tag in server.request("statistics")["events"] if tag == KILLED]
    assert [name for _, name in ended] == ["init", "connect", "disconnect"]
    assert CLIENT_TIMEOUT_S + EXPIRY_S < ended[-1][0] - killed_at < MAX_LOSS_S


@pytest.mark.full(
    "its JVMs take 14 CPU seconds; tests/aeron/stream_store and tests/aeron/node kill nodes on one machine"
)
def test_after_a_killed_server_driver_connections_resume(programs: Programs) -> None:
    server, client = programs.nodes(SURVIVING)
    client.request("connect")
    client.request("send", count=100)
    await_received(server, SURVIVING, 100)
    programs.kill_node_of(server)
    client.request("send", first=100, count=100)
    server.request("send", tag=SURVIVING, count=100)
    await_received(server, SURVIVING, 200)
    await_received(client, SURVIVING, 100)
    for endpoint in (server, client):
        names = events(endpoint, SURVIVING)
        assert [name for name in names if name != "disconnect"] == ["init", "connect", "resume"]
        assert names.count("disconnect") <= 1


@pytest.mark.full("five JVMs; tests/aeron/stream_client kills servers on one machine")
def test_row_54_after_a_killed_server_its_clients_connect_again_and_get_session_lost(programs: Programs) -> None:
    server, client = programs.apart(SURVIVING)
    client.request("connect")
    client.request("send", count=100)
    await_received(server, SURVIVING, 100)
    server.kill()
    restarted = programs.restart(server)
    names = eventually(lambda: events(client, SURVIVING), lambda names: names.count("connect") == 2, TIMEOUT_S)
    assert names == ["init", "connect", "disconnect", "init", "connect"]
    assert any("SessionLost" in error for error in client.request("statistics")["errors"])
    client.request("send", count=100)
    await_received(restarted, SURVIVING, 100)
