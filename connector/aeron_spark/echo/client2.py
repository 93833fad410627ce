"""An Echo 2.0 client: asks on the channel of all, and goes on in its duologue."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.plain import Listening, Talking
from aeron_spark.echo import channels, events, wording
from aeron_spark.echo.conversation import Clock, awaiting
from aeron_spark.echo.opening import talking
from aeron_spark.endpoint.ids import Entropy
from aeron_spark.errors import ConnectError, DataFormatError, OptionError, RefusedError
from aeron_spark.transport.addresses import Endpoint

T = TypeVar("T")

STEP_SECONDS: Final = 10.0  # for each step; the reference's
ANSWERS: Final = 256  # fragments in one poll of what all clients are told: one message a poll falls behind a flood


class Client2:
    """``server`` is where all ask, ``control_port`` where the answers are published, at the same host.

    The session id is drawn at random and not left to the media driver: many drivers begin with the same one, and a
    second client of that id would take the first one's answer for its own.
    """

    def __init__(
        self,
        client: Client,
        server: Endpoint,
        control_port: int,
        *,
        step_seconds: float = STEP_SECONDS,
        clock: Clock = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.server = server
        self.control = Endpoint(server.host, control_port)
        self._client = client
        self._step_seconds = step_seconds
        self._clock = clock
        self._entropy = entropy
        self._key = int.from_bytes(entropy(4), "big")
        self._talking: Talking | None = None
        self._listening: Listening | None = None

    def connecting(self) -> Generator[None, None, events.Connected]:
        """Get a duologue and join it; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        began = self._clock()
        listening = self._listen(channels.joining(self.control))
        yield from self._awaiting(lambda: bool(listening.images()), "initial subscription")
        out = self._talk(self.server)
        session_id = out.session_id
        yield from self._awaiting(lambda: out.connected, "initial publication")
        yield from self._awaiting(lambda: out.offer(wording.hello_2(self._key)) is None, "HELLO")
        place = yield from self._awaiting(lambda: self._answer(listening, session_id), "CONNECT response")
        self.close()
        listening = self._listen(channels.joining(Endpoint(self.server.host, place.control_port), place.session_id))
        yield from self._awaiting(lambda: bool(listening.images()), "duologue subscription")
        out = self._talking = Talking(
            self._client,
            channels.sending(Endpoint(self.server.host, place.data_port), place.session_id),
            wording.STREAM_ID,
        )
        yield from self._awaiting(lambda: out.connected, "duologue publication")
        return events.Connected(str(self.server), session_id, self._clock() - began)

    def echoing(self, payload: bytes) -> Generator[None, None, bytes]:
        """Have ``payload`` echoed; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        out = self._talking
        assert out is not None  # connecting comes first
        message = wording.echo(payload)
        if len(message) > out.max_message_bytes:
            raise OptionError(
                f"a text of {len(payload)} bytes is too long", remedy=f"{out.max_message_bytes - 5} bytes are the most."
            )
        yield from self._awaiting(lambda: self._sends(out, message), "ECHO request")
        return (yield from self._awaiting(self._reply, "ECHO response"))

    def look(self) -> None:
        """Raise RefusedError where the server ended the duologue with an ERROR, ConnectError where it is gone."""
        unasked = self._reply()
        if unasked is not None:
            raise DataFormatError(f"an echo that nobody asked for came: {unasked[:80]!r}", remedy="Look at the server.")

    def close(self) -> None:
        """Close what is open."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        out, self._talking = self._talking, None
        if out is not None:
            out.close()

    def _sends(self, out: Talking, message: bytes) -> bool:
        self.look()  # what was refused, or is gone, would else be tried in vain until the deadline
        return out.offer(message) is None

    def _listen(self, channel: str) -> Listening:
        self._listening = Listening(self._client, channel, wording.STREAM_ID, channels.LARGEST_MESSAGE)
        return self._listening

    def _talk(self, server: Endpoint) -> Talking:
        self._talking = talking(self._client, lambda session_id: channels.sending(server, session_id), self._entropy)
        return self._talking

    def _awaiting(self, poll: Callable[[], T | None], step: str) -> Generator[None, None, T]:
        return awaiting(poll, self._step_seconds, step, self._clock)

    def _answer(self, listening: Listening, session_id: int) -> wording.Place | None:
        for image in listening.images():
            for message in image.poll(ANSWERS):
                found = None if message is None else wording.read_answer(message, session_id, self._key)
                if isinstance(found, wording.Refused):
                    raise RefusedError(f"the server at {self.server} refuses: {found.text}", remedy=_remedy(found.text))
                if isinstance(found, wording.Unreadable):
                    raise DataFormatError(
                        f"the server at {self.server} answers {found}, which is not Echo 2.0", remedy="Look at it."
                    )
                if found is not None:
                    return found
        return None

    def _reply(self) -> bytes | None:
        listening = self._listening
        assert listening is not None
        images = listening.images()
        for image in images:
            for message in image.poll(1):
                found = wording.Unreadable(b"") if message is None else wording.read_reply(message)
                if isinstance(found, wording.Refused):
                    raise RefusedError(
                        f"the server at {self.server} ended the duologue: {found.text}", remedy=_remedy(found.text)
                    )
                if isinstance(found, wording.Unreadable):
                    raise DataFormatError(f"the server at {self.server} says {found}", remedy="Look at it.")
                return found
        if not images:
            raise ConnectError(
                f"the duologue with {self.server} was closed", remedy="The server stopped, or the way to it broke."
            )
        return None


def _remedy(text: str) -> str:
    if text in (wording.SERVER_FULL, wording.ADDRESS_FULL):
        return "Try again when others have left, or raise its limits."
    return "The text is the server's."
