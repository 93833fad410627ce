"""A capture of all packets does not show the messages of a connection."""

from __future__ import annotations

import pytest

from tests.net.capture import Capture
from tests.net.namespaces import SERVER
from tests.net.programs import Programs, await_received

MARKER = "SECRETMARK-0123456789"


@pytest.mark.sampled
def test_row_39_a_capture_shows_a_marker_of_a_plain_publication_and_not_of_a_connection(programs: Programs) -> None:
    server, client = programs.pair("secret")
    site = programs.site
    with Capture(site.clients[0], "c1") as near, Capture(site.server, "s0") as far:
        client.request("connect")
        client.request("send", count=300, size=500, marker=MARKER)
        server.request("send", tag="secret", count=300, size=500, marker=MARKER)
        await_received(server, "secret", 300)
        await_received(client, "secret", 300)
        for capture in (near, far):
            assert len(capture.packets) > 300  # at least the packets of the messages
            assert capture.count(MARKER.encode()) == 0
            assert capture.count(b"secret") == 0  # the tag is encrypted, too

        server.request("listen_plain", channel=f"aeron:udp?endpoint={SERVER}:30000")
        client.request("publish_plain", channel=f"aeron:udp?endpoint={SERVER}:30000", text=MARKER)
        for capture in (near, far):
            assert capture.wait_for(lambda packet: MARKER.encode() in packet, 5)
