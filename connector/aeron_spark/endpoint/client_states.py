"""The states and events of a client, and the table of its steps.

The table is data: a client in another language has the same one. An event without a row in the client's state is an
error of the program: it raises, and changes nothing. ``client_endpoint`` has the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class ClientState(Enum):
    """The state of a client; the value says what the client does in it."""

    IDLE = "not connected, and not trying to connect"
    LOOKING_UP = "the key store looks up the server's key"
    HANDSHAKING = "a handshake is under way"
    OPENING_LINK = "the server has accepted; the client awaits its first frame"
    CONNECTED = "a link carries the session"
    PAUSED = "the next attempt begins after a pause"
    WITHOUT_DRIVER = "the media driver was lost; the client opens the transport again"
    CLOSING = "the connection is being closed; unsent messages are being sent"
    CLOSED = "the client has ended"


class ClientEvent(Enum):
    """A request of the program, the end of a wait, or a report of the event loop."""

    CONNECT = "the program connects"
    CLOSE = "the program closes the connection; CLOSE is queued already"
    STOP = "the program stops the attempts to connect"
    SHUT_DOWN = "the program ends the client"
    STEP_DUE = "the deadline of the present state has passed"
    CONNECT_DUE = "the deadline of the program's connect has passed"
    KEY_KNOWN = "the key store has found the server's key, or has none"
    LOOK_UP_FAILED = "the key store could not look the key up"
    TRANSPORT_OPENED = "the transport is open, on a media driver"
    OPEN_FAILED = "the transport could not be opened"
    DRIVER_LOST = "the media driver was lost, with all paths and links"
    PATH_READY = "the first publication of the path is connected to the server"
    PATH_FAILED = "the media driver could not open the path or its publication"
    PATH_LOST = "the server's image on the path became unavailable"
    REJECTED = "the server rejected the publication, with a hint that is not authenticated"
    PACKET = "a packet arrived on the path"
    LINK_VERIFIED = "the server's first frame was decrypted"
    LINK_FAILED = "the link could not be opened, or was lost"
    PEER_CLOSED = "the server sent CLOSE"
    SESSION_FAILED = "the session cannot continue: the endpoints disagree, it was too long without a link, or tampering"
    DRAINED = "Aeron has taken all messages of the link that is being closed"


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A step: the method ``_on_STEP`` of the endpoint, which returns one of the states ``to``."""

    to: tuple[ClientState, ...]
    step: str
    meaning: str


S = ClientState
E = ClientEvent

_FAILED: Final = (S.PAUSED, S.IDLE)
_STEP: Final = (S.HANDSHAKING, *_FAILED)
_TRYING: Final = (S.LOOKING_UP, S.WITHOUT_DRIVER)
_WAITING: Final = (S.WITHOUT_DRIVER, S.IDLE)
_ENDED: Final = (S.IDLE, S.LOOKING_UP)
_LATE: Final = "note that the look-up has ended"

TRANSITIONS: Final[dict[tuple[ClientState, ClientEvent], ClientRow]] = {
    (S.IDLE, E.CONNECT): ClientRow(_TRYING, "connect", "look the server's key up, or open the transport"),
    (S.IDLE, E.CLOSE): ClientRow((S.IDLE,), "close", "end the session that was kept for a resume"),
    (S.IDLE, E.STOP): ClientRow((S.IDLE,), "stop", "note the error, unless one is noted already"),
    (S.IDLE, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.IDLE, E.KEY_KNOWN): ClientRow((S.IDLE,), "late_look_up", _LATE),
    (S.IDLE, E.LOOK_UP_FAILED): ClientRow((S.IDLE,), "late_look_up", _LATE),
    (S.IDLE, E.SESSION_FAILED): ClientRow((S.IDLE,), "session_failed", "end the session"),
    (S.IDLE, E.DRIVER_LOST): ClientRow((S.IDLE,), "driver_lost", "remember it for the next connect"),
    (S.IDLE, E.TRANSPORT_OPENED): ClientRow((S.IDLE,), "transport_opened", "remember it for the next connect"),
    (S.IDLE, E.OPEN_FAILED): ClientRow((S.IDLE,), "open_failed", "remember it for the next connect"),
    (S.LOOKING_UP, E.CONNECT): ClientRow((S.LOOKING_UP,), "connect", "continue the attempt"),
    (S.LOOKING_UP, E.CLOSE): ClientRow((S.IDLE,), "close", "leave the session"),
    (S.LOOKING_UP, E.STOP): ClientRow((S.IDLE,), "stop", "give the attempt up, note the error"),
    (S.LOOKING_UP, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.LOOKING_UP, E.CONNECT_DUE): ClientRow((S.LOOKING_UP, S.IDLE), "connect_due", "fail the connect"),
    (S.LOOKING_UP, E.KEY_KNOWN): ClientRow((S.HANDSHAKING, *_FAILED), "key_known", "open a path"),
    (S.LOOKING_UP, E.LOOK_UP_FAILED): ClientRow(_FAILED, "look_up_failed", "pause, or stop"),
    (S.LOOKING_UP, E.SESSION_FAILED): ClientRow((S.LOOKING_UP, S.IDLE), "session_failed", "end the session"),
    (S.LOOKING_UP, E.DRIVER_LOST): ClientRow(_WAITING, "driver_lost", "open the transport, or stop"),
    (S.HANDSHAKING, E.CONNECT): ClientRow((S.HANDSHAKING,), "connect", "continue the attempt"),
    (S.HANDSHAKING, E.CLOSE): ClientRow((S.IDLE,), "close", "give the attempt up, leave the session"),
    (S.HANDSHAKING, E.STOP): ClientRow((S.IDLE,), "stop", "give the attempt up, note the error"),
    (S.HANDSHAKING, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.HANDSHAKING, E.CONNECT_DUE): ClientRow(_FAILED, "connect_due", "fail the connect with the awaited step"),
    (S.HANDSHAKING, E.STEP_DUE): ClientRow(_FAILED, "attempt_due", "pause, or stop"),
    (S.HANDSHAKING, E.PATH_READY): ClientRow(
        (S.HANDSHAKING,), "path_ready", "send HELLO, prepare the next publication"),
    (S.HANDSHAKING, E.PATH_FAILED): ClientRow(_FAILED, "attempt_failed", "pause, or stop"),
    (S.HANDSHAKING, E.PATH_LOST): ClientRow((S.HANDSHAKING,), "path_lost", "pass it to the handshake"),
    (S.HANDSHAKING, E.REJECTED): ClientRow(_STEP, "rejected", "pass it to the handshake"),
    (S.HANDSHAKING, E.PACKET): ClientRow((S.OPENING_LINK, *_STEP), "packet", "pass it to the handshake"),
    (S.HANDSHAKING, E.SESSION_FAILED): ClientRow(
        _STEP, "session_failed", "end the session, and an attempt to resume it"),
    (S.HANDSHAKING, E.DRIVER_LOST): ClientRow(_WAITING, "driver_lost", "open the transport, or stop"),
    (S.OPENING_LINK, E.CONNECT): ClientRow((S.OPENING_LINK,), "connect", "continue the attempt"),
    (S.OPENING_LINK, E.CLOSE): ClientRow((S.IDLE,), "close", "give the attempt up, leave the session"),
    (S.OPENING_LINK, E.STOP): ClientRow((S.IDLE,), "stop", "give the attempt up, note the error"),
    (S.OPENING_LINK, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.OPENING_LINK, E.CONNECT_DUE): ClientRow(_FAILED, "connect_due", "fail the connect with the awaited step"),
    (S.OPENING_LINK, E.STEP_DUE): ClientRow(_FAILED, "attempt_due", "pause, or stop"),
    (S.OPENING_LINK, E.LINK_VERIFIED): ClientRow(
        (S.CONNECTED, *_FAILED), "link_verified", "attach, notify the program; end a session not resumed"),
    (S.OPENING_LINK, E.LINK_FAILED): ClientRow(_FAILED, "attempt_failed", "pause, or stop"),
    (S.OPENING_LINK, E.SESSION_FAILED): ClientRow(
        (S.OPENING_LINK, *_FAILED), "session_failed", "end the session, and an attempt to resume it"),
    (S.OPENING_LINK, E.DRIVER_LOST): ClientRow(_WAITING, "driver_lost", "open the transport, or stop"),
    (S.CONNECTED, E.CONNECT): ClientRow((S.CONNECTED,), "connect", "end the connect with success"),
    (S.CONNECTED, E.CLOSE): ClientRow((S.CLOSING,), "close", "wait until unsent messages are sent"),
    (S.CONNECTED, E.STOP): ClientRow((S.CONNECTED,), "stop", "nothing"),
    (S.CONNECTED, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.CONNECTED, E.SESSION_FAILED): ClientRow(_FAILED, "session_failed", "end the session"),
    (S.CONNECTED, E.LINK_FAILED): ClientRow(_FAILED, "link_lost", "detach; end the session unless reconnecting"),
    (S.CONNECTED, E.PEER_CLOSED): ClientRow(_FAILED, "peer_closed", "leave the session; connect again if it allows"),
    (S.CONNECTED, E.DRIVER_LOST): ClientRow(_WAITING, "driver_lost", "detach, open the transport"),
    (S.PAUSED, E.CONNECT): ClientRow((S.LOOKING_UP,), "connect", "start an attempt at once"),
    (S.PAUSED, E.CLOSE): ClientRow((S.IDLE,), "close", "leave the session"),
    (S.PAUSED, E.STOP): ClientRow((S.IDLE,), "stop", "give the attempt up, note the error"),
    (S.PAUSED, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.PAUSED, E.CONNECT_DUE): ClientRow(_FAILED, "connect_due", "fail the connect"),
    (S.PAUSED, E.STEP_DUE): ClientRow((S.LOOKING_UP, S.IDLE), "pause_over", "look the server's key up, or stop"),
    (S.PAUSED, E.KEY_KNOWN): ClientRow((S.PAUSED,), "late_look_up", _LATE),
    (S.PAUSED, E.LOOK_UP_FAILED): ClientRow((S.PAUSED,), "late_look_up", _LATE),
    (S.PAUSED, E.SESSION_FAILED): ClientRow(_FAILED, "session_failed", "end the session"),
    (S.PAUSED, E.DRIVER_LOST): ClientRow(_WAITING, "driver_lost", "open the transport, or stop"),
    (S.WITHOUT_DRIVER, E.CONNECT): ClientRow((S.WITHOUT_DRIVER,), "connect", "wait for the driver"),
    (S.WITHOUT_DRIVER, E.CLOSE): ClientRow((S.IDLE,), "close", "leave the session"),
    (S.WITHOUT_DRIVER, E.STOP): ClientRow((S.IDLE,), "stop", "give the attempt up, note the error"),
    (S.WITHOUT_DRIVER, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.WITHOUT_DRIVER, E.CONNECT_DUE): ClientRow(_WAITING, "connect_due", "fail the connect"),
    (S.WITHOUT_DRIVER, E.STEP_DUE): ClientRow(_WAITING, "open_due", "open the transport, or stop"),
    (S.WITHOUT_DRIVER, E.KEY_KNOWN): ClientRow((S.WITHOUT_DRIVER,), "late_look_up", _LATE),
    (S.WITHOUT_DRIVER, E.LOOK_UP_FAILED): ClientRow((S.WITHOUT_DRIVER,), "late_look_up", _LATE),
    (S.WITHOUT_DRIVER, E.SESSION_FAILED): ClientRow(_WAITING, "session_failed", "end the session"),
    (S.WITHOUT_DRIVER, E.TRANSPORT_OPENED): ClientRow(
        (S.LOOKING_UP, S.IDLE), "transport_opened", "look the server's key up, or stop"),
    (S.WITHOUT_DRIVER, E.OPEN_FAILED): ClientRow(_WAITING, "open_failed", "open it again later"),
    (S.CLOSING, E.CONNECT): ClientRow((S.CLOSING,), "connect", "connect once it is closed"),
    (S.CLOSING, E.CLOSE): ClientRow((S.CLOSING,), "close", "keep the session if both calls want that"),
    (S.CLOSING, E.STOP): ClientRow((S.CLOSING,), "stop", "do not connect once it is closed"),
    (S.CLOSING, E.SHUT_DOWN): ClientRow((S.CLOSED,), "shut_down", "end the session"),
    (S.CLOSING, E.CONNECT_DUE): ClientRow((S.CLOSING,), "connect_due", "fail the connect"),
    (S.CLOSING, E.STEP_DUE): ClientRow(_ENDED, "closing_done", "leave the session; start a connect that waits"),
    (S.CLOSING, E.DRAINED): ClientRow(_ENDED, "closing_done", "leave the session; start a connect that waits"),
    (S.CLOSING, E.LINK_FAILED): ClientRow(_ENDED, "closing_done", "leave the session; start a connect that waits"),
    (S.CLOSING, E.PEER_CLOSED): ClientRow(_ENDED, "peer_closed", "leave the session; keep it if both agree"),
    (S.CLOSING, E.SESSION_FAILED): ClientRow(_ENDED, "session_failed", "end the session"),
    (S.CLOSING, E.DRIVER_LOST): ClientRow(_WAITING, "driver_lost", "leave the session"),
}  # fmt: skip

AWAITED: Final = {
    S.LOOKING_UP: "the look-up in the key store has not ended",
    S.PAUSED: "the next attempt was not due yet",
    S.WITHOUT_DRIVER: "no media driver is running yet",
    S.CLOSING: "the previous connection was not closed yet",
}
"""The reason for which a connect has no outcome in a state without an attempt, as part of an error text."""
