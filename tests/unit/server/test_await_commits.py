"""The stream service answers AwaitCommits when rows are committed or its time is over, without a thread that waits."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.loop import IDLE_WAIT_S, Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.errors import AeronSparkError, ConnectError, RefusedError, UsageError
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol.grants import EVERYTHING, Grant
from aeron_spark.server import stream_operations
from aeron_spark.server.stream_operations import MAX_WAIT_S, OperationService, StreamService
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_requests import (
    SERVICE,
    AwaitCommits,
    CommitsSeen,
    PartitionStates,
    decode_response,
    encode_request,
)
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import (
    ADDRESS,
    TIMEOUT_S,
    World,
    kept_for,
    quick_client,
    server_options,
    wait_for,
)
from tests.unit.endpoint.test_deadlines import Clock
from tests.unit.server.requests import handle
from tests.unit.streams.readable import NAME, MemoryStream

WORKERS: Final = 2
FOLLOWERS: Final = 40
AT_ONCE_S: Final = 5.0  # an ordinary request takes milliseconds on an idle machine


class Store:
    """A store with one stream."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream

    def __contains__(self, name: str) -> bool:
        return name == NAME

    def get(self, name: str) -> MemoryStream:
        return self.stream


# One request, in virtual time


@dataclass
class Connection:
    """A stand-in for a connection."""

    peer: PeerInfo
    grant: Grant = EVERYTHING
    for_program: object = None


class Requests:
    """A handler of requests whose deadlines are in virtual time."""

    def __init__(self) -> None:
        self.stream = MemoryStream(64)
        self.clock = Clock()
        self.loop = Loop("test", self.clock)
        store: Any = Store(self.stream)
        links: Any = None
        self.service = StreamService(lambda: store, links, self.loop, LiveOptions(ServerOptions()))
        self.handler = self.connected(b"k")

    def connected(self, key: bytes) -> OperationService:
        """Return the handler of another connection of a client with this key."""
        connection: Any = Connection(PeerInfo(key * 32))
        return OperationService(self.service, connection)

    def wait(self, seconds: float, end: int = 64) -> Deferred:
        response = handle(self.handler, encode_request(AwaitCommits(NAME, (end,), seconds)))
        assert isinstance(response, Deferred)
        return response

    def expire_after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.loop.expire(self.clock.now)


def seen(response: Deferred) -> bool:
    assert response.awaited.done()
    return decode_response(AwaitCommits(NAME, (0,), 0.0), response.finish()).is_beyond


@pytest.fixture
def requests() -> Requests:
    return Requests()


def test_the_response_says_whether_rows_were_committed_in_time(requests: Requests) -> None:
    early, late, exceeded = requests.wait(1.0), requests.wait(5.0), requests.wait(1.0, end=0)
    assert seen(exceeded)
    requests.expire_after(0.99)
    assert not early.awaited.done()
    requests.expire_after(0.01)
    assert not seen(early)
    assert not late.awaited.done()
    requests.stream.publish(128)
    assert seen(late)
    assert (requests.stream.waits, requests.loop.waits) == (0, 0)


def test_a_request_without_time_is_answered_at_once(requests: Requests) -> None:
    assert not seen(requests.wait(0.0))
    assert seen(requests.wait(0.0, end=0))
    assert (requests.stream.waits, requests.loop.waits) == (0, 0)


def test_a_request_waits_for_a_limited_time(requests: Requests) -> None:
    response = requests.wait(1e9)
    requests.expire_after(MAX_WAIT_S - 0.01)
    assert not response.awaited.done()
    requests.expire_after(0.01)
    assert not seen(response)


def test_a_stream_that_ends_during_a_wait_is_an_error_of_the_response(requests: Requests) -> None:
    response = requests.wait(5.0)
    requests.stream.end("deleted")
    with pytest.raises(UsageError, match="stream 'flights' was deleted"):
        seen(response)
    assert (requests.stream.waits, requests.loop.waits) == (0, 0)


def test_the_waits_of_all_connections_of_a_key_are_limited(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit looks at all waits of its stream."""
    monkeypatch.setattr(stream_operations, "MAX_WAITS", 2)
    first, same, other = (requests.connected(key) for key in (b"a", b"a", b"b"))
    request = AwaitCommits(NAME, (64,), 5.0)
    for handler in (first, same):
        assert isinstance(handle(handler, encode_request(request)), Deferred)
    for handler in (first, same):
        with pytest.raises(RefusedError, match="2 requests of your key wait for commits") as refused:
            handler.execute(request)
        assert refused.value.reason == "busy"
    assert isinstance(handle(other, encode_request(request)), Deferred)
    assert requests.stream.waits == 3
    requests.expire_after(5.0)
    assert isinstance(handle(first, encode_request(request)), Deferred)
    requests.expire_after(5.0)
    assert (requests.stream.waits, requests.service._waits) == (0, {})


def test_a_cancelled_response_leaves_nothing_behind(requests: Requests) -> None:
    response = requests.wait(5.0)
    known = weakref.ref(response.awaited)
    assert response.awaited.cancel()
    assert (requests.stream.waits, requests.loop.waits) == (0, 0)
    requests.stream.publish(128)
    requests.expire_after(5.0)
    assert response.awaited.cancelled()
    del response
    gc.collect()
    assert known() is None


# A server with few worker threads


class Served:
    """A server with WORKERS worker threads and one stream, and a client of it with many threads."""

    def __init__(self, world: World, pool: ThreadPoolExecutor, settings: dict[str, Any]) -> None:
        self.stream = MemoryStream(64)
        store: Any = Store(self.stream)
        few = server_options(**settings, workers=WORKERS)
        self.server: MessageServer = world.server(few, start=False)
        self.loop = self.server.endpoint.loop
        self._service = StreamService(lambda: store, self.server.endpoint.bulk_links, self.loop, LiveOptions(few))
        self.server.endpoint.add_service(self._service.serve)
        self.server.start([ADDRESS])
        self.client: Client = world.client(quick_client(**settings))
        self.session = StreamSession(self.client, TIMEOUT_S)
        self._pool = pool

    def close(self) -> None:
        self.stream.end("closed")  # ends waits that a failed test left, so that its threads end
        self._service.close()

    def follow(self, number: int, seconds: float = MAX_WAIT_S) -> list[Future[bool]]:
        """Send requests that wait for commits, each on its own thread of the client, and wait until they wait."""

        def wait() -> bool:
            request = AwaitCommits(NAME, (64,), seconds)
            response: bytes = self.client.remote(SERVICE).with_timeout(MAX_WAIT_S + TIMEOUT_S).handle(
                encode_request(request)
            )  # fmt: skip
            return decode_response(request, response).is_beyond

        found = [self._pool.submit(wait) for _ in range(number)]
        wait_for(lambda: self.server.statistics["running"] == number, f"{number} requests to wait")
        return found

    def check_nothing_left(self) -> None:
        """Check it soon: the waits would also end at their deadlines."""
        wait_for(lambda: self.server.statistics.get("running", 0) == 0, "the calls to end", AT_ONCE_S)
        wait_for(lambda: self.stream.waits == 0, "the waits of the stream to end", AT_ONCE_S)
        wait_for(lambda: self.loop.waits == 0, "the deadlines to be removed", AT_ONCE_S)


Serve = Callable[[dict[str, Any]], Served]


@pytest.fixture
def serve(world: World) -> Iterator[Serve]:
    """Return a function that starts a server and a client; the fixture closes them."""
    started: list[Served] = []
    with ThreadPoolExecutor(FOLLOWERS) as pool:

        def one(settings: dict[str, Any]) -> Served:
            started.append(Served(world, pool, settings))
            return started[-1]

        yield one
        for served in started:
            served.close()


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve({})


@pytest.mark.threads
def test_other_requests_are_answered_at_once_while_many_more_followers_than_workers_wait(served: Served) -> None:
    """Regression: each wait for commits occupied a worker thread, and a few dozen followers stalled all requests."""
    waits = served.follow(FOLLOWERS)
    (state,) = served.session.call(PartitionStates(NAME), timeout=AT_ONCE_S).partitions
    assert state.end == 64
    assert not any(wait.done() for wait in waits)
    served.stream.publish(128)
    assert [wait.result(TIMEOUT_S) for wait in waits] == [True] * FOLLOWERS
    served.check_nothing_left()


@pytest.mark.threads
@pytest.mark.parametrize("seconds", [0.05, 2 * IDLE_WAIT_S], ids=["short", "longer than the idle event loop waits"])
def test_the_event_loop_answers_a_wait_at_its_deadline(served: Served, seconds: float) -> None:
    began = time.monotonic()
    response = served.session.call(AwaitCommits(NAME, (64,), seconds))
    assert response == CommitsSeen(False)
    assert time.monotonic() - began >= seconds
    served.check_nothing_left()


@pytest.mark.threads
def test_the_event_loop_of_a_server_is_idle_while_a_wait_has_much_time(served: Served) -> None:
    waits = served.follow(1)
    wait_for(served.server._endpoint.loop.is_idle, "the server to be idle")
    served.stream.publish(128)
    assert [wait.result(TIMEOUT_S) for wait in waits] == [True]


@pytest.mark.threads
def test_a_wait_is_answered_after_an_outage_of_its_link(world: World, served: Served) -> None:
    waits = served.follow(WORKERS + 1)
    world.network.cut()
    wait_for(lambda: not served.server.connections, "the link to be lost")
    served.stream.publish(128)
    world.network.heal()
    assert [wait.result(TIMEOUT_S) for wait in waits] == [True] * len(waits)
    served.check_nothing_left()


@pytest.mark.threads
def test_the_loss_of_a_session_ends_its_waits(world: World, serve: Serve) -> None:
    served = serve(kept_for(0.3))
    waits = served.follow(FOLLOWERS)
    world.network.cut()
    served.check_nothing_left()
    assert not any(wait.done() and wait.exception() is None for wait in waits)
    world.network.heal()
    for wait in waits:
        with pytest.raises(AeronSparkError):
            wait.result(TIMEOUT_S)


def close_client(served: Served) -> None:
    served.client.close()


def close_connection(served: Served) -> None:
    served.server.connections[0].close()


def close_server(served: Served) -> None:
    served.server.close()


def delete_stream(served: Served) -> None:
    served.stream.end("deleted")


@pytest.mark.threads
@pytest.mark.parametrize(
    ("end", "error", "text"),
    [
        (close_client, AeronSparkError, "."),
        (close_connection, ConnectError, "the connection ended before the response"),
        (close_server, ConnectError, "the connection ended before the response"),
        (delete_stream, UsageError, "stream 'flights' was deleted"),
    ],
    ids=["client closes", "server closes the connection", "server closes", "stream is deleted"],
)
def test_the_end_of_a_connection_a_stream_or_a_server_ends_its_waits_and_leaves_nothing_behind(
    served: Served, end: Callable[[Served], None], error: type[AeronSparkError], text: str
) -> None:
    waits = served.follow(FOLLOWERS)
    wait_for(lambda: served.stream.waits == FOLLOWERS, "all requests to be registered")
    known = [weakref.ref(wait) for wait in served.stream._waits]
    end(served)
    for wait in waits:
        with pytest.raises(error, match=text):
            wait.result(TIMEOUT_S)
    served.check_nothing_left()
    served.stream.publish(128)

    def are_freed() -> bool:
        gc.collect()
        return not any(one() for one in known)

    wait_for(are_freed, "the waits to be freed")
