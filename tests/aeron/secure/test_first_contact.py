"""The first contact with a server: listeners that are there by then, crowds, and drivers without a guard."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import aeron_spark
from aeron_spark import node
from aeron_spark.aeron.guard import PACKAGE
from aeron_spark.aeron.jvm import classpath
from aeron_spark.cli import doctor
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import RefusedError, SetupError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.protocol.limits import Limits
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import free_ports
from tests.aeron.node.programs import foreign_driver
from tests.aeron.secure.ends import PATIENCE, Heard, World, nothing_held

WITH_GUARD = (
    "-cp",
    ":".join(classpath()),
    f"-Daeron.ReceiveChannelEndpoint.supplier={PACKAGE}.guard.GuardedReceiveChannelEndpointSupplier",
    f"-Daeron.SendChannelEndpoint.supplier={PACKAGE}.guard.GuardedSendChannelEndpointSupplier",
)


@pytest.fixture
def own(aeron_dir: Path) -> Iterator[Path]:
    """The directory of a media driver of the test's own."""
    yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=20)
    shutil.rmtree(aeron_dir, ignore_errors=True)


@pytest.fixture(params=[(), WITH_GUARD], ids=["plain", "with the guard"])
def foreign(own: Path, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Somebody else's media driver in ``own``; whether it has the guard."""
    process = foreign_driver(own, "io.aeron.driver.MediaDriver", *request.param)
    wait_for(lambda: process.poll() is not None or driver_liveness(own), 30.0, "the driver to start")
    assert process.poll() is None
    yield bool(request.param)
    process.terminate()
    process.wait(timeout=30)


def address() -> str:
    data, control = free_ports("127.0.0.1")
    return f"127.0.0.1:{data}:{control}"


def guard_found(aeron_dir: Path) -> doctor.Finding | None:
    """What the doctor says of the guard."""
    found = [one for one in doctor.examine(node.local_node_paths(aeron_dir)) if one.subject == "guard"]
    assert len(found) < 2
    return found[0] if found else None


def test_a_client_hears_of_its_connection_from_the_beginning(own: Path, tmp_path: Path) -> None:
    at = address()
    with aeron_spark.Server(at, store=MemoryPeerStore(), aeron_dir=str(own)) as server:
        server.on_connect(lambda connection: connection.send("welcome"))
        heard: list[object] = []
        with aeron_spark.Client.to(at, store=MemoryPeerStore(), aeron_dir=str(own), tag="desk-7") as client:

            @client.on_init
            def begun(connection: Connection) -> None:
                heard.append(("init", connection.tag))

            @client.on_connect
            def here(connection: Connection) -> None:
                heard.append(("connect", connection.tag))

            client.on_message(str, heard.append)
            assert not client.connected
            client.connect(PATIENCE)
            wait_for(lambda: heard == [("init", "desk-7"), ("connect", "desk-7"), "welcome"], PATIENCE, str(heard))
        assert client.closed


def test_a_crowd_from_one_address_gets_in_as_the_rate_allows(world: World) -> None:
    place = world.place()
    server = world.server(place, limits=Limits(handshakes_per_second=3, handshake_burst=2, pending_per_address=0))
    heard = Heard(server)
    clients = [world.client(place) for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.connect(3 * PATIENCE), clients))
    assert server.statistics["refused-rate"]
    wait_for(lambda: server.statistics["connections"] == len(clients), PATIENCE, "the connections")
    assert server.statistics["session_ids"] == 2 * len(clients)
    wait_for(lambda: heard.count("connect") == len(clients), PATIENCE, "the listeners")
    for client in clients:
        client.close()
    nothing_held(server)


def test_who_comes_too_early_until_the_end_is_told_why(world: World) -> None:
    place = world.place()
    server = world.server(place, limits=Limits(handshakes_per_second=0.001, handshake_burst=1))
    world.connected(place)
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=r"not authenticated: Too many handshakes from IP address.*\(rate\)"):
        world.client(place).connect(4.0)
    assert time.monotonic() - begun < 10
    assert server.statistics["refused-rate"] >= 2  # it tried again


def test_a_driver_without_the_guard_is_told_of_and_one_that_has_it_is_not(
    own: Path, foreign: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = guard_found(own)
    assert before is not None
    assert before.verdict == "warning"  # a guard that guards nothing yet does not show itself
    errors: list[BaseException] = []
    with caplog.at_level(logging.WARNING, "aeron_spark"):
        with aeron_spark.Server(address(), store=MemoryPeerStore(), aeron_dir=str(own)):
            found = guard_found(own)
        told = [record.getMessage() for record in caplog.records if "has no guard" in record.getMessage()]
        listening = aeron_spark.Server(address(), store=MemoryPeerStore(), aeron_dir=str(own))
        listening.on_error(lambda connection, error: errors.append(error))
        with listening:
            pass
    assert found is not None
    if foreign:
        assert (found.verdict, told, errors) == ("ok", [], [])
        return
    assert found.verdict == "warning"
    for text in (found.what, *told):
        assert "logs of any length" in text
        assert str(own) in text
    assert "docs/driver-guard.md" in found.remedy
    assert len(told) == 1  # once
    assert [type(error) for error in errors] == [SetupError]
    assert "docs/driver-guard.md" in str(errors[0])


def test_over_shared_memory_alone_no_guard_is_missed(own: Path, foreign: bool) -> None:
    errors: list[BaseException] = []
    server = aeron_spark.Server("ipc:", store=MemoryPeerStore(), aeron_dir=str(own))
    server.on_error(lambda connection, error: errors.append(error))
    with server:
        assert server.addresses == ("ipc:",)
    assert not errors


def test_the_nodes_own_driver_has_the_guard_unless_it_was_told_otherwise(own: Path) -> None:
    assert guard_found(own) is None  # nothing runs, and what starts has it
    errors: list[BaseException] = []
    server = aeron_spark.Server(address(), store=MemoryPeerStore(), aeron_dir=str(own))
    server.on_error(lambda connection, error: errors.append(error))
    with server:
        found = guard_found(own)
    assert found is not None
    assert (found.verdict, errors) == ("ok", [])
    node.stop(own, force=True, timeout=20)
    lossy = "aeron.ReceiveChannelEndpoint.supplier"
    chosen = {
        lossy: "io.aeron.driver.ext.DebugReceiveChannelEndpointSupplier",
        "aeron.SendChannelEndpoint.supplier": "io.aeron.driver.ext.DebugSendChannelEndpointSupplier",
    }
    with node.ensure(own, archive=False, properties=chosen):
        found = guard_found(own)
    assert found is not None
    assert found.verdict == "warning"
    assert lossy in found.what
