"""Counters of a driver are mapped memory: once the client has ended, a look at them ends the process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.aeron import archive
from aeron_spark.errors import TransportError


class Ending:
    """A client whose driver ends after some looks at its counters."""

    def __init__(self, looks: int) -> None:
        self.aeron_dir = "/nowhere"
        self.last_error = "the driver has gone"
        self.looks = looks
        self.aeron = SimpleNamespace(countersReader=lambda: self)

    @property
    def closed(self) -> bool:
        return self.looks <= 0

    def maxCounterId(self) -> int:
        assert not self.closed, "the counters are not mapped any more"
        self.looks -= 1
        return -1  # there is none yet


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_client_that_ends_while_the_archive_is_looked_for_is_an_error_and_no_crash(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was aborted by SIGSEGV in CountersReader.getCounterTypeId."""
    client: Any = Ending(looks)
    monkeypatch.setattr(archive, "jclass", lambda name: SimpleNamespace(ARCHIVE_CONTROL_SESSIONS_TYPE_ID=106))
    with pytest.raises(TransportError, match="ended while looking for the archive"):
        archive._require_archive(client)
    assert client.looks == 0
