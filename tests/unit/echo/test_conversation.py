"""What a client does, without Aeron: time is a list, and the other end a function."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from aeron_spark.echo import reports
from aeron_spark.echo.conversation import awaiting, conversation, drive, serve
from aeron_spark.errors import ConnectError, DataFormatError, WaitTimeout


class Clock:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Talker:
    """A client whose server is ``answer``."""

    def __init__(self, answer: Callable[[bytes], bytes], looks: int = 1_000) -> None:
        self.answer = answer
        self.looks = looks

    def connecting(self) -> Generator[None, None, reports.ClientConnected]:
        yield
        return reports.ClientConnected("nowhere", 1, 0.0)

    def echoing(self, payload: bytes) -> Generator[None, None, bytes]:
        yield
        return self.answer(payload)

    def look(self) -> None:
        self.looks -= 1
        if not self.looks:
            raise ConnectError("it has gone")


def finish(steps: Generator[None, None, int]) -> int:
    result = drive(steps, lambda: False)
    assert result is not None
    return result


def test_each_payload_is_echoed_and_reported() -> None:
    seen: list[reports.EchoEvent] = []
    assert finish(conversation(Talker(bytes), [b"a", b"\xff"], 3.0, seen.append, Clock())) == 2
    assert [str(event).split(" in ")[0] for event in seen] == ["connected to nowhere", "a", "\\xff"]


def test_another_echo_than_what_was_sent_is_an_error() -> None:
    with pytest.raises(DataFormatError, match="'a' came back as 'b'"):
        finish(conversation(Talker(lambda payload: b"b"), [b"a"], 0.0, lambda event: None, Clock()))


def test_a_server_that_goes_is_noticed_between_two_echoes() -> None:
    with pytest.raises(ConnectError, match="it has gone"):
        finish(conversation(Talker(bytes, looks=3), [b"a", b"b"], 1_000.0, lambda event: None, Clock()))


def test_a_step_has_a_deadline_and_a_name() -> None:
    clock = Clock()
    with pytest.raises(WaitTimeout, match=r"step 'to sing' was not done within 10 s"):
        drive(awaiting(lambda: None, 10.0, "to sing", clock), lambda: False)
    assert clock.now == 11.0


def test_a_step_ends_with_what_is_found() -> None:
    answers = iter([None, False, "found"])
    assert drive(awaiting(lambda: next(answers), 9.0, "x", Clock()), lambda: False) == "found"


def test_zero_is_an_answer() -> None:
    assert drive(awaiting(lambda: 0, 2.0, "x", Clock()), lambda: False) == 0


def test_what_is_stopped_returns_none() -> None:
    assert drive(awaiting(lambda: None, 10.0, "x", Clock()), lambda: True) is None


def test_a_server_is_polled_until_it_is_stopped() -> None:
    class Server:
        polls = 0

        def poll(self) -> int:
            self.polls += 1
            return self.polls % 2

    server = Server()
    serve(server, lambda: server.polls == 5)
    assert server.polls == 5
