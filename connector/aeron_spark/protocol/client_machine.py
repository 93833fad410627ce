"""The client as one pure state machine: it connects, and it resumes its session after an outage.

The runner calls ``connect``, ``close``, ``stop``, ``shut_down``, ``handle`` and ``tick``, and executes the effects that
they return, in order. If the last effect has a result at once (see ``client_events``), the runner passes the result to
``handle`` before any other event. It calls ``tick`` when ``deadline`` has passed. The machine gets no data frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.client_attempt import ClientMachineOptions
from aeron_spark.protocol.client_events import ClientEffect, ClientEvent, ClientState, Effects, SessionRecord
from aeron_spark.protocol.client_steps import ClientSteps
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.transitions import Row, internal_error

S = ClientState
_M = ClientSteps
_STARTED: Final = (S.LOOKING_UP, S.WITHOUT_DRIVER)
_FAILED: Final = (S.PAUSED, S.IDLE)
_STEP: Final = (S.HANDSHAKING, *_FAILED)
_ENDED: Final = (S.IDLE, S.LOOKING_UP)
_LATE: Final = "note that the look-up has ended"

TRANSITIONS: Final[dict[tuple[ClientState, type[Any]], Row[ClientSteps, ClientState, ClientEffect]]] = {
    (S.IDLE, e.Connect): Row(_STARTED, _M.on_connect, "look the server's key up, or open the transport"),
    (S.IDLE, e.Close): Row((S.IDLE,), _M.on_close, "end the session that was kept for a resume"),
    (S.IDLE, e.Stop): Row((S.IDLE,), _M.on_stop, "note the error, unless one is noted already"),
    (S.IDLE, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.IDLE, e.KeyKnown): Row((S.IDLE,), _M.on_late_lookup, _LATE),
    (S.IDLE, e.LookUpFailed): Row((S.IDLE,), _M.on_late_lookup, _LATE),
    (S.IDLE, e.SessionFailed): Row((S.IDLE,), _M.on_session_failed, "end the session"),
    (S.IDLE, e.DriverLost): Row((S.IDLE,), _M.on_driver_lost_while_idle, "remember it for the next connect"),
    (S.IDLE, e.TransportOpened): Row((S.IDLE,), _M.on_transport_opened, "remember it for the next connect"),
    (S.IDLE, e.OpenFailed): Row((S.IDLE,), _M.on_open_failed, "remember it for the next connect"),
    (S.LOOKING_UP, e.Connect): Row((S.LOOKING_UP,), _M.on_connect, "continue the attempt"),
    (S.LOOKING_UP, e.Close): Row((S.IDLE,), _M.on_close, "leave the session"),
    (S.LOOKING_UP, e.Stop): Row((S.IDLE,), _M.on_stop, "give the attempt up, note the error"),
    (S.LOOKING_UP, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.LOOKING_UP, e.ConnectDue): Row((S.LOOKING_UP, S.IDLE), _M.on_connect_due, "fail the connect"),
    (S.LOOKING_UP, e.KeyKnown): Row((S.HANDSHAKING, *_FAILED), _M.on_key_known, "open a path"),
    (S.LOOKING_UP, e.LookUpFailed): Row(_FAILED, _M.on_lookup_failed, "pause, or stop"),
    (S.LOOKING_UP, e.SessionFailed): Row((S.LOOKING_UP, S.IDLE), _M.on_session_failed, "end the session"),
    (S.LOOKING_UP, e.DriverLost): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_driver_lost, "open the transport, or stop"),
    (S.HANDSHAKING, e.Connect): Row((S.HANDSHAKING,), _M.on_connect, "continue the attempt"),
    (S.HANDSHAKING, e.Close): Row((S.IDLE,), _M.on_close, "give the attempt up, leave the session"),
    (S.HANDSHAKING, e.Stop): Row((S.IDLE,), _M.on_stop, "give the attempt up, note the error"),
    (S.HANDSHAKING, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.HANDSHAKING, e.ConnectDue): Row(_FAILED, _M.on_connect_due, "fail the connect with the awaited step"),
    (S.HANDSHAKING, e.StepDue): Row(_FAILED, _M.on_handshake_due, "pause, or stop"),
    (S.HANDSHAKING, e.PathReady): Row((S.HANDSHAKING,), _M.on_path_ready, "send HELLO, prepare the next publication"),
    (S.HANDSHAKING, e.PathFailed): Row(_FAILED, _M.on_path_failed, "pause, or stop"),
    (S.HANDSHAKING, e.PathLost): Row((S.HANDSHAKING,), _M.on_path_lost, "pass it to the handshake"),
    (S.HANDSHAKING, e.PublicationFailed): Row(_STEP, _M.on_publication_failed, "pause, or close that publication"),
    (S.HANDSHAKING, e.PublicationRejected): Row(
        (S.HANDSHAKING,), _M.on_rejected, "pass it to the handshake, or close that publication"),
    (S.HANDSHAKING, e.Packet): Row((S.OPENING_LINK, *_STEP), _M.on_packet, "pass it to the handshake"),
    (S.HANDSHAKING, e.SessionFailed): Row(_STEP, _M.on_session_failed, "end the session, and an attempt to resume it"),
    (S.HANDSHAKING, e.DriverLost): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_driver_lost, "open the transport, or stop"),
    (S.OPENING_LINK, e.Connect): Row((S.OPENING_LINK,), _M.on_connect, "continue the attempt"),
    (S.OPENING_LINK, e.Close): Row((S.IDLE,), _M.on_close, "give the attempt up, leave the session"),
    (S.OPENING_LINK, e.Stop): Row((S.IDLE,), _M.on_stop, "give the attempt up, note the error"),
    (S.OPENING_LINK, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.OPENING_LINK, e.ConnectDue): Row(_FAILED, _M.on_connect_due, "fail the connect with the awaited step"),
    (S.OPENING_LINK, e.StepDue): Row(_FAILED, _M.on_link_due, "pause, or stop"),
    (S.OPENING_LINK, e.ConnectionMade): Row((S.OPENING_LINK,), _M.on_connection_made, "open the link"),
    (S.OPENING_LINK, e.ConnectionFailed): Row((S.IDLE,), _M.on_connection_failed, "stop"),
    (S.OPENING_LINK, e.LinkVerified): Row((S.CONNECTED,), _M.on_link_verified, "attach; end a session not resumed"),
    (S.OPENING_LINK, e.LinkFailed): Row(_FAILED, _M.on_link_failed, "pause, or stop"),
    (S.OPENING_LINK, e.PathFailed): Row((S.OPENING_LINK,), _M.on_path_event_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.PathLost): Row((S.OPENING_LINK,), _M.on_path_event_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.PublicationFailed): Row((S.OPENING_LINK,), _M.on_path_event_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.PublicationRejected): Row((S.OPENING_LINK,), _M.on_path_event_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.Packet): Row((S.OPENING_LINK,), _M.on_path_event_after_acceptance, "nothing"),
    (S.OPENING_LINK, e.SessionFailed): Row(
        (S.OPENING_LINK, *_FAILED), _M.on_session_failed, "end the session, and an attempt to resume it"),
    (S.OPENING_LINK, e.DriverLost): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_driver_lost, "open the transport, or stop"),
    (S.CONNECTED, e.Connect): Row((S.CONNECTED,), _M.on_connect, "end the connect with success"),
    (S.CONNECTED, e.Close): Row((S.CLOSING,), _M.on_close, "wait until unsent messages are sent"),
    (S.CONNECTED, e.Stop): Row((S.CONNECTED,), _M.on_stop_of_connected, "nothing"),
    (S.CONNECTED, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.CONNECTED, e.Attached): Row((S.CONNECTED,), _M.on_attached, "notify the program, end the connect with success"),
    (S.CONNECTED, e.SessionFailed): Row(_FAILED, _M.on_session_failed, "end the session"),
    (S.CONNECTED, e.LinkFailed): Row(_FAILED, _M.on_link_lost, "detach; end the session unless reconnecting"),
    (S.CONNECTED, e.PeerClosed): Row(_FAILED, _M.on_peer_closed, "leave the session; connect again if it allows"),
    (S.CONNECTED, e.DriverLost): Row(
        (S.WITHOUT_DRIVER, S.IDLE), _M.on_driver_lost_while_connected, "detach, open the transport"),
    (S.PAUSED, e.Connect): Row((S.LOOKING_UP,), _M.on_connect, "start an attempt at once"),
    (S.PAUSED, e.Close): Row((S.IDLE,), _M.on_close, "leave the session"),
    (S.PAUSED, e.Stop): Row((S.IDLE,), _M.on_stop, "give the attempt up, note the error"),
    (S.PAUSED, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.PAUSED, e.ConnectDue): Row(_FAILED, _M.on_connect_due, "fail the connect"),
    (S.PAUSED, e.StepDue): Row((S.LOOKING_UP, S.IDLE), _M.on_pause_over, "look the server's key up, or stop"),
    (S.PAUSED, e.KeyKnown): Row((S.PAUSED,), _M.on_late_lookup, _LATE),
    (S.PAUSED, e.LookUpFailed): Row((S.PAUSED,), _M.on_late_lookup, _LATE),
    (S.PAUSED, e.SessionFailed): Row(_FAILED, _M.on_session_failed, "end the session"),
    (S.PAUSED, e.DriverLost): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_driver_lost, "open the transport, or stop"),
    (S.WITHOUT_DRIVER, e.Connect): Row((S.WITHOUT_DRIVER,), _M.on_connect, "wait for the driver"),
    (S.WITHOUT_DRIVER, e.Close): Row((S.IDLE,), _M.on_close, "leave the session"),
    (S.WITHOUT_DRIVER, e.Stop): Row((S.IDLE,), _M.on_stop, "give the attempt up, note the error"),
    (S.WITHOUT_DRIVER, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.WITHOUT_DRIVER, e.ConnectDue): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_connect_due, "fail the connect"),
    (S.WITHOUT_DRIVER, e.StepDue): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_open_due, "open the transport, or stop"),
    (S.WITHOUT_DRIVER, e.KeyKnown): Row((S.WITHOUT_DRIVER,), _M.on_late_lookup, _LATE),
    (S.WITHOUT_DRIVER, e.LookUpFailed): Row((S.WITHOUT_DRIVER,), _M.on_late_lookup, _LATE),
    (S.WITHOUT_DRIVER, e.SessionFailed): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_session_failed, "end the session"),
    (S.WITHOUT_DRIVER, e.TransportOpened): Row(
        (S.LOOKING_UP, S.IDLE), _M.on_transport_opened, "look the server's key up, or stop"),
    (S.WITHOUT_DRIVER, e.OpenFailed): Row((S.WITHOUT_DRIVER, S.IDLE), _M.on_open_failed, "open it again later"),
    (S.CLOSING, e.Connect): Row((S.CLOSING,), _M.on_connect, "connect once it is closed"),
    (S.CLOSING, e.Close): Row((S.CLOSING,), _M.on_close_again, "keep the session if both calls want that"),
    (S.CLOSING, e.Stop): Row((S.CLOSING,), _M.on_stop_of_closing, "do not connect once it is closed"),
    (S.CLOSING, e.ShutDown): Row((S.CLOSED,), _M.on_shut_down, "end the session"),
    (S.CLOSING, e.ConnectDue): Row((S.CLOSING,), _M.on_connect_due_while_closing, "fail the connect"),
    (S.CLOSING, e.StepDue): Row(_ENDED, _M.on_closing_done, "leave the session; start a connect that waits"),
    (S.CLOSING, e.Drained): Row(_ENDED, _M.on_closing_done, "leave the session; start a connect that waits"),
    (S.CLOSING, e.LinkFailed): Row(_ENDED, _M.on_closing_done, "leave the session; start a connect that waits"),
    (S.CLOSING, e.PeerClosed): Row(_ENDED, _M.on_peer_closed_while_closing, "leave the session; keep it if both agree"),
    (S.CLOSING, e.SessionFailed): Row(_ENDED, _M.on_session_failed_while_closing, "end the session"),
    (S.CLOSING, e.DriverLost): Row((S.IDLE, S.WITHOUT_DRIVER), _M.on_driver_lost_while_closing, "leave the session"),
}  # fmt: skip


class ClientMachine:
    """One client of one server. For one thread. ``entropy(n)`` returns n random bytes.

    ``psk`` is the 32-byte key derived from the shared secret. ``reopen_seconds`` pass at least between the starts of
    two attempts to open the transport again.
    """

    def __init__(
        self, server: ServerName, options: ClientMachineOptions, keys: KeyPair, entropy: Entropy,
        psk: bytes | None = None, *, reopen_seconds: float,
    ) -> None:  # fmt: skip
        self._steps: Final = ClientSteps(server, options, keys, entropy, psk, reopen_seconds)
        self._deadline: float | None = None
        self._has_deadline = False  # false after each event: the runner asks for the deadline more often

    @property
    def state(self) -> ClientState:
        """The present state."""
        return self._steps.state

    @property
    def session(self) -> SessionRecord | None:
        """The session that a link carries, or that the client can resume."""
        return self._steps.session

    @property
    def candidate(self) -> SessionRecord | None:
        """A new session; the client awaits the first frame of its link."""
        return self._steps.candidate

    @property
    def ticket(self) -> bytes:
        """The ticket for the next handshake."""
        return self._steps.ticket

    @property
    def stopped(self) -> AeronSparkError | None:
        """Why the client stopped its attempts; None while it tries or is connected, and before its first connect."""
        return self._steps.stopped

    @property
    def failure(self) -> AeronSparkError | None:
        """Why the last attempt failed; None while the client is connected."""
        return self._steps.failure

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before its first proof."""
        return self._steps.server_key

    @property
    def is_connect_pending(self) -> bool:
        """Whether a connect of the program has no outcome yet."""
        return self._steps.is_connect_pending

    @property
    def is_reconnecting(self) -> bool:
        """Whether the program closes the link to resume the session at once. Until then, senders wait."""
        return self._steps.is_reconnecting

    def connect(self, until: float | None, now: float, *, reconnecting: bool = False) -> Effects:
        """Connect, or resume the session, by the time ``until`` (None: no deadline). One Resolve follows.

        A client that has a session, or has lost its session, continues its attempts after ``until``, unless it is
        ``reconnecting``.
        """
        return self.handle(e.Connect(until, reconnecting), now)

    def close(self, *, keep_session: bool, now: float) -> Effects:
        """Close the connection after its unsent messages were sent; stop the attempts to connect."""
        return self.handle(e.Close(keep_session), now)

    def stop(self, error: AeronSparkError, now: float) -> Effects:
        """Stop the attempts to connect because of ``error``. Does nothing if connected or stopped already."""
        return self.handle(e.Stop(error), now)

    def shut_down(self, now: float) -> Effects:
        """End the client and its session permanently."""
        return self.handle(e.ShutDown(), now)

    def reconnect_while(self, is_in_use: Callable[[], bool]) -> None:
        """Connect again after a loss only while ``is_in_use()``, or for a connect that waits; otherwise, stop.

        Thread-safe. The runner's thread calls ``is_in_use``.
        """
        self._steps.is_in_use = is_in_use

    def expect_reconnect(self) -> None:
        """Let senders wait after the next ``close``. The caller calls ``connect`` or ``stop`` afterwards."""
        self._steps.is_reconnecting = True

    def handle(self, event: ClientEvent, now: float) -> Effects:
        """Handle one event. Raises UsageError, and changes nothing, if the table has no row for it in this state."""
        before = self._steps.state
        self._has_deadline = False
        row = TRANSITIONS.get((before, type(event)))
        if row is None:
            raise internal_error(f"the client machine does not expect {type(event).__name__} in state {before.name}")
        after, effects = row.handler(self._steps, event, now)
        if after not in row.to:
            raise internal_error(
                f"the client machine's table does not allow {after.name} after {before.name} and {type(event).__name__}"
            )
        self._steps.state = after
        return effects

    def deadline(self) -> float | None:
        """Return the time of the next ``tick``; None if time changes nothing."""
        if not self._has_deadline:
            steps = self._steps
            times = (steps.step_deadline(), steps.connect_deadline(), steps.expiry_deadline())
            self._deadline = min((time for time in times if time is not None), default=None)
            self._has_deadline = True
        return self._deadline

    def tick(self, now: float) -> Effects:
        """Handle one deadline that has passed, if any. The next call handles the next one."""
        steps = self._steps
        self._has_deadline = False
        effects: Effects = ()
        if _is_due(steps.expiry_deadline(), now):
            effects = steps.notify_expired()
        if _is_due(steps.connect_deadline(), now):
            return effects + self.handle(e.ConnectDue(), now)
        if _is_due(steps.step_deadline(), now):
            return effects + self.handle(e.StepDue(), now)
        return effects


def _is_due(deadline: float | None, now: float) -> bool:
    return deadline is not None and now >= deadline
