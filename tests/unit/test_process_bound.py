"""A forked child cannot use the objects of its parent, which go on working in the parent."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import aio
from aeron_spark.process import bind_to_process
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.writer import StreamWriter
from tests.unit.endpoint.endpoints import TIMEOUT_S, World
from tests.unit.stream_client.joined import world_with_stream
from tests.unit.stream_client.test_buffered_outcomes import offline_writer


class Catalog:
    def describe(self) -> str:
        return "three streams"


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()


def in_child(*uses: Callable[[], object]) -> list[str]:
    """Execute each use in a forked child; return the errors of the uses, or what they return."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        results = []
        for use in uses:
            try:
                results.append(f"returned {use()}")
            except BaseException as error:
                results.append(f"{type(error).__name__}: {error}")
        os.write(sending, json.dumps(results).encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        found: list[str] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


def check_refused(results: list[str], cls: type) -> None:
    expected = f"UsageError: this {cls.__name__} belongs to process {os.getpid()}, from which process "
    assert all(result.startswith(expected) for result in results), results


def test_a_client_is_refused_in_a_child_and_goes_on_in_its_parent(world: World) -> None:
    """Regression: the calls waited for longer than their timeouts, and the parent's connection was dead."""
    server, client = world.pair()
    server.register("catalog", Catalog(), methods=["describe"])
    connection, proxy, link = client.connection, client.remote("catalog"), client.bulk_link()
    assert proxy.describe() == "three streams"
    check_refused(
        in_child(
            client.ping, lambda: client.send(b"x"), lambda: client.remote("catalog"), client.streams, client.connect,
            lambda: client.reader("s"), lambda: client.writer("s"), lambda: client.connected, client.reconnect,
        ),
        type(client),
    )  # fmt: skip
    check_refused(in_child(connection.ping, lambda: connection.send(b"x")), type(connection))
    check_refused(in_child(lambda: server.connections, lambda: server.start([])), type(server))
    check_refused(in_child(lambda: link.send(b"x", timeout=1.0), lambda: link.closed), type(link))
    (called,) = in_child(proxy.describe)
    assert called.startswith("UsageError")
    assert client.ping() < TIMEOUT_S
    assert proxy.describe() == "three streams"
    assert client.bulk_link().closed is False


def test_closing_and_dropping_objects_in_a_child_does_nothing(world: World) -> None:
    _, client = world.pair()

    def leave() -> bool:
        nonlocal client
        with client:
            pass
        client.close()
        client = None
        return gc.collect() >= 0

    assert in_child(leave, lambda: repr(client)) == ["returned True", "returned None"]
    assert client.ping() < TIMEOUT_S


def test_a_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_holds(world: World) -> None:
    _, client = world.pair()
    connection = client._endpoint.require_connection()
    proxy = client.remote("catalog")
    with connection.state_lock, client._streams_lock, client._endpoint.loop.lock:
        results = in_child(
            client.ping, lambda: client.send(b"x"), client.streams, proxy.describe, lambda: client.close()
        )
    assert [one.partition(":")[0] for one in results] == ["UsageError"] * 4 + ["returned None"]


@pytest.mark.slow
def test_readers_and_writers_are_refused_in_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_with_stream(tmp_path / "streams", monkeypatch, 2) as streams:
        out = StreamWriter(streams.stream_session(), "s", writer_id="w", payload="raw")
        out.write(b"1")
        check_refused(in_child(lambda: out.write(b"2"), out.commit, out.abort, lambda: out.last), StreamWriter)
        buffered = offline_writer(tmp_path / "b")
        buffered.write(b"1")
        check_refused(in_child(lambda: buffered.write(b"2"), buffered.commit, buffered.flush), type(buffered))
        reader = StreamReader(streams.stream_session(), "s", follow=True, timeout=0.0)
        rows = iter(reader)
        check_refused(in_child(lambda: list(reader), lambda: reader.positions), StreamReader)
        check_refused(in_child(lambda: next(rows)), type(rows))
        assert in_child(lambda: [one.close() for one in (out, buffered, rows)], lambda: reader.stop()) == [
            "returned [None, None, None]", "returned None",
        ]  # fmt: skip
        assert out.commit() == 0
        assert streams.committed() in ([[b"1"], []], [[], [b"1"]])
        assert buffered.commit() == 0
        assert buffered.unsent == 1
        buffered.close()
        rows.close()
        out.close()


def test_objects_of_asyncio_are_refused_in_a_child(world: World) -> None:
    world.server()

    async def use() -> None:
        async with aio.Client(lambda _: world.client_endpoint(), TIMEOUT_S) as client:
            out, reader = client.writer("s"), client.reader("s")

            def drive(step: Callable[[], Any]) -> Callable[[], object]:
                return lambda: step().send(None)

            check_refused(in_child(drive(client.ping), lambda: client.state), aio.Client)
            check_refused(in_child(drive(lambda: out.write(b"x")), drive(out.commit)), type(out))
            check_refused(in_child(drive(reader.open), lambda: reader.positions), type(reader))
            assert await client.ping() < TIMEOUT_S

    asyncio.run(use())


def test_a_grandchild_names_the_process_that_made_an_object() -> None:
    class Thing:
        def __init__(self) -> None:
            bind_to_process(self)

        def use(self) -> str:
            return "used"

    thing = Thing()

    def use_in_grandchild() -> object:
        own = Thing()
        assert own.use() == "used"
        return in_child(lambda: thing.use(), lambda: own.use())

    (result,) = in_child(use_in_grandchild)
    assert f"this Thing belongs to process {os.getpid()}" in result
    assert result.count("UsageError: this Thing belongs to process") == 2
    assert thing.use() == "used"
