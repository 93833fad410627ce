"""A server's settings are made from its options, given as texts or as values of a program."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.access import Candidate, Filters
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.transport.api import ServerAddress


def parsed(options: dict[str, object]) -> ServerOptions:
    return ServerOptions.parse("", options)


def refused(*address: str, **options: object) -> str:
    with pytest.raises(OptionError) as caught:
        ServerOptions.parse(address[0] if address else "", options)
    assert caught.value.remedy
    return str(caught.value)


def test_the_defaults() -> None:
    options = ServerOptions.parse()
    assert (options.admission, options.timing) == (Limits(), ServerTiming())
    assert options.filters.refusal(Candidate(None, "", b"")) is None
    assert options.addresses == (ServerAddress("udp", "0.0.0.0", 20121, 20122),)
    assert (options.idle, options.aeron_dir, options.identity, options.authorized_keys) == ("backoff", None, None, None)


def test_every_option_reaches_its_group() -> None:
    options = parsed(
        {
            "max_connections": 1, "max_connections_per_address": 2, "max_pending": 3, "max_pending_per_address": 4,
            "handshakes_per_second": 0.5, "handshake_burst": 6, "exempt_loopback": True, "max_sessions": 7,
            "max_connections_per_key": 8, "deciders": 9, "step_timeout": "4s", "session_id_range": "1000-1999",
            "reply_channel": "mdc", "mdc_ports": "20200-20299",
        }
    )  # fmt: skip
    assert options.admission == Limits(1, 2, 3, 4, 0.5, 6, exempt_loopback=True)
    assert (options.max_sessions, options.max_connections_per_key, options.deciders) == (7, 8, 9)
    timing = options.timing
    assert (timing.hello_s, timing.admitting_s, timing.path_s, timing.done_s, timing.authenticating_s) == (
        2,
        2,
        4,
        4,
        4,
    )
    assert options.session_id_range == (1000, 1999)
    assert (options.reply_channel, options.mdc_ports) == ("mdc", (20200, 20299))


def test_an_address_argument_means_bind() -> None:
    assert ServerOptions.parse("10.0.0.7:1").addresses == ServerOptions.parse("", {"bind": "10.0.0.7:1"}).addresses
    assert "given twice" in refused("10.0.0.7:1", bind="10.0.0.8:1")


def test_ports_apply_to_addresses_without_a_port() -> None:
    addresses = ServerOptions.parse("", {"bind": ["10.0.0.7", "[::1]:5"], "ports": "2000,2007"}).addresses
    assert addresses == (ServerAddress("udp", "10.0.0.7", 2000, 2007), ServerAddress("udp", "::1", 5, 6))


@pytest.mark.parametrize("ports", ["2000,2000", "0,1", "70000,1"])
def test_row_20_invalid_ports_are_refused(ports: str) -> None:
    assert refused(ports=ports).startswith("option 'ports' must be ")


def test_shared_memory_is_listened_on_once() -> None:
    ipc = ServerAddress("ipc")
    assert ipc in ServerOptions.parse("10.0.0.7:1", {"ipc": "always"}).addresses
    assert ServerOptions.parse("ipc:", {"ipc": "always"}).addresses == (ipc,)
    assert ServerOptions.parse("ipc:").optional_addresses == ()


def test_shared_memory_is_optional_by_default() -> None:
    ipc = ServerAddress("ipc")
    default, never = ServerOptions.parse("10.0.0.7:1"), ServerOptions.parse("10.0.0.7:1", {"ipc": "never"})
    assert (ipc in default.addresses, default.optional_addresses) == (False, (ipc,))
    assert (ipc in never.addresses, never.optional_addresses) == (False, ())
    assert "'ipc' is 'never', but an address of the server is ipc:" in refused("10.0.0.7:1,ipc:", ipc="never")


def test_an_address_and_aeron_dir_must_name_the_same_media_driver() -> None:
    assert ServerOptions.parse("ipc:/dev/shm/a").aeron_dir == "/dev/shm/a"
    assert ServerOptions.parse("ipc:/dev/shm/a", {"aeronDir": "/dev/shm/a"}).aeron_dir == "/dev/shm/a"
    assert "several media drivers, expected one" in refused("ipc:/dev/shm/a", aeronDir="/dev/shm/b")


def test_row_26_networks_and_functions_can_be_combined_in_a_filter() -> None:
    candidates: list[Candidate] = []

    def is_desk(candidate: Candidate) -> bool:
        candidates.append(candidate)
        return candidate.tag == "desk"

    def refusal(filters: Filters, tag: str, address: str | None) -> str | None:
        import ipaddress

        refusal_ = filters.refusal(Candidate(ipaddress.ip_address(address) if address else None, tag, b""))
        return None if refusal_ is None else refusal_.code

    filters = parsed({"allow": ["10.0.0.0/8", is_desk], "deny": "10.66.0.0/16"}).filters
    assert refusal(filters, "", "10.0.0.1") is None
    assert refusal(filters, "", "10.66.0.1") == "not-permitted"
    assert refusal(filters, "desk", "192.0.2.1") is None
    assert refusal(filters, "other", "192.0.2.1") == "not-permitted"
    assert candidates


def test_a_function_alone_is_a_filter() -> None:
    filters = parsed({"allow": lambda candidate: candidate.tag == "ok"}).filters
    assert filters.refusal(Candidate(None, "ok", b"")) is None
    assert filters.refusal(Candidate(None, "no", b"")) is not None


def test_row_27_a_network_with_an_impossible_prefix_is_refused() -> None:
    assert refused(allow="10.0.0.0/33").startswith("option 'allow': the rule '10.0.0.0/33'")
    assert refused(deny=["::/129"]).startswith("option 'deny': the rule '::/129'")


def test_a_server_admits_any_key_only_with_the_option_for_it() -> None:
    assert parsed({"allow_any_key": True}).allow_any_key
    assert not parsed({}).allow_any_key
    assert not parsed({"authorized_keys": "clients"}).allow_any_key
    assert ServerOptions.parse("", {"authorized_keys": "clients"}).authorized_keys == "clients"


def test_reply_channel_mdc_and_its_ports_need_each_other() -> None:
    assert "needs 'mdcPorts'" in refused(reply_channel="mdc")
    assert "needs replyChannel 'mdc'" in refused(mdcPorts="20200-20299")
    assert "contains the control port 20122" in refused("0.0.0.0:20121", reply_channel="mdc", mdcPorts="20122-20130")
    assert "option 'mdcPorts' must be a range" in refused(reply_channel="mdc", mdcPorts="70000-70001")


def test_the_error_for_an_unknown_option_suggests_the_nearest() -> None:
    assert "Did you mean 'maxConnections'?" in refused(max_connectoins=1)
    assert "'tag' is only for a client" in refused(tag="x")


def test_row_56_a_session_timeout_below_60_s_is_refused() -> None:
    assert "expected at least 60 s" in refused(session_timeout="30")
