"""``receive`` through a server: a fake client delivers messages in its own thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.cli import rows
from aeron_spark.cli.signals import StopRequest

SENT = 20  # messages, more than the queue of receive has room for


class FakeClient:
    """A client whose thread calls the listener with ``SENT`` messages, one after the other."""

    def __init__(self) -> None:
        self.closed = False
        self.delivered = 0
        self._thread = threading.Thread(target=self._deliver, daemon=True)

    def on_message(self, kind: type, listener: Callable[[bytes], object]) -> None:
        self._listener = listener

    def on_resume(self, listener: object) -> None:
        pass

    def remote(self, number: int) -> FakeClient:
        return self

    def subscribe(self) -> None:
        self._thread.start()

    def has_ended(self) -> bool:
        """Return whether the thread ends within 10 s."""
        self._thread.join(10)
        return not self._thread.is_alive()

    def _deliver(self) -> None:
        for _ in range(SENT):
            self._listener(b"message")
            self.delivered += 1

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClient]:
    client = FakeClient()
    monkeypatch.setattr("aeron_spark.client.client.connect", lambda address, **options: client)
    monkeypatch.setattr(rows, "QUEUE_LIMIT", 2)
    yield client
    assert client.closed


def receive(count: int | None, stopped: StopRequest | None = None) -> int:
    options, stopped = {"server": "host:1"}, stopped or StopRequest(0.0)
    return rows.receive_messages(options, count=count, timeout=None, as_json=False, stopped=stopped)


def test_no_thread_waits_in_the_listener_after_count_messages(
    fake: FakeClient, capfd: pytest.CaptureFixture[str]
) -> None:
    """Regression: ``receive --count`` did not end: a listener waited for room in the queue without a limit."""
    assert receive(3) == 3
    assert fake.has_ended()
    assert capfd.readouterr().out == "message\n" * 3


def test_no_thread_waits_in_the_listener_after_a_failed_write(
    fake: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: ``receive`` did not end after the reader of its pipe had ended."""

    def write(message: bytes, as_json: bool) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(rows, "_write", write)
    with pytest.raises(BrokenPipeError):
        receive(None)
    assert fake.has_ended()


def test_no_thread_waits_in_the_listener_after_a_signal(fake: FakeClient) -> None:
    """Regression: ``receive`` did not end after a signal."""
    stopped = StopRequest(0.0)
    stopped.start_polling()
    stopped.handle(signal.SIGTERM, None)
    assert receive(None, stopped) == 0
    assert fake.has_ended()


def test_all_messages_are_written_though_the_queue_was_full(
    fake: FakeClient, capfd: pytest.CaptureFixture[str]
) -> None:
    assert receive(SENT) == SENT
    assert fake.has_ended()
    assert fake.delivered == SENT
    assert capfd.readouterr().out == "message\n" * SENT
