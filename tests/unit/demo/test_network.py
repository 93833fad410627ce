"""The network of the second act on a machine without network namespaces."""

from __future__ import annotations

import pytest

import demo.network
from aeron_spark.transport.endpoint_channels import server_address


def test_loopback_is_used_without_namespaces_and_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.network, "why_not", lambda: "network namespaces need root")
    with demo.network.network() as found:
        assert found.description.endswith("over loopback, without NAT: network namespaces need root")
        assert found.at_server == found.at_client == ()
        place = server_address(found.address).address
        assert (place.host, place.media) == ("127.0.0.1", "udp")
        assert place.data_port != place.control_port


def test_two_demos_over_loopback_use_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.network, "why_not", lambda: "there is no ip")
    with demo.network.network() as first, demo.network.network() as second:
        assert first.address != second.address


def test_the_reason_for_a_failed_setup_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> None:
        raise OSError("Read-only file system")

    monkeypatch.setattr(demo.network, "why_not", str)
    monkeypatch.setattr(demo.network, "Namespace", refuse)
    with demo.network.network() as found:
        assert found.description.endswith("they cannot be set up: Read-only file system")
