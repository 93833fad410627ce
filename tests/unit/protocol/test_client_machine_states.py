"""Any history of a client and a server: what the client opens it closes, once, and its program hears the truth."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from aeron_spark.errors import AeronSparkError, ConnectError, SetupError, TamperedError, TransportError
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.client_events import ClientState
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.retry_cookies import RefusalHint, encode_hint
from tests.unit.protocol.client_world import ATTACHED, POLICY, in_state, lost_session
from tests.unit.protocol.handshakes import SERVER_KEYS

S = ClientState
CODES = ["rate", "server-error", "full", "ids", "key", "not-permitted"]  # each advice, twice
INDEX = st.integers(0, 20)
BEGINNINGS = [state for state in S if state is not S.CLOSED]
TRYING = (S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED, S.WITHOUT_DRIVER)


class ClientAndServer(RuleBasedStateMachine):
    """``one`` checks after each event what must be true."""

    @initialize(
        reconnect=st.sampled_from([True, True, True, False]), over_ipc=st.booleans(), state=st.sampled_from(BEGINNINGS)
    )
    def begin(self, reconnect: bool, over_ipc: bool, state: ClientState) -> None:
        """Begin anywhere: few histories come far by themselves."""
        self.one = in_state(state, replace(POLICY, reconnect=reconnect, expects_retry=not over_ipc))

    def teardown(self) -> None:
        if not hasattr(self, "one"):
            return
        one = self.one
        if one.machine.state is not S.CLOSED:
            one.shut_down()
        assert one.machine.state is S.CLOSED
        assert not one.connections
        assert not any(told.is_present for told in one.all)

    def is_in(self, *states: ClientState) -> bool:
        return self.one.machine.state in states

    def has_path(self) -> bool:
        return self.one.path is not None

    def has_link(self) -> bool:
        return self.is_in(*ATTACHED)

    @precondition(lambda self: self.one.wanted == 0 and not self.is_in(S.CLOSED))
    @rule(seconds=st.none() | st.sampled_from([0.05, 1.0, 30.0]), reconnecting=st.booleans())
    def connect(self, seconds: float | None, reconnecting: bool) -> None:
        self.one.connect(seconds, reconnecting=reconnecting)

    @precondition(lambda self: self.one.wanted == 1 and not self.is_in(S.CLOSED))
    @rule()
    def get_through(self) -> None:
        """Whatever was, a sound network and server end in a connection, or the time is over."""
        one = self.one
        one.server.refusal = None
        one.class_fails = one.attach_fails = one.link_fails = one.path_fails = False
        one.advance_to(S.CONNECTED, S.IDLE)
        assert one.wanted == 0
        assert one.machine.state is S.CONNECTED or isinstance(one.outcomes[-1], AeronSparkError)

    @precondition(lambda self: self.one.machine.session is not None)
    @rule(keep_session=st.booleans(), reconnecting=st.booleans())
    def close(self, keep_session: bool, reconnecting: bool) -> None:
        if reconnecting:
            self.one.machine.expect_reconnect()
        self.one.close(keep_session=keep_session)

    @precondition(lambda self: not self.is_in(S.CLOSED))
    @rule()
    def stop(self) -> None:
        self.one.do(self.one.machine.stop(ConnectError("interrupted"), self.one.now))
        assert self.is_in(S.IDLE, *ATTACHED)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.one.wait(seconds)

    @precondition(lambda self: self.one.machine.deadline() is not None)
    @rule()
    def wait_until_due(self) -> None:
        self.one.wait(max(0.0, (self.one.machine.deadline() or 0.0) - self.one.now))

    @precondition(lambda self: self.is_in(*TRYING))
    @rule(goal=st.sampled_from([S.HANDSHAKING, S.OPENING_LINK, S.OPENING_LINK, S.CONNECTED, S.CONNECTED]))
    def advance(self, goal: ClientState) -> None:
        """A handshake has many steps: without this few histories come to its end."""
        for _ in range(20):
            if not self.is_in(*TRYING) or self.is_in(goal):
                return
            self.one.advance()

    # The key store and the media driver.

    @precondition(lambda self: self.one.look_ups and not self.is_in(S.CLOSED))
    @rule(answer=st.sampled_from([None, SERVER_KEYS.public, b"another key than the server's...", "fails"]))
    def look_up(self, answer: bytes | str | None) -> None:
        if isinstance(answer, str):
            self.one.look_up_failed(SetupError("the store fails"))
        else:
            self.one.key_known(answer)

    @precondition(lambda self: self.one.has_driver and not self.is_in(S.CLOSED))
    @rule()
    def lose_driver(self) -> None:
        self.one.lose_driver()

    @precondition(lambda self: self.one.reopenings and not self.is_in(S.CLOSED))
    @rule(works=st.booleans())
    def reopen(self, works: bool) -> None:
        if works:
            self.one.driver_back()
        else:
            self.one.driver_failed()

    # The network and the server.

    @precondition(lambda self: self.one.path is not None and not self.one.path.is_ready and self.is_in(S.HANDSHAKING))
    @rule()
    def path_ready(self) -> None:
        self.one.path_ready()

    @precondition(lambda self: self.one.to_server)
    @rule(index=INDEX, fate=st.sampled_from(["arrives", "arrives", "arrives", "again", "lost"]))
    def to_server(self, index: int, fate: str) -> None:
        index %= len(self.one.to_server)
        if fate == "lost":
            del self.one.to_server[index]
        else:
            self.one.deliver_to_server(index, again=fate == "again")

    @precondition(lambda self: self.one.to_client)
    @rule(index=INDEX, fate=st.sampled_from(["arrives", "arrives", "arrives", "again", "lost", "changed"]))
    def to_client(self, index: int, fate: str) -> None:
        index %= len(self.one.to_client)
        event = self.one.to_client[index]
        if fate == "changed" and isinstance(event, e.Packet):
            self.one.to_client[index] = e.Packet(event.path, bytes(event.data[:-1]) + bytes([event.data[-1] ^ 1]))
        if fate == "lost":
            del self.one.to_client[index]
        else:
            self.one.deliver_to_client(index, again=fate == "again")

    @precondition(has_path)
    @rule(what=st.sampled_from(["path fails", "path is lost", "first fails", "last fails", *CODES]))
    def path_is_in_trouble(self, what: str) -> None:
        """A hint with a code may be anybody's."""
        path, error = self.one.path, ConnectError("no way")
        assert path is not None
        match what:
            case "path fails":
                self.one.feed(e.PathFailed(path.number, error))
            case "path is lost":
                self.one.feed(e.PathLost(path.number))
            case "first fails" | "last fails":
                publication = path.publications[0 if what == "first fails" else -1]
                self.one.feed(e.PublicationFailed(path.number, publication, error))
            case _:
                hint = encode_hint(RefusalHint(Refusal(what, "no")))
                self.one.feed(e.PublicationRejected(path.number, path.publications[-1], hint))

    @rule(code=st.none() | st.sampled_from(CODES), at=st.sampled_from(["admit", "authenticate"]))
    def server_refuses(self, code: str | None, at: str) -> None:
        self.one.server.refusal = None if code is None else Refusal(code, "no")
        self.one.server.at = at

    @rule(what=st.sampled_from(["class", "attach", "link", "path", "nothing", "the server's memory"]))
    def something_fails(self, what: str) -> None:
        for name in ("class", "attach", "link", "path"):
            setattr(self.one, f"{name}_fails", name == what)
        if what == "the server's memory":
            self.one.server.restart()

    @precondition(lambda self: self.is_in(S.OPENING_LINK))
    @rule(proves=st.booleans(), told=st.booleans())
    def first_frame(self, proves: bool, told: bool) -> None:
        """It comes or not; without it the server may have had the client's, and its program knows of the session."""
        link = self.one.link
        assert link is not None
        if proves and self.one.verify_link():
            return
        if told:
            self.one.server.tickets.confirm(self.one.server.links[link.ack.session_in][2])
            self.one.lose_link()
        self.one.feed(e.LinkFailed(link.number, TransportError("gone")))

    @precondition(has_link)
    @rule(what=st.sampled_from(["lost", "silent", "closed", "kept", "drained"]))
    def link_ends(self, what: str) -> None:
        link = self.one.link
        assert link is not None
        if what == "drained":
            if self.is_in(S.CLOSING):
                self.one.feed(e.Drained(link.number))
        elif what in ("lost", "silent"):
            self.one.lose_link()
            self.one.feed(e.LinkFailed(link.number, TransportError("gone"), what == "silent"))
        else:
            if what == "closed":
                self.one.server.tickets.drop(self.one.server.links[link.ack.session_in][2])
            self.one.lose_link()
            self.one.feed(e.PeerClosed(link.number, what == "kept"))

    @precondition(lambda self: self.one.machine.session is not None and not self.is_in(S.CLOSED))
    @rule(tampered=st.booleans())
    def session_fails(self, tampered: bool) -> None:
        session = self.one.machine.session
        assert session is not None
        error = TamperedError("mangled") if tampered else lost_session()
        self.one.feed(e.SessionFailed(session.session, error))

    @precondition(lambda self: not self.is_in(S.CLOSED))
    @rule(chance=st.integers(0, 30))
    def shut_down(self, chance: int) -> None:
        if chance == 30:
            self.one.shut_down()


TestClientAndServer = ClientAndServer.TestCase
TestClientAndServer.settings = settings(stateful_step_count=60)
