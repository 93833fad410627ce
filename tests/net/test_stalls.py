"""A client that does not receive, or sends false status messages, does not delay another client."""

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
from tests.net.injection import CapturedFrame, newest
from tests.net.namespaces import SERVER, SERVER6, udp_socket
from tests.net.programs import ADDRESS, ADDRESS6, Program, Programs, await_received, eventually

GOOD, BAD = "good", "bad"
CONTROL_PORT: Final = 20122
MDC_PORTS: Final = range(20_200, 20_210)
LOAD: Final = {"count": 1_000, "size": 20_000}  # more than all buffers between the endpoints together
PING_PERIOD_S: Final = 2.0
RECEIVER: Final = 7  # an arbitrary receiver id


@pytest.mark.full("six JVMs; tests/aeron/secure/test_many.py suspends a client on one machine")
def test_a_suspended_receiver_does_not_delay_another_client(programs: Programs) -> None:
    server, good, bad = programs.apart(GOOD, BAD)
    for client in (good, bad):
        client.request("connect")
    bad.suspend()
    server.request("begin_send", tag=BAD, **LOAD)
    _check_service(server, good, 0)  # while the other program is suspended
    driver = programs.driver_of(bad)
    driver.suspend()
    _check_service(server, good, 200)  # while its driver is suspended, too
    driver.resume()
    bad.resume()
    server.request("end_send")
    await_received(bad, BAD, LOAD["count"])


BEHIND_NAT, OVER_IPV6 = ("10.77.2.1", ADDRESS, SERVER), ("2001:db8:77:2::1", ADDRESS6, SERVER6)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("source", "address", "host", "reply_channel"),
    [
        pytest.param(*BEHIND_NAT, "response", id="behind one NAT"),
        pytest.param(*BEHIND_NAT, "mdc", id="behind one NAT with mdc", marks=pytest.mark.full("six JVMs")),
        pytest.param(*OVER_IPV6, "response", id="over IPv6", marks=pytest.mark.full("six JVMs")),
    ],
)
def test_forged_status_messages_with_window_0_do_not_delay_another_client(
    programs: Programs, source: str, address: str, host: str, reply_channel: str
) -> None:
    """Behind the NAT, the hostile client has the good client's address and another port."""
    more = {"replyChannel": "mdc", "mdcPorts": f"{MDC_PORTS[0]}-{MDC_PORTS[-1]}"} if reply_channel == "mdc" else {}
    ports = MDC_PORTS if more else [CONTROL_PORT]
    server, good, bad = programs.pair(GOOD, BAD, bind=address, address=address, server=more)
    with (
        Capture(programs.site.clients[0], "c1") as good_capture,
        Capture(programs.site.clients[1], "c2") as bad_capture,
    ):
        for tag, client in ((GOOD, good), (BAD, bad)):
            client.request("connect")
            server.request("send", tag=tag, count=10)
            await_received(client, tag, 10)
        seen = server.request("statistics")["addresses"]
        assert (seen[GOOD][0] == seen[BAD][0]) == (address is ADDRESS)
        with (
            udp_socket(programs.site.clients[1], (source, 0)) as hostile,
            _send_false_status(hostile, host, ports, good_capture, bad_capture) as sent,
        ):
            eventually(lambda: sent[0], lambda count: count > 200)
            server.request("send", tag=GOOD, first=10, count=2_000, size=1_000)  # more than fits any window
            await_received(good, GOOD, 2_010)
            at = sent[0]
            eventually(lambda: sent[0], lambda count: count > at + 200)
            server.request("send", tag=GOOD, first=2_010, count=2_000, size=1_000)
            await_received(good, GOOD, 4_010)
    drops = server.request("counters")["drops"]
    # with dynamic MDC, each sender from the owner's address is a receiver, and the slowest one is ignored
    assert (drops["sending: foreign"] > 100) == (reply_channel == "response"), drops


def _last_of(capture: Capture, ports: Sequence[int]) -> CapturedFrame:
    """Return the last data frame that the server has sent on a link."""
    return next(one for one in newest(capture) if one.port_from in ports and one.stream != HANDSHAKE_STREAM_ID)


@contextmanager
def _send_false_status(
    hostile: socket.socket, host: str, ports: Sequence[int], *captures: Capture
) -> Iterator[list[int]]:
    """Send status messages with window 0 for each captured stream during the block; yield their number, in a list."""
    stop, sent = threading.Event(), [0]

    def send() -> None:
        while not stop.wait(0.005):
            for capture in captures:
                last = _last_of(capture, ports)
                frame = status_message(
                    last.session, last.stream, RECEIVER, term=last.term, offset=last.offset, window=0
                )
                hostile.sendto(frame, (host, last.port_from))
                sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def _check_service(server: Program, client: Program, first: int) -> None:
    server.request("send", tag=GOOD, first=first, count=200)
    await_received(client, GOOD, first + 200)
    client.request("begin_pings")
    time.sleep(PING_PERIOD_S)
    assert len(client.request("end_pings")["seconds"]) > 10
