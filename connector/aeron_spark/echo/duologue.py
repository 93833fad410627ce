"""One client of an Echo 2.0 server: two ports and a session id that only its owner may use."""

from __future__ import annotations

import contextlib
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.plain import Incoming, Listening, Talking
from aeron_spark.echo import channels, wording
from aeron_spark.echo.events import Joined, Refusal, Report
from aeron_spark.echo.guarding import own, watched
from aeron_spark.echo.outbox import Outbox
from aeron_spark.endpoint.addresses import UdpSource, same_owner
from aeron_spark.transport.addresses import Endpoint

FRAGMENTS: Final = 10  # of one client in one poll, as many as the reference takes
FOREIGN: Final = "this duologue belongs to another address"


class Duologue:
    """The server's end. What it opens it closes; ports, session id and place are its server's to give back."""

    def __init__(
        self,
        client: Client,
        host: str,
        place: wording.Place,
        owner: UdpSource,
        report: Report,
        *,
        expires: float,
        patience: float,
    ) -> None:
        self.place = place
        self.owner = owner
        self.joined = False
        self._report = report
        self._expires = expires
        self._failed = False
        self._refused: set[int] = set()
        control, data = Endpoint(host, place.control_port), Endpoint(host, place.data_port)
        with contextlib.ExitStack() as opened:
            for ownership in own(client, place, str(owner.address)):
                opened.callback(ownership.close)
            outgoing = watched(channels.fanning_out(control, place.session_id))
            self._talking = Talking(client, outgoing, wording.STREAM_ID)
            opened.callback(self._talking.close)
            incoming = watched(channels.receiving(data, place.session_id))
            self._listening = Listening(client, incoming, wording.STREAM_ID, self._talking.max_message_bytes)
            opened.callback(self._listening.close)
            self._opened = opened.pop_all()
        self._outbox = Outbox(self._talking, patience)

    @property
    def echoes(self) -> int:
        """How many messages were answered."""
        return self._outbox.sent

    def poll(self, now: float) -> tuple[int, str]:
        """Do what can be done now; return how much that was, and why the duologue is over, or an empty text."""
        images = [image for image in self._listening.images() if self._is_owner(image)]
        work = self._outbox.flush(now)
        if self._outbox.overdue(now):
            return work, "its client does not read"
        if not self._outbox.empty:
            return work, ""  # the client is slower than its own questions: no more of them before these are answered
        if self._failed:
            return work, wording.BAD_MESSAGE
        if not images:
            if self.joined:
                return work, "its client left"
            return work, "its client never came" if now >= self._expires else ""
        if not self.joined:
            self.joined = True
            self._report(Joined(images[0].source, self.place.data_port))
        for image in images:
            for message in image.poll(FRAGMENTS):
                work += 1
                self._answer(image, message, now)
        self._outbox.flush(now)
        return work, ""

    def close(self) -> None:
        """Close both ways; what was said last still reaches the client."""
        self._opened.close()

    def _is_owner(self, image: Incoming) -> bool:
        if same_owner(image.source, str(self.owner.address)):
            return True
        if image.id not in self._refused:
            self._refused.add(image.id)
            self._report(Refusal(image.source, image.session_id, FOREIGN))
        image.reject(FOREIGN)
        return False

    def _answer(self, image: Incoming, message: bytes | None, now: float) -> None:
        if self._failed:
            return
        payload = None if message is None else wording.read_echo(message)
        if payload is not None:
            self._outbox.put(wording.echo(payload), now)
            return
        self._failed = True
        self._report(Refusal(image.source, image.session_id, wording.BAD_MESSAGE))
        self._outbox.put(wording.failure(wording.BAD_MESSAGE), now)
