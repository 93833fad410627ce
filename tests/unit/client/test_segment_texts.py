"""The commands say what a partition holds in excess if the files of its node are longer than its segments."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from aeron_spark.client import named_streams
from aeron_spark.stream_client.admin import StreamInfo

CREATED = datetime(2026, 3, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (1 << 20, "1.0 MiB"),
        (
            128 << 20,
            "1.0 MiB (128.0 MiB in fact: the archive of the node has longer segments, so a partition holds at most "
            "128.0 MiB besides its readable rows)",
        ),
    ],
)
def test_longer_files_of_the_node_are_named(files: int, text: str) -> None:
    stream = StreamInfo("s", "", None, (), 0, 0.0, CREATED, segment_bytes=1 << 20, file_bytes=files)
    assert named_streams._segment(stream) == text
