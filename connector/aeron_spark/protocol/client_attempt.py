"""One attempt of a client to connect, and the pauses between attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.client_events import ClientEffect, Effects, SessionRecord
from aeron_spark.protocol.client_handshake import (
    Abandoned,
    Actions,
    ClientHandshake,
    ClientTiming,
    HandshakeAccepted,
    Ignored,
    Reopen,
    Send,
    State,
)
from aeron_spark.protocol.frame_cipher import CipherLimits
from aeron_spark.protocol.liveness import Times


class ClientMachineOptions(Protocol):
    """The options of a client that its machine reads. They are declared above this package. Times are in seconds."""

    @property
    def tag(self) -> str | None: ...

    @property
    def reconnect(self) -> bool: ...

    @property
    def server_key(self) -> bytes | None: ...

    @property
    def trust_first_use(self) -> bool: ...

    @property
    def validate(self) -> bool: ...

    @property
    def first_pause(self) -> float: ...

    @property
    def longest_pause(self) -> float: ...

    @property
    def close_timeout(self) -> float: ...

    @property
    def times(self) -> Times: ...

    @property
    def timing(self) -> ClientTiming: ...

    @property
    def key_limits(self) -> CipherLimits: ...


# At most; the clients of a server that restarts spread their handshakes over this time. A restart takes longer than
# this, and an attempt waits for the server, so clients connect as soon as it is ready.
RESTART_PAUSE_S: Final = 1.0


class RetrySchedule:
    """The start time of the next attempt: ``next_attempt``."""

    def __init__(self, first_pause: float, longest_pause: float) -> None:
        self.next_attempt = 0.0
        self._first = self._pause = first_pause
        self._longest = longest_pause
        self._started_at = 0.0  # the last attempt

    def note_start(self, now: float) -> None:
        """Note that an attempt starts."""
        self._started_at = now

    def note_failure(self, now: float) -> None:
        """Schedule the next attempt, and double the pause between the starts of two attempts.

        An attempt that has waited longer than that for an absent server is followed by the next one almost at once,
        so that a server that starts again is found at once.
        """
        self.next_attempt = max(now + self._first, self._started_at + self._pause)
        self._pause = min(2 * self._pause, self._longest)

    def note_loss(self, now: float) -> None:
        """Schedule the next attempt for now, because the link or session that the last attempt had opened is lost.

        The starts of two attempts are at least the first pause apart. This limits the rate if the server accepts each
        attempt and then ends it.
        """
        self.next_attempt = max(now, self._started_at + self._first)

    def note_restart(self, now: float, share: float) -> None:
        """Schedule the next attempt within ``RESTART_PAUSE_S``, because the server asks its clients to connect again.

        ``share``, from 0 to 1, is random, so that the clients of a server do not come at the same moment.
        """
        self.next_attempt = now + self._first + share * RESTART_PAUSE_S

    def reset(self) -> None:
        """Return to the first pause."""
        self._pause = self._first


class Attempt:
    """One handshake with its path, and the link that it opens.

    ``setup_deadline`` is for the path, and later for the link. ``owner`` is the session that the link will carry.
    """

    def __init__(self, handshake: ClientHandshake, numbers: Iterator[int], setup_deadline: float) -> None:
        self.handshake = handshake
        self.path = next(numbers)
        self.setup_deadline = setup_deadline
        self.accepted: HandshakeAccepted | None = None
        self.owner: SessionRecord | None = None
        self.link: int | None = None
        self._numbers = numbers
        self._publication = next(numbers)
        self._cookie_publication: int | None = None  # opened while the first HELLO travels, to save time

    def open(self) -> Effects:
        """Open the path."""
        return (e.OpenPath(self.path, self._publication),)

    def close(self) -> Effects:
        """Close the path, and the link if it was opened."""
        effects: Effects = (e.ClosePath(self.path),)
        return effects if self.link is None else (*effects, e.CloseLink(self.link))

    def open_cookie_publication(self) -> Effects:
        """Open the publication on which the HELLO with the cookie will be sent."""
        self._cookie_publication = next(self._numbers)
        return (e.OpenPublication(self.path, self._cookie_publication),)

    def close_cookie_publication(self) -> Effects:
        """Close the publication for the cookie, after it failed or the server rejected it."""
        publication, self._cookie_publication = self._cookie_publication, None
        return () if publication is None else (e.ClosePublication(self.path, publication),)

    def sends_on(self, publication: int) -> bool:
        """Return whether the handshake sends its packets on this publication."""
        return publication == self._publication

    def deadline(self) -> float | None:
        """Return the deadline of the present step."""
        is_exchanging = self.handshake.state in (State.AWAIT_HELLO_ACK, State.AWAIT_DONE_ACK)
        return self.handshake.deadline if is_exchanging else self.setup_deadline

    @property
    def is_hello_sent(self) -> bool:
        """Whether HELLO was sent."""
        return self.handshake.state is not State.NEW

    def describe_wait(self, server: str) -> str:
        """Return what the attempt waits for, as part of an error text."""
        if self.link is not None:
            return f"the link with {server} to open"
        if not self.is_hello_sent:
            return f"{server} to respond"
        return f"a response from {server}: {self.handshake.state.value}"

    def effects(self, actions: Actions) -> tuple[Effects, HandshakeAccepted | Abandoned | None]:
        """Translate actions of the handshake into effects; also return the result of a handshake that has ended."""
        effects: list[ClientEffect] = []
        for action in actions:
            match action:
                case Send(packet):
                    effects.append(e.Transmit(self.path, self._publication, packet))
                case Reopen():
                    effects += self._change_publication()
                case HandshakeAccepted() | Abandoned():
                    return tuple(effects), action
                case Ignored():
                    pass
        return tuple(effects), None

    def _change_publication(self) -> Effects:
        before, opened = self._publication, self._cookie_publication
        self._publication, self._cookie_publication = next(self._numbers) if opened is None else opened, None
        effects: Effects = () if opened is not None else (e.OpenPublication(self.path, self._publication),)
        return (*effects, e.ClosePublication(self.path, before))
