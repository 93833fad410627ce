"""Frames of a duologue that somebody on the way repeats or reorders: right ids, right addresses, right place."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from aeron_spark.transport.api import HANDSHAKE_STREAM_ID
from tests.net.capture import Capture
from tests.net.injection import Seen, ether, frames, inject
from tests.net.namespaces import SERVER, Site, udp_socket
from tests.net.programs import Program, Programs, await_received, events, eventually

TAG = "victim"
DATA_PORT, CONTROL_PORT = 20121, 20122
SOON = 10.0
QUIET = 0.1  # seconds: less than between two keep-alives, more than until an acknowledgement
APART = 100  # messages a second: each in a packet of its own
TRIES = 5  # a frame of the endpoint's own may take the place before: what is put there then is ignored
SIZE = 300  # bytes of a message; no other frame of a duologue is as long


@dataclass
class Way:
    """One direction, as the router sees it: a packet leaves on ``near``, and arrives on ``far`` from ``device``."""

    site: Site
    sender: Program
    receiver: Program
    near: Capture
    far: Capture
    device: str
    ports: dict[str, int]
    sent: int = 0

    def send(self, count: int) -> None:
        """Messages one by one."""
        self.sender.ask("send", tag=TAG, first=self.sent, count=count, rate=APART, size=SIZE)
        self.sent += count

    def send_and_see(self, begin: int, number: int) -> Seen:
        """Send a message; return the frame it leaves in, the ``number``-th from ``begin`` on: a frame of its own."""
        self.send(1)
        left = eventually(
            lambda: [one for one in self.messages(self.near) if one.offset >= begin],
            lambda some: len(some) >= number,
            SOON,
        )
        return left[number - 1]

    def arrived(self) -> None:
        """All messages, each once, in order."""
        await_received(self.receiver, TAG, self.sent)

    def seen(self, capture: Capture) -> list[Seen]:
        """The frames of the duologue there is."""
        found = [one for one in frames(capture, **self.ports) if one.stream != HANDSHAKE_STREAM_ID]
        return [one for one in found if one.session == found[-1].session]

    def messages(self, capture: Capture) -> list[Seen]:
        """Those with one message in them."""
        return [one for one in self.seen(capture) if SIZE < len(one.payload) < 2 * SIZE]

    @property
    def end(self) -> int:
        """Where the next frame is awaited. Under load a capture may miss a packet that the other has."""
        return max(one.end for capture in (self.near, self.far) for one in self.seen(capture))

    def settle(self) -> None:
        """Say something, and return when it was captured where it arrives, and nothing more is on its way."""
        self._say_and_see()
        end, since = self.end, time.monotonic()
        while time.monotonic() - since < QUIET:  # an acknowledgement may follow
            time.sleep(QUIET / 5)
            if self.end != end:
                end, since = self.end, time.monotonic()

    def _say_and_see(self) -> None:
        self.send(5)
        self.arrived()
        mark = secrets.token_bytes(16)
        like = eventually(lambda: self.messages(self.far), bool, SOON)[-1]
        inject(self.site.router, self.device, ether(like.headers, mark))
        assert self.far.wait_for(lambda packet: packet.endswith(mark), SOON)

    def inject(self, *some: Seen) -> None:
        """Put them on the last piece of the way, as if the sender had sent them."""
        like = self.messages(self.far)[-1]
        inject(self.site.router, self.device, *(one.packet(like) for one in some))

    def refused(self, before: int) -> bool:
        """Whether the receiver has refused a frame; all that was sent has arrived, before it or after."""
        return len(eventually(self.errors, lambda errors: len(errors) > before, SOON / 10)) > before

    def noticed(self, what: str, before: int) -> None:
        """The receiver has refused a frame, one, for this reason."""
        errors = self.errors()
        assert len(errors) == before + 1, errors
        assert "TamperedError" in errors[-1]
        assert what in errors[-1]

    def errors(self) -> list[str]:
        found: list[str] = self.receiver.ask("statistics")["errors"]
        return found


def test_row_40_frames_that_are_repeated_or_reordered_on_the_way_are_not_delivered(programs: Programs) -> None:
    server, client = programs.pair(TAG)
    site = programs.site
    with Capture(site.clients[0], "c1") as at_client, Capture(site.server, "s0") as at_server:
        client.ask("connect")
        to_server = Way(site, client, server, at_client, at_server, "r0", {"port_to": DATA_PORT})
        to_client = Way(site, server, client, at_server, at_client, "r1", {"port_from": CONTROL_PORT})
        _from_another_address(programs, to_server)
        for number, way in enumerate((to_server, to_client)):
            _repeated(way)
            _resumed(server, client, 2 * number + 1)
            _reordered(way)
            _resumed(server, client, 2 * number + 2)
    for side in (server, client):
        told = events(side, TAG)
        # The network is cut meanwhile: coming back may take longer than the expiry.
        assert [name for name in told if name not in ("resume", "disconnect")] == ["init", "connect"], told


def _from_another_address(programs: Programs, way: Way) -> None:
    """The driver's guard does not even let it through."""
    way.settle()
    driver = programs.driver_of(way.receiver)

    def dropped() -> int:
        return int(driver.ask("counters")["drops"].get("receiving: foreign", 0))

    before = dropped()
    old = way.messages(way.far)[0].at(way.end)
    with udp_socket(programs.site.clients[1], ("10.77.2.1", 0)) as elsewhere:
        sent, drops = 0, before
        while sent < TRIES and drops == before:  # a datagram may be lost
            sent += 1
            elsewhere.sendto(old.padded, (SERVER, DATA_PORT))
            drops = eventually(dropped, lambda drops: drops > before, SOON / 5)
    assert before < drops <= before + sent
    way.send(5)
    way.arrived()
    assert way.errors() == []


def _repeated(way: Way) -> None:
    """An old frame comes once more, where the next one is awaited."""
    before = len(way.errors())
    for _ in range(TRIES):
        way.settle()
        way.inject(way.messages(way.far)[0].at(way.end))
        way.send(20)
        way.arrived()
        if way.refused(before):
            break
    way.noticed("it was received before", before)


def _reordered(way: Way) -> None:
    """The sender's next two frames are held up, and come in each other's place."""
    before = len(way.errors())
    for _ in range(TRIES):
        way.settle()
        way.site.cut(1)
        begin = way.end
        first, second = way.send_and_see(begin, 1), way.send_and_see(begin, 2)
        if (first.offset, second.offset) == (begin, first.end):
            way.inject(second.at(first.offset), first.at(second.offset))
            way.refused(before)  # before the frames themselves can come
        way.site.heal()
        way.arrived()
        if way.refused(before):
            break
    way.noticed("frames before it are missing", before)


def _resumed(server: Program, client: Program, times: int) -> None:
    for side in (server, client):
        told = eventually(lambda side=side: events(side, TAG), lambda told: told.count("resume") >= times, SOON)  # type: ignore[misc]
        assert told.count("resume") == times
