"""``send`` and ``receive`` through a server, without one: a client that calls its listener as a connection does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.cli import server_messages
from aeron_spark.cli.signals import StopRequest

SENT = 20  # messages, more than receive keeps


class Busy:
    """A client whose thread gives ``SENT`` messages to the listener, as fast as the listener takes them."""

    def __init__(self) -> None:
        self.closed = False
        self.taken = 0
        self._thread = threading.Thread(target=self._give, daemon=True)

    def on_message(self, kind: type, listener: Callable[[bytes], object]) -> None:
        self._listener = listener

    def on_resume(self, listener: object) -> None:
        pass

    def send(self, message: str, *, acknowledge: bool) -> None:
        self._thread.start()

    def ended(self) -> bool:
        """Return whether the listener's thread ends by itself."""
        self._thread.join(10)
        return not self._thread.is_alive()

    def _give(self) -> None:
        for _ in range(SENT):
            self._listener(b"message")
            self.taken += 1

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    client = Busy()
    monkeypatch.setattr("aeron_spark.client.opening.connect", lambda address, **options: client)
    monkeypatch.setattr(server_messages, "WAITING_MOST", 2)
    yield client
    assert client.closed


def receive(count: int | None, stopped: StopRequest | None = None) -> int:
    given, stopped = {"server": "host:1"}, stopped or StopRequest(0.0)
    return server_messages.receive_through(given, count=count, timeout=None, as_json=False, stopped=stopped)


def test_finding_after_enough_messages_no_thread_waits_to_hand_over_another_one(
    busy: Busy, capfd: pytest.CaptureFixture[str]
) -> None:
    """Finding: ``receive --count`` did not end while messages came: a listener waited for room without an end."""
    assert receive(3) == 3
    assert busy.ended()
    assert capfd.readouterr().out == "message\n" * 3


def test_finding_after_a_failed_write_no_thread_waits_to_hand_over_another_message(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding: ``receive`` did not end when the reader of its pipe had gone and messages came."""

    def write(message: bytes, as_json: bool) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(server_messages, "_write", write)
    with pytest.raises(BrokenPipeError):
        receive(None)
    assert busy.ended()


def test_finding_after_a_signal_no_thread_waits_to_hand_over_another_message(busy: Busy) -> None:
    """Finding: ``receive`` did not end after a signal while messages came."""
    stopped = StopRequest(0.0)
    stopped.begin()
    stopped.handle(signal.SIGTERM, None)
    assert receive(None, stopped) == 0
    assert busy.ended()


def test_every_message_is_written_where_the_queue_is_full_for_a_while(
    busy: Busy, capfd: pytest.CaptureFixture[str]
) -> None:
    assert receive(SENT) == SENT
    assert busy.ended()
    assert busy.taken == SENT
    assert capfd.readouterr().out == "message\n" * SENT
