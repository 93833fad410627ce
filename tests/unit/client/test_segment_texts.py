"""The commands say what a partition holds in excess if the files of its node are longer than its segments."""

from __future__ import annotations

import pytest

from aeron_spark.client import named_streams
from aeron_spark.wire.stream_requests import StreamInfo


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
    stream = StreamInfo(
        name="s", state="ok", problem="", content="", encoded_schema=b"", created_ns=0, retention_bytes=0,
        retention_seconds=0.0, segment_bytes=1 << 20, file_bytes=files, partitions=(), schema_policy="strict",
        former_names=(), ended_ns=0, max_message_bytes=0,
    )  # fmt: skip
    assert named_streams._segment(stream) == text
