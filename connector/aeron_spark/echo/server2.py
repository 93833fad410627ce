"""An Echo 2.0 server: one channel for all to ask on, and a duologue for each that is let in.

Nothing here waits for a client. A duologue is known by itself and not by the session that asked for it: who says HELLO
twice has two, within the limits, and neither gets lost.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.plain import Incoming, Listening
from aeron_spark.echo import channels, events, wording
from aeron_spark.echo.duologue import FRAGMENTS, Duologue
from aeron_spark.echo.events import Report
from aeron_spark.echo.guarding import watched
from aeron_spark.echo.opening import talking
from aeron_spark.echo.outbox import SharedOutbox
from aeron_spark.echo.refusals import LimitedReport
from aeron_spark.endpoint import refusal
from aeron_spark.endpoint.addresses import UdpSource, parse_source
from aeron_spark.endpoint.ids import Entropy, IdAllocator
from aeron_spark.endpoint.limits import Admission, Limits, Permit
from aeron_spark.endpoint.ports import PortAllocator
from aeron_spark.errors import OptionError, TransportError
from aeron_spark.transport.addresses import Endpoint

STEP_SECONDS: Final = 10.0  # that a client has to come, and a reply to be taken; the reference's
PORTS_REST: Final = 1.0  # seconds; twice as long as a closed publication lingers on its port
ATTEMPTS: Final = 3  # at ports that another program may have

TEXTS: Final = {"full": wording.SERVER_FULL, "address-limit": wording.ADDRESS_FULL}


@dataclass(frozen=True, slots=True)
class Server2Settings:
    """``clients`` and ``per_address`` bound the duologues; each has two ports, from ``duologue_ports`` on."""

    listen: Endpoint
    control_port: int
    duologue_ports: int
    clients: int = 8
    per_address: int = 3  # 0: no limit

    def __post_init__(self) -> None:
        if not 0 < self.clients <= wording.LARGEST_PORT // 2:
            raise OptionError(f"a server cannot have {self.clients} clients", remedy="Each needs two ports.")
        own = {self.listen.port: "listen", self.control_port: "control"}
        if len(own) == 1:
            raise OptionError(f"listen and control are both port {self.control_port}", remedy="Choose two ports.")
        PortAllocator(self.duologue_ports, 2 * self.clients, bytes)  # raises where the range is none
        duologues = range(self.duologue_ports, self.duologue_ports + 2 * self.clients)
        for port, name in own.items():
            if not 0 < port <= wording.LARGEST_PORT:
                raise OptionError(f"{name} has the port {port}", remedy="Use one of 1 to 65535.")
            if port in duologues:
                raise OptionError(
                    f"the {name} port {port} is one of the duologues', {duologues[0]} to {duologues[-1]}",
                    remedy="Begin them elsewhere.",
                )


@dataclass(frozen=True, slots=True)
class _Held:
    """A duologue and what is given back at its end."""

    duologue: Duologue
    permit: Permit


class Server2:
    """Polled by one thread; ``poll`` never waits, except for the media driver to open and close channels."""

    def __init__(
        self,
        client: Client,
        settings: Server2Settings,
        report: Report,
        *,
        step_seconds: float = STEP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.settings = settings
        self._client = client
        self._report = LimitedReport(report, clock)
        self._step_seconds = step_seconds
        self._clock = clock
        self._admission = Admission(Limits(connections=settings.clients, connections_per_address=settings.per_address))
        self._ports = PortAllocator(settings.duologue_ports, 2 * settings.clients, entropy)
        self._sessions = IdAllocator(wording.FIRST_SESSION, wording.LAST_SESSION, entropy)
        self._held: list[_Held] = []
        self._resting: deque[tuple[float, tuple[int, int]]] = deque()
        control = Endpoint(settings.listen.host, settings.control_port)
        with contextlib.ExitStack() as opened:
            self._talking = talking(
                client, lambda session_id: watched(channels.fanning_out(control, session_id)), entropy
            )
            opened.callback(self._talking.close)
            self._listening = Listening(
                client, watched(channels.receiving(settings.listen)), wording.STREAM_ID, channels.LARGEST_MESSAGE
            )
            opened.pop_all()
        self._outbox = SharedOutbox(self._talking, step_seconds)
        report(events.Listening(2, str(settings.listen), str(control)))

    @property
    def duologues(self) -> int:
        """How many there are, with those whose client has yet to come."""
        return len(self._held)

    @property
    def held(self) -> int:
        """Everything that is given back when the last client has gone: ports, session ids, places, addresses."""
        return self._ports.in_use + self._sessions.in_use + self._admission.connections + self._admission.addresses

    def poll(self) -> int:
        """Do what can be done now; return how much that was. Raises TransportError where the media driver is gone."""
        now = self._clock()
        while self._resting and self._resting[0][0] <= now:
            self._ports.release(self._resting.popleft()[1])
        self._report.tick()
        work = 0
        for image in self._listening.images():
            if self._outbox.waits_for(image.id):
                continue  # faster than its refusals may be sent: Aeron holds its sender back
            for message in image.poll(FRAGMENTS):
                work += 1
                self._answer(image, message, now)
        work += self._outbox.flush(now)
        for held in list(self._held):
            done, reason = self._poll(held.duologue, now)
            work += done
            if reason:
                self._end(held, reason, now)
        return work

    def close(self) -> None:
        """Close everything; nothing of it is left in the media driver once its lingering has passed."""
        now = self._clock()
        for held in list(self._held):
            self._end(held, "the server stops", now)
        self._report.close()
        self._listening.close()
        self._talking.close()

    def _poll(self, duologue: Duologue, now: float) -> tuple[int, str]:
        try:
            return duologue.poll(now)
        except TransportError as error:
            if self._client.closed:
                raise
            return 1, str(error)  # of this one alone

    def _answer(self, image: Incoming, message: bytes | None, now: float) -> None:
        key = None if message is None else wording.read_hello_2(message)
        found = wording.BAD_MESSAGE if key is None else self._open(image, now)
        if isinstance(found, str) or key is None:
            text = found if isinstance(found, str) else wording.BAD_MESSAGE
            self._report(events.Refusal(image.source, image.session_id, text))
            self._outbox.refuse(image.id, wording.refuse(image.session_id, text), now)
            return
        self._report(events.Opened(image.source, image.session_id, found.data_port, found.control_port))
        self._outbox.admit(wording.connect(image.session_id, key, found), now)

    def _open(self, image: Incoming, now: float) -> wording.Place | str:
        """Open a duologue for who sends ``image``; return where, or the text of the refusal."""
        source = parse_source(image.source)
        assert isinstance(source, UdpSource)  # what is received by UDP
        permit = self._admission.connect(source)
        if isinstance(permit, refusal.Refusal):
            return TEXTS[permit.code]
        with contextlib.ExitStack() as refused:
            refused.enter_context(permit)
            for _ in range(ATTEMPTS):
                duologue = self._try_to_open(source, now)
                if duologue is not None:
                    refused.pop_all()
                    self._held.append(_Held(duologue, permit))
                    return duologue.place
        return wording.SERVER_FULL

    def _try_to_open(self, owner: UdpSource, now: float) -> Duologue | None:
        ports = self._ports.take(2)
        if isinstance(ports, refusal.Refusal):  # the last ones are resting
            return None
        session_id = self._sessions.take(now)
        if isinstance(session_id, refusal.Refusal):
            self._ports.release(ports)
            return None
        place = wording.Place(ports[0], ports[1], session_id)
        try:
            return Duologue(
                self._client,
                self.settings.listen.host,
                place,
                owner,
                self._report,
                expires=now + self._step_seconds,
                patience=self._step_seconds,
            )
        except BaseException as error:
            self._give_back(place, now)
            if not isinstance(error, TransportError) or self._client.closed:
                raise
            self._report(events.Refusal(str(owner), session_id, str(error)))  # another program has a port, say
            return None

    def _end(self, held: _Held, reason: str, now: float) -> None:
        self._held.remove(held)
        held.permit.release()
        self._give_back(held.duologue.place, now)
        with contextlib.suppress(TransportError):  # a driver that is gone has closed everything
            held.duologue.close()
        self._report(events.Ended(str(held.duologue.owner), held.duologue.echoes, reason))

    def _give_back(self, place: wording.Place, now: float) -> None:
        self._sessions.release(place.session_id, now)
        self._resting.append((now + PORTS_REST, (place.data_port, place.control_port)))
