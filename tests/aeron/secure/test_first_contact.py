"""The first contact with a server: early listeners, many clients at once, and drivers without a guard."""

from __future__ import annotations

import logging
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
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import RefusedError, SetupError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.protocol.limits import MAX_PENDING_PER_ADDRESS
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, RecordedEvents, World, await_nothing_in_use
from tests.ports import free_address
from tests.programs import start_foreign_driver

WITH_GUARD = (
    "-cp",
    ":".join(classpath()),
    f"-Daeron.ReceiveChannelEndpoint.supplier={PACKAGE}.guard.GuardedReceiveChannelEndpointSupplier",
    f"-Daeron.SendChannelEndpoint.supplier={PACKAGE}.guard.GuardedSendChannelEndpointSupplier",
)


@pytest.fixture(params=[(), WITH_GUARD], ids=["plain", "with the guard"])
def foreign(own_dir: Path, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Start a foreign media driver in ``own``; yield whether it has the guard."""
    process = start_foreign_driver(own_dir, "io.aeron.driver.MediaDriver", *request.param)
    wait_for(lambda: process.poll() is not None or driver_liveness(own_dir), 30.0, "the driver to start")
    assert process.poll() is None
    yield bool(request.param)
    process.terminate()
    process.wait(timeout=30)


def guard_found(aeron_dir: Path) -> doctor.Diagnosis | None:
    """Return the doctor's finding about the guard."""
    found = [one for one in doctor.examine(node.local_node_paths(aeron_dir)) if one.subject == "guard"]
    assert len(found) < 2
    return found[0] if found else None


def test_a_client_can_add_listeners_before_its_first_connection(own_dir: Path, tmp_path: Path) -> None:
    at = free_address()
    with aeron_spark.Server(at, store=MemoryPeerStore(), aeron_dir=str(own_dir), allow_any_key=True) as server:
        server.on_connect(lambda connection: connection.send("welcome"))
        recorded: list[object] = []
        with aeron_spark.Client.to(at, store=MemoryPeerStore(), aeron_dir=str(own_dir), tag="desk-7") as client:

            @client.on_init
            def started(connection: Connection) -> None:
                recorded.append(("init", connection.tag))

            @client.on_connect
            def connected(connection: Connection) -> None:
                recorded.append(("connect", connection.tag))

            client.on_message(str, recorded.append)
            assert not client.connected
            client.connect(TIMEOUT_S)
            wait_for(
                lambda: recorded == [("init", "desk-7"), ("connect", "desk-7"), "welcome"], TIMEOUT_S, str(recorded)
            )
        assert client.closed


def test_many_clients_of_one_address_connect_as_fast_as_the_rate_limit_allows(world: World) -> None:
    address = world.free_address()
    server = world.server(address, handshakes_per_second=3.0, handshake_burst=2)
    recorded = RecordedEvents(server)
    clients = [world.client(address) for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.connect(3 * TIMEOUT_S), clients))
    assert server.statistics["refused-rate"]
    wait_for(lambda: server.statistics["connections"] == len(clients), TIMEOUT_S, "the connections")
    assert server.statistics["session_ids"] == 2 * len(clients)
    wait_for(lambda: recorded.count("connect") == len(clients), TIMEOUT_S, "the listeners")
    for client in clients:
        client.close()
    await_nothing_in_use(server)


def test_a_client_that_the_rate_limit_refuses_until_its_timeout_gets_the_reason(world: World) -> None:
    address = world.free_address()
    server = world.server(
        address, handshakes_per_second=0.001, handshake_burst=1, max_pending_per_address=MAX_PENDING_PER_ADDRESS
    )
    world.connected(address)
    started = time.monotonic()
    with pytest.raises(RefusedError, match=r"not authenticated: Too many handshakes from IP address.*\(rate\)"):
        world.client(address).connect(8.0)
    assert time.monotonic() - started < 30
    assert server.statistics["refused-rate"] >= 2  # the client tried again


def test_a_driver_without_the_guard_is_reported_and_one_with_the_guard_is_not(
    own_dir: Path, foreign: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = guard_found(own_dir)
    assert before.verdict == "warning"  # a guard shows itself only after it has guarded a channel
    errors: list[BaseException] = []
    with caplog.at_level(logging.WARNING, "aeron_spark"):
        address, store = free_address(), MemoryPeerStore()
        with aeron_spark.Server(address, store=store, aeron_dir=str(own_dir), allow_any_key=True):
            found = guard_found(own_dir)
            # the guard sends the client's cookie if there is one, else the server does
            with aeron_spark.connect(address, store=MemoryPeerStore(), aeron_dir=str(own_dir), ipc="never") as client:
                assert client.ping() > 0
        warnings = [record.getMessage() for record in caplog.records if "has no guard" in record.getMessage()]
        listening = aeron_spark.Server(
            free_address(), store=MemoryPeerStore(), aeron_dir=str(own_dir), allow_any_key=True
        )
        listening.on_error(lambda connection, error: errors.append(error))
        with listening:
            pass
    assert found is not None
    if foreign:
        assert (found.verdict, warnings, errors) == ("ok", [], [])
        return
    assert found.verdict == "warning"
    for text in (found.what, *warnings):
        assert "logs of any length" in text
        assert str(own_dir) in text
    assert "docs/driver-guard.md" in found.remedy
    assert len(warnings) == 1  # once
    assert [type(error) for error in errors] == [SetupError]
    assert "docs/driver-guard.md" in str(errors[0])


def test_a_server_over_shared_memory_only_does_not_report_a_missing_guard(own_dir: Path, foreign: bool) -> None:
    errors: list[BaseException] = []
    server = aeron_spark.Server("ipc:", store=MemoryPeerStore(), aeron_dir=str(own_dir), allow_any_key=True)
    server.on_error(lambda connection, error: errors.append(error))
    with server:
        assert server.addresses == ("ipc:",)
    assert not errors


def test_the_driver_of_a_node_has_the_guard_unless_its_properties_replace_it(own_dir: Path) -> None:
    assert guard_found(own_dir) is None  # no driver runs, and the node starts one with the guard
    errors: list[BaseException] = []
    server = aeron_spark.Server(free_address(), store=MemoryPeerStore(), aeron_dir=str(own_dir), allow_any_key=True)
    server.on_error(lambda connection, error: errors.append(error))
    with server:
        found = guard_found(own_dir)
    assert (found.verdict, errors) == ("ok", [])
    node.stop(own_dir, force=True, timeout=20)
    lossy = "aeron.ReceiveChannelEndpoint.supplier"
    chosen = {
        lossy: "io.aeron.driver.ext.DebugReceiveChannelEndpointSupplier",
        "aeron.SendChannelEndpoint.supplier": "io.aeron.driver.ext.DebugSendChannelEndpointSupplier",
    }
    with node.ensure(own_dir, archive=False, properties=chosen):
        found = guard_found(own_dir)
    assert found.verdict == "warning"
    assert lossy in found.what
