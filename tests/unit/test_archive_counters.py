"""A client that ends during the search for an archive is an error; reading its unmapped counters would crash."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.aeron import archive
from aeron_spark.errors import TransportError


class EndingClient:
    """A fake client whose driver ends after a number of reads of its counters."""

    def __init__(self, reads: int) -> None:
        self.aeron_dir = "/nowhere"
        self.last_error = "the driver has ended"
        self.reads = reads
        self.aeron = SimpleNamespace(countersReader=lambda: self)

    @property
    def closed(self) -> bool:
        return self.reads <= 0

    def maxCounterId(self) -> int:
        assert not self.closed, "the counters are not mapped any more"
        self.reads -= 1
        return -1  # no counters yet


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_client_that_ends_during_the_search_for_the_archive_is_an_error_and_not_a_crash(
    reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the process ended with SIGSEGV in CountersReader.getCounterTypeId."""
    client: Any = EndingClient(reads)
    monkeypatch.setattr(archive, "jclass", lambda name: SimpleNamespace(ARCHIVE_CONTROL_SESSIONS_TYPE_ID=106))
    with pytest.raises(TransportError, match="ended while looking for the archive"):
        archive._require_archive(client)
    assert client.reads == 0
