"""A connection works after a minute without messages, which starts before the other tests of this folder."""

from __future__ import annotations

import time

import pytest

from tests.net.conftest import Silence
from tests.net.namespaces import ROUTER
from tests.net.programs import await_received, events

SILENCE_S = 60.0  # the router removes an unused mapping after 30 s


@pytest.mark.full("a minute of four idle JVMs")
def test_row_18_a_client_behind_nat_receives_messages_after_60_s_of_silence(silence: Silence) -> None:
    server, client, tag = silence.server, silence.client, silence.tag
    assert server.request("statistics")["addresses"][tag][0] == ROUTER
    time.sleep(max(0.0, silence.since + SILENCE_S - time.monotonic()))
    server.request("send", tag=tag, first=100, count=100)
    await_received(client, tag, 200)
    client.request("send", first=100, count=100)
    await_received(server, tag, 200)
    assert events(server, tag) == events(client, tag) == ["init", "connect"]
