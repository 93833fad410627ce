"""The channels of both sides, word by word."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.transport import endpoint_channels
from aeron_spark.transport.api import ChannelSettings, LinkIds, ServerAddress
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.transport.endpoint_channels import ClientPorts

PLACE = ServerAddress("udp", "127.0.0.1", 20_000, 20_001)
SIX = ServerAddress("udp", "::1", 20_000, 20_001)
LOCAL = ServerAddress("ipc")
IDS = LinkIds(11, 12, 13, 14)
MDC = LinkIds(11, 12, 13, 14, mdc_port=30_000)
WISHES = ChannelSettings()
PORTS = ClientPorts(2_400, 2_401)
TUNED = "term-length=2097152|mtu=1184|sparse=true|linger=500ms"
WHOLE = "term-length=2097152|mtu=65504|sparse=true|linger=500ms"  # in shared memory there are no packets
SMALL = "term-length=65536|mtu=1184|sparse=true|linger="


def test_the_channels_of_a_server() -> None:
    assert endpoint_channels.handshake_in(PLACE, WISHES) == "aeron:udp?endpoint=127.0.0.1:20000"
    assert endpoint_channels.response_out(PLACE, 7, 8, WISHES) == (
        f"aeron:udp?control-mode=response|control=127.0.0.1:20001|response-correlation-id=7|session-id=8|{SMALL}500ms"
    )
    assert endpoint_channels.link_in(PLACE, IDS, WISHES) == "aeron:udp?endpoint=127.0.0.1:20000|session-id=11"
    assert endpoint_channels.link_out(PLACE, IDS, 7, WISHES) == (
        f"aeron:udp?control-mode=response|control=127.0.0.1:20001|response-correlation-id=7|session-id=13|{TUNED}"
    )


def test_the_channels_of_a_client() -> None:
    assert (
        endpoint_channels.response_in(PLACE, None, WISHES) == "aeron:udp?control-mode=response|control=127.0.0.1:20001"
    )
    assert endpoint_channels.handshake_out(PLACE, None, 5, 6, WISHES) == (
        f"aeron:udp?endpoint=127.0.0.1:20000|response-correlation-id=5|session-id=6|{SMALL}200ms"
    )
    assert endpoint_channels.client_link_in(PLACE, None, IDS, WISHES) == (
        "aeron:udp?control-mode=dynamic|control=127.0.0.1:20001|session-id=13"
    )
    assert endpoint_channels.client_link_out(PLACE, None, IDS, WISHES, 5) == (
        f"aeron:udp?endpoint=127.0.0.1:20000|session-id=11|response-correlation-id=5|{TUNED}"
    )


@pytest.mark.parametrize("place", [PLACE, SIX, LOCAL])
@pytest.mark.parametrize("ports", [None, PORTS, ClientPorts(2_400, 2_401, "::1")])
@pytest.mark.parametrize("ids", [IDS, MDC])
def test_every_channel_is_one_that_would_be_taken_from_a_user(
    place: ServerAddress, ports: ClientPorts | None, ids: LinkIds
) -> None:
    for channel in (
        endpoint_channels.handshake_in(place, WISHES), endpoint_channels.response_out(place, 7, 8, WISHES),
        endpoint_channels.link_in(place, ids, WISHES), endpoint_channels.link_out(place, ids, 7, WISHES),
        endpoint_channels.response_in(place, ports, WISHES),
        endpoint_channels.handshake_out(place, ports, 5, 6, WISHES),
        endpoint_channels.client_link_in(place, ports, ids, WISHES),
        endpoint_channels.client_link_out(place, ports, ids, WISHES, 5),
    ):  # fmt: skip
        assert str(ChannelUri.parse(channel)) == channel


def test_the_channels_of_shared_memory_have_no_addresses() -> None:
    assert endpoint_channels.handshake_in(LOCAL, WISHES) == "aeron:ipc"
    assert endpoint_channels.response_in(LOCAL, PORTS, WISHES) == "aeron:ipc?control-mode=response"
    assert endpoint_channels.response_out(LOCAL, 7, 8, WISHES) == (
        f"aeron:ipc?control-mode=response|response-correlation-id=7|session-id=8|{SMALL}500ms"
    )
    assert endpoint_channels.handshake_out(LOCAL, PORTS, 5, 6, WISHES) == (
        f"aeron:ipc?response-correlation-id=5|session-id=6|{SMALL}200ms"
    )
    assert endpoint_channels.link_in(LOCAL, IDS, WISHES) == "aeron:ipc?session-id=11"
    assert endpoint_channels.client_link_in(LOCAL, PORTS, IDS, WISHES) == "aeron:ipc?session-id=13"
    assert endpoint_channels.link_out(LOCAL, IDS, 7, WISHES) == f"aeron:ipc?session-id=13|{WHOLE}"
    assert endpoint_channels.client_link_out(LOCAL, PORTS, IDS, WISHES, 5) == f"aeron:ipc?session-id=11|{WHOLE}"


def test_a_branch_in_shared_memory_has_longer_messages() -> None:
    assert WISHES.for_bulk_link(is_ipc=False) == WISHES
    bulk_link = WISHES.for_bulk_link(is_ipc=True)
    assert (bulk_link.term_bytes, bulk_link.max_message) == (4 << 20, 512 << 10)
    assert "term-length=4194304|mtu=65504" in endpoint_channels.link_out(LOCAL, IDS, 7, bulk_link)
    larger = ChannelSettings(term_bytes=16 << 20, max_message=1 << 20)
    assert larger.for_bulk_link(is_ipc=True) == larger


def test_row_16_publications_on_a_control_port_always_say_their_mode() -> None:
    assert "control-mode=dynamic|control=127.0.0.1:30000" in endpoint_channels.link_out(PLACE, MDC, 7, WISHES)
    for channel in (
        endpoint_channels.link_out(PLACE, IDS, 7, WISHES),
        endpoint_channels.response_out(PLACE, 7, 8, WISHES),
    ):
        assert "control-mode=response|control=127.0.0.1:20001" in channel


def test_row_17_channels_of_a_client_over_ipv6_with_ports_of_its_own_and_unreliable() -> None:
    channel_settings = ChannelSettings(reliable=False)
    assert endpoint_channels.client_link_in(SIX, PORTS, IDS, channel_settings) == (
        "aeron:udp?control-mode=dynamic|endpoint=[::]:2401|control=[::1]:20001|session-id=13|reliable=false"
    )
    assert endpoint_channels.response_in(SIX, ClientPorts(2_400, 2_401, "::1"), channel_settings) == (
        "aeron:udp?control-mode=response|endpoint=[::1]:2401|control=[::1]:20001|reliable=false"
    )
    assert endpoint_channels.client_link_out(SIX, PORTS, IDS, channel_settings, 5) == (
        f"aeron:udp?endpoint=[::1]:20000|interface=[::]:2400|session-id=11|response-correlation-id=5|{TUNED}|reliable=false"
    )
    assert endpoint_channels.client_link_in(SIX, None, MDC, channel_settings) == (
        "aeron:udp?control-mode=dynamic|control=[::1]:30000|session-id=13|reliable=false"
    )


@pytest.mark.parametrize(
    ("given", "canonical"), [("[0::1]", "::1"), ("LOCALHOST", "127.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1")]
)
def test_a_place_is_written_in_one_way(given: str, canonical: str) -> None:
    assert endpoint_channels.check_address(ServerAddress("udp", given, 1, 2), own=False).host == canonical


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_all_addresses_can_be_listened_on_and_not_called(host: str) -> None:
    assert endpoint_channels.check_address(ServerAddress("udp", host, 1, 2), own=True).host == host
    with pytest.raises(OptionError, match="no address to connect to"):
        endpoint_channels.check_address(ServerAddress("udp", host, 1, 2), own=False)


def test_a_host_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match=r"1\.2\.3"):
        endpoint_channels.check_address(ServerAddress("udp", "1.2.3", 1, 2), own=False)
