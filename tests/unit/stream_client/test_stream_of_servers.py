"""The log of a server stream identifies it by its name and the servers' keys, without a connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from aeron_spark import log_factory
from aeron_spark.errors import OptionError
from aeron_spark.log.api import ServerStream, SourceStream, joined_stream
from aeron_spark.options import ReadOptions
from aeron_spark.pool import POOL

KEY: Final = "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
OTHER: Final = "aeron-spark:BwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture(autouse=True)
def connections_are_closed() -> Iterator[None]:
    yield
    POOL.close()


def stream_of(**options: str) -> SourceStream:
    given = {"server": "a:20121", "stream": "flights", "serverKey": KEY, **options}
    log = log_factory.log_of(ReadOptions.parse(given, streaming=True), framed=False)
    assert log.counting(framed=True).stream == log.stream
    return log.stream


def test_a_stream_is_named_by_its_name_and_the_keys_of_its_servers() -> None:
    assert stream_of() == ServerStream("flights", {"a:20121": KEY})
    both = stream_of(server="a:20121,b:20121", serverKey=f"{KEY},{OTHER}")
    assert both == ServerStream("flights", {"a:20121": KEY, "b:20121": OTHER})
    assert joined_stream(stream_of(), both) == both, "a server is added"


def test_a_checkpoint_of_a_server_that_has_another_key_now_is_refused() -> None:
    with pytest.raises(OptionError, match="a:20121 has another key now, so it is another server"):
        joined_stream(stream_of(), stream_of(serverKey=OTHER))
