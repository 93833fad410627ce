"""What somebody sees who captures every packet."""

from __future__ import annotations

from tests.net.capture import Capture
from tests.net.namespaces import SERVER
from tests.net.programs import Programs, await_received

MARKER = "SECRETMARK-0123456789"


def test_row_39_a_marker_is_never_seen_of_an_encrypted_duologue_and_is_of_a_plain_publication(
    programs: Programs,
) -> None:
    server, client = programs.pair("secret")
    site = programs.site
    with Capture(site.clients[0], "c1") as near, Capture(site.server, "s0") as far:
        client.ask("connect")
        client.ask("send", count=300, size=500, marker=MARKER)
        server.ask("send", tag="secret", count=300, size=500, marker=MARKER)
        await_received(server, "secret", 300)
        await_received(client, "secret", 300)
        for seen in (near, far):
            assert len(seen.packets) > 300  # what carried the messages, at the least
            assert seen.count(MARKER.encode()) == 0
            assert seen.count(b"secret") == 0  # the tag is not for everybody, either

        server.ask("listen_plain", channel=f"aeron:udp?endpoint={SERVER}:30000")
        client.ask("publish_plain", channel=f"aeron:udp?endpoint={SERVER}:30000", text=MARKER)
        for seen in (near, far):
            assert seen.wait_for(lambda packet: MARKER.encode() in packet, 5)
