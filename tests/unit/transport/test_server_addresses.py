"""Addresses of servers and clients: ports, brackets, wildcards, shared memory, and invalid texts."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import (
    ClientPorts,
    EndpointAddress,
    client_ports,
    port_pair,
    server_address,
    server_addresses,
)


def parse(text: str, ports: tuple[int, int] | None = None) -> list[ServerAddress]:
    return [one.address for one in server_addresses(text, ports)]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7:20121", ServerAddress("udp", "10.0.0.7", 20121, 20122)),
        ("10.0.0.7:20121:30000", ServerAddress("udp", "10.0.0.7", 20121, 30000)),
        ("Feeds.Example:1", ServerAddress("udp", "feeds.example", 1, 2)),
        ("[::1]:20121", ServerAddress("udp", "::1", 20121, 20122)),
        ("[0:0::1]:20121:7", ServerAddress("udp", "::1", 20121, 7)),
        ("[::ffff:10.0.0.7]:20121", ServerAddress("udp", "10.0.0.7", 20121, 20122)),
        ("localhost:20121", ServerAddress("udp", "127.0.0.1", 20121, 20122)),
        ("ipc:", ServerAddress("ipc")),
    ],
)
def test_an_address_is_parsed(text: str, address: ServerAddress) -> None:
    assert parse(text) == [address]
    assert server_address(text) == EndpointAddress(address)


def test_the_wildcard_is_one_socket_for_ipv4_and_ipv6() -> None:
    assert parse("*:20121") == [ServerAddress("udp", "::", 20121, 20122)]
    assert parse("0.0.0.0:20121") == [ServerAddress("udp", "0.0.0.0", 20121, 20122)]


@pytest.mark.parametrize("text", ["*:20121", "0.0.0.0:20121", "[::]:20121"])
def test_a_client_cannot_connect_to_a_wildcard(text: str) -> None:
    with pytest.raises(OptionError):
        server_address(text)


def test_shared_memory_may_name_its_media_driver() -> None:
    assert server_address("ipc:/dev/shm/x") == EndpointAddress(ServerAddress("ipc"), "/dev/shm/x")
    assert server_address("ipc:").is_ipc


def test_several_addresses_are_separated_by_commas() -> None:
    assert [one.host for one in parse("10.0.0.7:20121, [::1]:20121 ,ipc:")] == ["10.0.0.7", "::1", "127.0.0.1"]


def test_an_address_without_ports_gets_the_default_ports() -> None:
    assert parse("10.0.0.7,[::1]:1", (2000, 2005)) == [
        ServerAddress("udp", "10.0.0.7", 2000, 2005),
        ServerAddress("udp", "::1", 1, 2),
    ]
    with pytest.raises(OptionError, match="has no port"):
        parse("10.0.0.7")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not host:port"),
        (":20121", "not host:port"),
        ("::1:20121", "not host:port"),
        ("10.0.0.7:port", "not host:port"),
        ("10.0.0.7:1:2:3", "not host:port"),
        ("ipc:x", "not host:port"),
        ("[10.0.0.7]:20121", "no IPv6 address in its brackets"),
        ("[feeds]:20121", "no IPv6 address in its brackets"),
        ("10.0.7:20121", "IPv4 address"),
        ("10.0.0.7:1,10.0.0.7:1", "twice"),
        ("ipc:,ipc:", "twice"),
        ("10.0.0.7:1,10.0.0.7:2", "data port 2 of 10.0.0.7 is the control port"),
        ("10.0.0.7:1,", "not host:port"),
    ],
)
def test_an_invalid_server_address_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse(text)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["h:0", "h:65536", "h:65535", "h:1:0", "h:1:65536", "h:2000:2000", "h:999999999"])
def test_row_20_ports_of_an_address_are_checked(text: str) -> None:
    with pytest.raises(OptionError, match="port") as caught:
        parse(text)
    assert caught.value.remedy


@pytest.mark.parametrize(("text", "ports"), [("2000", (2000, 2001)), ("2000,1", (2000, 1)), ("65535 , 1", (65535, 1))])
def test_a_pair_of_ports_is_parsed(text: str, ports: tuple[int, int]) -> None:
    assert port_pair(text) == ports


@pytest.mark.parametrize("text", ["2000,2000", "0,1", "70000,1", "1,0", "1,70000", "65535", "", "a,b", "1,2,3", "-1,2"])
def test_row_20_an_invalid_pair_of_ports_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="port"):
        port_pair(text)


def test_local_ports_of_a_client_are_parsed() -> None:
    assert client_ports("0.0.0.0:20400") == ClientPorts(20400, 20401, "0.0.0.0")
    assert client_ports("[::1]:20400:9") == ClientPorts(20400, 9, "::1")
    for text in ("ipc:", "10.0.0.7", "10.0.0.7:5:5", "nonsense"):
        with pytest.raises(OptionError):
            client_ports(text)
