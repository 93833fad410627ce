"""Joins writers with a server's stream service in one process, over a connection that loses, repeats and delays.

All of it runs on one thread with virtual time, so that waits take no real time. The stream service and the store are
the real ones; the server can be killed, stopped and restarted.
"""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from aeron_spark.endpoint.bulk_links import BulkLink
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    EndedError,
    StillWorking,
    TransportError,
    WaitTimeout,
)
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol.grants import EVERYTHING
from aeron_spark.server.stream_operations import OperationService, StreamService
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.streams.journal import Journal
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts, StreamSettings
from aeron_spark.wire.stream_requests import (
    SERVICE,
    CommitTransaction,
    Request,
    decode_request,
    encode_response,
    failure_of,
)
from tests.remains import remains_in
from tests.stream_requests import create_request
from tests.unit.server.requests import handle
from tests.unit.stream_client.connections import connection_of
from tests.unit.stream_client.faults import Done, Fault, Outage
from tests.unit.stream_client.recorded import ADDRESS, Kept, MemoryArchive, messages_of, stand_in

STEP = 0.001  # seconds that a request takes
OF_OPEN_LINKS = {"IncomingStages._links"}  # tables that are not empty before the connection ends
ROOM = 64  # bytes of a message on a bulk link: a stage takes several


@dataclass
class Time:
    """A clock of virtual seconds."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wall(self) -> int:
        """Return ns since 1970."""
        return int(self.now * 1e9)


class Killed(BaseException):
    """The server's process was killed during an operation."""


@dataclass
class MemoryBulkLink:
    """Both ends of a bulk link: messages of the writer wait in it for the server."""

    number: int
    session: Session
    closed: bool = False
    waiting: deque[bytes] = field(default_factory=deque)
    closes_at: float = math.inf
    when_received: Callable[[], object] = lambda: None
    room = ROOM
    label = "a bulk link of the test"

    def send(self, *parts: bytes, timeout: float) -> None:
        self.session.world.carry_bulk_message(self, b"".join(bytes(part) for part in parts), timeout)

    def send_from(self, memory: memoryview, *, timeout: float) -> None:
        self.session.world.carry_bulk_message(self, bytes(memory[1:]), timeout)

    def receive(self, timeout: float) -> memoryview | None:
        if not self.waiting:
            self.check()
            return None
        return memoryview(self.waiting.popleft())

    def check(self) -> None:
        if self.closed:
            raise EndedError(f"{self.label} is closed")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.session.world.resume_link(self)

    def close_after(self, seconds: float) -> None:
        self.closes_at = self.session.world.time.now + seconds

    def keep_open(self) -> bool:
        if self.session.world.time.now >= self.closes_at:
            self.close()
        self.closes_at = math.inf
        return not self.closed


class Session:
    """Both ends of a connection."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.peer = PeerInfo(bytes(32))
        self.grant = EVERYTHING
        self.for_program = self
        self.label = "the connection of the test"
        self.bulk_links: dict[int, MemoryBulkLink] = {}
        self.service: Any = None

    def add_service(self, service: Any, number: int) -> None:
        assert number == SERVICE
        self.service = service

    def end(self) -> None:
        for bulk_link in self.bulk_links.values():
            bulk_link.closed = True
            self.world.resume_link(bulk_link)


def in_use(handler: OperationService) -> dict[str, int]:
    """Return the sizes of the tables of one connection's stream requests, without the empty ones."""
    stages = handler.stages
    tables = {"stages": stages, "links": stages._links, "reads": handler.reads, "waits": handler._waits}
    return {name: len(table) for name, table in tables.items() if len(table)}


def remains_of(session: Session | None) -> dict[str, int]:
    """Return how much the server keeps for a connection, of each kind that it keeps."""
    return {} if session is None or session.service is None else in_use(session.service)


class MemoryBulkLinks:
    """The server's table of bulk links."""

    def of(self, connection: Session, number: int) -> MemoryBulkLink:
        found = connection.bulk_links.get(number)
        if found is None or found.closed:
            raise EndedError(f"{connection.label} has no bulk link {number}")
        return found


class Jobs:
    """The server's thread pool: a job runs at once."""

    def submit(self, key: str, job: Callable[[], object]) -> None:
        job()

    def shutdown(self, **_: object) -> None:
        pass


class ServerProcess:
    """The state of one server process, from its start to its end."""

    def __init__(self, world: World) -> None:
        self.store = StreamStore(
            world.folder,
            StoreParts(ADDRESS, world.settings, clock=world.time, wall=world.time.wall),
            random=world.random,
        )
        self.loop = Loop("test", world.time)
        links: Any = MemoryBulkLinks()
        self.service = StreamService(lambda: self.store, links, self.loop, LiveOptions(ServerOptions()))
        self.service.close()
        self.service.pool = Jobs()  # type: ignore[assignment]
        # the number of a request, and the job to run after it
        self.delayed: list[tuple[int, Callable[[], object]]] = []

    def end(self, archive: MemoryArchive) -> None:
        self.delayed.clear()
        self.store.close()  # writes nothing, so the disk has what a kill leaves
        archive.end_publications()


@dataclass(frozen=True)
class Copy:
    """The store's folder and the archive as they were at one moment."""

    folder: Path
    archive: dict[int, Kept]


class World:
    """The server, its disk and archive, and the connection to it. ``faults`` has the fates of the next requests."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.time = Time()
        self.archive = MemoryArchive()
        self.settings = StreamSettings(timeout_s=1.0, writing_timeout_s=1.0)
        self.faults: deque[Fault] = deque()
        self.downtime_s = 3.0  # of a killed or stopped server
        self.requests = 0
        self.sent_requests: list[tuple[Request[Any], float, float]] = []  # each with its time and its timeout
        self._random_calls = 0
        self._next: set[Fault] = set()  # faults of the server's next operations
        self._patch(patched)
        self.server: ServerProcess | None = ServerProcess(self)
        self._restarts_at = 0.0  # when a killed server restarts
        self._stopped_until = 0.0  # when a stopped server continues
        self._silent_until = 0.0  # requests are lost until then
        self.outage: Outage | None = None  # begins with its request
        self._sleeping: list[Callable[[], object]] = []
        self.session: Session | None = None
        self._numbers = 0
        self._copies = 0

    def stream_session(self) -> StreamSession:
        """Return a new stream session, as a client has one."""
        return StreamSession(Client(self), 20.0, clock=self.time, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.time.sleep(seconds)
        self._run_sleeping()

    def random(self, bits: int) -> int:
        """Return different bits at each call, the same in each repetition of a test."""
        self._random_calls += 1
        return self._random_calls

    def close(self) -> None:
        """End stages, connection and server; check that nothing remains, and remove the folders of the server."""
        session, server = self.session, self.server
        self._next.clear()
        self._stopped_until = 0.0
        self._run_sleeping()
        remains: dict[str, int] = {}
        if server is not None:
            self.time.now += 1e9  # after the expiry of all that clients have left
            with suppress(EndedError):  # a test may have closed the store
                for stream in server.store.all():
                    stream.tick(0.0)
            while_connected = remains_in(server.service, session and session.service)
            remains |= {name: size for name, size in while_connected.items() if name not in OF_OPEN_LINKS}
        self._disconnect()
        remains |= remains_of(session)
        if server is not None:
            remains |= remains_in(server.service, server.store, server.loop, session and session.service)
            server.end(self.archive)
        for folder in (self.folder, *self.folder.parent.glob(f"{self.folder.name}-*")):
            shutil.rmtree(folder, ignore_errors=True)
        assert not any(remains.values()), f"the server keeps {remains} after the end of stages and connection"

    def end_faults(self) -> None:
        """Remove all faults, start the server if it does not run, and deliver all delayed requests."""
        self.faults.clear()
        self._next.clear()
        self.archive.refuses = 0
        self.outage = None
        self.time.now = max(self.time.now, self._restarts_at, self._stopped_until, self._silent_until)
        self._run_sleeping()
        self._start()
        assert self.server is not None
        self._deliver_delayed(everything=True)

    def copy(self) -> Copy:
        """Copy the store and the archive, as an operator does."""
        self._copies += 1
        made = Copy(self.folder.with_name(f"{self.folder.name}-{self._copies}"), self.archive.copy())
        shutil.copytree(self.folder, made.folder)
        return made

    def restore(self, copied: Copy) -> None:
        """Kill the server and replace its store and archive by a copy; it restarts at the next connection."""
        self.kill()
        shutil.rmtree(self.folder)
        shutil.copytree(copied.folder, self.folder)
        self.archive.restore(copied.archive)

    def stop(self) -> None:
        """Stop the server for ``downtime_s`` from now on."""
        self._stopped_until = self.time.now + self.downtime_s

    def fail(self, fault: Fault) -> None:
        """Let the server's disk, journal or bulk link fail at its next use."""
        self._next.add(fault)

    def committed(self) -> list[list[bytes]] | None:
        """Return the committed rows of each partition; None while the server does not run."""
        if self.server is None:
            return None
        states = self.server.store.get("s").states()
        return [list(messages_of(self.archive, state.shape.recording_id, state.end)) for state in states]

    # The client

    def connect(self, timeout: float) -> None:
        """Be connected, or raise WaitTimeout."""
        begun = self.time.now
        if self.server is None:
            if self._restarts_at - begun > timeout:
                self.time.now = begun + timeout
                raise WaitTimeout(f"waited {timeout:g} s for a connection")
            self.time.now = max(self.time.now, self._restarts_at)
            self._start()
        if self.session is None:
            assert self.server is not None
            self.session = Session(self)
            self.server.service.serve(self.session)  # type: ignore[arg-type]

    def call(self, data: bytes, timeout: float) -> bytes:
        """Carry a request to the server, with its fate."""
        request = decode_request(data)
        self.requests += 1
        self.sent_requests.append((request, self.time.now, timeout))
        self.sleep(STEP)
        session = self.session
        if session is None:
            raise ConnectError("there is no connection")
        self._deliver_delayed()
        fault = self.faults.popleft() if self.faults else Fault.NONE

        def work() -> bytes:
            return self._work(session, data)

        if self.time.now < self._stopped_until:
            return self._call_stopped(work, timeout)
        if self.time.now < self._silent_until:
            return self._time_out(timeout)
        if self.outage is not None and isinstance(request, self.outage.request):
            return self._begin_outage(work, timeout)
        match fault:
            case Fault.LOSE:
                return self._time_out(timeout)
            case Fault.LOSE_RESPONSE:
                self._run_ignoring_loss(work)
                return self._time_out(timeout)
            case Fault.REPEAT:
                self._run_ignoring_loss(work)
            case Fault.DELAY:
                if self.server is None:  # a request that came late has killed it
                    raise ConnectError("the connection ended before the response")
                self.server.delayed.append((self.requests + 3, work))
                return self._time_out(timeout)
            case Fault.BREAK | Fault.BREAK_AFTER:
                if fault is Fault.BREAK_AFTER:
                    self._run_ignoring_loss(work)
                self._disconnect()
                raise ConnectError("the connection ended before the response")
            case Fault.KILL | Fault.KILL_AFTER:
                if fault is Fault.KILL_AFTER:
                    self._run_ignoring_loss(work)
                self.kill()
                raise ConnectError("the connection ended before the response")
            case Fault.STOP:
                self.stop()
                return self._call_stopped(work, timeout)
            case Fault.BUSY if isinstance(request, CommitTransaction):
                self.sleep(request.seconds)
                return encode_response(failure_of(StillWorking("the server is at work")))
            case Fault.NO_RECORDING:
                self.archive.refuses = 1
            case _:  # a fault of an operation; nothing looks for the others
                self._next.add(fault)
        return work()

    def _begin_outage(self, work: Callable[[], bytes], timeout: float) -> bytes:
        """Run this request now, later or never, and lose all requests from now on for ``downtime_s``."""
        assert self.outage is not None
        outage, self.outage = self.outage, None
        if outage.done is Done.NOW:
            self._run_ignoring_loss(work)
        elif outage.done is Done.LATER and self.server is not None:
            self.server.delayed.append((self.requests + 12, work))
        self._silent_until = self.time.now + self.downtime_s
        return self._time_out(timeout)

    def bulk_link(self) -> MemoryBulkLink:
        """Open a bulk link."""
        if self.session is None:
            raise ConnectError("there is no connection")
        self._numbers += 1
        made = self.session.bulk_links[self._numbers] = MemoryBulkLink(self._numbers, self.session)
        return made

    def carry_bulk_message(self, bulk_link: MemoryBulkLink, message: bytes, timeout: float) -> None:
        """Carry a message on a bulk link."""
        self.sleep(STEP)
        if bulk_link.closed:
            raise TransportError(f"{bulk_link.label} ended")
        if Fault.CUT_LINK in self._next:
            self._next.discard(Fault.CUT_LINK)
            bulk_link.close()
            return
        bulk_link.waiting.append(message)
        if self.time.now < self._stopped_until and len(bulk_link.waiting) > 3:  # Aeron's window is full
            left = self._stopped_until - self.time.now
            self.sleep(min(left, timeout))
            if left >= timeout:
                raise WaitTimeout(f"{bulk_link.label} took no more in time")
        self.resume_link(bulk_link)

    def resume_link(self, bulk_link: MemoryBulkLink) -> None:
        """Have the server receive what waits on the bulk link, or notice its end."""
        if self.server is None:
            return
        if self.time.now < self._stopped_until:
            self._sleeping.append(bulk_link.when_received)
        else:
            bulk_link.when_received()

    # The server

    def kill(self) -> None:
        """Kill the server's process."""
        self._sleeping.clear()
        self._stopped_until = 0.0
        server, self.server = self.server, None
        if server is not None:
            server.end(self.archive)
            self._restarts_at = self.time.now + self.downtime_s
        self._next.clear()
        self._disconnect()

    def _start(self) -> None:
        if self.server is None:
            self.server = ServerProcess(self)

    def _disconnect(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.end()

    def _work(self, session: Session, data: bytes) -> bytes:
        if self.server is None or session.service is None:
            raise ConnectError("the connection ended before the response")
        try:
            answer = handle(session.service, data)
            while isinstance(answer, Deferred):  # only its deadline can end it here
                if not answer.awaited.done():
                    self.time.sleep(STEP)
                    self.server.loop.expire(self.time.now)
                answer = answer.finish() if answer.awaited.done() else answer
        except Killed:
            self.kill()
            raise ConnectError("the connection ended before the response") from None
        return bytes(answer)

    def _call_stopped(self, work: Callable[[], bytes], timeout: float) -> bytes:
        left = self._stopped_until - self.time.now
        if left < timeout:
            self.sleep(left)
            return work()
        self._sleeping.append(lambda: self._run_ignoring_loss(work))
        return self._time_out(timeout)

    def _time_out(self, timeout: float) -> NoReturn:
        self.sleep(timeout)
        raise WaitTimeout(f"no answer within {timeout:g} seconds")

    def _run_ignoring_loss(self, work: Callable[[], Any]) -> None:
        with suppress(ConnectError):
            work()

    def _deliver_delayed(self, *, everything: bool = False) -> None:
        server = self.server
        if server is None or self.time.now < self._stopped_until:
            return
        due = [one for one in server.delayed if everything or one[0] <= self.requests]
        server.delayed = [one for one in server.delayed if one not in due]
        for _, work in due:
            self._run_ignoring_loss(work)

    def _run_sleeping(self) -> None:
        if self.time.now >= self._stopped_until and self._sleeping:
            jobs, self._sleeping = self._sleeping, []
            for job in jobs:
                job()

    def _kill_at(self, fault: Fault) -> None:
        if fault in self._next:
            self._next.discard(fault)
            raise Killed

    def _patch(self, patched: pytest.MonkeyPatch) -> None:
        stand_in(self.archive, patched)
        append = Journal.append

        def journal(this: Journal, payload: bytes) -> None:
            self._kill_at(Fault.KILL_AT_JOURNAL)
            if Fault.FULL_JOURNAL in self._next:
                self._next.discard(Fault.FULL_JOURNAL)
                raise TransportError("the journal cannot be written: No space left on device")
            append(this, payload)
            self._kill_at(Fault.KILL_AFTER_JOURNAL)

        publish = Recordings.publish

        def published(this: Recordings, *given: Any) -> dict[int, int]:
            self._kill_at(Fault.KILL_AT_PUBLISH)
            ends = publish(this, *given)
            self._kill_at(Fault.KILL_AFTER_PUBLISH)
            return ends

        from aeron_spark.streams import stages

        write_at = stages.write_at

        def stage(descriptor: int, data: memoryview, offset: int) -> None:
            if Fault.FULL_DISK in self._next and offset:
                self._next.discard(Fault.FULL_DISK)
                raise OSError(28, "No space left on device")
            write_at(descriptor, data, offset)

        patched.setattr(Journal, "append", journal)
        patched.setattr(Recordings, "publish", published)
        patched.setattr(stages, "write_at", stage)
        patched.setattr("os.fsync", lambda descriptor: None)  # no power is cut here, only processes end


@contextmanager
def world_with_stream(folder: Path, patched: pytest.MonkeyPatch, partitions: int) -> Iterator[World]:
    """Yield a world with a stream ``s``."""
    world = World(folder, patched)
    assert world.server is not None
    world.server.store.create(create_request("s", partitions, segment_bytes=1 << 16))
    try:
        yield world
    finally:
        world.close()


class Client:
    """The part of a client that writers use."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.closed = False

    @property
    def connected(self) -> bool:
        return self._world.session is not None

    def begin_connecting(self) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(self.connect(1.0))
        except AeronSparkError as error:
            done.set_exception(error)
        return done

    def connect(self, timeout: float | None = None) -> None:
        self._world.connect(20.0 if timeout is None else timeout)

    @property
    def connection(self) -> Connection:
        return connection_of(self._world.call)

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        return self._world.bulk_link()  # type: ignore[return-value]
