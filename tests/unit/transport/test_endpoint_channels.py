"""The exact channels of client and server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.transport import endpoint_channels
from aeron_spark.transport.api import ChannelSettings, LinkIds, ServerAddress
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.transport.endpoint_channels import ClientPorts

IPV4 = ServerAddress("udp", "127.0.0.1", 20_000, 20_001)
IPV6 = ServerAddress("udp", "::1", 20_000, 20_001)
IPC = ServerAddress("ipc")
IDS = LinkIds(11, 12, 13, 14)
MDC = LinkIds(11, 12, 13, 14, mdc_port=30_000)
SETTINGS = ChannelSettings()
PORTS = ClientPorts(2_400, 2_401)
UDP_PARAMETERS = "term-length=2097152|mtu=1184|sparse=true|linger=500ms"
IPC_PARAMETERS = "term-length=2097152|mtu=65504|sparse=true|linger=500ms"  # shared memory has no packets
HANDSHAKE_PARAMETERS = "term-length=65536|mtu=1184|sparse=true|linger="


def test_the_channels_of_a_server() -> None:
    assert endpoint_channels.handshake_in(IPV4, SETTINGS) == "aeron:udp?endpoint=127.0.0.1:20000"
    assert endpoint_channels.response_out(IPV4, 7, 8, SETTINGS) == (
        f"aeron:udp?control-mode=response|control=127.0.0.1:20001|response-correlation-id=7|session-id=8|{HANDSHAKE_PARAMETERS}500ms"
    )
    assert endpoint_channels.link_in(IPV4, IDS, SETTINGS) == "aeron:udp?endpoint=127.0.0.1:20000|session-id=11"
    assert endpoint_channels.link_out(IPV4, IDS, 7, SETTINGS) == (
        f"aeron:udp?control-mode=response|control=127.0.0.1:20001|response-correlation-id=7|session-id=13|{UDP_PARAMETERS}"
    )


def test_the_channels_of_a_client() -> None:
    assert (
        endpoint_channels.response_in(IPV4, None, SETTINGS) == "aeron:udp?control-mode=response|control=127.0.0.1:20001"
    )
    assert endpoint_channels.handshake_out(IPV4, None, 5, 6, SETTINGS) == (
        f"aeron:udp?endpoint=127.0.0.1:20000|response-correlation-id=5|session-id=6|{HANDSHAKE_PARAMETERS}200ms"
    )
    assert endpoint_channels.client_link_in(IPV4, None, IDS, SETTINGS) == (
        "aeron:udp?control-mode=dynamic|control=127.0.0.1:20001|session-id=13"
    )
    assert endpoint_channels.client_link_out(IPV4, None, IDS, SETTINGS, 5) == (
        f"aeron:udp?endpoint=127.0.0.1:20000|session-id=11|response-correlation-id=5|{UDP_PARAMETERS}"
    )


@pytest.mark.parametrize("address", [IPV4, IPV6, IPC])
@pytest.mark.parametrize("ports", [None, PORTS, ClientPorts(2_400, 2_401, "::1")])
@pytest.mark.parametrize("ids", [IDS, MDC])
def test_each_channel_passes_the_checks_of_a_users_channel(
    address: ServerAddress, ports: ClientPorts | None, ids: LinkIds
) -> None:
    for channel in (
        endpoint_channels.handshake_in(address, SETTINGS), endpoint_channels.response_out(address, 7, 8, SETTINGS),
        endpoint_channels.link_in(address, ids, SETTINGS), endpoint_channels.link_out(address, ids, 7, SETTINGS),
        endpoint_channels.response_in(address, ports, SETTINGS),
        endpoint_channels.handshake_out(address, ports, 5, 6, SETTINGS),
        endpoint_channels.client_link_in(address, ports, ids, SETTINGS),
        endpoint_channels.client_link_out(address, ports, ids, SETTINGS, 5),
    ):  # fmt: skip
        assert str(ChannelUri.parse(channel)) == channel


def test_the_channels_of_shared_memory_have_no_addresses() -> None:
    assert endpoint_channels.handshake_in(IPC, SETTINGS) == "aeron:ipc"
    assert endpoint_channels.response_in(IPC, PORTS, SETTINGS) == "aeron:ipc?control-mode=response"
    assert endpoint_channels.response_out(IPC, 7, 8, SETTINGS) == (
        f"aeron:ipc?control-mode=response|response-correlation-id=7|session-id=8|{HANDSHAKE_PARAMETERS}500ms"
    )
    assert endpoint_channels.handshake_out(IPC, PORTS, 5, 6, SETTINGS) == (
        f"aeron:ipc?response-correlation-id=5|session-id=6|{HANDSHAKE_PARAMETERS}200ms"
    )
    assert endpoint_channels.link_in(IPC, IDS, SETTINGS) == "aeron:ipc?session-id=11"
    assert endpoint_channels.client_link_in(IPC, PORTS, IDS, SETTINGS) == "aeron:ipc?session-id=13"
    assert endpoint_channels.link_out(IPC, IDS, 7, SETTINGS) == f"aeron:ipc?session-id=13|{IPC_PARAMETERS}"
    assert (
        endpoint_channels.client_link_out(IPC, PORTS, IDS, SETTINGS, 5) == f"aeron:ipc?session-id=11|{IPC_PARAMETERS}"
    )


def test_the_messages_of_a_bulk_link_are_as_long_as_its_terms_allow() -> None:
    over_udp = SETTINGS.for_bulk_link(is_ipc=False)
    assert (over_udp.term_bytes, over_udp.max_message) == (2 << 20, 256 << 10)
    short_terms = ChannelSettings(term_bytes=64 << 10, max_message=4_000)
    assert short_terms.for_bulk_link(is_ipc=False) == replace(short_terms, max_message=8 << 10, own_socket=True)
    # A reader takes at most 1 MiB at once.
    assert ChannelSettings(term_bytes=64 << 20).for_bulk_link(is_ipc=False).max_message == 512 << 10


def test_a_bulk_link_in_shared_memory_has_longer_terms_and_messages() -> None:
    bulk_link = SETTINGS.for_bulk_link(is_ipc=True)
    assert (bulk_link.term_bytes, bulk_link.max_message) == (4 << 20, 512 << 10)
    assert "term-length=4194304|mtu=65504" in endpoint_channels.link_out(IPC, IDS, 7, bulk_link)
    larger = ChannelSettings(term_bytes=16 << 20, max_message=1 << 20)
    assert larger.for_bulk_link(is_ipc=True) == larger
    assert larger.for_bulk_link(is_ipc=False) == replace(larger, own_socket=True)


def test_a_client_receives_each_bulk_link_on_a_socket_of_its_own_unless_its_ports_are_fixed() -> None:
    bulk_link = SETTINGS.for_bulk_link(is_ipc=False)
    assert endpoint_channels.client_link_in(IPV4, None, IDS, bulk_link) == (
        "aeron:udp?control-mode=dynamic|endpoint=0.0.0.0:0|control=127.0.0.1:20001|session-id=13"
    )
    assert endpoint_channels.client_link_in(IPV6, None, MDC, bulk_link) == (
        "aeron:udp?control-mode=dynamic|endpoint=[::]:0|control=[::1]:30000|session-id=13"
    )
    for channel_settings in (SETTINGS, bulk_link):
        channel = endpoint_channels.client_link_in(IPV4, PORTS, IDS, channel_settings)
        assert "|endpoint=0.0.0.0:2401|" in channel


def test_row_16_each_publication_on_a_control_port_has_a_control_mode() -> None:
    assert "control-mode=dynamic|control=127.0.0.1:30000" in endpoint_channels.link_out(IPV4, MDC, 7, SETTINGS)
    for channel in (
        endpoint_channels.link_out(IPV4, IDS, 7, SETTINGS),
        endpoint_channels.response_out(IPV4, 7, 8, SETTINGS),
    ):
        assert "control-mode=response|control=127.0.0.1:20001" in channel


def test_row_17_unreliable_channels_of_a_client_over_ipv6_with_local_ports() -> None:
    channel_settings = ChannelSettings(reliable=False)
    assert endpoint_channels.client_link_in(IPV6, PORTS, IDS, channel_settings) == (
        "aeron:udp?control-mode=dynamic|endpoint=[::]:2401|control=[::1]:20001|session-id=13|reliable=false"
    )
    assert endpoint_channels.response_in(IPV6, ClientPorts(2_400, 2_401, "::1"), channel_settings) == (
        "aeron:udp?control-mode=response|endpoint=[::1]:2401|control=[::1]:20001|reliable=false"
    )
    assert endpoint_channels.client_link_out(IPV6, PORTS, IDS, channel_settings, 5) == (
        f"aeron:udp?endpoint=[::1]:20000|interface=[::]:2400|session-id=11|response-correlation-id=5|{UDP_PARAMETERS}|reliable=false"
    )
    assert endpoint_channels.client_link_in(IPV6, None, MDC, channel_settings) == (
        "aeron:udp?control-mode=dynamic|control=[::1]:30000|session-id=13|reliable=false"
    )


@pytest.mark.parametrize(
    ("text", "canonical"), [("[0::1]", "::1"), ("LOCALHOST", "127.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1")]
)
def test_a_host_is_made_canonical(text: str, canonical: str) -> None:
    assert endpoint_channels.check_address(ServerAddress("udp", text, 1, 2), own=False).host == canonical


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_only_a_server_can_use_a_wildcard(host: str) -> None:
    assert endpoint_channels.check_address(ServerAddress("udp", host, 1, 2), own=True).host == host
    with pytest.raises(OptionError, match="cannot connect to the wildcard"):
        endpoint_channels.check_address(ServerAddress("udp", host, 1, 2), own=False)


def test_an_invalid_host_is_refused() -> None:
    with pytest.raises(OptionError, match=r"1\.2\.3"):
        endpoint_channels.check_address(ServerAddress("udp", "1.2.3", 1, 2), own=False)
