"""After an outage a refused connection is repeated if the refusal is retriable, and only then."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    EndedError,
    RefusedError,
    RemoteError,
    Retry,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.rpc_dispatch import UNKNOWN_OBJECT
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.session import (
    IDLE_TIMEOUT_S,
    KEPT_LINKS,
    RETRY_INTERVAL_S,
    SURPLUS_TIMEOUT_S,
    StreamSession,
)
from aeron_spark.stream_client.staging import ATTEMPT_TIMEOUT_S, COMMIT_TIMEOUT_S, commit
from aeron_spark.wire.stream_requests import (
    CommitEmptyTransaction,
    Committed,
    ListStreams,
    StreamList,
    Transaction,
    decode_request,
    encode_response,
    failure_of,
)
from tests.unit.stream_client.connections import connection_of
from tests.unit.stream_client.joined import World
from tests.unit.test_error_codes import ADVICE


class Server:
    """The client of a ``StreamSession``: refuses the first ``refusals`` connections, then responds."""

    closed = False
    connected = True

    def __init__(self, code: str, refusals: int) -> None:
        self.now = 0.0
        self.connects = 0
        self._code = code
        self._refusals = refusals

    def connect(self, timeout: float) -> None:
        self.connects += 1
        if self.connects <= self._refusals:
            raise RefusedError("the server refused the connection", reason=self._code)

    @property
    def connection(self) -> Connection:
        if self.connects <= self._refusals:
            raise ConnectError("the connection was lost")
        return connection_of(lambda data, timeout: self.handle(data))

    def handle(self, data: bytes) -> bytes:
        assert decode_request(data) == ListStreams()
        return encode_response(StreamList(()))

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def session(server: Server, seconds: float = 60.0) -> StreamSession:
    return StreamSession(server, seconds, clock=lambda: server.now, sleep=server.sleep)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_a_call_is_repeated_after_a_retriable_refusal_only(code: str) -> None:
    server = Server(code, refusals=3)
    if ADVICE[code] is Retry.NEVER:
        with pytest.raises(RefusedError) as caught:
            session(server).call(ListStreams())
        assert (caught.value.reason, server.connects) == (code, 1)
        return
    assert session(server).call(ListStreams()) == StreamList(())
    assert server.connects == 4
    assert server.now == pytest.approx(3 * RETRY_INTERVAL_S, abs=0.1)


class FailingOnce(Server):
    """A server: the first call raises an error."""

    def __init__(self, error: AeronSparkError) -> None:
        super().__init__("full", refusals=-1)
        self._error: AeronSparkError | None = error

    def handle(self, data: bytes) -> bytes:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return super().handle(data)


def test_a_call_is_repeated_on_a_new_connection_if_its_connection_ended() -> None:
    server = FailingOnce(EndedError("the bulk link ended"))
    assert session(server).call(ListStreams()) == StreamList(())
    assert server.connects == 1


def test_a_call_is_not_repeated_after_a_usage_error() -> None:
    server = FailingOnce(UsageError("not like that"))
    with pytest.raises(UsageError, match="not like that"):
        session(server).call(ListStreams())
    assert (server.connects, server.now) == (0, 0.0)


def test_a_refusal_that_lasts_too_long_is_raised_with_its_reason() -> None:
    server = Server("full", refusals=1000)
    with pytest.raises(RefusedError) as caught:
        session(server, 5.0).call(ListStreams())
    assert (caught.value.reason, caught.value.retriable) == ("full", True)
    assert 4.0 < server.now <= 5.0


class DrainingServer(Server):
    """Refuses requests until a time, as a server that is about to end, and its restart takes no time."""

    def __init__(self, drains_until: float) -> None:
        super().__init__("full", refusals=0)
        self.drains_until = drains_until

    def handle(self, data: bytes) -> bytes:
        if self.now < self.drains_until:
            return encode_response(failure_of(RefusedError("the server is about to end", reason="draining")))
        if isinstance(decode_request(data), CommitEmptyTransaction):
            return encode_response(Committed(False, (), "stamp"))
        return super().handle(data)


def test_a_request_that_a_draining_server_refuses_is_repeated_until_it_has_restarted() -> None:
    server = DrainingServer(drains_until=5.0)
    assert session(server).call(ListStreams()) == StreamList(())
    assert 5.0 <= server.now < 5.0 + 2 * RETRY_INTERVAL_S


def test_a_commit_waits_for_the_end_of_a_drain_that_lasts_longer_than_one_attempt() -> None:
    server = DrainingServer(drains_until=2 * ATTEMPT_TIMEOUT_S)
    request = CommitEmptyTransaction("s", Transaction("writer", "run", 1), COMMIT_TIMEOUT_S)
    assert commit(session(server), request).stamp == "stamp"
    assert server.now >= server.drains_until


def test_a_drain_that_lasts_longer_than_the_call_is_raised_as_refusal() -> None:
    server = DrainingServer(drains_until=1000.0)
    with pytest.raises(RefusedError) as caught:
        session(server, 5.0).call(ListStreams())
    assert caught.value.reason == "draining"
    assert 4.0 < server.now <= 5.0


def test_an_error_of_the_server_arrives_with_its_reason_and_remedy() -> None:
    class Refusing(Server):
        def handle(self, data: bytes) -> bytes:
            error = RefusedError("your key may not write", remedy="Ask the operator.", reason="not-permitted")
            return encode_response(failure_of(error))

    with pytest.raises(RefusedError, match=r"your key may not write\. Ask the operator\.") as caught:
        session(Refusing("", 0)).call(ListStreams())
    assert caught.value.reason == "not-permitted"


@pytest.mark.parametrize("error", [WaitTimeout("the disk is slow"), TransportError("the disk is full")])
def test_a_call_is_not_repeated_after_a_retriable_error_of_the_request(error: AeronSparkError) -> None:
    class Failing(Server):
        requests = 0

        def handle(self, data: bytes) -> bytes:
            self.requests += 1
            return encode_response(failure_of(error))

    server = Failing("", 0)
    server.connects = 1
    with pytest.raises(type(error)):
        session(server).call(ListStreams())
    assert (server.requests, server.connects, server.now) == (1, 1, 0.0)


def test_the_error_of_a_missing_response_names_the_request() -> None:
    class Silent(Server):
        def handle(self, data: bytes) -> bytes:
            self.now += 60.0
            raise WaitTimeout("waited 60 s for the answer to the call of handle()", remedy="Look at the server.")

    with pytest.raises(WaitTimeout, match=r"^request ListStreams was not answered: waited 60 s") as caught:
        session(Silent("", 0)).call(ListStreams())
    assert caught.value.remedy == "Look at the server."


def test_a_server_without_the_service_reports_a_missing_object() -> None:
    class Old(Server):
        def handle(self, data: bytes) -> bytes:
            raise RemoteError("unknown remote object 4611686018427387906", code=UNKNOWN_OBJECT)

    with pytest.raises(RemoteError, match="unknown remote object"):
        session(Old("", 0)).call(ListStreams())


class BusyServer(Server):
    """A server that refuses the first requests for a bulk link."""

    opened = 0

    def bulk_link(self, timeout: float) -> BusyServer:
        self.opened += 1
        if self.opened <= self._refusals:
            raised = RefusedError("no bulk link is free", reason=self._code)
            raise RemoteError("the call failed at the peer", code="RefusedError", raised=raised)
        return self

    def close_after(self, seconds: float) -> None:
        """Close the bulk link, which is this object as well, after so many seconds."""


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_a_bulk_link_is_requested_again_after_a_retriable_refusal_only(code: str) -> None:
    server = BusyServer(code, refusals=3)
    server.connects = 3
    if ADVICE[code] is Retry.NEVER:
        with pytest.raises(RefusedError) as caught, session(server).bulk_link():
            pass
        assert (caught.value.reason, server.opened) == (code, 1)
        return
    with session(server).bulk_link() as link:
        assert link is server
    assert server.opened == 4
    assert server.now == pytest.approx(3 * RETRY_INTERVAL_S, abs=0.1)


class Link:
    """An open bulk link."""

    closed = False
    closes_after: float | None = None

    def close(self) -> None:
        self.closed = True

    def close_after(self, seconds: float) -> None:
        self.closes_after = seconds

    def keep_open(self) -> bool:
        self.closes_after = None
        return not self.closed


class LinkServer(Server):
    """A server that opens bulk links."""

    def __init__(self) -> None:
        super().__init__("", 0)
        self.links: list[Link] = []

    def bulk_link(self, timeout: float) -> Link:
        self.links.append(Link())
        return self.links[-1]


def test_one_bulk_link_serves_borrowers_that_follow_each_other() -> None:
    """Regression: each partition had its own, so that a writer with four partitions kept four bulk links open."""
    server = LinkServer()
    borrower = session(server)
    for _ in range(4):
        with borrower.bulk_link():
            pass
    assert len(server.links) == 1
    with borrower.bulk_link() as first, borrower.bulk_link() as second:
        assert (first, second) == tuple(server.links)
    server.links[0].close()
    with borrower.bulk_link() as third:
        assert third is server.links[1]


def test_a_bulk_link_is_closed_after_its_idle_time_unless_it_is_borrowed_again() -> None:
    server = LinkServer()
    borrower = session(server)
    for _ in range(2):
        with borrower.bulk_link():
            assert server.links[0].closes_after is None
        assert server.links[0].closes_after == IDLE_TIMEOUT_S
    server.links[0].close()
    with borrower.bulk_link() as link:
        assert link is server.links[1]
    borrower.close()
    assert server.links[1].closed


def test_of_many_idle_bulk_links_only_some_stay_open_for_long() -> None:
    """Regression: after a hundred writers had begun, their idle bulk links slowed down the server for 15 seconds."""
    server = LinkServer()
    borrower = session(server)
    for _ in range(2):
        with ExitStack() as stack:
            for _ in range(KEPT_LINKS + 3):
                stack.enter_context(borrower.bulk_link())
        times = [link.closes_after for link in server.links]
        assert sorted(times) == [SURPLUS_TIMEOUT_S] * 3 + [IDLE_TIMEOUT_S] * KEPT_LINKS
    with borrower.bulk_link() as link:  # one with the short time
        assert times[server.links.index(link)] == SURPLUS_TIMEOUT_S


def test_a_bulk_link_that_is_refused_for_too_long_fails_with_the_reason() -> None:
    server = BusyServer("ids", refusals=1000)
    server.connects = 1000
    with pytest.raises(RefusedError) as caught, session(server).bulk_link(5.0):
        pass
    assert (caught.value.reason, caught.value.retriable) == ("ids", True)
    assert 4.0 < server.now <= 5.0


@pytest.mark.parametrize("code", ["full", "ids", "timeout"])
def test_a_following_reader_continues_after_a_retriable_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    reader = StreamReader(world.stream_session(), "s", follow=True)
    connect, refused = world.connect, list[float]()

    def refusing(timeout: float) -> None:
        refused.append(world.time.now)
        if refused[-1] - refused[0] < 2 * reader_seconds:
            raise RefusedError("the server refused the connection", reason=code)
        connect(timeout)
        reader.stop()

    reader_seconds = world.stream_session().timeout_s
    world._disconnect()
    monkeypatch.setattr(world, "connect", refusing)
    assert not list(reader)
    assert refused[-1] - refused[0] >= 2 * reader_seconds


def test_a_reader_ends_with_a_refusal_that_is_not_retriable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = StreamReader(world.stream_session(), "s", follow=True)

    def refusing(timeout: float) -> None:
        raise RefusedError("the server refused the connection", reason="key")

    world._disconnect()
    monkeypatch.setattr(world, "connect", refusing)
    with pytest.raises(RefusedError):
        list(reader)
