"""docs/endpoint-protocol.md has the channels that the code writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.transport import endpoint_channels
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, ChannelSettings, LinkIds, ServerAddress

PAGE = Path(__file__).parents[3] / "docs" / "endpoint-protocol.md"
PLACE, WISHES = ServerAddress("udp", "192.0.2.1", 20121, 20122), ChannelSettings()
IDS = LinkIds(1610612737, 1_000_001, 1610612738, 1_000_002)
MDC = LinkIds(1610612737, 1_000_001, 1610612738, 1_000_002, 20200)
WAYS = {
    "handshake, to the server": (
        endpoint_channels.handshake_out(PLACE, None, 17, 4242, WISHES), endpoint_channels.handshake_in(PLACE, WISHES)),
    "handshake, to the client": (
        endpoint_channels.response_out(PLACE, 35, 4343, WISHES), endpoint_channels.response_in(PLACE, None, WISHES)),
    "link, to the server": (
        endpoint_channels.client_link_out(PLACE, None, IDS, WISHES, 18), endpoint_channels.link_in(PLACE, IDS, WISHES)),
    "link, to the client": (
        endpoint_channels.link_out(PLACE, IDS, 35, WISHES), endpoint_channels.client_link_in(PLACE, None, IDS, WISHES)),
    "the same with `replyChannel=mdc`": (
        endpoint_channels.link_out(PLACE, MDC, 35, WISHES), endpoint_channels.client_link_in(PLACE, None, MDC, WISHES)),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_way_has_the_channels_on_the_page(way: str) -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {way} |")]
    cells = [cell.strip().strip("`").replace("\\|", "|") for cell in line.replace("\\|", "\0").split("|")]
    publication, subscription = (cell.replace("\0", "|") for cell in cells[2:4])
    assert (publication, subscription) == WAYS[way]


def test_the_handshakes_stream_is_on_the_page() -> None:
    assert f"`{HANDSHAKE_STREAM_ID:#010x}`" in PAGE.read_text()
    assert f"it has the stream `{endpoint_channels.response_stream(ServerAddress('ipc')):#010x}`" in PAGE.read_text()
    assert endpoint_channels.response_stream(PLACE) == HANDSHAKE_STREAM_ID


def test_over_ipc_only_the_handshakes_way_to_the_client_has_a_mode() -> None:
    ipc = ServerAddress("ipc")
    with_mode = [
        endpoint_channels.response_out(ipc, 35, 4343, WISHES),
        endpoint_channels.response_in(ipc, None, WISHES),
    ]
    without = [
        endpoint_channels.handshake_out(ipc, None, 17, 4242, WISHES), endpoint_channels.handshake_in(ipc, WISHES),
        endpoint_channels.client_link_out(ipc, None, IDS, WISHES, 18), endpoint_channels.link_in(ipc, IDS, WISHES),
        endpoint_channels.link_out(ipc, IDS, 35, WISHES), endpoint_channels.client_link_in(ipc, None, IDS, WISHES),
    ]  # fmt: skip
    assert all("control-mode=response" in channel for channel in with_mode)
    assert not any("control-mode" in channel for channel in without)
    assert all(channel.startswith("aeron:ipc") for channel in (*with_mode, *without))
