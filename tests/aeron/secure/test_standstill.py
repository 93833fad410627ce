"""Handshakes while a media driver stands still, for longer than its images of strangers live."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import Client
from aeron_spark.client.settings import ClientTiming
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.server_handshake import ServerTiming
from tests.aeron.secure.ends import PATIENCE, World, echoes, nothing_held
from tests.aeron.secure.tapped import Said, Tap

STANDSTILL = 2.0  # seconds
NEVER = 10 * PATIENCE  # for a step: nobody waits for its end


def stand_still(client: Client) -> None:
    """Freeze its driver, and let it go on by itself."""
    pid = node.status(client.aeron_dir).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(STANDSTILL, os.kill, (pid, signal.SIGCONT)).start()


@pytest.mark.parametrize("packet", [handshake_packets.HELLO, handshake_packets.HELLO_ACK, handshake_packets.DONE])
@pytest.mark.parametrize("side", ["the client's", "the server's"])
def test_a_handshake_that_a_standstill_took_apart_is_begun_anew(world: World, side: str, packet: int) -> None:
    place, tap = world.place(), Tap()
    times = ServerTiming(hello_s=NEVER, path_s=NEVER, done_s=NEVER)
    server = world.server(place, tap=tap, timing=times)
    client = world.client(place, tap=tap, timing=ClientTiming(hello_ack_s=NEVER, done_ack_s=NEVER))
    frozen: list[int] = []

    def freeze_once(said: Said) -> Iterable[bytes]:
        if said.packet == packet and not frozen:
            frozen.append(packet)
            stand_still(world.dialling if side == "the client's" else world.serving)
        return [said.data]

    tap.change = freeze_once
    client.connect(PATIENCE)
    assert frozen
    assert echoes(client, "here after all")
    client.close()
    nothing_held(server)
