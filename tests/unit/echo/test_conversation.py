"""The steps of a client with a fake clock and a function as the server."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from aeron_spark.echo import conversation
from aeron_spark.echo.conversation import converse, run_steps, serve, wait_for_step
from aeron_spark.errors import ConnectError, DataFormatError, WaitTimeout


class Clock:
    """A clock that advances by 1 s at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class FakeClient:
    """A client whose server is the function ``respond``. The connection is lost at check number ``checks``."""

    def __init__(self, respond: Callable[[bytes], bytes], checks: int = 1_000) -> None:
        self.respond = respond
        self.checks = checks

    def connect(self) -> Generator[None, None, conversation.ClientConnected]:
        yield
        return conversation.ClientConnected("nowhere", 1, 0.0)

    def echo(self, payload: bytes) -> Generator[None, None, bytes]:
        yield
        return self.respond(payload)

    def check_connection(self) -> None:
        self.checks -= 1
        if not self.checks:
            raise ConnectError("connection lost")


def finish(steps: Generator[None, None, int]) -> int:
    result = run_steps(steps, lambda: False)
    assert result is not None
    return result


def test_each_payload_is_echoed_and_reported() -> None:
    reported: list[conversation.EchoEvent] = []
    assert finish(converse(FakeClient(bytes), [b"a", b"\xff"], 3.0, reported.append, Clock())) == 2
    assert [str(event).split(" in ")[0] for event in reported] == ["connected to nowhere", "a", "\\xff"]


def test_an_echo_that_differs_from_its_payload_is_an_error() -> None:
    with pytest.raises(DataFormatError, match="'a' came back as 'b'"):
        finish(converse(FakeClient(lambda payload: b"b"), [b"a"], 0.0, lambda event: None, Clock()))


def test_a_lost_connection_is_noticed_between_two_echoes() -> None:
    with pytest.raises(ConnectError, match="connection lost"):
        finish(converse(FakeClient(bytes, checks=3), [b"a", b"b"], 1_000.0, lambda event: None, Clock()))


def test_the_timeout_of_a_step_names_the_step() -> None:
    clock = Clock()
    with pytest.raises(WaitTimeout, match=r"step 'greeting' was not done within 10 s"):
        run_steps(wait_for_step(lambda: None, 10.0, "greeting", clock), lambda: False)
    assert clock.now == 11.0


def test_a_step_ends_with_the_first_value() -> None:
    values = iter([None, False, "found"])
    assert run_steps(wait_for_step(lambda: next(values), 9.0, "x", Clock()), lambda: False) == "found"


def test_zero_is_a_value() -> None:
    assert run_steps(wait_for_step(lambda: 0, 2.0, "x", Clock()), lambda: False) == 0


def test_stopped_steps_return_none() -> None:
    assert run_steps(wait_for_step(lambda: None, 10.0, "x", Clock()), lambda: True) is None


def test_a_server_is_polled_until_it_is_stopped() -> None:
    class Server:
        polls = 0

        def poll(self) -> int:
            self.polls += 1
            return self.polls % 2

    server = Server()
    serve(server.poll, lambda: server.polls == 5)
    assert server.polls == 5
