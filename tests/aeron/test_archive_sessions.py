"""Archive sessions are reused, and replaced if the archive may have closed them."""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node
from aeron_spark.aeron.archive import DORMANT_AFTER_S, Archive, archive_of
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.direct.session_recordings import SessionRecordings
from aeron_spark.errors import ConnectError, TransportError
from aeron_spark.node import NodeHandle
from tests.waiting import poll_until

LOOK_UPS: Final = 500
TIMEOUT_S: Final = 10.0


@pytest.fixture(scope="module")
def address(node_of_256k: NodeHandle) -> ArchiveAddress:
    """An archive without a recording of stream 1001."""
    return embedded(node_of_256k)


def test_a_session_is_reused(address: ArchiveAddress) -> None:
    assert archive_of(address) is archive_of(address)


def test_a_session_that_was_unused_for_long_is_replaced(address: ArchiveAddress) -> None:
    first = archive_of(address)
    first.used_at = time.monotonic() - DORMANT_AFTER_S - 1
    second = archive_of(address)
    assert second is not first
    assert first.closed
    assert second.recordings(1001) == []


def test_a_keep_alive_prevents_a_session_in_use_from_becoming_dormant(address: ArchiveAddress) -> None:
    archive = archive_of(address)
    archive.used_at = time.monotonic() - DORMANT_AFTER_S - 1
    assert archive.dormant
    archive.keep_alive()
    assert not archive.dormant
    assert archive_of(address) is archive


def test_look_ups_leave_no_objects(address: ArchiveAddress) -> None:
    """Regression: JPype keeps each number that Java passes to a Python function; a look-up left nine."""
    archive = archive_of(address)
    channel, stream_id = "aeron:ipc?alias=look-ups", 1_790
    subscription = archive.start_recording(channel, stream_id)
    assert subscription is not None
    publication = archive.client.exclusive_publication(channel, stream_id)
    try:
        session_id = int(publication.sessionId())
        found = poll_until(
            lambda: archive.recording_of_session(session_id, stream_id), TIMEOUT_S, "the recording to begin"
        )
        assert archive.recording(found) is not None
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(LOOK_UPS):
            archive.recording(found)
            archive.subscriptions(stream_id)
        gc.collect()
        assert sys.getallocatedblocks() - before < 2 * LOOK_UPS  # other threads of the process make objects, too
    finally:
        publication.close()
        archive.stop_subscription(subscription)


def test_a_listing_uses_a_new_session_if_the_old_one_was_lost(address: ArchiveAddress) -> None:
    recordings = SessionRecordings(address, 10.0)
    assert recordings.of_stream(1001) == []
    lost = archive_of(address)

    def lose_session(*_: object) -> list[Recording]:
        lost.java.close()
        raise TransportError("response channel from archive is not connected")

    lost.recordings = lose_session
    assert recordings.of_stream(1001) == []
    assert archive_of(address) is not lost


def test_the_error_says_that_a_driver_has_no_archive(
    aeron_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path))
    with node.ensure(aeron_dir, archive=False) as handle:
        client = client_of(handle.aeron_dir)
        with pytest.raises(ConnectError, match="has no archive"):
            Archive(embedded(handle), client)
        client.close()
    node.stop(aeron_dir, force=True)
