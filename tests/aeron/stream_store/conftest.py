"""A store for each test, on a node that the tests of stores and of servers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.node import NodeHandle
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from tests.aeron.stream_store.rows import SETTINGS, delete_streams


@pytest.fixture
def live() -> LiveOptions:
    """The options that the store of ``streams`` reads."""
    return LiveOptions(ServerOptions())


@pytest.fixture
def streams(node: NodeHandle, tmp_path: Path, live: LiveOptions) -> Iterator[StreamStore]:
    """A store for one test, whose streams are deleted afterwards."""
    settings = replace(SETTINGS, options=lambda: live.value)
    with StreamStore(tmp_path / "streams", StoreParts(embedded(node), settings)) as store:
        yield store
    delete_streams(store, node)
