"""The client as one state machine: it connects, resumes its session after an outage, and says what a runner must do.

Feed it by ``connect``, ``close``, ``stop``, ``shut_down``, ``handle`` and ``tick``, and execute the effects that they
return, in order. An effect that is answered at once (see ``client_events``) is the last of its step; hand the answer in
before anything else. Call ``tick`` when ``deadline`` has passed. Data frames do not come here.
"""

from __future__ import annotations

from typing import Any, Final

from aeron_spark.errors import AeronSparkError, UsageError
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.client_attempt import ClientPolicy
from aeron_spark.protocol.client_events import ClientEffect, ClientEvent, ClientState, Effects, SessionRecord
from aeron_spark.protocol.client_steps import ClientSteps
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.transitions import Row

S = ClientState
_M = ClientSteps
_BEGUN: Final = (S.LOOKING_UP, S.WITHOUT_DRIVER)
_FAILED: Final = (S.PAUSED, S.IDLE)
_STEP: Final = (S.HANDSHAKING, *_FAILED)
_LEFT: Final = (S.IDLE, S.LOOKING_UP)
_FORGET: Final = "note that the store has answered"

TRANSITIONS: Final[dict[tuple[ClientState, type[Any]], Row[ClientSteps, ClientState, ClientEffect]]] = {
    (S.IDLE, e.Connect): Row(_BEGUN, _M.on_connect, "look the server's key up, or open the transport"),
    (S.IDLE, e.Close): Row((S.IDLE,), _M.on_close, "end the session that was kept"),
    (S.IDLE, e.Stop): Row((S.IDLE,), _M.on_stop, "say why it has stopped, unless that is said"),
    (S.IDLE, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.IDLE, e.KeyKnown): Row((S.IDLE,), _M.on_late_look_up, _FORGET),
    (S.IDLE, e.LookUpFailed): Row((S.IDLE,), _M.on_late_look_up, _FORGET),
    (S.IDLE, e.SessionFailed): Row((S.IDLE,), _M.on_session_failed, "end the session"),
    (S.IDLE, e.DriverLost): Row((S.IDLE,), _M.on_driver_lost_while_idle, "remember it for the next connect"),
    (S.IDLE, e.TransportReopened): Row((S.IDLE,), _M.on_transport_reopened, "remember it for the next connect"),
    (S.IDLE, e.ReopenFailed): Row((S.IDLE,), _M.on_reopen_failed, "remember it for the next connect"),
    (S.LOOKING_UP, e.Connect): Row((S.LOOKING_UP,), _M.on_connect, "let the attempt go on"),
    (S.LOOKING_UP, e.Close): Row((S.IDLE,), _M.on_close, "leave the session"),
    (S.LOOKING_UP, e.Stop): Row((S.IDLE,), _M.on_stop, "give up"),
    (S.LOOKING_UP, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.LOOKING_UP, e.ConnectDue): Row((S.LOOKING_UP, S.IDLE), _M.on_connect_due, "fail the connect"),
    (S.LOOKING_UP, e.KeyKnown): Row((S.HANDSHAKING, *_FAILED), _M.on_key_known, "open a path"),
    (S.LOOKING_UP, e.LookUpFailed): Row(_FAILED, _M.on_look_up_failed, "pause, or stop"),
    (S.LOOKING_UP, e.SessionFailed): Row((S.LOOKING_UP, S.IDLE), _M.on_session_failed, "end the session"),
    (S.LOOKING_UP, e.DriverLost): Row((S.WITHOUT_DRIVER,), _M.on_driver_lost, "open the transport"),
    (S.HANDSHAKING, e.Connect): Row((S.HANDSHAKING,), _M.on_connect, "let the attempt go on"),
    (S.HANDSHAKING, e.Close): Row((S.IDLE,), _M.on_close, "give the attempt up, leave the session"),
    (S.HANDSHAKING, e.Stop): Row((S.IDLE,), _M.on_stop, "give up"),
    (S.HANDSHAKING, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.HANDSHAKING, e.ConnectDue): Row(_FAILED, _M.on_connect_due, "fail the connect with what is awaited"),
    (S.HANDSHAKING, e.StepDue): Row(_FAILED, _M.on_handshake_due, "end the handshake's step"),
    (S.HANDSHAKING, e.PathReady): Row((S.HANDSHAKING,), _M.on_path_ready, "send HELLO, open a spare publication"),
    (S.HANDSHAKING, e.PathFailed): Row(_FAILED, _M.on_path_failed, "pause, or stop"),
    (S.HANDSHAKING, e.PathLost): Row((S.HANDSHAKING,), _M.on_path_lost, "tell the handshake"),
    (S.HANDSHAKING, e.PublicationFailed): Row(_STEP, _M.on_publication_failed, "pause; do without a spare one"),
    (S.HANDSHAKING, e.PublicationRejected): Row(
        (S.HANDSHAKING,), _M.on_rejected, "tell the handshake; do without a spare one"),
    (S.HANDSHAKING, e.Packet): Row((S.OPENING_LINK, *_STEP), _M.on_packet, "tell the handshake"),
    (S.HANDSHAKING, e.SessionFailed): Row(_STEP, _M.on_session_failed, "end the session, and an attempt to resume it"),
    (S.HANDSHAKING, e.DriverLost): Row((S.WITHOUT_DRIVER,), _M.on_driver_lost, "open the transport"),
    (S.OPENING_LINK, e.Connect): Row((S.OPENING_LINK,), _M.on_connect, "let the attempt go on"),
    (S.OPENING_LINK, e.Close): Row((S.IDLE,), _M.on_close, "give the attempt up, leave the session"),
    (S.OPENING_LINK, e.Stop): Row((S.IDLE,), _M.on_stop, "give up"),
    (S.OPENING_LINK, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.OPENING_LINK, e.ConnectDue): Row(_FAILED, _M.on_connect_due, "fail the connect with what is awaited"),
    (S.OPENING_LINK, e.StepDue): Row(_FAILED, _M.on_link_due, "pause, or stop"),
    (S.OPENING_LINK, e.ConnectionMade): Row((S.OPENING_LINK,), _M.on_connection_made, "open the link"),
    (S.OPENING_LINK, e.ConnectionFailed): Row((S.IDLE,), _M.on_connection_failed, "stop"),
    (S.OPENING_LINK, e.LinkVerified): Row((S.CONNECTED,), _M.on_link_verified, "attach; the session before is lost"),
    (S.OPENING_LINK, e.LinkFailed): Row(_FAILED, _M.on_link_failed, "pause, or stop"),
    (S.OPENING_LINK, e.PathFailed): Row((S.OPENING_LINK,), _M.on_word_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.PathLost): Row((S.OPENING_LINK,), _M.on_word_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.PublicationFailed): Row((S.OPENING_LINK,), _M.on_word_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.PublicationRejected): Row((S.OPENING_LINK,), _M.on_word_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.Packet): Row((S.OPENING_LINK,), _M.on_word_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.SessionFailed): Row(
        (S.OPENING_LINK, *_FAILED), _M.on_session_failed, "end the session, and an attempt to resume it"),
    (S.OPENING_LINK, e.DriverLost): Row((S.WITHOUT_DRIVER,), _M.on_driver_lost, "open the transport"),
    (S.CONNECTED, e.Connect): Row((S.CONNECTED,), _M.on_connect, "resolve it"),
    (S.CONNECTED, e.Close): Row((S.CLOSING,), _M.on_close, "let out what was sent"),
    (S.CONNECTED, e.Stop): Row((S.CONNECTED,), _M.on_stop_of_connected, "nothing"),
    (S.CONNECTED, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.CONNECTED, e.Attached): Row((S.CONNECTED,), _M.on_attached, "notify the program, resolve the connect"),
    (S.CONNECTED, e.SessionFailed): Row(_FAILED, _M.on_session_failed, "end the session"),
    (S.CONNECTED, e.LinkFailed): Row(_FAILED, _M.on_link_lost, "detach; without reconnecting, end the session"),
    (S.CONNECTED, e.PeerClosed): Row((S.IDLE,), _M.on_peer_closed, "leave the session"),
    (S.CONNECTED, e.DriverLost): Row(
        (S.WITHOUT_DRIVER, S.IDLE), _M.on_driver_lost_while_connected, "detach, open the transport"),
    (S.PAUSED, e.Connect): Row((S.LOOKING_UP,), _M.on_connect, "try at once"),
    (S.PAUSED, e.Close): Row((S.IDLE,), _M.on_close, "leave the session"),
    (S.PAUSED, e.Stop): Row((S.IDLE,), _M.on_stop, "give up"),
    (S.PAUSED, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.PAUSED, e.ConnectDue): Row(_FAILED, _M.on_connect_due, "fail the connect"),
    (S.PAUSED, e.StepDue): Row((S.LOOKING_UP,), _M.on_pause_over, "look the server's key up"),
    (S.PAUSED, e.KeyKnown): Row((S.PAUSED,), _M.on_late_look_up, _FORGET),
    (S.PAUSED, e.LookUpFailed): Row((S.PAUSED,), _M.on_late_look_up, _FORGET),
    (S.PAUSED, e.SessionFailed): Row(_FAILED, _M.on_session_failed, "end the session"),
    (S.PAUSED, e.DriverLost): Row((S.WITHOUT_DRIVER,), _M.on_driver_lost, "open the transport"),
    (S.WITHOUT_DRIVER, e.Connect): Row((S.WITHOUT_DRIVER,), _M.on_connect, "wait for the driver"),
    (S.WITHOUT_DRIVER, e.Close): Row((S.IDLE,), _M.on_close, "leave the session"),
    (S.WITHOUT_DRIVER, e.Stop): Row((S.IDLE,), _M.on_stop, "give up"),
    (S.WITHOUT_DRIVER, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.WITHOUT_DRIVER, e.ConnectDue): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_connect_due, "fail the connect"),
    (S.WITHOUT_DRIVER, e.StepDue): Row((S.WITHOUT_DRIVER,), _M.on_reopen_due, "open the transport"),
    (S.WITHOUT_DRIVER, e.KeyKnown): Row((S.WITHOUT_DRIVER,), _M.on_late_look_up, _FORGET),
    (S.WITHOUT_DRIVER, e.LookUpFailed): Row((S.WITHOUT_DRIVER,), _M.on_late_look_up, _FORGET),
    (S.WITHOUT_DRIVER, e.SessionFailed): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_session_failed, "end the session"),
    (S.WITHOUT_DRIVER, e.TransportReopened): Row((S.LOOKING_UP,), _M.on_transport_reopened, "look the server's key up"),
    (S.WITHOUT_DRIVER, e.ReopenFailed): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_reopen_failed, "try again after a time"),
    (S.CLOSING, e.Connect): Row((S.CLOSING,), _M.on_connect, "connect after it"),
    (S.CLOSING, e.Close): Row((S.CLOSING,), _M.on_close_again, "keep the session only if both want that"),
    (S.CLOSING, e.Stop): Row((S.CLOSING,), _M.on_stop_of_closing, "do not connect after it"),
    (S.CLOSING, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.CLOSING, e.ConnectDue): Row((S.CLOSING,), _M.on_connect_due_while_closing, "fail the connect"),
    (S.CLOSING, e.StepDue): Row(_LEFT, _M.on_left, "leave the session; begin a connect that came"),
    (S.CLOSING, e.Drained): Row(_LEFT, _M.on_left, "leave the session; begin a connect that came"),
    (S.CLOSING, e.LinkFailed): Row(_LEFT, _M.on_left, "leave the session; begin a connect that came"),
    (S.CLOSING, e.PeerClosed): Row(_LEFT, _M.on_peer_closed_first, "leave it; keep it only if both want that"),
    (S.CLOSING, e.SessionFailed): Row(_LEFT, _M.on_session_failed_while_closing, "end the session"),
    (S.CLOSING, e.DriverLost): Row((S.IDLE, S.WITHOUT_DRIVER), _M.on_driver_lost_while_closing, "leave the session"),
}  # fmt: skip


class ClientMachine:
    """One client of one server. For one thread. ``entropy`` returns as many random bytes as it is asked for."""

    def __init__(self, server: ServerName, policy: ClientPolicy, keys: KeyPair, entropy: Entropy) -> None:
        self._steps: Final = ClientSteps(server, policy, keys, entropy)
        self._deadline: float | None = None

    @property
    def state(self) -> ClientState:
        """What the client does now."""
        return self._steps.state

    @property
    def session(self) -> SessionRecord | None:
        """The session that a link carries, or that is kept to be resumed."""
        return self._steps.session

    @property
    def candidate(self) -> SessionRecord | None:
        """A new session whose first frame is awaited."""
        return self._steps.candidate

    @property
    def ticket(self) -> bytes:
        """What the next handshake presents."""
        return self._steps.ticket

    @property
    def stopped(self) -> AeronSparkError | None:
        """Why the client has stopped trying to connect; None while it tries, is connected or never was."""
        return self._steps.stopped

    @property
    def failure(self) -> AeronSparkError | None:
        """Why the last attempt to connect failed; None while it is connected."""
        return self._steps.failure

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before."""
        return self._steps.server_key

    @property
    def waiting(self) -> bool:
        """Whether a connect has no outcome yet."""
        return self._steps.waiting

    @property
    def reconnecting(self) -> bool:
        """Whether a thread leaves the link in order to resume the session: what is sent meanwhile waits."""
        return self._steps.reconnecting

    def connect(self, until: float | None, now: float, *, reconnecting: bool = False) -> Effects:
        """Connect, or resume the session; give up at ``until``, or never. A Resolve follows, once.

        After ``until`` a client with a session goes on trying to resume it, unless it is ``reconnecting``.
        """
        return self.handle(e.Connect(until, reconnecting), now)

    def close(self, *, keep_session: bool, now: float) -> Effects:
        """Close the connection, once what was sent has gone out; stop trying to connect."""
        return self.handle(e.Close(keep_session), now)

    def stop(self, error: AeronSparkError, now: float) -> Effects:
        """Stop trying to connect because of ``error``; a client that is connected, or has stopped, is unchanged."""
        return self.handle(e.Stop(error), now)

    def shut_down(self, now: float) -> Effects:
        """End everything, for good."""
        return self.handle(e.ShutDown(), now)

    def expect_reconnect(self) -> None:
        """Let senders wait when the link is left, for a ``connect`` or a ``stop`` follows."""
        self._steps.reconnecting = True

    def handle(self, event: ClientEvent, now: float) -> Effects:
        """Take one event. Raises UsageError, and changes nothing, for one that has no meaning in this state."""
        before = self._steps.state
        row = TRANSITIONS.get((before, type(event)))
        if row is None:
            raise _mistake(f"the client's machine is in {before.name}, where {type(event).__name__} has no meaning")
        after, effects = row.handler(self._steps, event, now)
        if after not in row.to:
            raise _mistake(
                f"the client's table does not lead from {before.name} by {type(event).__name__} to {after.name}"
            )
        self._steps.state = after
        self._deadline = self._next_deadline()
        return effects

    def deadline(self) -> float | None:
        """Return when ``tick`` has something to do; None for never. Cheap: a runner calls it after each poll."""
        return self._deadline

    def tick(self, now: float) -> Effects:
        """Do what is due. Harmless earlier; what else is due is done by the next call."""
        steps = self._steps
        effects: Effects = ()
        if _is_due(steps.expires_at(), now):
            effects = steps.report_expired()
            self._deadline = self._next_deadline()
        if _is_due(steps.connect_ends(), now):
            return effects + self.handle(e.ConnectDue(), now)
        if _is_due(steps.step_ends(), now):
            return effects + self.handle(e.StepDue(), now)
        return effects

    def _next_deadline(self) -> float | None:
        steps = self._steps
        times = (steps.step_ends(), steps.connect_ends(), steps.expires_at())
        return min((time for time in times if time is not None), default=None)


def _is_due(deadline: float | None, now: float) -> bool:
    return deadline is not None and now >= deadline


def _mistake(what: str) -> UsageError:
    return UsageError(what, remedy="This is a mistake in aeron-spark: please report it")
