"""Recording of a stream is requested once per archive session, because a restarted archive forgets the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from aeron_spark.aeron import archive
from aeron_spark.aeron.archive import Archive
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.direct import session_recordings
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import CataloguedRecording, StreamAddress
from aeron_spark.log.api import Range
from aeron_spark.transport.channel import without_start

ADDRESS = ArchiveAddress("embedded", "/dev/shm/none", "aeron:ipc")


class Session:
    """A session with an archive that records the requested channels until it is restarted."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.queries = 0

    def recorded_channels(self, stream_id: int) -> list[str]:
        self.queries += 1
        return self.recorded

    def start_recording(self, channel: str, stream_id: int) -> None:
        self.recorded.append(channel)


def replace_session(monkeypatch: pytest.MonkeyPatch, archive_of: Callable[[ArchiveAddress], Archive]) -> None:
    """Replace the function that opens sessions with archives."""
    for module in (archive, session_recordings):
        monkeypatch.setattr(module, "archive_of", archive_of)


@pytest.mark.parametrize(
    ("channel", "archive_name", "ends_with_node"),
    [
        ("aeron:ipc", "embedded", True),
        ("aeron:udp?endpoint=localhost:40123", "embedded", False),
        ("aeron:ipc", "other", False),
    ],
)
def test_the_warning_says_whether_a_recording_ends_with_the_node(
    channel: str, archive_name: str, ends_with_node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a request for ``aeron:ipc`` ended when the node stopped, but the warning said that it lasts."""
    session = Session()
    replace_session(monkeypatch, lambda address: cast("Archive", session))
    log = ArchiveLog(StreamAddress(channel, 1001, (replace(ADDRESS, name=archive_name),)))
    with pytest.warns(UserWarning, match="from now on, until 'aeron-spark recordings stop") as caught:
        log.prepare([], record="auto")
    assert ("or this machine's node stops" in str(caught[0].message)) == ends_with_node


def test_recording_is_requested_once_per_session_with_an_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one request per query, a stream is not recorded after a restart of the archive."""
    now = [Session()]
    replace_session(monkeypatch, lambda address: cast("Archive", now[0]))
    log = ArchiveLog(StreamAddress("aeron:ipc", 1001, (ADDRESS,)))
    for _restart in range(20):
        with pytest.warns(UserWarning, match="was not recorded; earlier messages, if any, are lost"):
            log.prepare([], record="auto")
        log.prepare([], record="auto")
        assert ([without_start(one) for one in now[0].recorded], now[0].queries) == (["aeron:ipc"], 1)
        # A new session may get the memory of the session that it replaces, and thus the same Python id.
        now.clear()
        now.append(Session())


def test_a_task_looks_up_the_recording_of_a_range_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Recording(7, 0, 0, 0, 640, 0, 1 << 16, 1 << 16, 1408, 1, 1001, "aeron:ipc", "aeron:ipc", "")
    looked_up: list[int] = []

    class Recordings:
        def find(self, recording_id: int) -> CataloguedRecording:
            looked_up.append(recording_id)
            return CataloguedRecording(read, 640)

    log = ArchiveLog(StreamAddress("aeron:ipc", 1001, (ADDRESS,)))
    recordings: Any = Recordings()
    log._recordings = {"embedded": recordings}
    monkeypatch.setattr(session_recordings, "read_rows", lambda *_, **__: iter(()))
    state = log.state("embedded/7")
    assert list(log.read(Range("embedded/7", state.fingerprint, 0, 640, 640, 1 << 16))) == []
    assert looked_up == [7]
