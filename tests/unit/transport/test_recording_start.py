"""The alias of a recorded channel has the user, time and query of the recording's start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.transport.channel import (
    ChannelUri,
    RecordingStart,
    same_stream,
    server_stream,
    start_of,
    with_start,
    without_start,
)

START = RecordingStart(1_795_469_531_315, "ann@host job.py", "counts")


@pytest.mark.parametrize(
    "channel",
    [
        "aeron:ipc",
        "aeron:ipc?alias=flights",
        "aeron:udp?endpoint=localhost:40123|alias=my;flights|mtu=1408",
        "aeron-spy:aeron:udp?endpoint=localhost:40123",
    ],
)
def test_start_and_channel_can_be_read_from_a_recorded_channel(channel: str) -> None:
    noted = with_start(channel, START)
    assert start_of(noted) == START
    assert without_start(noted) == (channel if "my;" not in channel else noted_last(channel))
    assert same_stream(ChannelUri.parse(noted, foreign=True), ChannelUri.parse(channel))
    assert ChannelUri.parse(noted).get("alias") == (ChannelUri.parse(noted, foreign=True)).get(
        "alias"
    )  # Aeron takes it


def noted_last(channel: str) -> str:
    """The alias comes last after it was taken out and set again; Aeron gives the order of parameters no meaning."""
    uri = ChannelUri.parse(channel)
    alias = uri.get("alias")
    assert alias is not None
    return str(uri.without("alias").with_params(alias=alias))


@given(by=st.text(max_size=150), query=st.text(max_size=150))
def test_each_name_is_stored_up_to_100_characters(by: str, query: str) -> None:
    noted = with_start("aeron:ipc?alias=flights", RecordingStart(5, by, query))
    assert start_of(noted) == RecordingStart(5, by[:100], query[:100])
    assert ChannelUri.parse(noted).get("alias") is not None
    assert without_start(noted) == "aeron:ipc?alias=flights"


def test_a_channel_without_a_start_is_unchanged() -> None:
    for channel in ("aeron:ipc", "aeron:ipc?alias=aeron-spark", "aeron:ipc?alias=aeron-spark(at=x,by=,query=)"):
        assert start_of(channel) is None
        assert without_start(channel) == channel


def test_a_new_start_replaces_the_old_one() -> None:
    later = RecordingStart(START.at_ms + 1, "bob@host", "")
    assert with_start(with_start("aeron:ipc", START), later) == with_start("aeron:ipc", later)


def test_a_channel_that_would_become_too_long_is_unchanged() -> None:
    channel = f"aeron:ipc?alias={'a' * 4_070}"
    assert with_start(channel, START) == channel


def test_a_recording_of_a_servers_stream_has_the_streams_name() -> None:
    assert server_stream("aeron:ipc?alias=aeron-spark:flights:0:18ff3a") == "flights"
    assert server_stream(with_start("aeron:ipc", START)) is None
    assert server_stream("aeron:ipc?alias=flights") is None
