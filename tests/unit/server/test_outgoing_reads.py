"""Reads of clients that take nothing keep no thread, and other reads go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.errors import AeronSparkError, EndedError, RefusedError
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol.grants import EVERYTHING, Grant
from aeron_spark.server import stream_transfers
from aeron_spark.server.stream_operations import OperationService, StreamService
from aeron_spark.server.stream_transfers import MAX_PAUSE_S
from aeron_spark.wire.bulk_messages import BulkMessage, BulkMessageKind, decode_bulk_message
from aeron_spark.wire.stream_requests import StartRead, StopRead, decode_response, encode_request
from tests.unit.endpoint.endpoints import wait_for
from tests.unit.endpoint.test_deadlines import Clock
from tests.unit.server.requests import handle
from tests.unit.stream_client.joined import in_use
from tests.unit.streams.readable import NAME, MemoryStream

BLOCKS: Final = 10
BLOCK: Final = 64  # bytes
KINDS: Final = [BulkMessageKind.LOG] * BLOCKS + [BulkMessageKind.END]


class Link:
    """The server's end of a bulk link whose client takes messages while ``takes`` is not 0."""

    room = BLOCK + 100

    def __init__(self, number: int, takes: int) -> None:
        self.number = number
        self.takes = takes
        self.error: AeronSparkError | None = None
        self.sent: list[BulkMessage] = []

    def has_room(self, *, timeout: float) -> bool:
        if self.error is not None:
            raise self.error
        return self.takes > 0

    def offer_from(self, memory: memoryview, *, timeout: float) -> bool:
        if not self.has_room(timeout=timeout):
            return False
        self.takes -= 1
        self.sent.append(decode_bulk_message(memoryview(bytes(memory[1:]))))
        return True

    def close(self) -> None:
        self.error = EndedError("it is closed")

    @property
    def kinds(self) -> list[BulkMessageKind]:
        return [message.kind for message in self.sent]


class Stream(MemoryStream):
    """A stream whose only partition has BLOCKS blocks."""

    def blocks(self, partition: int, start: int, *_: Any) -> Iterator[Any]:
        return ((start + BLOCK * number, memoryview(bytes(BLOCK))) for number in range(BLOCKS))


class Server:
    """A stream service whose clients have one connection each, and whose time is virtual."""

    def __init__(self) -> None:
        self.stream = Stream(BLOCK * BLOCKS)
        self.grant = EVERYTHING
        self.links: dict[tuple[OperationService, int], Link] = {}
        self.clock = Clock()
        self.loop = Loop("test", self.clock)
        links: Any = self
        self.service = StreamService(lambda: self, links, self.loop, LiveOptions(ServerOptions()))  # type: ignore[arg-type, return-value]

    def __contains__(self, name: str) -> bool:
        return name == NAME

    def get(self, name: str) -> Stream:
        return self.stream

    def of(self, connection: Client, number: int) -> Link:
        return connection.links[number]

    @property
    def running(self) -> int:
        """The number of turns that run or wait for a thread."""
        return self.service.pool.unfinished(self.service.pool.mark())

    def pass_pause(self) -> None:
        """Run the next turn of each read that has paused, and wait for their ends."""
        self.clock.now += MAX_PAUSE_S
        self.loop.expire(self.clock.now)
        self.await_no_turn()

    def await_no_turn(self) -> None:
        def has_ended() -> bool:
            self.service.pool.tick()
            return self.running == 0

        wait_for(has_ended, "the turns to end")


class Client:
    """A connection with a separate key, and its requests."""

    for_program = None
    label = "the connection of the test"

    def __init__(self, server: Server, key: int) -> None:
        self.peer = PeerInfo(bytes([key]) * 32)
        self._server = server
        self.links: dict[int, Link] = {}
        connection: Any = self
        self.handler = OperationService(server.service, connection)

    @property
    def grant(self) -> Grant:
        return self._server.grant

    def read(self, link: int, request: int = 1, takes: int = 0) -> Link:
        found = self.links.setdefault(link, Link(link, takes))
        self.request(StartRead(NAME, 0, 0, BLOCK * BLOCKS, link, request))
        return found

    def request(self, request: Any) -> None:
        answer = handle(self.handler, encode_request(request))
        assert isinstance(answer, bytes)
        decode_response(request, answer)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.service.close()


def test_256_links_each_of_two_clients_that_take_nothing_do_not_stop_a_reader(server: Server) -> None:
    slow = [Client(server, key) for key in (1, 2)]
    links = [client.read(number) for client in slow for number in range(256)]
    good = Client(server, 3).read(0, takes=BLOCKS + 2)
    wait_for(lambda: good.kinds == KINDS, "the good reader to have all rows")
    server.await_no_turn()
    assert [in_use(client.handler) for client in slow] == [{"reads": 256}] * 2, "they wait without a thread"
    links[300].takes = BLOCKS + 2
    server.pass_pause()
    assert links[300].kinds == KINDS
    for link in links:
        link.close()
    server.pass_pause()
    assert [in_use(client.handler) for client in slow] == [{}, {}]
    assert server.loop.waits == 0


def test_a_bulk_link_has_one_read_at_a_time(server: Server) -> None:
    slow = Client(server, 1)
    for request in range(560):
        link = slow.read(0, request)
    good = Client(server, 2).read(0, takes=BLOCKS + 2)
    wait_for(lambda: good.kinds == KINDS, "the good reader to have all rows")
    server.await_no_turn()
    assert in_use(slow.handler) == {"reads": 1}
    link.takes = BLOCKS + 2
    server.pass_pause()
    assert {message.request for message in link.sent} == {559}
    assert link.kinds == KINDS
    assert in_use(slow.handler) == {}
    assert server.loop.waits == 0


def test_a_read_continues_where_its_client_stopped_taking(server: Server) -> None:
    link = Client(server, 1).read(0, takes=4)
    server.await_no_turn()
    assert len(link.sent) == 4
    link.takes = BLOCKS
    server.pass_pause()
    assert [message.position for message in link.sent] == [BLOCK * number for number in range(BLOCKS + 1)]
    assert link.kinds == KINDS


def test_a_stopped_read_sends_no_more(server: Server) -> None:
    client = Client(server, 1)
    link = client.read(0, takes=4)
    server.await_no_turn()
    client.request(StopRead(0, 1))
    assert in_use(client.handler) == {}
    link.takes = BLOCKS
    server.pass_pause()
    assert len(link.sent) == 4


def test_a_read_that_the_grant_does_not_cover_any_more_ends_with_the_error(server: Server) -> None:
    link = Client(server, 1).read(0, takes=4)
    server.await_no_turn()
    server.grant = Grant()
    link.takes = BLOCKS
    server.pass_pause()
    assert link.kinds == [BulkMessageKind.LOG] * 5 + [BulkMessageKind.FAILED]


def test_a_disk_error_ends_the_read_with_a_message(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Iterator[Any]:
        raise OSError("the disk fails")

    monkeypatch.setattr(Stream, "blocks", fail)
    client = Client(server, 1)
    link = client.read(0, takes=2)
    server.await_no_turn()
    assert link.kinds == [BulkMessageKind.FAILED]
    assert b"reading failed: OSError('the disk fails')" in bytes(link.sent[0].payload)
    assert in_use(client.handler) == {}


def test_a_reader_that_takes_nothing_for_long_is_abandoned(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_transfers, "SEND_TIMEOUT_S", 0.0)
    client = Client(server, 1)
    link = client.read(0)
    server.await_no_turn()
    assert isinstance(link.error, EndedError)
    assert in_use(client.handler) == {}


def test_a_link_that_another_stream_error_ends_frees_its_read(server: Server) -> None:
    client = Client(server, 1)
    link = client.read(0)
    link.error = RefusedError("it is lost")
    server.await_no_turn()
    server.pass_pause()
    assert in_use(client.handler) == {}
