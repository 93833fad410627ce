"""An attacker between the endpoints repeats or reorders frames of a link, with correct ids, addresses and offsets."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial

import pytest

from aeron_spark.transport.api import HANDSHAKE_STREAM_ID
from tests.net.capture import Capture
from tests.net.injection import CapturedFrame, ether, frames, inject
from tests.net.namespaces import SERVER, Site, udp_socket
from tests.net.programs import Program, Programs, await_received, events, eventually

TAG = "victim"
DATA_PORT, CONTROL_PORT = 20121, 20122
TIMEOUT_S = 10.0
QUIET_S = 0.1  # less than the keep-alive interval, more than the delay of an acknowledgement
RATE = 100  # messages per second, so that each has a separate packet
ATTEMPTS = 5  # a frame of the sender may arrive at the offset first; the injected frame is then ignored
SIZE = 300  # bytes of a message; all other frames of a link are shorter


@dataclass
class Direction:
    """One direction: packets are captured at the sender (``near``) and at the receiver (``far``).

    ``device`` is the router's device towards the receiver.
    """

    site: Site
    sender: Program
    receiver: Program
    near: Capture
    far: Capture
    device: str
    ports: dict[str, int]
    sent: int = 0

    def send(self, count: int) -> None:
        """Send ``count`` messages, each in a separate packet."""
        self.sender.request("send", tag=TAG, first=self.sent, count=count, rate=RATE, size=SIZE)
        self.sent += count

    def send_and_capture(self, begin: int, number: int) -> CapturedFrame:
        """Send a message; return its frame, the ``number``-th message frame from the offset ``begin`` on."""
        self.send(1)
        sent = eventually(
            lambda: [one for one in self.messages(self.near) if one.offset >= begin],
            lambda frames: len(frames) >= number,
            TIMEOUT_S,
        )
        return sent[number - 1]

    def await_arrival(self) -> None:
        """Wait until all messages have arrived, once and in order."""
        await_received(self.receiver, TAG, self.sent)

    def link_frames(self, capture: Capture) -> list[CapturedFrame]:
        """Return the frames of the current link."""
        found = [one for one in frames(capture, **self.ports) if one.stream != HANDSHAKE_STREAM_ID]
        return [one for one in found if one.session == found[-1].session]

    def messages(self, capture: Capture) -> list[CapturedFrame]:
        """Return the frames with exactly one message."""
        return [one for one in self.link_frames(capture) if SIZE < len(one.payload) < 2 * SIZE]

    @property
    def end(self) -> int:
        """The offset of the next frame. Under load, one of the captures may miss a packet."""
        return max(one.end for capture in (self.near, self.far) for one in self.link_frames(capture))

    def await_quiet(self) -> None:
        """Send messages, and return when they were captured at the receiver and no packet is in flight."""
        self._send_and_await_mark()
        end, since = self.end, time.monotonic()
        while time.monotonic() - since < QUIET_S:  # an acknowledgement may follow
            time.sleep(QUIET_S / 5)
            if self.end != end:
                end, since = self.end, time.monotonic()

    def _send_and_await_mark(self) -> None:
        self.send(5)
        self.await_arrival()
        mark = secrets.token_bytes(16)
        like = eventually(lambda: self.messages(self.far), bool, TIMEOUT_S)[-1]
        inject(self.site.router, self.device, ether(like.headers, mark))
        assert self.far.wait_for(lambda packet: packet.endswith(mark), TIMEOUT_S)

    def inject(self, *injected: CapturedFrame) -> None:
        """Send frames from the router to the receiver, as if the sender had sent them."""
        like = self.messages(self.far)[-1]
        inject(self.site.router, self.device, *(one.packet(like) for one in injected))

    def has_refused(self, before: int) -> bool:
        """Return whether the receiver reports more than ``before`` refused frames within a second."""
        return len(eventually(self.errors, lambda errors: len(errors) > before, TIMEOUT_S / 10)) > before

    def check_refusal(self, reason: str, before: int) -> None:
        """Assert that the receiver has refused one more frame, for this reason."""
        errors = self.errors()
        assert len(errors) == before + 1, errors
        assert "TamperedError" in errors[-1]
        assert reason in errors[-1]

    def errors(self) -> list[str]:
        found: list[str] = self.receiver.request("statistics")["errors"]
        return found


@pytest.mark.sampled
def test_row_40_frames_repeated_or_reordered_in_transit_are_not_delivered(programs: Programs) -> None:
    server, client = programs.pair(TAG)
    site = programs.site
    with Capture(site.clients[0], "c1") as at_client, Capture(site.server, "s0") as at_server:
        client.request("connect")
        to_server = Direction(site, client, server, at_client, at_server, "r0", {"port_to": DATA_PORT})
        to_client = Direction(site, server, client, at_server, at_client, "r1", {"port_from": CONTROL_PORT})
        _send_from_another_address(programs, to_server)
        for number, direction in enumerate((to_server, to_client)):
            _repeat(direction)
            _check_resumes(server, client, 2 * number + 1)
            _reorder(direction)
            _check_resumes(server, client, 2 * number + 2)
    for endpoint in (server, client):
        names = events(endpoint, TAG)
        # the test cuts the network, so a reconnection may take longer than the expiry
        assert [name for name in names if name not in ("resume", "disconnect")] == ["init", "connect"], names


def _send_from_another_address(programs: Programs, direction: Direction) -> None:
    """A frame from another address is dropped by the driver's guard."""
    direction.await_quiet()
    driver = programs.driver_of(direction.receiver)

    def dropped() -> int:
        return int(driver.request("counters")["drops"].get("receiving: foreign", 0))

    before = dropped()
    old = direction.messages(direction.far)[0].at(direction.end)
    with udp_socket(programs.site.clients[1], ("10.77.2.1", 0)) as hostile:
        sent, drops = 0, before
        while sent < ATTEMPTS and drops == before:  # a datagram may be lost
            sent += 1
            hostile.sendto(old.padded, (SERVER, DATA_PORT))
            drops = eventually(dropped, lambda drops: drops > before, TIMEOUT_S / 5)
    assert before < drops <= before + sent
    direction.send(5)
    direction.await_arrival()
    assert direction.errors() == []


def _repeat(direction: Direction) -> None:
    """Repeat an old frame at the offset of the next one."""
    before = len(direction.errors())
    for _ in range(ATTEMPTS):
        direction.await_quiet()
        direction.inject(direction.messages(direction.far)[0].at(direction.end))
        direction.send(20)
        direction.await_arrival()
        if direction.has_refused(before):
            break
    direction.check_refusal("it was received before", before)


def _reorder(direction: Direction) -> None:
    """Delay the sender's next two frames, and inject them in reversed order."""
    before = len(direction.errors())
    for _ in range(ATTEMPTS):
        direction.await_quiet()
        direction.site.cut(1)
        begin = direction.end
        first, second = direction.send_and_capture(begin, 1), direction.send_and_capture(begin, 2)
        if (first.offset, second.offset) == (begin, first.end):
            direction.inject(second.at(first.offset), first.at(second.offset))
            direction.has_refused(before)  # before the original frames can arrive
        direction.site.heal()
        direction.await_arrival()
        if direction.has_refused(before):
            break
    direction.check_refusal("frames before it are missing", before)


def _check_resumes(server: Program, client: Program, times: int) -> None:
    for endpoint in (server, client):
        names = eventually(partial(events, endpoint, TAG), lambda names: names.count("resume") >= times, TIMEOUT_S)
        assert names.count("resume") == times
