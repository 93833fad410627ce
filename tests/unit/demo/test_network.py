"""Where the second act takes place on a machine that can have no namespaces."""

from __future__ import annotations

import pytest

import demo.network
from aeron_spark.transport.endpoint_channels import server_address


def test_without_namespaces_it_is_loopback_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.network, "why_not", lambda: "network namespaces need root")
    with demo.network.network() as found:
        assert found.words.endswith("over loopback, as there is no NAT here: network namespaces need root")
        assert found.at_server == found.at_client == ()
        place = server_address(found.address).address
        assert (place.host, place.media) == ("127.0.0.1", "udp")
        assert place.data_port != place.control_port


def test_two_demos_over_loopback_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.network, "why_not", lambda: "there is no ip")
    with demo.network.network() as first, demo.network.network() as second:
        assert first.address != second.address


def test_namespaces_that_cannot_be_set_up_are_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> None:
        raise OSError("Read-only file system")

    monkeypatch.setattr(demo.network, "why_not", str)
    monkeypatch.setattr(demo.network, "Namespace", refuse)
    with demo.network.network() as found:
        assert found.words.endswith("they cannot be set up: Read-only file system")
