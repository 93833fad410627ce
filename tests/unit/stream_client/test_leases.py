"""A reader's lease is renewed after any error of a renewal, and the error is reported."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator

import pytest

from aeron_spark.errors import ConnectError, RefusedError, WaitTimeout
from aeron_spark.stream_client.reader import RENEWAL_TIMEOUT_S, ReaderLease
from aeron_spark.wire.stream_requests import RenewLease
from tests.unit.endpoint.endpoints import wait_for


class Server:
    """The session of a ``ReaderLease``: responds with the next of ``results``, and then with success."""

    def __init__(self, *results: Exception | None) -> None:
        self.requests: list[RenewLease] = []
        self._results = iter(results)
        self._lock = threading.Lock()

    def call(self, request: RenewLease, *, timeout: float) -> None:
        with self._lock:
            self.requests.append(request)
            error = next(self._results, None)
        if error is not None:
            raise error


def rows() -> Generator[object, None, None]:
    yield


@pytest.fixture(autouse=True)
def no_thread_remains() -> Iterator[None]:
    yield
    wait_for(lambda: "aeron-spark-lease" not in [one.name for one in threading.enumerate()], "the lease's thread")


ERRORS = [
    WaitTimeout("no answer within 5 seconds"),
    TimeoutError(),
    ConnectError("the server is away"),
    RefusedError("too many readers"),
    RuntimeError("dictionary changed size during iteration"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_lease_is_renewed_after_any_error_which_is_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.streams")
    server = Server(None, error, error, None)
    lease = ReaderLease(server, "flights", lambda: {0: 64}, rows(), interval=0.001)  # type: ignore[arg-type]
    lease.begin()
    wait_for(lambda: len(server.requests) >= 6 and lease.error is None, "renewals after the error")
    lease.end()
    assert server.requests[-1].seconds == 0.0  # the request that ends the lease
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, warnings
    assert "reader of stream 'flights' was not renewed" in warnings[0]
    assert str(error) in warnings[0]
    assert "was renewed again" in caplog.text


def test_a_lease_whose_begin_fails_is_taken_by_the_next_renewal() -> None:
    server = Server(WaitTimeout("the server is away"))
    lease = ReaderLease(server, "flights", lambda: {0: 64}, rows(), interval=0.001)  # type: ignore[arg-type]
    lease.begin()
    wait_for(lambda: len(server.requests) >= 2 and lease.error is None, "the next renewal")
    lease.end()


def test_a_dropped_reader_ends_its_lease_although_closing_its_rows_fails() -> None:
    def failing() -> Generator[object, None, None]:
        try:
            yield
        finally:
            raise OSError("the bulk link is closed")

    rows_ = failing()
    next(rows_)
    server = Server()
    lease = ReaderLease(server, "flights", lambda: {0: 64}, rows_)  # type: ignore[arg-type]
    lease.begin()
    lease.abandon()
    wait_for(lambda: server.requests[-1].seconds == 0.0, "the end of the lease")


def test_a_lease_is_renewed_more_than_twice_while_it_lasts() -> None:
    """No other test notices a renewal after the expiry of the lease."""
    server = Server()
    lease = ReaderLease(server, "flights", lambda: {0: 64}, rows())  # type: ignore[arg-type]
    lease.begin()
    lease.end()
    lease_s = server.requests[0].seconds
    assert 0 < lease._interval + RENEWAL_TIMEOUT_S < lease_s / 2  # time for a renewal that fails, and the next one
