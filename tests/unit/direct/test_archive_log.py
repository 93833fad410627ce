"""When an archive is asked to record a stream: once for each session with it, as a restarted archive has forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from aeron_spark.aeron.archive import Archive, ArchiveAddress
from aeron_spark.direct import archive_log
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archives import StreamAddress
from aeron_spark.transport.recording_start import without_start

ADDRESS = ArchiveAddress("embedded", "/dev/shm/none", "aeron:ipc")


class Session:
    """A session with an archive that records what it is asked to, until it is restarted."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.questions = 0

    def recorded_channels(self, stream_id: int) -> list[str]:
        self.questions += 1
        return self.recorded

    def start_recording(self, channel: str, stream_id: int) -> None:
        self.recorded.append(channel)


@pytest.mark.parametrize(
    ("channel", "archive", "ends_with_node"),
    [
        ("aeron:ipc", "embedded", True),
        ("aeron:udp?endpoint=localhost:40123", "embedded", False),
        ("aeron:ipc", "desk", False),
    ],
)
def test_the_warning_says_where_a_recording_ends_with_the_node(
    channel: str, archive: str, ends_with_node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding U2: a request for ``aeron:ipc`` was forgotten when the node stopped, and the warning said otherwise."""
    session = Session()
    monkeypatch.setattr(archive_log, "archive_of", lambda address: cast("Archive", session))
    log = ArchiveLog(StreamAddress(channel, 1001, (replace(ADDRESS, name=archive),)))
    with pytest.warns(UserWarning, match="from now on, until 'aeron-spark recordings stop") as said:
        log.prepare([], record="auto")
    assert ("or this machine's node stops" in str(said[0].message)) == ends_with_node


def test_each_session_with_an_archive_is_asked_once_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding T5: asked once a query, a session that is new after a restart of the archive would not be recorded."""
    now = [Session()]
    monkeypatch.setattr(archive_log, "archive_of", lambda address: cast("Archive", now[0]))
    log = ArchiveLog(StreamAddress("aeron:ipc", 1001, (ADDRESS,)))
    for _restart in range(20):
        with pytest.warns(UserWarning, match="was not recorded; earlier messages, if any, are lost"):
            log.prepare([], record="auto")
        log.prepare([], record="auto")
        assert ([without_start(one) for one in now[0].recorded], now[0].questions) == (["aeron:ipc"], 1)
        # A new session may get the memory of the one that it replaces, and with it Python's id.
        now.clear()
        now.append(Session())
