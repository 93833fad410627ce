"""A load of many clients: results and failures are counted, and all clients are closed."""

from __future__ import annotations

import itertools

import pytest

from aeron_spark.client.client import Client
from aeron_spark.client.load import LoadPlan, Spread, run_load
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import OptionError
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, client_options, server_options, wait_for


def connected_client(world: World, number: int) -> Client:
    client = world.client(client_options(tag=f"load-{number}", reconnect=False), connect=False)
    client.connect(TIMEOUT_S)
    return client


@pytest.mark.threads
def test_all_clients_connect_send_ping_and_close(world: World) -> None:
    server = world.server()
    received: list[bytes] = []
    server.on_message(bytes, lambda connection, message: received.append(message))
    report = run_load(
        lambda number: connected_client(world, number), LoadPlan(6, messages=50, size=20, hold_seconds=0.2)
    )
    assert (report.clients, report.connected, report.failures) == (6, 6, [])
    assert report.messages == 300
    assert received == [bytes(20)] * 300
    assert report.messages_per_second > 0
    assert report.pings == 6
    assert report.connect is not None
    assert report.ping is not None
    assert 0 < report.ping.median <= report.ping.p99 <= report.ping.longest
    assert report.seconds >= 0.2
    assert all(client.closed for client in world.endpoints if isinstance(client, Client))
    wait_for(lambda: not server.connections, "all clients to close")


@pytest.mark.threads
def test_refused_clients_are_counted_and_the_others_continue(world: World) -> None:
    server = world.server(server_options(max_connections=2))
    server.on_message(bytes, lambda c, m: None)
    report = run_load(lambda number: connected_client(world, number), LoadPlan(5, messages=3, at_once=1))
    assert (report.connected, report.messages) == (2, 6)
    (failure,) = report.failures
    assert (failure.error, failure.count) == ("RefusedError", 3)
    assert "Server is full" in failure.first


@pytest.mark.threads
def test_no_more_clients_connect_after_a_stop(world: World) -> None:
    server = world.server()
    connected: list[Connection] = []
    server.on_connect(connected.append)
    report = run_load(
        lambda number: connected_client(world, number),
        LoadPlan(20, messages=5, hold_seconds=60, at_once=1),
        lambda: len(connected) >= 3,
    )
    assert 3 <= report.connected < 20
    assert report.seconds < 30
    assert report.failures == []


@pytest.mark.threads
def test_the_progress_of_each_phase_is_reported(world: World) -> None:
    world.server()
    progress: list[tuple[str, int, int]] = []
    plan = LoadPlan(3, messages=1)
    run_load(lambda number: connected_client(world, number), plan, advance=lambda *one: progress.append(one))
    assert [phase for phase, _ in itertools.groupby(progress, lambda one: one[0])] == [
        "connecting",
        "sending",
        "closing",
    ]
    assert sorted(progress)[-1] == ("sending", 3, 3)


def test_a_spread_has_median_99th_percentile_and_maximum() -> None:
    assert Spread.of([]) is None
    assert Spread.of([0.3]) == Spread(0.3, 0.3, 0.3)
    assert Spread.of([*range(1, 101)]) == Spread(50.5, 99, 100)


@pytest.mark.parametrize(
    "wrong", [{"clients": 0}, {"messages": -1}, {"size": -1}, {"hold_seconds": -1}, {"at_once": 0}]
)
def test_a_plan_with_negative_or_zero_counts_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        LoadPlan(**{"clients": 1, **wrong})
