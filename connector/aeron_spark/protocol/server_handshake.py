"""The server's handshake as a pure state machine. docs/endpoint-protocol.md has its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from aeron_spark.errors import DataFormatError, OptionError, TamperedError
from aeron_spark.protocol.frame_cipher import CipherLimits, FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_packets import (
    Cookies,
    DoneAckPacket,
    DonePacket,
    FailedPacket,
    HelloAckPacket,
    HelloPacket,
    OtherVersion,
    RefusalHint,
    RetryHint,
    decode,
    decode_client_done,
    encode,
    encode_hint,
    hello_core,
    key_hash,
    prologue,
)
from aeron_spark.protocol.handshake_payloads import (
    MAX_TAG,
    ClientDone,
    Code,
    DoneAck,
    FailedPayload,
    ServerHello,
    check_tag,
    encode_payload,
    known_code,
    printable,
)
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.noise import Entropy, HandshakeState
from aeron_spark.protocol.sources import Refusal
from aeron_spark.protocol.transitions import Row, step, unexpected_event


class State(Enum):
    """The state of an image's handshake."""

    AWAIT_HELLO = "an image became available"
    ADMITTING = "HELLO arrived with a valid cookie; limits are checked"
    OPENING_PATH = "counted as pending; the path to the client is being opened"
    AWAIT_DONE = "HELLO_ACK was sent"
    AUTHENTICATING = "the client has proved its key; limits, filters and ids are checked"
    CONNECTED = "DONE_ACK was sent"
    ENDED = "the handshake has ended"


class Event(Enum):
    """An event of an image's handshake."""

    HELLO_MISSED = "the image begins after the sender's HELLO"
    HELLO = "a HELLO arrives"
    DONE = "a DONE for our connect key arrives"
    UNEXPECTED = "a message arrives that is not a packet of a client"
    OTHER_VERSION = "a packet of another version arrives"
    ADMITTED = "the server counts the handshake as pending"
    PATH_READY = "the path to the client is connected"
    ACCEPTED = "the server has opened a link"
    REFUSED = "the server refuses"
    DEADLINE = "the step took too long"
    PATH_LOST = "the image or the path to the client was lost"
    CLOSE = "the server shuts down"


PROGRAM_EVENTS: Final = frozenset({Event.ADMITTED, Event.PATH_READY, Event.ACCEPTED, Event.REFUSED})
"""Events that only the program causes; all others may arrive at any time."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject the image (``Image.reject``). Only its sender receives the reason, as a hint."""

    reason: str


@dataclass(frozen=True, slots=True)
class Admit:
    """Count a pending handshake from ``address`` (None: IPC), or refuse it. Response: ``admitted`` or ``refuse``."""

    address: str | None
    key_hash: bytes


@dataclass(frozen=True, slots=True)
class OpenPath:
    """Open a small response publication to the sender. Response: ``path_ready`` or ``refuse``."""


@dataclass(frozen=True, slots=True)
class Send:
    """Offer this packet on the response publication until Aeron takes it."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Decide on a client that has proved its key. Response: ``accept`` or ``refuse``."""

    client_key: bytes
    done: ClientDone


@dataclass(frozen=True, slots=True)
class ClientAccepted:
    """DONE_ACK was sent. The encryptor and decryptor are for the link, which the client's first frame verifies."""

    encryptor: FrameEncryptor
    decryptor: FrameDecryptor
    client_key: bytes
    done: ClientDone
    handshake_hash: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Release the handshake's resources after its packets were sent. ``refusal`` was sent to the client."""

    why: str
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing changed. ``why`` is for logs and tests."""

    why: str


Action = Reject | Admit | OpenPath | Send | Authenticate | ClientAccepted | Release | Ignored

Actions = tuple[Action, ...]

BAD_MESSAGE: Final = Refusal("message", "Bad message")

# an outage, a restart or a slow client came between HELLO and DONE, so that the client may try again
NO_PENDING: Final = Refusal("timeout", "No pending handshake")

OTHER_VERSION: Final = Refusal("version", "This server speaks version 1")

NOT_AUTHENTIC: Final = Refusal("proof", "The handshake failed its authentication")

SECRET_REQUIRED: Final = Refusal("proof", "This server requires a shared secret")

NO_SECRET: Final = Refusal("proof", "This server has no shared secret")

TAG_TOO_LONG: Final = Refusal("tag", f"The tag is longer than {MAX_TAG} characters, or cannot be printed")

SHUTTING_DOWN: Final = Refusal("shutdown", "The server is shutting down")

_Step = tuple[State, Actions]


@dataclass(frozen=True, slots=True)
class ServerTiming:
    """The longest time for each step, in seconds."""

    hello_s: float = 5.0
    """From the image to HELLO, which a client sends when its publication is connected."""
    admitting_s: float = 5.0
    path_s: float = 10.0
    """For the path to the client. A client without a subscription occupies a small publication for this time."""
    done_s: float = 10.0
    """From HELLO_ACK to DONE: a round trip."""
    authenticating_s: float = 10.0
    """For the decision on the client, with key files and filters."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The values that all handshakes of a server share."""

    keys: KeyPair
    hello: ServerHello
    cookies: Cookies
    entropy: Entropy
    psk: bytes | None = field(default=None, repr=False)
    timing: ServerTiming = field(default_factory=ServerTiming)
    limits: CipherLimits = field(default_factory=CipherLimits)


class ServerHandshake:
    """The handshake of one image, as a pure state machine. For one thread."""

    def __init__(self, server: ServerIdentity, address: str | None, now: float) -> None:
        """Await the HELLO of an image from a canonical IP ``address``; None for IPC."""
        self._server: Final = server
        self._address: Final = address
        self._key_hash = b""
        self._noise: HandshakeState | None = None
        self._done: ClientDone | None = None
        self.state = State.AWAIT_HELLO
        self.deadline: float | None = now + server.timing.hello_s
        """The time of the next ``tick``; None if time changes nothing."""

    def hello_missed(self, now: float) -> Actions:
        """Handle an image that begins after its sender's HELLO. Call it before all other methods."""
        return self._take(Event.HELLO_MISSED, None, now)

    def packet(self, data: bytes | memoryview, now: float) -> Actions:
        """Handle a message of the image. Never raises for its content."""
        try:
            packet = decode(data)
        except DataFormatError as error:
            return self._take(Event.UNEXPECTED, error.what, now)
        match packet:
            case OtherVersion(version):
                return self._take(Event.OTHER_VERSION, version, now)
            case HelloPacket():
                return self._take(Event.HELLO, packet, now)
            case DonePacket(key_hash=name) if self._key_hash and name != self._key_hash:
                return (Ignored("a DONE for another connect key"),)
            case DonePacket(message=body):
                return self._take(Event.DONE, body, now)
            case _:
                return self._take(Event.UNEXPECTED, "a packet that only servers send", now)

    def admitted(self, now: float) -> Actions:
        """Continue after ``Admit``: the handshake is counted. Raises UsageError in any other state."""
        return self._take(Event.ADMITTED, None, now)

    def path_ready(self, now: float) -> Actions:
        """Continue after ``OpenPath``: the publication is connected. Raises UsageError in any other state."""
        return self._take(Event.PATH_READY, None, now)

    def accept(self, ack: DoneAck, now: float) -> Actions:
        """Continue after ``Authenticate``: the link is open.

        Raises UsageError in any other state, and OptionError for an ``ack`` that cannot be sent. Then nothing changes.
        """
        return self._take(Event.ACCEPTED, ack, now)

    def refuse(self, refusal: Refusal, now: float) -> Actions:
        """Refuse before HELLO, or after ``Admit``, ``OpenPath`` or ``Authenticate``.

        Raises UsageError in any other state, and OptionError for an unknown code.
        """
        return self._take(Event.REFUSED, refusal, now)

    def path_lost(self, now: float) -> Actions:
        """Handle the loss of the image or of the response publication."""
        return self._take(Event.PATH_LOST, None, now)

    def tick(self, now: float) -> Actions:
        """End the present step if its deadline has passed."""
        if self.deadline is None or now < self.deadline:
            return ()
        return self._take(Event.DEADLINE, None, now)

    def close(self, now: float) -> Actions:
        """Refuse the client because the server shuts down; an accepted client stays connected."""
        return self._take(Event.CLOSE, None, now)

    def _take(self, event: Event, argument: object, now: float) -> Actions:
        result = step(TRANSITIONS, self, self.state, event, argument, now)
        if result is None:
            if event in PROGRAM_EVENTS:
                raise unexpected_event("server", self.state, event)
            return (Ignored(f"{event.name} in {self.state.name}"),)
        before, (self.state, actions) = self.state, result
        if self.state is not before:
            self.deadline = self._deadline(now)
        return actions

    def _deadline(self, now: float) -> float | None:
        seconds = self._seconds()
        return None if seconds is None else now + seconds

    def _seconds(self) -> float | None:
        timing = self._server.timing
        match self.state:
            case State.AWAIT_HELLO:
                return timing.hello_s
            case State.ADMITTING:
                return timing.admitting_s
            case State.OPENING_PATH:
                return timing.path_s
            case State.AWAIT_DONE:
                return timing.done_s
            case State.AUTHENTICATING:
                return timing.authenticating_s
            case State.CONNECTED | State.ENDED:
                return None

    @property
    def _started_noise(self) -> HandshakeState:
        assert self._noise is not None  # set by HELLO
        return self._noise

    def _on_hello(self, packet: HelloPacket, now: float) -> _Step:
        if self._address is not None:
            core = hello_core(packet)
            if not self._server.cookies.accept(now, self._address, core, packet.cookie):
                cookie = self._server.cookies.make(now, self._address, core)
                return State.ENDED, (Reject(encode_hint(RetryHint(cookie))), Release("HELLO without a valid cookie"))
        elif packet.cookie:
            return self._reject(BAD_MESSAGE, "HELLO with a cookie over IPC")
        noise = HandshakeState(
            initiator=False,
            static=self._server.keys,
            entropy=self._server.entropy,
            prologue=prologue(packet.connect_key),
            psk=self._server.psk,
        )
        if len(packet.message) != noise.first_message_bytes:
            return self._reject(NO_SECRET if self._server.psk is None else SECRET_REQUIRED)
        try:
            noise.read(packet.message)
        except TamperedError as error:
            return self._reject(NOT_AUTHENTIC, error.what)
        self._noise = noise
        self._key_hash = key_hash(packet.connect_key)
        return State.ADMITTING, (Admit(self._address, self._key_hash),)

    def _on_unknown(self, _argument: object, _now: float) -> _Step:
        return self._reject(NO_PENDING)

    def _on_unexpected(self, why: str, _now: float) -> _Step:
        return self._reject(BAD_MESSAGE, why)

    def _on_other_version(self, version: int, _now: float) -> _Step:
        return self._reject(OTHER_VERSION, f"a packet of version {version}")

    def _on_admitted(self, _argument: None, _now: float) -> _Step:
        return State.OPENING_PATH, (OpenPath(),)

    def _on_path_ready(self, _argument: None, _now: float) -> _Step:
        try:
            message = self._started_noise.write(encode_payload(self._server.hello))
        except TamperedError as error:
            return self._reject(NOT_AUTHENTIC, error.what)
        return State.AWAIT_DONE, (Send(encode(HelloAckPacket(self._key_hash, message))),)

    def _on_done(self, body: bytes, _now: float) -> _Step:
        try:
            payload = self._started_noise.read(body)
        except TamperedError as error:
            return self._reject(NOT_AUTHENTIC, error.what)
        # the client has proved its key, so refusals are FAILED packets from here on
        try:
            done = decode_client_done(payload)
        except DataFormatError as error:
            return self._fail(BAD_MESSAGE, error.what)
        try:
            check_tag(done.tag)
        except OptionError as error:
            return self._fail(TAG_TOO_LONG, error.what)
        self._done = done
        return State.AUTHENTICATING, (Authenticate(self._started_noise.remote_static, done),)

    def _on_accepted(self, ack: DoneAck, _now: float) -> _Step:
        assert self._done is not None  # set by DONE
        payload = encode_payload(ack)
        sending, receiving = self._started_noise.split()
        encryptor = FrameEncryptor(sending, self._server.limits)
        packet = encode(DoneAckPacket(self._key_hash, bytes(encryptor.encrypt(payload))))
        decryptor = FrameDecryptor(receiving, self._server.limits)
        noise = self._started_noise
        return State.CONNECTED, (
            Send(packet),
            ClientAccepted(encryptor, decryptor, noise.remote_static, self._done, noise.handshake_hash),
        )

    def _on_refused(self, refusal: Refusal, _now: float) -> _Step:
        return self._reject(refusal)

    def _on_refused_after_done(self, refusal: Refusal, _now: float) -> _Step:
        return self._fail(refusal)

    def _on_deadline(self, _argument: None, _now: float) -> _Step:
        return self._reject(self._timeout())

    def _on_deadline_after_done(self, _argument: None, _now: float) -> _Step:
        return self._fail(self._timeout())

    def _on_path_lost(self, _argument: None, _now: float) -> _Step:
        return State.ENDED, (Release(f"the path to the client was lost in {self.state.name}"),)

    def _on_close(self, _argument: None, _now: float) -> _Step:
        return self._reject(SHUTTING_DOWN)

    def _on_close_after_done(self, _argument: None, _now: float) -> _Step:
        return self._fail(SHUTTING_DOWN)

    def _timeout(self) -> Refusal:
        awaited = {
            State.AWAIT_HELLO: "the client's HELLO",
            State.ADMITTING: "its own limits",
            State.OPENING_PATH: "the path to the client",
            State.AWAIT_DONE: "the client's DONE",
            State.AUTHENTICATING: "its own decision",
        }[self.state]
        return Refusal("timeout", f"The server waited {self._seconds():g} s for {awaited}")

    def _reject(self, refusal: Refusal, why: str = "") -> _Step:
        """Refuse an unauthenticated sender with a hint."""
        told = Refusal(refusal.code, refusal.text_for_unauthenticated)
        return State.ENDED, (Reject(encode_hint(RefusalHint(told))), Release(why or refusal.text, refusal))

    def _fail(self, refusal: Refusal, why: str = "") -> _Step:
        """Refuse a client that has proved its key with a packet that only this server can have encrypted."""
        code: Code = known_code(refusal.code)
        payload = encode_payload(FailedPayload(code=code, text=printable(refusal.text_for_client)))
        encryptor = FrameEncryptor(self._started_noise.split()[0], self._server.limits)
        packet = encode(FailedPacket(self._key_hash, bytes(encryptor.encrypt(payload))))
        return State.ENDED, (Send(packet), Release(why or refusal.text, refusal))


_H = ServerHandshake

_END: Final = (State.ENDED,)
_PENDING_ENDS: Final = "reject with the reason, release everything"

TRANSITIONS: Final[dict[tuple[State, Event], Row[ServerHandshake, State, Action]]] = {
    (State.AWAIT_HELLO, Event.HELLO): Row(
        (State.ADMITTING, State.ENDED), _H._on_hello, "RETRY, refuse, or check the limits"),
    (State.AWAIT_HELLO, Event.HELLO_MISSED): Row(_END, _H._on_unknown, "reject: no pending handshake"),
    (State.AWAIT_HELLO, Event.DONE): Row(_END, _H._on_unknown, "reject: no pending handshake"),
    (State.AWAIT_HELLO, Event.UNEXPECTED): Row(_END, _H._on_unexpected, "reject: bad message"),
    (State.AWAIT_HELLO, Event.OTHER_VERSION): Row(_END, _H._on_other_version, "reject: version"),
    (State.AWAIT_HELLO, Event.DEADLINE): Row(_END, _H._on_deadline, "reject: timeout"),
    (State.AWAIT_HELLO, Event.REFUSED): Row(_END, _H._on_refused, "reject: the address is banned"),
    (State.AWAIT_HELLO, Event.PATH_LOST): Row(_END, _H._on_path_lost, "nothing to release"),
    (State.AWAIT_HELLO, Event.CLOSE): Row(_END, _H._on_close, "reject: shutting down"),
    (State.ADMITTING, Event.ADMITTED): Row((State.OPENING_PATH,), _H._on_admitted, "open the path to the client"),
    (State.ADMITTING, Event.REFUSED): Row(_END, _H._on_refused, _PENDING_ENDS),
    (State.ADMITTING, Event.DEADLINE): Row(_END, _H._on_deadline, _PENDING_ENDS),
    (State.ADMITTING, Event.PATH_LOST): Row(_END, _H._on_path_lost, "release everything"),
    (State.ADMITTING, Event.CLOSE): Row(_END, _H._on_close, _PENDING_ENDS),
    (State.OPENING_PATH, Event.PATH_READY): Row(
        (State.AWAIT_DONE, State.ENDED), _H._on_path_ready, "send HELLO_ACK; reject a key of low order"),
    (State.OPENING_PATH, Event.REFUSED): Row(_END, _H._on_refused, _PENDING_ENDS),
    (State.OPENING_PATH, Event.DEADLINE): Row(_END, _H._on_deadline, _PENDING_ENDS),
    (State.OPENING_PATH, Event.PATH_LOST): Row(_END, _H._on_path_lost, "release everything"),
    (State.OPENING_PATH, Event.CLOSE): Row(_END, _H._on_close, _PENDING_ENDS),
    (State.AWAIT_DONE, Event.DONE): Row(
        (State.AUTHENTICATING, State.ENDED), _H._on_done, "decide on the client; refuse an invalid DONE"),
    (State.AWAIT_DONE, Event.DEADLINE): Row(_END, _H._on_deadline, _PENDING_ENDS),
    (State.AWAIT_DONE, Event.PATH_LOST): Row(_END, _H._on_path_lost, "release everything"),
    (State.AWAIT_DONE, Event.CLOSE): Row(_END, _H._on_close, _PENDING_ENDS),
    (State.AUTHENTICATING, Event.ACCEPTED): Row(
        (State.CONNECTED,), _H._on_accepted, "send DONE_ACK, hand over the link's keys"),
    (State.AUTHENTICATING, Event.REFUSED): Row(_END, _H._on_refused_after_done, "send FAILED, release everything"),
    (State.AUTHENTICATING, Event.DEADLINE): Row(_END, _H._on_deadline_after_done, "send FAILED, release everything"),
    (State.AUTHENTICATING, Event.PATH_LOST): Row(_END, _H._on_path_lost, "release everything"),
    (State.AUTHENTICATING, Event.CLOSE): Row(_END, _H._on_close_after_done, "send FAILED, release everything"),
}  # fmt: skip
