"""Which bytes of a connection the rates of its key count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.endpoint.holds import NO_RATES, ConnectionHolds
from aeron_spark.endpoint.usage import MemoryAccount, Rates
from aeron_spark.facts import Bus

RATES = Rates(bytes_out=1000)


class UsedConnection:
    """A connection that has sent some bytes."""

    is_held = False
    messages_received = 0

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.peer = SimpleNamespace(key=b"key")
        self.traffic = SimpleNamespace(totals=lambda: (0, self.sent))
        self.sender = SimpleNamespace(is_held=False, hold=lambda is_held: None)


@pytest.fixture
def holds() -> ConnectionHolds:
    bulk_links: Any = SimpleNamespace(hold_sending=lambda connection, is_held: None)
    return ConnectionHolds(MemoryAccount(lambda: 0), bulk_links, lambda connection, error: None, Bus())


def test_a_connection_pays_for_what_it_used_before_its_first_review(holds: ConnectionHolds) -> None:
    """Regression: it did not pay if a review took place during its set-up, before its client was verified."""
    holds.rates_of = lambda connection: RATES
    connection: Any = UsedConnection(0)
    holds.review([], 1.0)  # while the connection is set up
    connection.sent = 100_000
    holds.review([connection], 2.0)
    assert holds.throttled == {connection}


def test_a_connection_pays_nothing_for_what_it_used_before_its_key_had_rates(holds: ConnectionHolds) -> None:
    connection: Any = UsedConnection(100_000)
    holds.rates_of = lambda connection: NO_RATES
    holds.review([connection], 1.0)
    holds.rates_of = lambda connection: RATES
    holds.review([connection], 2.0)
    assert not holds.throttled
    connection.sent += 2_000
    holds.review([connection], 2.0)
    assert holds.throttled == {connection}
