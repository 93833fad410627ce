"""One attempt of a client to connect, and the time of the next one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
from aeron_spark.protocol.frame_cipher import KeyLimits


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """What a client wants, and how long each step may take. Times are in seconds.

    ``expects_retry``: the server answers a first HELLO by a cookie, as it does over the network, and wants the cookie
    on another publication. The keys are as for :class:`ServerKeyVerifier`. ``reconnect``: resume a session whose link
    was lost.
    """

    tag: str
    reconnect: bool
    expects_retry: bool
    server_key: bytes | None
    trust_first_use: bool
    validate: bool
    first_pause: float  # between two attempts; then twice as long each time, up to the longest
    longest_pause: float
    setup_seconds: float  # for a path to be connected, and for a link
    expiry_seconds: float  # from the loss of a link to the report that the connection is gone
    close_seconds: float  # for what was sent to go out
    reopen_seconds: float  # between the beginnings of two attempts to open the transport again
    timing: ClientTiming
    key_limits: KeyLimits
    psk: bytes | None = field(default=None, repr=False)


class Pauses:
    """When the next attempt begins: ``next_attempt``, by the machine's clock."""

    def __init__(self, policy: ClientPolicy) -> None:
        self.next_attempt = 0.0
        self._first = self._pause = policy.first_pause
        self._longest = policy.longest_pause
        self._begun_at = 0.0

    def begun(self, now: float) -> None:
        """An attempt begins."""
        self._begun_at = now

    def failed(self, now: float) -> None:
        """It failed: the next one waits, twice as long as the one before."""
        self.next_attempt = now + self._pause
        self._pause = min(2 * self._pause, self._longest)

    def lost(self, now: float) -> None:
        """What an attempt had brought is lost: try at once, but not in a circle with a server that accepts and goes."""
        self.next_attempt = max(now, self._begun_at + self._first)

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._pause = self._first


class Attempt:
    """One handshake with its path, and the link that it leads to.

    ``step_ends`` is the deadline of the path's, later of the link's set-up. ``owner`` is the session that the link is
    for. What the handshake is told returns effects, with how it ended if it has.
    """

    def __init__(self, handshake: ClientHandshake, numbers: Iterator[int], step_ends: float) -> None:
        self.handshake = handshake
        self.path = next(numbers)
        self.step_ends = step_ends
        self.accepted: HandshakeAccepted | None = None
        self.owner: SessionRecord | None = None
        self.link: int | None = None
        self._numbers = numbers
        self._publication = next(numbers)
        self._spare: int | None = None  # the publication for the cookie: it opens while the first HELLO is on its way

    def open(self) -> Effects:
        """Open the path."""
        return (e.OpenPath(self.path, self._publication),)

    def close(self) -> Effects:
        """Close the path, and the link that was opened."""
        closed: Effects = (e.ClosePath(self.path),)
        return closed if self.link is None else (*closed, e.CloseLink(self.link))

    def open_spare(self) -> Effects:
        """Open a publication for the cookie that will come."""
        self._spare = next(self._numbers)
        return (e.OpenPublication(self.path, self._spare),)

    def close_spare(self) -> Effects:
        """Close it: the server has rejected it, or it could not be opened."""
        spare, self._spare = self._spare, None
        return () if spare is None else (e.ClosePublication(self.path, spare),)

    def speaks_on(self, publication: int) -> bool:
        """Whether the handshake's packets go out on this publication."""
        return publication == self._publication

    def deadline(self) -> float | None:
        """When the step under way ends."""
        begun = self.handshake.state in (State.AWAIT_HELLO_ACK, State.AWAIT_DONE_ACK)
        return self.handshake.deadline if begun else self.step_ends

    @property
    def is_begun(self) -> bool:
        """Whether HELLO was sent."""
        return self.handshake.state is not State.NEW

    def awaits(self, server: str) -> str:
        """Say what the attempt waits for."""
        if self.link is not None:
            return f"the link with {server} to open"
        if not self.is_begun:
            return f"{server} to answer at all"
        return f"an answer of {server}: {self.handshake.state.value}"

    def effects(self, actions: Actions) -> tuple[Effects, HandshakeAccepted | Abandoned | None]:
        """Translate what the handshake wants."""
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
        before, spare = self._publication, self._spare
        self._publication, self._spare = next(self._numbers) if spare is None else spare, None
        opened: Effects = () if spare is not None else (e.OpenPublication(self.path, self._publication),)
        return (*opened, e.ClosePublication(self.path, before))
