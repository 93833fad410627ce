"""A minute in which nobody says anything. It has begun before the other tests here, and is mostly over."""

from __future__ import annotations

import time

import pytest

from tests.net.conftest import Silence
from tests.net.namespaces import ROUTER
from tests.net.programs import await_received, events

SILENCE = 60.0  # seconds; the router forgets what is silent for 30


@pytest.mark.full("a minute of four JVMs that say nothing")
def test_row_18_a_client_behind_masquerade_gets_replies_also_after_60_s_of_silence(silence: Silence) -> None:
    server, client, tag = silence.server, silence.client, silence.tag
    assert server.ask("statistics")["addresses"][tag][0] == ROUTER
    time.sleep(max(0.0, silence.since + SILENCE - time.monotonic()))
    server.ask("send", tag=tag, first=100, count=100)
    await_received(client, tag, 200)
    client.ask("send", first=100, count=100)
    await_received(server, tag, 200)
    assert events(server, tag) == events(client, tag) == ["init", "connect"]
