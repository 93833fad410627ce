"""docs/endpoint-protocol.md has the channels of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.transport import endpoint_channels as channels
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, ChannelSettings, LinkIds, ServerAddress

PAGE = Path(__file__).parents[3] / "docs" / "endpoint-protocol.md"
ADDRESS, SETTINGS = ServerAddress("udp", "192.0.2.1", 20121, 20122), ChannelSettings()
IDS = LinkIds(1610612737, 1_000_001, 1610612738, 1_000_002)
MDC = LinkIds(1610612737, 1_000_001, 1610612738, 1_000_002, 20200)
CHANNELS = {
    "handshake, to the server": (
        channels.handshake_out(ADDRESS, None, 17, 4242, SETTINGS), channels.handshake_in(ADDRESS, SETTINGS)),
    "handshake, to the client": (
        channels.response_out(ADDRESS, 35, 4343, SETTINGS), channels.response_in(ADDRESS, None, SETTINGS)),
    "link, to the server": (
        channels.client_link_out(ADDRESS, None, IDS, SETTINGS, 18), channels.link_in(ADDRESS, IDS, SETTINGS)),
    "link, to the client": (
        channels.link_out(ADDRESS, IDS, 35, SETTINGS), channels.client_link_in(ADDRESS, None, IDS, SETTINGS)),
    "link, to the client, with `replyChannel=mdc`": (
        channels.link_out(ADDRESS, MDC, 35, SETTINGS), channels.client_link_in(ADDRESS, None, MDC, SETTINGS)),
}  # fmt: skip


@pytest.mark.parametrize("row", CHANNELS)
def test_the_page_has_the_channels(row: str) -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row} |")]
    cells = [cell.strip().strip("`").replace("\\|", "|") for cell in line.replace("\\|", "\0").split("|")]
    publication, subscription = (cell.replace("\0", "|") for cell in cells[2:4])
    assert (publication, subscription) == CHANNELS[row]


def test_the_page_has_the_stream_of_handshakes() -> None:
    assert f"`{HANDSHAKE_STREAM_ID:#010x}`" in PAGE.read_text()
    assert f"Its stream is `{channels.response_stream(ServerAddress('ipc')):#010x}`" in PAGE.read_text()
    assert channels.response_stream(ADDRESS) == HANDSHAKE_STREAM_ID


def test_over_ipc_only_the_servers_handshake_packets_have_a_control_mode() -> None:
    ipc = ServerAddress("ipc")
    with_mode = [channels.response_out(ipc, 35, 4343, SETTINGS), channels.response_in(ipc, None, SETTINGS)]
    without = [
        channels.handshake_out(ipc, None, 17, 4242, SETTINGS), channels.handshake_in(ipc, SETTINGS),
        channels.client_link_out(ipc, None, IDS, SETTINGS, 18), channels.link_in(ipc, IDS, SETTINGS),
        channels.link_out(ipc, IDS, 35, SETTINGS), channels.client_link_in(ipc, None, IDS, SETTINGS),
    ]  # fmt: skip
    assert all("control-mode=response" in channel for channel in with_mode)
    assert not any("control-mode" in channel for channel in without)
    assert all(channel.startswith("aeron:ipc") for channel in (*with_mode, *without))
