"""The client for asyncio on a real server: streams, a thousand tasks, and the time that a call takes."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from aeron_spark import aio
from aeron_spark.client.client import Client
from aeron_spark.errors import EndedError, OptionError, RefusedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from tests.aeron.stream_client.conftest import Connect
from tests.programs import python_environ
from tests.waiting import poll_until, slowdown

TIMEOUT_S: Final = 60.0
CONNECTIONS: Final = 10
TASKS: Final = 1_000
CALLS: Final = 100  # timed in each round
ROUNDS: Final = 3
MOST_ADDED_S: Final = 0.2e-3  # to a call, by asyncio
Open = Callable[[], aio.Client]


class Echo:
    def back(self, value: int) -> int:
        return value


@pytest.fixture(scope="module", autouse=True)
def _echo(server: Server) -> None:
    server.register("echo", Echo(), ["back"])


@pytest.fixture
def client(server: Server, node: NodeHandle) -> Open:
    """Return a function that makes a client, which connects when it is entered."""
    return lambda: aio.connect(server.addresses[0], store=MemoryPeerStore(), aeron_dir=node.aeron_dir, ipc="never")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """The threads of the server, and of clients of wider fixtures, may stay."""
    yield

    def left() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name.startswith("aeron-spark-aio")]

    poll_until(lambda: not left(), TIMEOUT_S, "the client's threads to end", state=lambda: str(left()))


LEAVES_ALL_OPEN: Final = """
import asyncio, sys
from aeron_spark import aio

async def main():
    client = await aio.connect(sys.argv[1], aeron_dir=sys.argv[2], ipc="never")
    writer = await client.writer(sys.argv[3]).open()
    batch = asyncio.create_task(client.reader(sys.argv[3], follow=True).__anext__())
    await writer.write({"n": 1})
    await writer.commit()
    print(await batch)
    asyncio.create_task(client.reader(sys.argv[3], start="latest", follow=True).__anext__())
    await client.reader(sys.argv[3]).__anext__()

asyncio.run(main())
"""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, TIMEOUT_S))


def numbers(first: int, last: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, last))})


async def read(reader: aio.StreamReader) -> list[int]:
    return [n async for batch in reader for n in batch.column("n").to_pylist()]


@pytest.fixture
def name() -> str:
    return f"s-{secrets.token_hex(4)}"


def test_streams_are_written_and_read(client: Open, name: str) -> None:
    async def main() -> None:
        async with client() as one:
            created = await one.create_stream(name, 2)
            assert (created.name, len(created.partitions)) == (name, 2)
            async with one.writer(name, writer_id="w", partition=0) as out:
                assert out.last == -1
                await out.write(numbers(0, 10))
                assert await out.commit() == 0
                await out.write(numbers(10, 20))
                await out.abort()
                await out.write(numbers(20, 30))
            assert out.last == 1
            reader = one.reader(name)
            assert await read(reader) == [*range(10), *range(20, 30)]
            kept = reader.positions.to_json()
            assert await read(one.reader(name, start=kept)) == []
            assert [stream.name for stream in await one.streams() if stream.name == name] == [name]
            assert (await one.stream(name)).partitions[0].end > 0
            await one.purge_stream(name, "-1s")
            await one.delete_stream(name)
            with pytest.raises(OptionError, match="unknown stream"):
                await one.stream(name)

    run(main())


def test_an_exception_in_the_block_aborts(client: Open, name: str) -> None:
    async def fail(out: aio.StreamWriter) -> None:
        async with out:
            await out.write(numbers(0, 10))
            raise ZeroDivisionError

    async def main() -> None:
        async with client() as one:
            await one.create_stream(name)
            out = one.writer(name)
            with pytest.raises(ZeroDivisionError):
                await fail(out)
            assert await read(one.reader(name)) == []
            with pytest.raises(EndedError, match="is closed"):
                await out.write(numbers(0, 1))

    run(main())


def test_a_reader_that_follows_gets_each_commit_and_stops(client: Open, name: str) -> None:
    async def main() -> None:
        async with client() as one:
            await one.create_stream(name)
            got = list[int]()

            async def follow(reader: aio.StreamReader) -> None:
                async with reader:
                    async for batch in reader:
                        got.extend(batch.column("n").to_pylist())

            reader = one.reader(name, follow=True)
            following = asyncio.create_task(follow(reader))
            async with one.writer(name) as out:
                for first in range(0, 50, 10):
                    await out.write(numbers(first, first + 10))
                    await out.commit()
            while len(got) < 50:
                await asyncio.sleep(0.01)
            reader.stop()
            await following
            assert got == [*range(50)]

    run(main())


def test_a_cancelled_wait_for_a_batch_loses_no_rows(client: Open, name: str) -> None:
    async def main() -> None:
        async with client() as one:
            await one.create_stream(name)
            reader = one.reader(name, follow=True)
            await reader.open()
            waiting = asyncio.create_task(reader.__anext__())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            start = reader.positions
            async with one.writer(name) as out:
                await out.write(numbers(0, 10))
            while not reader._next or not reader._next.done():  # the batch that no task has got
                await asyncio.sleep(0.01)
            assert reader.positions == start
            batch = await reader.__anext__()
            assert batch.column("n").to_pylist() == [*range(10)]
            assert reader.positions != start
            await reader.close()
            with pytest.raises(EndedError, match="is closed"):
                await reader.__anext__()

    run(main())


def test_a_buffered_writer_sends_what_it_has_committed(client: Open, name: str, tmp_path: Any) -> None:
    async def main() -> None:
        async with client() as one:
            await one.create_stream(name)
            async with one.writer(name, writer_id="edge", buffer=tmp_path / "buffer") as out:
                await out.write(numbers(0, 10))
                number = await out.commit()
                await out.flush(TIMEOUT_S)
                assert (out.outcome(number), out.acknowledged, out.unsent, out.trouble) == ("acknowledged", 0, 0, None)
            assert await read(one.reader(name)) == [*range(10)]

    run(main())


def test_a_writer_of_a_stream_that_does_not_exist_raises(client: Open) -> None:
    async def main() -> None:
        async with client() as one:
            with pytest.raises(OptionError, match="unknown stream"):
                await one.writer("no-such-stream").open()
            with pytest.raises(OptionError, match="unknown stream"):
                async with one.writer("no-such-stream"):
                    pass
            with pytest.raises(OptionError, match="unknown stream"):
                await read(one.reader("no-such-stream"))
            with pytest.raises((RefusedError, OptionError)):
                await one.create_stream("")

    run(main())


def test_a_client_closes_its_readers_and_writers(client: Open, name: str) -> None:
    async def main() -> None:
        async with client() as one:
            await one.create_stream(name)
            out = one.writer(name)
            await out.write(numbers(0, 10))
            reader = one.reader(name, follow=True)
            waiting = asyncio.create_task(reader.__anext__())
            await asyncio.sleep(0.05)
        with pytest.raises((StopAsyncIteration, EndedError)):
            await waiting

    run(main())


def test_a_thousand_tasks_on_ten_connections(client: Open, server: Server, name: str) -> None:
    """Each task sends, calls, pings, and writes or reads; all that was accepted arrives, and threads stay few."""
    received = list[int]()
    server.on_message(int, lambda _, message: received.append(message))
    most_threads = 0

    async def work(number: int, one: aio.Client) -> int:
        nonlocal most_threads
        await one.send(number)
        answer: int = await one.remote("echo").with_timeout(TIMEOUT_S).back(number)
        most_threads = max(most_threads, threading.active_count())
        await one.send(number + TASKS, acknowledge=True, timeout=TIMEOUT_S)
        assert await one.ping(TIMEOUT_S) > 0
        if number % 50 == 0:
            async with one.writer(name, timeout=TIMEOUT_S) as out:
                await out.write(numbers(number, number + 1))
        return answer

    async def main() -> None:
        clients = [await client() for _ in range(CONNECTIONS)]
        await clients[0].create_stream(name)
        before = threading.active_count()
        answers = await asyncio.gather(*(work(number, clients[number % CONNECTIONS]) for number in range(TASKS)))
        assert answers == [*range(TASKS)]
        assert most_threads - before < TASKS / 4  # those of the server are in this process, too
        assert sorted(await read(clients[0].reader(name))) == [*range(0, TASKS, 50)]
        for one in clients:
            await one.close()

    run(main())
    assert sorted(received) == [*range(2 * TASKS)]


@pytest.fixture(scope="module")
def plain(connect: Connect) -> Client:
    return connect()


def test_a_call_wakes_the_event_loop_at_most_once(client: Open) -> None:

    async def main() -> None:
        async with client() as one:
            loop, wake_ups, remote = asyncio.get_running_loop(), list[object](), one.remote("echo")
            await remote.back(0)

            def count(callback: Callable[..., object], *arguments: object, **named: Any) -> asyncio.Handle:
                wake_ups.append(callback)
                return wake(callback, *arguments, **named)

            wake, loop.call_soon_threadsafe = loop.call_soon_threadsafe, count
            try:
                for number in range(CALLS):
                    assert await remote.back(number) == number
            finally:
                loop.call_soon_threadsafe = wake
            assert 0 < len(wake_ups) <= CALLS  # fewer, if a result comes before the task waits for it

    run(main())


@pytest.mark.full("a time by the clock, which needs a quiet machine")
def test_a_call_takes_little_more_time_than_without_asyncio(client: Open, plain: Client, server: Server) -> None:
    server.on_message(int, lambda _, message: None)

    def without(call: Callable[[], object]) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    async def awaited(call: Callable[[], Awaitable[object]]) -> float:
        begin = time.perf_counter()
        await call()
        return time.perf_counter() - begin

    async def main() -> None:
        async with client() as one:
            added: dict[str, list[float]] = {}
            remote, plain_remote = one.remote("echo"), plain.remote("echo")
            pairs: dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], object]]] = {
                "call": (lambda: remote.back(1), lambda: plain_remote.back(1)),
                "ping": (one.ping, plain.ping),
                "send": (lambda: one.send(1, acknowledge=True), lambda: plain.send(1, acknowledge=True)),
            }
            for name, (ours, theirs) in pairs.items():
                for _ in range(ROUNDS):  # in turns: the machine may be busy for a while
                    with_asyncio = statistics.median([await awaited(ours) for _ in range(CALLS)])
                    without_asyncio = statistics.median([without(theirs) for _ in range(CALLS)])
                    added.setdefault(name, []).append(with_asyncio - without_asyncio)
            medians = {name: statistics.median(differences) for name, differences in added.items()}
            print({name: f"{1e6 * median:.0f} µs more" for name, median in medians.items()}, f"of {slowdown():.1f}")
            assert max(medians.values()) < MOST_ADDED_S * slowdown(), medians

    run(main())


def test_a_client_of_shared_memory_connects_too(server: Server, node: NodeHandle) -> None:
    async def main() -> None:
        async with aio.connect("ipc:", store=MemoryPeerStore(), aeron_dir=node.aeron_dir, timeout=TIMEOUT_S) as one:
            assert await one.remote("echo").back(7) == 7

    run(main())


def test_a_program_that_leaves_all_open_ends(
    server: Server, node: NodeHandle, connect: Connect, name: str, tmp_path: Path
) -> None:
    with connect() as creating:
        creating.create_stream(name)
    command = [sys.executable, "-c", LEAVES_ALL_OPEN, server.addresses[0], node.aeron_dir, name]
    environ = python_environ(**{"AERON_SPARK_CONFIG_HOME": str(tmp_path)})
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
    assert "n: int64" in ended.stdout
    assert "Traceback" not in ended.stderr
