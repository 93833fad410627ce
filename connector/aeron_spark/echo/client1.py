"""An Echo 1.0 client: tells the server a port of its own, and is answered there. It cannot pass NAT; Echo 2.0 can."""

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
from aeron_spark.errors import ConnectError, DataFormatError, OptionError
from aeron_spark.transport.addresses import Endpoint

T = TypeVar("T")

STEP_SECONDS: Final = 10.0  # for each step, as in Echo 2.0: the reference waits for ever


class Client1:
    """``own`` is where the answers shall come to; its port may be 0, for one of the system's choice."""

    def __init__(
        self,
        client: Client,
        server: Endpoint,
        own: Endpoint,
        *,
        step_seconds: float = STEP_SECONDS,
        clock: Clock = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.server = server
        self.own = own
        self._client = client
        self._step_seconds = step_seconds
        self._clock = clock
        self._entropy = entropy
        self._talking: Talking | None = None
        self._listening: Listening | None = None

    def connecting(self) -> Generator[None, None, events.Connected]:
        """Introduce this client and wait to be published to; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        began = self._clock()
        listening = self._listening = Listening(
            self._client, channels.receiving(self.own), wording.STREAM_ID, channels.LARGEST_MESSAGE
        )
        bound = yield from self._awaiting(lambda: listening.address or None, "subscription")
        out = self._talking = talking(
            self._client, lambda session_id: channels.sending(self.server, session_id), self._entropy
        )
        yield from self._awaiting(lambda: out.connected, "publication")
        port = Endpoint.parse(bound).port
        yield from self._awaiting(lambda: out.offer(wording.hello_1(port)) is None, "HELLO")
        yield from self._awaiting(lambda: bool(listening.images()), "the server's publication back to this client")
        return events.Connected(str(self.server), out.session_id, self._clock() - began)

    def echoing(self, payload: bytes) -> Generator[None, None, bytes]:
        """Have ``payload`` echoed; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        out = self._talking
        assert out is not None  # connecting comes first
        if len(payload) > out.max_message_bytes:
            raise OptionError(
                f"a text of {len(payload)} bytes is too long", remedy=f"{out.max_message_bytes} bytes are the most."
            )
        yield from self._awaiting(lambda: self._sends(out, payload), "echo request")
        return (yield from self._awaiting(self._reply, "echo response"))

    def look(self) -> None:
        """Raise ConnectError where the server has gone."""
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

    def _awaiting(self, poll: Callable[[], T | None], step: str) -> Generator[None, None, T]:
        return awaiting(poll, self._step_seconds, step, self._clock)

    def _sends(self, out: Talking, message: bytes) -> bool:
        self.look()
        return out.offer(message) is None

    def _reply(self) -> bytes | None:
        listening = self._listening
        assert listening is not None
        images = listening.images()
        for image in images:
            for message in image.poll(1):
                if message is None:
                    raise DataFormatError("an echo came that is too long", remedy="Look at the server.")
                return message
        if not images:
            raise ConnectError(f"the server at {self.server} has gone", remedy="It stopped, or the way to it broke.")
        return None
