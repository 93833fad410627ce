"""A client's options and the address of its server."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.keypair import keypair_from, public_text
from aeron_spark.transport.api import ServerAddress
from aeron_spark.transport.endpoint_channels import ClientPorts

KEY = keypair_from(b"k" * 32).public


def parsed(options: dict[str, object]) -> ClientOptions:
    return ClientOptions.parse("", options)


def refused(address: str = "feeds.example:20121", **options: object) -> str:
    with pytest.raises(OptionError) as caught:
        ClientOptions.parse(address, options)
    return str(caught.value)


def test_the_defaults_of_a_parsed_and_of_a_made_object_are_equal() -> None:
    assert parsed({}) == ClientOptions(ipc="only")
    options = ClientOptions.parse("feeds.example:20121")
    assert options.server_address == ServerAddress("udp", "feeds.example", 20121, 20122)
    assert (options.ipc, options.idle, options.bind, options.aeron_dir) == ("auto", "backoff", None, None)
    assert (options.identity, options.known_servers) == (None, None)


def test_each_option_sets_its_field() -> None:
    options = parsed(
        {
            "tag": "desk-7", "step_timeout": "4s", "connect_timeout": "5s", "first_pause": "1s",
            "longest_pause": "2s", "server_key": public_text(KEY), "trust_first_use": False, "reconnect": False,
        }
    )  # fmt: skip
    assert (options.tag, options.connect_timeout, options.server_key) == ("desk-7", 5, KEY)
    assert (options.timing.hello_ack_s, options.timing.done_ack_s) == (4, 4)
    assert (options.first_pause, options.longest_pause) == (1, 2)
    assert not options.trust_first_use
    assert not options.reconnect
    assert not parsed({"validate": False}).validate


def test_a_key_can_be_bytes() -> None:
    assert parsed({"server_key": KEY}).server_key == KEY


@pytest.mark.parametrize("key", ["nonsense", "aeron-spark:short", bytes(32)])
def test_a_malformed_key_is_refused(key: object) -> None:
    assert "option 'serverKey'" in refused(server_key=key)


@pytest.mark.parametrize("timeout", [0, "0", 0.0, "0s"])
def test_row_12_a_connect_timeout_of_zero_is_until_closed(timeout: object) -> None:
    assert parsed({"connect_timeout": timeout}).connect_timeout == 0


def test_row_29_a_tag_has_32_characters_at_most() -> None:
    assert parsed({"tag": "x" * 32}).tag == "x" * 32
    assert "longer than 32 characters" in refused(tag="x" * 33)


def test_options_that_conflict_are_refused() -> None:
    assert "'serverKey'" in refused(server_key=KEY, validate=False)
    assert "'firstPause' (9 s) is longer" in refused(first_pause="9s", longest_pause="8s")
    assert "'ipc' is 'never'" in refused("ipc:", ipc="never")
    assert "'aeronDir' is /dev/shm/a" in refused("ipc:/dev/shm/b", aeron_dir="/dev/shm/a")


def test_without_an_address_the_client_uses_shared_memory_only() -> None:
    for address in ("", "ipc:", "ipc:/dev/shm/x"):
        options = ClientOptions.parse(address)
        assert (options.ipc, options.server_address.media) == ("only", "ipc")
    assert ClientOptions.parse("ipc:/dev/shm/x").aeron_dir == "/dev/shm/x"


def test_row_21_the_option_bind_sets_the_clients_ports() -> None:
    assert ClientOptions.parse("h:1", {"bind": "127.0.0.1:2400"}).bind == ClientPorts(2400, 2401, "127.0.0.1")
    assert "option 'bind': the data port is 0" in refused(bind="127.0.0.1:0")


@pytest.mark.parametrize("address", ["feeds.example", "feeds.example:0", "h:70000", "h:1:1", "0.0.0.0:20121", "*:1"])
def test_row_20_an_invalid_address_is_refused(address: str) -> None:
    assert refused(address)


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert "Did you mean 'connectTimeout'?" in refused(conect_timeout=1)
    assert "'maxConnections' is only for a server" in refused(max_connections=1)
