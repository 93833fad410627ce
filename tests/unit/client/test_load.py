"""Many clients at once: what they did is counted, who failed is told, and everybody leaves."""

from __future__ import annotations

import itertools

import pytest

from aeron_spark.client.client import Client
from aeron_spark.client.load import LoadPlan, Spread, run_load
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import OptionError
from aeron_spark.protocol.limits import Limits
from aeron_spark.server.settings import ServerSettings
from tests.unit.connection.ends import LINK, PATIENCE, World, wait_for


def come(world: World, number: int) -> Client:
    client = world.client(ClientSettings(link=LINK, tag=f"load-{number}", reconnect=False), connect=False)
    client.connect(PATIENCE)
    return client


def test_all_clients_connect_send_stay_and_leave(world: World) -> None:
    server = world.server()
    came: list[bytes] = []
    server.on_message(bytes, lambda connection, message: came.append(message))
    report = run_load(lambda number: come(world, number), LoadPlan(6, messages=50, size=20, hold_seconds=0.2))
    assert (report.clients, report.connected, report.failures) == (6, 6, [])
    assert report.messages == 300
    assert came == [bytes(20)] * 300
    assert report.messages_per_second > 0
    assert report.pings == 6
    assert report.connect is not None
    assert report.ping is not None
    assert 0 < report.ping.median <= report.ping.p99 <= report.ping.longest
    assert report.seconds >= 0.2
    assert all(client.closed for client in world.ends if isinstance(client, Client))
    wait_for(lambda: not server.connections, "all to have left")


def test_who_is_refused_is_counted_and_the_others_go_on(world: World) -> None:
    world.server(ServerSettings(link=LINK, limits=Limits(connections=2, handshakes_per_second=0)))
    report = run_load(lambda number: come(world, number), LoadPlan(5, messages=3, at_once=1))
    assert (report.connected, report.messages) == (2, 6)
    (failure,) = report.failures
    assert (failure.error, failure.count) == ("RefusedError", 3)
    assert "Server is full" in failure.first


def test_no_more_come_once_it_is_asked_to_stop(world: World) -> None:
    server = world.server()
    met: list[Connection] = []
    server.on_connect(met.append)
    report = run_load(
        lambda number: come(world, number), LoadPlan(20, messages=5, hold_seconds=60, at_once=1), lambda: len(met) >= 3
    )
    assert 3 <= report.connected < 20
    assert report.seconds < 30
    assert report.failures == []


def test_what_is_done_is_told(world: World) -> None:
    world.server()
    told: list[tuple[str, int, int]] = []
    plan = LoadPlan(3, messages=1)
    run_load(lambda number: come(world, number), plan, advance=lambda *one: told.append(one))
    assert [what for what, _ in itertools.groupby(told, lambda one: one[0])] == ["connecting", "sending", "closing"]
    assert sorted(told)[-1] == ("sending", 3, 3)


def test_a_spread_is_of_what_was_measured() -> None:
    assert Spread.of([]) is None
    assert Spread.of([0.3]) == Spread(0.3, 0.3, 0.3)
    assert Spread.of([*range(1, 101)]) == Spread(50.5, 99, 100)


@pytest.mark.parametrize(
    "wrong", [{"clients": 0}, {"messages": -1}, {"size": -1}, {"hold_seconds": -1}, {"at_once": 0}]
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        LoadPlan(**{"clients": 1, **wrong})
