"""Finding C9: after an outage a refused connection is tried again where the table of advice says so, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_spark.errors import AeronSparkError, ConnectError, EndedError, RefusedError, RemoteError, Retry, UsageError
from aeron_spark.stream_client.asking import PAUSE, StreamSession
from aeron_spark.stream_client.reader import StreamReader
from tests.unit.stream_client.joined import World
from tests.unit.test_error_codes import ADVICE


class Server:
    """The host of an ``StreamSession``: it is away until ``refusals`` connections were refused, then it answers."""

    closed = False

    def __init__(self, code: str, refusals: int) -> None:
        self.now = 0.0
        self.connects = 0
        self._code = code
        self._refusals = refusals

    def connect(self, timeout: float) -> None:
        self.connects += 1
        if self.connects <= self._refusals:
            raise RefusedError("the server refused the connection", reason=self._code)

    def remote(self, target: object) -> Server:
        if self.connects <= self._refusals:
            raise ConnectError("the connection was lost")
        return self

    def with_timeout(self, seconds: float) -> Server:
        return self

    def list_all(self) -> str:
        return "answered"

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def asking(server: Server, seconds: float = 60.0) -> StreamSession:
    return StreamSession(server, seconds, clock=lambda: server.now, sleep=server.sleep)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_finding_c9_a_call_waits_for_a_refusal_that_can_pass_and_for_no_other(code: str) -> None:
    server = Server(code, refusals=3)
    if ADVICE[code] is Retry.NEVER:
        with pytest.raises(RefusedError) as caught:
            asking(server).ask("list_all")
        assert (caught.value.reason, server.connects) == (code, 1)
        return
    assert asking(server).ask("list_all") == "answered"
    assert server.connects == 4
    assert server.now == pytest.approx(3 * PAUSE, abs=0.1)


class Raising:
    """A server's remote object, whose method raises one error, once."""

    def __init__(self, server: Server, error: AeronSparkError) -> None:
        self._server = server
        self._error: AeronSparkError | None = error

    def with_timeout(self, seconds: float) -> Raising:
        return self

    def list_all(self) -> str:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._server.list_all()


def test_a_call_is_repeated_on_a_new_connection_where_its_connection_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("full", refusals=0)
    service = Raising(server, EndedError("the branch ended"))
    monkeypatch.setattr(server, "remote", lambda target: service)
    assert asking(server).ask("list_all") == "answered"
    assert server.connects == 1


def test_a_call_that_is_used_wrongly_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("full", refusals=0)
    service = Raising(server, UsageError("not like that"))
    monkeypatch.setattr(server, "remote", lambda target: service)
    with pytest.raises(UsageError, match="not like that"):
        asking(server).ask("list_all")
    assert (server.connects, server.now) == (0, 0.0)


def test_a_refusal_that_does_not_pass_in_time_is_raised_with_its_reason() -> None:
    server = Server("full", refusals=1000)
    with pytest.raises(RefusedError) as caught:
        asking(server, 5.0).ask("list_all")
    assert (caught.value.reason, caught.value.retriable) == ("full", True)
    assert 4.0 < server.now <= 5.0


def test_the_error_that_the_server_raised_comes_back_with_its_reason_and_remedy() -> None:
    raised = RefusedError("your key may not write", remedy="Ask the operator.", reason="not-permitted")

    class Refusing(Server):
        def list_all(self) -> Any:
            raise RemoteError("the other side could not do it", code="RefusedError", raised=raised)

    with pytest.raises(RefusedError) as caught:
        asking(Refusing("", 0)).ask("list_all")
    assert caught.value is raised


class Busy(Server):
    """A server that refuses the first branches that it is asked for."""

    opened = 0

    def bulk_link(self, timeout: float) -> Busy:
        self.opened += 1
        if self.opened <= self._refusals:
            raised = RefusedError("there is no place for a branch", reason=self._code)
            raise RemoteError("the other side could not do it", code="RefusedError", raised=raised)
        return self

    def close(self) -> None:
        """It is a branch, too."""


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_finding_c9_a_branch_waits_for_a_refusal_that_can_pass_and_for_no_other(code: str) -> None:
    server = Busy(code, refusals=3)
    server.connects = 3
    if ADVICE[code] is Retry.NEVER:
        with pytest.raises(RefusedError) as caught, asking(server).bulk_link("a partition"):
            pass
        assert (caught.value.reason, server.opened) == (code, 1)
        return
    with asking(server).bulk_link("a partition") as bulk_link:
        assert bulk_link is server
    assert server.opened == 4
    assert server.now == pytest.approx(3 * PAUSE, abs=0.1)


def test_finding_c9_a_branch_that_is_refused_for_too_long_is_raised_with_its_reason() -> None:
    server = Busy("ids", refusals=1000)
    server.connects = 1000
    with pytest.raises(RefusedError) as caught, asking(server).bulk_link("a partition", 5.0):
        pass
    assert (caught.value.reason, caught.value.retriable) == ("ids", True)
    assert 4.0 < server.now <= 5.0


@pytest.mark.parametrize("code", ["full", "ids", "timeout"])
def test_finding_c9_a_reader_that_follows_waits_out_a_refusal_that_can_pass_like_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    reader = StreamReader(world.asking(), "s", follow=True)
    connect, refused = world.connect, list[float]()

    def refusing(timeout: float) -> None:
        refused.append(world.time.now)
        if refused[-1] - refused[0] < 2 * reader_seconds:
            raise RefusedError("the server refused the connection", reason=code)
        connect(timeout)
        reader.stop()

    reader_seconds = world.asking().seconds
    world._disconnect()
    monkeypatch.setattr(world, "connect", refusing)
    assert not list(reader)
    assert refused[-1] - refused[0] >= 2 * reader_seconds


def test_finding_c9_a_reader_ends_with_a_refusal_that_does_not_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = StreamReader(world.asking(), "s", follow=True)

    def refusing(timeout: float) -> None:
        raise RefusedError("the server refused the connection", reason="key")

    world._disconnect()
    monkeypatch.setattr(world, "connect", refusing)
    with pytest.raises(RefusedError):
        list(reader)
