"""The log of a cluster is one recording, readable up to the commit position that the member's driver has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from aeron_spark.aeron import counters
from aeron_spark.aeron.archive import Archive, ArchiveAddress, Recording
from aeron_spark.direct import session_recordings
from aeron_spark.direct.archive_recordings import StreamAddress
from aeron_spark.direct.cluster_log import ClusterLog
from aeron_spark.errors import OptionError
from aeron_spark.options.routes import CLUSTER_LOG_CHANNEL, CLUSTER_LOG_STREAM
from tests.unit.cli import cnc_file

LEADER = "aeron:udp?tags=73|session-id=17|alias=log"
FOLLOWER = "aeron:udp?tags=77,78|control-mode=manual|session-id=5|alias=log-cm|group=true|rejoin=false"
BACKUP = "aeron:udp?alias=backup|cc=cubic|rcv-wnd=512k|endpoint=localhost:20220|session-id=4"


def recording(recording_id: int, channel: str, stream_id: int = CLUSTER_LOG_STREAM) -> Recording:
    return Recording(
        id=recording_id, channel="aeron:udp", original_channel=channel, stream_id=stream_id, session_id=17,
        start_position=0, stop_position=4096, start_timestamp=1, stop_timestamp=None, initial_term_id=0,
        term_length=65536, segment_length=65536, mtu=1408, source="",
    )  # fmt: skip


class Session:
    """A session with an archive that has these recordings."""

    def __init__(self, recordings: list[Recording]) -> None:
        self._recordings = recordings

    def recordings(self, stream_id: int) -> list[Recording]:
        return [one for one in self._recordings if one.stream_id == stream_id]


def cluster_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recordings: list[Recording], *, uncommitted: bool = False,
    local: bool = True,
) -> ClusterLog:  # fmt: skip
    session = Session(recordings)
    monkeypatch.setattr(session_recordings, "archive_of", lambda address: cast("Archive", session))
    address = ArchiveAddress("embedded" if local else "far:8010", str(folder), "aeron:ipc", local=local)
    stream = StreamAddress(CLUSTER_LOG_CHANNEL, CLUSTER_LOG_STREAM, (address,))
    return ClusterLog(stream, uncommitted=uncommitted)


def driver(folder: Path, *counts: tuple[int, int, int]) -> Path:
    """Write the files of a driver with counters: type, cluster id, value."""
    meta = [cnc_file.counter(kind, "of a cluster", counters.CLUSTER_KEY.pack(cluster)) for kind, cluster, _ in counts]
    cnc_file.write_driver(folder, meta, [(value, 1, 1) for _, _, value in counts], b"")
    return folder


@pytest.mark.parametrize("channel", [LEADER, FOLLOWER, BACKUP])
def test_the_recording_is_found_by_the_alias_of_its_channel(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, (counters.COMMIT_POSITION, 7, 2048))
    others = [recording(1, LEADER, 106), recording(2, "aeron:udp?endpoint=localhost:9|alias=orders")]
    log = cluster_log(tmp_path, monkeypatch, [*others, recording(3, channel)])
    (state,) = log.states()
    assert (state.key, state.end, state.committed) == ("embedded/3", 4096, 2048)


def test_no_recording_and_several_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, (counters.COMMIT_POSITION, 0, 2048))
    with pytest.raises(OptionError, match="the archive embedded has no cluster's log"):
        cluster_log(tmp_path, monkeypatch, [recording(2, LEADER, 106)]).states()
    with pytest.raises(OptionError, match=r"recording 3 of .*alias=log \[0, 4096\); recording 4 of .*log-cm") as raised:
        cluster_log(tmp_path, monkeypatch, [recording(3, LEADER), recording(4, FOLLOWER)]).states()
    assert "recordings delete" in (raised.value.remedy or "")


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ([], "no member and no ClusterBackup uses the media driver in"),
        ([(201, 0, 1)], "no member and no ClusterBackup uses the media driver in"),
        ([(counters.COMMIT_POSITION, 3, 1), (counters.COMMIT_POSITION, 4, 9)], r"of several clusters \(3, 4\)"),
    ],
)
def test_an_unknown_commit_position_is_refused_unless_it_is_not_wanted(
    counts: list[tuple[int, int, int]], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, *counts)
    with pytest.raises(OptionError, match=text) as raised:
        cluster_log(tmp_path, monkeypatch, [recording(3, LEADER)]).states()
    assert "clusterUncommitted=true" in (raised.value.remedy or "")
    (state,) = cluster_log(tmp_path, monkeypatch, [recording(3, LEADER)], uncommitted=True).states()
    assert state.committed is None


def test_the_commit_position_of_another_archive_than_that_of_the_driver_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was the leader may have entries before another member's commit position that it takes back."""
    driver(tmp_path, (counters.COMMIT_POSITION, 0, 2048))
    with pytest.raises(OptionError, match="the archive far:8010 is not of the media driver in"):
        cluster_log(tmp_path, monkeypatch, [recording(3, LEADER)], local=False).states()


def test_the_log_of_a_backup_is_committed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, (counters.CLUSTER_BACKUP_STATE, 0, 4))
    (state,) = cluster_log(tmp_path, monkeypatch, [recording(3, BACKUP)]).states()
    assert (state.end, state.committed) == (4096, None)


def test_equal_logs_are_equal_so_that_a_query_keeps_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = cluster_log(tmp_path, monkeypatch, [])
    assert log == cluster_log(tmp_path, monkeypatch, [])
    assert hash(log) == hash(cluster_log(tmp_path, monkeypatch, []))
    assert log != cluster_log(tmp_path, monkeypatch, [], uncommitted=True)
    assert log != log.counting(framed=True)
    assert log.counting(framed=True).framed
    assert replace(log.stream) == log.stream
