"""Handshakes while a media driver is suspended, for longer than images of unauthenticated senders last.

Run this test on a machine that has processors to spare, or with ``kernel.sched_autogroup_enabled=0``. With autogroups
and two programs that use two processors completely, Linux 6.18 gives no processor time to any media driver for 10 s
after the SIGCONT. Drivers end then by Aeron's own rules. Without autogroups 66 of 66 runs passed with the same load.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.server_handshake import ServerTiming
from tests.aeron.secure.endpoints import TIMEOUT_S, World, await_nothing_in_use, echoes
from tests.aeron.secure.tap import SentMessage, Tap
from tests.waiting import suspend

SUSPENDED_S = 2.0
NO_TIMEOUT_S = 10 * TIMEOUT_S  # for a step of a handshake: it does not end in the test


def suspend_driver(client: AeronClient) -> None:
    """Suspend the client's driver for SUSPENDED_S seconds."""
    pid = node.status(client.aeron_dir).pid
    assert pid is not None
    suspend(pid)
    threading.Timer(SUSPENDED_S, os.kill, (pid, signal.SIGCONT)).start()


@pytest.mark.full("on a busy machine Linux 6.18 gives drivers no processor time for 10 s after SIGCONT")
@pytest.mark.parametrize("packet", [handshake_packets.HELLO, handshake_packets.HELLO_ACK, handshake_packets.DONE])
@pytest.mark.parametrize("owner", ["the client's", "the server's"])
def test_a_handshake_that_a_suspended_driver_interrupts_is_started_again(world: World, owner: str, packet: int) -> None:
    address, tap = world.free_address(), Tap()
    times = ServerTiming(hello_s=NO_TIMEOUT_S, path_s=NO_TIMEOUT_S, done_s=NO_TIMEOUT_S)
    server = world.server(address, tap=tap, timing=times)
    client = world.client(address, tap=tap, timing=ClientTiming(hello_ack_s=NO_TIMEOUT_S, done_ack_s=NO_TIMEOUT_S))
    suspended: list[int] = []

    def suspend_once(message: SentMessage) -> Iterable[bytes]:
        if message.packet == packet and not suspended:
            suspended.append(packet)
            suspend_driver(world.dialling if owner == "the client's" else world.serving)
        return [message.data]

    tap.change = suspend_once
    client.connect(TIMEOUT_S)
    assert suspended
    assert echoes(client, "connected")
    client.close()
    await_nothing_in_use(server)
