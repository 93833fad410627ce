"""The client's handshake as a pure state machine. docs/endpoint-protocol.md has its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    RefusedError,
    Retry,
    TamperedError,
    WaitTimeout,
)
from aeron_spark.protocol.frame_cipher import CipherLimits, FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_packets import (
    CONNECT_KEY_BYTES,
    DoneAckPacket,
    DonePacket,
    FailedPacket,
    HelloAckPacket,
    HelloPacket,
    OtherVersion,
    RefusalHint,
    RetryHint,
    decode,
    decode_hint,
    encode,
    encode_client_done,
    key_hash,
    prologue,
)
from aeron_spark.protocol.handshake_payloads import (
    ClientDone,
    DoneAck,
    FailedPayload,
    ServerHello,
    check_tag,
    decode_payload,
)
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.noise import Entropy, HandshakeState
from aeron_spark.protocol.sources import Refusal
from aeron_spark.protocol.transitions import Row, step, unexpected_event


class State(Enum):
    """The state of an attempt."""

    NEW = "nothing was sent"
    AWAIT_HELLO_ACK = "HELLO was sent"
    AWAIT_DONE_ACK = "the server's key is verified, DONE was sent"
    CONNECTED = "the server accepted; the link can be opened"
    ENDED = "the attempt has ended"


class Event(Enum):
    """An event of an attempt."""

    START = "the path to the server is open"
    RETRY = "hint: send HELLO again, with a cookie"
    REFUSAL = "hint: the server refuses"
    HELLO_ACK = "a HELLO_ACK for our connect key arrives"
    DONE_ACK = "a DONE_ACK for our connect key arrives"
    FAILED = "a FAILED for our connect key arrives"
    DEADLINE = "the step took too long"
    PATH_LOST = "the publication or the image was lost"
    CLOSE = "the program closes the client"


PROGRAM_EVENTS: Final = frozenset({Event.START})
"""Events that only the program causes; all others may arrive at any time."""


@dataclass(frozen=True, slots=True)
class Send:
    """Offer this packet until Aeron takes it."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class Reopen:
    """Replace the publication that the server rejected by one with another Aeron session id."""


@dataclass(frozen=True, slots=True)
class HandshakeAccepted:
    """The server accepted. The client can store its key and open the link, which the first frame verifies."""

    encryptor: FrameEncryptor
    decryptor: FrameDecryptor
    server_key: bytes
    hello: ServerHello
    ack: DoneAck
    handshake_hash: bytes


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The attempt has failed with ``error``.

    ``may_pass``: the refusal says that the client may try again soon. ``is_authenticated``: the server has proved that
    it sent the refusal.
    """

    error: AeronSparkError
    may_pass: bool = False
    is_authenticated: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing changed. ``why`` is for logs and tests."""

    why: str


Action = Send | Reopen | HandshakeAccepted | Abandoned | Ignored

Actions = tuple[Action, ...]

MAX_RETRIES: Final = 4  # RETRYs in one attempt; one is normal, two if the server replaces its secret meanwhile

Verify = Callable[[bytes], None]
"""Raises AeronSparkError, in general IdentityError, for a key that the server should not have."""

_Step = tuple[State, Actions]


@dataclass(frozen=True, slots=True)
class ClientTiming:
    """The longest time for each step, in seconds."""

    hello_ack_s: float = 10.0
    """From HELLO to HELLO_ACK, with all RETRYs: one or two round trips, and the set-up of the server's publication."""
    done_ack_s: float = 10.0
    """From DONE to DONE_ACK: a round trip, and the time for the server's decision."""
    hint_s: float = 1.0
    """From a hint that the client may try again soon, or from the loss of the path, to the end of the attempt.

    The hint may be forged, so the client waits for the response that may be on its way.
    """


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The values that all handshakes of a client share. Errors name the ``server``."""

    keys: KeyPair
    verify: Verify
    server: str
    entropy: Entropy
    psk: bytes | None = field(default=None, repr=False)
    timing: ClientTiming = field(default_factory=ClientTiming)
    limits: CipherLimits = field(default_factory=CipherLimits)


class ClientHandshake:
    """One attempt to connect, as a pure state machine. For one thread."""

    def __init__(self, client: ClientIdentity, done: ClientDone) -> None:
        """Prepare an attempt. Raises OptionError if ``done`` cannot be sent."""
        check_tag(done.tag)
        self._done: Final = encode_client_done(done)
        self._client: Final = client
        connect_key = b""
        while not any(connect_key):
            connect_key = client.entropy(CONNECT_KEY_BYTES)
        self._connect_key: Final = connect_key
        self.key_hash: Final = key_hash(connect_key)
        """All responses to this attempt have it."""
        self._noise: Final = HandshakeState(
            initiator=True, static=client.keys, entropy=client.entropy, prologue=prologue(connect_key), psk=client.psk
        )
        self._message = b""
        self._cookie = b""
        self._retries = 0
        self._refusal: Refusal | None = None
        self._path_lost = False
        self._hello: ServerHello | None = None
        self.state = State.NEW
        self._step_deadline: float | None = None
        self.deadline: float | None = None
        """The time of the next ``tick``; None if time changes nothing."""

    def start(self, now: float) -> Actions:
        """Send HELLO on the open path. Raises UsageError if called twice."""
        return self._take(Event.START, None, now)

    def packet(self, data: bytes | memoryview, now: float) -> Actions:
        """Handle a message of the handshake stream. Ignores malformed ones."""
        try:
            packet = decode(data)
        except DataFormatError as error:
            return (Ignored(error.what),)
        match packet:
            case OtherVersion(version):
                return (Ignored(f"a packet of version {version}"),)
            case HelloPacket() | DonePacket():
                return (Ignored("a packet that only clients send"),)
            case _ if packet.key_hash != self.key_hash:
                return (Ignored("a packet for another connect key"),)
            case HelloAckPacket(message=body):
                return self._take(Event.HELLO_ACK, body, now)
            case DoneAckPacket(frame=body):
                return self._take(Event.DONE_ACK, body, now)
            case FailedPacket(frame=body):
                return self._take(Event.FAILED, body, now)

    def hint(self, reason: str, now: float) -> Actions:
        """Handle the reason with which the server rejected the publication. Ignores malformed ones."""
        try:
            hint = decode_hint(reason)
        except DataFormatError as error:
            return (Ignored(error.what),)
        match hint:
            case RetryHint(cookie):
                return self._take(Event.RETRY, cookie, now)
            case RefusalHint(refusal):
                return self._take(Event.REFUSAL, refusal, now)

    def path_lost(self, now: float) -> Actions:
        """Handle the loss of the publication's connection or of the server's image.

        A hint may follow. The attempt therefore ends later, after ``hint_s``, unless a RETRY opens another path.
        """
        return self._take(Event.PATH_LOST, None, now)

    def tick(self, now: float) -> Actions:
        """End the present step if its deadline has passed."""
        if self.deadline is None or now < self.deadline:
            return ()
        return self._take(Event.DEADLINE, None, now)

    @property
    def hinted_error(self) -> RefusedError | None:
        """The refusal of a hint as an error; None without a hint, or if the server has accepted."""
        if self._refusal is None or self.state is State.CONNECTED:
            return None
        return refused(self._refusal, self._client.server, is_authenticated=False)

    def close(self, now: float) -> Actions:
        """End the attempt in any state, except a connected one."""
        return self._take(Event.CLOSE, None, now)

    def _take(self, event: Event, argument: object, now: float) -> Actions:
        result = step(TRANSITIONS, self, self.state, event, argument, now)
        if result is None:
            if event in PROGRAM_EVENTS:
                raise unexpected_event("client", self.state, event)
            return (Ignored(f"{event.name} in {self.state.name}"),)
        before, (self.state, actions) = self.state, result
        if self.state is not before:
            self.deadline = self._step_deadline = self._deadline(now)
        return actions

    def _deadline(self, now: float) -> float | None:
        match self.state:
            case State.AWAIT_HELLO_ACK:
                return now + self._client.timing.hello_ack_s
            case State.AWAIT_DONE_ACK:
                return now + self._client.timing.done_ack_s
            case _:
                return None

    def _on_start(self, _argument: None, _now: float) -> _Step:
        self._message = self._noise.write()
        return State.AWAIT_HELLO_ACK, (Send(self._hello_packet()),)

    def _on_retry(self, cookie: bytes, now: float) -> _Step:
        if cookie == self._cookie or self._retries >= MAX_RETRIES:
            return self._on_path_lost(None, now)  # the server has rejected the last publication of this attempt
        self._cookie = cookie
        self._retries += 1
        self._path_lost = False
        self.deadline = self._step_deadline  # the loss of the previous path shortened it
        return State.AWAIT_HELLO_ACK, (Reopen(), Send(self._hello_packet()))

    def _on_refusal(self, refusal: Refusal, now: float) -> _Step:
        self._refusal = self._refusal or refusal
        if self._refusal.advice.retry is Retry.SOON:
            self._shorten_deadline(now)
        return self.state, ()

    def _on_hello_ack(self, message: bytes, _now: float) -> _Step:
        try:
            self._hello = decode_payload(self._noise.read(message), ServerHello)
            # before DONE, so that only the verified server learns the client's identity
            self._client.verify(self._noise.remote_static)
            body = self._noise.write(self._done)
        except TamperedError as error:
            return self._fail(_authentication_failed("HELLO_ACK", self._client.server, error))
        except AeronSparkError as error:
            return self._fail(error)
        self._refusal = None  # the hint was forged, or is out of date
        return State.AWAIT_DONE_ACK, (Send(encode(DonePacket(self.key_hash, body))),)

    def _on_done_ack(self, frame: bytes, _now: float) -> _Step:
        sending, receiving = self._noise.split()
        decryptor = FrameDecryptor(receiving, self._client.limits)
        try:
            ack = decode_payload(bytes(decryptor.decrypt(frame)), DoneAck)
        except TamperedError as error:
            return self._fail(_authentication_failed("DONE_ACK", self._client.server, error))
        except DataFormatError as error:
            return self._fail(error)
        assert self._hello is not None  # set by HELLO_ACK
        return State.CONNECTED, (
            HandshakeAccepted(
                FrameEncryptor(sending, self._client.limits),
                decryptor,
                self._noise.remote_static,
                self._hello,
                ack,
                self._noise.handshake_hash,
            ),
        )

    def _on_failed(self, frame: bytes, _now: float) -> _Step:
        decryptor = FrameDecryptor(self._noise.split()[1], self._client.limits)
        try:
            failed = decode_payload(bytes(decryptor.decrypt(frame)), FailedPayload)
        except TamperedError as error:
            return self._fail(_authentication_failed("FAILED", self._client.server, error))
        except DataFormatError as error:
            return self._fail(error)
        return self._fail(
            refused(Refusal(failed.code, failed.text), self._client.server, is_authenticated=True),
            is_authenticated=True,
        )

    def _on_deadline(self, _argument: None, _now: float) -> _Step:
        packet, seconds = (
            ("HELLO_ACK", self._client.timing.hello_ack_s)
            if self.state is State.AWAIT_HELLO_ACK
            else ("DONE_ACK", self._client.timing.done_ack_s)
        )
        if self._refusal is not None:
            return self._fail(refused(self._refusal, self._client.server, is_authenticated=False))
        waited = f"waited {seconds:g} s for the server's {packet} ({self._client.server})"
        if self._path_lost:
            return self._fail(ConnectError(f"{waited}, and the path to it was lost", remedy=_REMEDY))
        return self._fail(WaitTimeout(waited, remedy=_REMEDY))

    def _on_path_lost(self, _argument: None, now: float) -> _Step:
        self._path_lost = True
        self._shorten_deadline(now)
        return self.state, ()

    def _shorten_deadline(self, now: float) -> None:
        """End the step after ``hint_s``, because another attempt is more useful than a long wait."""
        assert self.deadline is not None  # only states with a deadline have these rows
        self.deadline = min(self.deadline, now + self._client.timing.hint_s)

    def _on_close(self, _argument: None, _now: float) -> _Step:
        return State.ENDED, ()

    def _hello_packet(self) -> bytes:
        return encode(HelloPacket(self._connect_key, self._message, self._cookie))

    def _fail(self, error: AeronSparkError, *, is_authenticated: bool = False) -> _Step:
        may_pass = isinstance(error, RefusedError) and error.retry is Retry.SOON
        return State.ENDED, (Abandoned(error, may_pass, is_authenticated),)


_REMEDY: Final = (
    "Check that the server runs, that firewalls pass UDP to its data and control ports, and that no other host sends"
    " from its address."
)


def refused(refusal: Refusal, server: str, *, is_authenticated: bool) -> RefusedError:
    """Return the error for a refusal; its text says if the server has not proved that it sent the refusal."""
    how = "" if is_authenticated else " by a response that is not authenticated"
    return RefusedError(
        f"the server {server} refused the connection{how}: {refusal.text} ({refusal.code})",
        remedy=refusal.advice.remedy,
        reason=refusal.code,
    )


def _authentication_failed(packet: str, server: str, error: TamperedError) -> TamperedError:
    return TamperedError(
        f"the {packet} of the server {server} failed its authentication: {error.what}",
        remedy="Use the same shared secret on both endpoints, or none. Otherwise the packet was altered in transit.",
    )


TRANSITIONS: Final[dict[tuple[State, Event], Row[ClientHandshake, State, Action]]] = {
    (State.NEW, Event.START): Row(
        (State.AWAIT_HELLO_ACK,), ClientHandshake._on_start, "send HELLO"),
    (State.NEW, Event.CLOSE): Row(
        (State.ENDED,), ClientHandshake._on_close, "nothing"),
    (State.AWAIT_HELLO_ACK, Event.RETRY): Row(
        (State.AWAIT_HELLO_ACK,), ClientHandshake._on_retry,
        "send HELLO with the cookie, on a new path; after a repeated RETRY, or too many, as for PATH_LOST"),
    (State.AWAIT_HELLO_ACK, Event.REFUSAL): Row(
        (State.AWAIT_HELLO_ACK,), ClientHandshake._on_refusal, "keep it; shorten the deadline if its code says soon"),
    (State.AWAIT_HELLO_ACK, Event.HELLO_ACK): Row(
        (State.AWAIT_DONE_ACK, State.ENDED), ClientHandshake._on_hello_ack, "verify the server's key, then send DONE"),
    (State.AWAIT_HELLO_ACK, Event.PATH_LOST): Row(
        (State.AWAIT_HELLO_ACK,), ClientHandshake._on_path_lost, "keep it, shorten the deadline"),
    (State.AWAIT_HELLO_ACK, Event.DEADLINE): Row(
        (State.ENDED,), ClientHandshake._on_deadline, "fail with the refusal, the lost path or the step's name"),
    (State.AWAIT_HELLO_ACK, Event.CLOSE): Row(
        (State.ENDED,), ClientHandshake._on_close, "nothing"),
    (State.AWAIT_DONE_ACK, Event.REFUSAL): Row(
        (State.AWAIT_DONE_ACK,), ClientHandshake._on_refusal, "keep it; shorten the deadline if its code says soon"),
    (State.AWAIT_DONE_ACK, Event.DONE_ACK): Row(
        (State.CONNECTED, State.ENDED), ClientHandshake._on_done_ack, "hand over the keys, or fail permanently"),
    (State.AWAIT_DONE_ACK, Event.FAILED): Row(
        (State.ENDED,), ClientHandshake._on_failed, "fail with the server's text; its code decides when to try again"),
    (State.AWAIT_DONE_ACK, Event.PATH_LOST): Row(
        (State.AWAIT_DONE_ACK,), ClientHandshake._on_path_lost, "keep it, shorten the deadline"),
    (State.AWAIT_DONE_ACK, Event.DEADLINE): Row(
        (State.ENDED,), ClientHandshake._on_deadline, "fail with the refusal, the lost path or the step's name"),
    (State.AWAIT_DONE_ACK, Event.CLOSE): Row(
        (State.ENDED,), ClientHandshake._on_close, "nothing"),
}  # fmt: skip
