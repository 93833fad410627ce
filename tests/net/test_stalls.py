"""One receiver that takes nothing stalls nobody else, whether it sleeps or lies."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from aeron_spark.transport.api import HANDSHAKE_STREAM_ID
from tests.aeron.guard.frames import status_message
from tests.net.capture import Capture
from tests.net.injection import Seen, newest
from tests.net.namespaces import SERVER, SERVER6, udp_socket
from tests.net.programs import ADDRESS, ADDRESS6, Program, Programs, await_received, eventually

GOOD, BAD = "good", "bad"
CONTROL_PORT: Final = 20122
MDC_PORTS: Final = range(20_200, 20_210)
LOAD: Final = {"count": 1_000, "size": 20_000}  # more than what every buffer on the way holds together
PINGED_SECONDS: Final = 2.0
RECEIVER: Final = 7  # an id like any other


@pytest.mark.full("six JVMs; tests/aeron/secure/test_many.py freezes a client on one machine")
def test_a_frozen_receiver_stalls_nobody(programs: Programs) -> None:
    server, good, bad = programs.apart(GOOD, BAD)
    for client in (good, bad):
        client.ask("connect")
    bad.freeze()
    server.ask("begin_send", tag=BAD, **LOAD)
    _served(server, good, 0)  # while the other program is frozen
    driver = programs.driver_of(bad)
    driver.freeze()
    _served(server, good, 200)  # and its driver, too
    driver.thaw()
    bad.thaw()
    server.ask("end_send")
    await_received(bad, BAD, LOAD["count"])


BEHIND_NAT, OVER_IPV6 = ("10.77.2.1", ADDRESS, SERVER), ("2001:db8:77:2::1", ADDRESS6, SERVER6)


@pytest.mark.parametrize(
    ("source", "address", "host", "duologue"),
    [
        pytest.param(*BEHIND_NAT, "response", id="behind one NAT"),
        pytest.param(*BEHIND_NAT, "mdc", id="behind one NAT with mdc", marks=pytest.mark.full("six JVMs")),
        pytest.param(*OVER_IPV6, "response", id="over IPv6", marks=pytest.mark.full("six JVMs")),
    ],
)
def test_status_messages_of_another_client_that_say_window_0_stall_nobody(
    programs: Programs, source: str, address: str, host: str, duologue: str
) -> None:
    """Behind the NAT the liar has the good client's address, and its own port there."""
    more = {"replyChannel": "mdc", "mdcPorts": f"{MDC_PORTS[0]}-{MDC_PORTS[-1]}"} if duologue == "mdc" else {}
    ports = MDC_PORTS if more else [CONTROL_PORT]
    server, good, bad = programs.pair(GOOD, BAD, bind=address, address=address, server=more)
    with Capture(programs.site.clients[0], "c1") as near, Capture(programs.site.clients[1], "c2") as far:
        for tag, client in ((GOOD, good), (BAD, bad)):
            client.ask("connect")
            server.ask("send", tag=tag, count=10)
            await_received(client, tag, 10)
        seen = server.ask("statistics")["addresses"]
        assert (seen[GOOD][0] == seen[BAD][0]) == (address is ADDRESS)
        with (
            udp_socket(programs.site.clients[1], (source, 0)) as hostile,
            _lying(hostile, host, ports, near, far) as said,
        ):
            eventually(lambda: said[0], lambda count: count > 200)
            server.ask("send", tag=GOOD, first=10, count=2_000, size=1_000)  # more than fits any window
            await_received(good, GOOD, 2_010)
            at = said[0]
            eventually(lambda: said[0], lambda count: count > at + 200)
            server.ask("send", tag=GOOD, first=2_010, count=2_000, size=1_000)
            await_received(good, GOOD, 4_010)
    drops = server.ask("counters")["drops"]
    # by dynamic MDC everybody of the owner's address is a receiver, and the slowest one does not count
    assert (drops["sending: foreign"] > 100) == (duologue == "response"), drops


def _last_of(capture: Capture, ports: Sequence[int]) -> Seen:
    """Return the last data frame of a duologue that the server has sent."""
    return next(one for one in newest(capture) if one.port_from in ports and one.stream != HANDSHAKE_STREAM_ID)


@contextmanager
def _lying(hostile: socket.socket, host: str, ports: Sequence[int], *captures: Capture) -> Iterator[list[int]]:
    """Say of each captured stream, all the time, that its receiver has no room; yield how often it was said."""
    stop, said = threading.Event(), [0]

    def lie() -> None:
        while not stop.wait(0.005):
            for capture in captures:
                last = _last_of(capture, ports)
                frame = status_message(
                    last.session, last.stream, RECEIVER, term=last.term, offset=last.offset, window=0
                )
                hostile.sendto(frame, (host, last.port_from))
                said[0] += 1

    thread = threading.Thread(target=lie)
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join()


def _served(server: Program, client: Program, first: int) -> None:
    server.ask("send", tag=GOOD, first=first, count=200)
    await_received(client, GOOD, first + 200)
    client.ask("begin_pings")
    time.sleep(PINGED_SECONDS)
    assert len(client.ask("end_pings")["seconds"]) > 10
