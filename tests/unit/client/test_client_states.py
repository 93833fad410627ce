"""Random histories of a client and a server: the client closes everything it opens, and notifies its program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from aeron_spark.endpoint.client_states import ClientState
from aeron_spark.errors import AeronSparkError, SetupError, TamperedError, TransportError
from aeron_spark.protocol.handshake_packets import RefusalHint, encode_hint
from aeron_spark.protocol.sources import Refusal
from aeron_spark.transport.api import MessageArrived
from tests.unit.client.client_world import ATTACHED, OPTIONS, in_state, lost_session
from tests.unit.protocol.handshakes import SERVER_KEYS

S = ClientState
CODES = ["rate", "server-error", "full", "ids", "key", "not-permitted"]  # each advice, twice
INDEX = st.integers(0, 20)
BEGINNINGS = [state for state in S if state is not S.CLOSED]
TRYING = (S.LOOKING_UP, S.HANDSHAKING, S.OPENING_LINK, S.PAUSED, S.WITHOUT_DRIVER)


class ClientAndServer(RuleBasedStateMachine):
    """``world`` checks its invariants after each event."""

    @initialize(
        reconnect=st.sampled_from([True, True, True, False]), over_ipc=st.booleans(), state=st.sampled_from(BEGINNINGS)
    )
    def begin(self, reconnect: bool, over_ipc: bool, state: ClientState) -> None:
        """Start in any state, because few random histories get far."""
        self.world = in_state(state, replace(OPTIONS, reconnect=reconnect))
        self.world.transport.is_ipc = over_ipc

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        if world.client.state is not S.CLOSED:
            world.shut_down()
        assert world.client.state is S.CLOSED
        assert not world.connections
        assert not any(connection.is_usable for connection in world.all)

    def is_in(self, *states: ClientState) -> bool:
        return self.world.client.state in states

    def has_path(self) -> bool:
        return self.world.path is not None

    def has_link(self) -> bool:
        return self.is_in(*ATTACHED)

    @precondition(lambda self: self.world.pending_connects == 0 and not self.is_in(S.CLOSED))
    @rule(seconds=st.none() | st.sampled_from([0.05, 1.0, 30.0]), reconnecting=st.booleans())
    def connect(self, seconds: float | None, reconnecting: bool) -> None:
        self.world.connect(seconds, reconnecting=reconnecting)

    @precondition(lambda self: self.world.pending_connects == 1 and not self.is_in(S.CLOSED))
    @rule()
    def get_through(self) -> None:
        """Check that without further faults the client connects, or the deadline passes."""
        world = self.world
        world.server.refusal = None
        world.class_fails = world.attach_fails = world.link_fails = world.path_fails = False
        world.advance_to(S.CONNECTED, S.IDLE)
        assert world.pending_connects == 0
        assert world.client.state is S.CONNECTED or isinstance(world.outcomes[-1], AeronSparkError)

    @precondition(lambda self: self.world.client.session is not None)
    @rule(keep_session=st.booleans(), reconnecting=st.booleans())
    def close(self, keep_session: bool, reconnecting: bool) -> None:
        if reconnecting:
            self.world.client.expect_reconnect()
        self.world.close(keep_session=keep_session)

    @precondition(lambda self: not self.is_in(S.CLOSED))
    @rule()
    def stop(self) -> None:
        self.world.stop()
        assert self.is_in(S.IDLE, *ATTACHED)

    @rule(is_in_use=st.booleans())
    def use(self, is_in_use: bool) -> None:
        self.world.is_in_use = is_in_use

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: self.world.client.deadline() is not None)
    @rule()
    def wait_until_due(self) -> None:
        self.world.wait(max(0.0, (self.world.client.deadline() or 0.0) - self.world.now))

    @precondition(lambda self: self.is_in(*TRYING))
    @rule(goal=st.sampled_from([S.HANDSHAKING, S.OPENING_LINK, S.OPENING_LINK, S.CONNECTED, S.CONNECTED]))
    def advance(self, goal: ClientState) -> None:
        """Do several steps of a handshake, because few random histories finish one."""
        for _ in range(20):
            if not self.is_in(*TRYING) or self.is_in(goal):
                return
            self.world.advance()

    # The key store and the media driver

    @precondition(lambda self: self.world.lookups and not self.is_in(S.CLOSED))
    @rule(answer=st.sampled_from([None, SERVER_KEYS.public, b"another key than the server's...", "fails"]))
    def look_up(self, answer: bytes | str | None) -> None:
        if isinstance(answer, str):
            self.world.look_up_failed(SetupError("the store fails"))
        else:
            self.world.key_known(answer)

    @precondition(lambda self: self.world.has_driver and not self.is_in(S.CLOSED))
    @rule()
    def lose_driver(self) -> None:
        self.world.lose_driver()

    @precondition(lambda self: self.world.reopenings and not self.is_in(S.CLOSED))
    @rule(works=st.booleans())
    def reopen(self, works: bool) -> None:
        if works:
            self.world.driver_back()
        else:
            self.world.driver_failed()

    # The network and the server

    @precondition(
        lambda self: self.world.path is not None and not self.world.path.is_ready and self.is_in(S.HANDSHAKING)
    )
    @rule()
    def path_ready(self) -> None:
        self.world.path_ready()

    @precondition(lambda self: self.world.to_server)
    @rule(index=INDEX, fate=st.sampled_from(["arrives", "arrives", "arrives", "again", "lost"]))
    def to_server(self, index: int, fate: str) -> None:
        index %= len(self.world.to_server)
        if fate == "lost":
            del self.world.to_server[index]
        else:
            self.world.deliver_to_server(index, again=fate == "again")

    @precondition(lambda self: self.world.to_client)
    @rule(index=INDEX, fate=st.sampled_from(["arrives", "arrives", "arrives", "again", "lost", "changed"]))
    def to_client(self, index: int, fate: str) -> None:
        index %= len(self.world.to_client)
        event = self.world.to_client[index]
        if fate == "changed" and isinstance(event, MessageArrived):
            changed = bytes(event.payload[:-1]) + bytes([event.payload[-1] ^ 1])
            self.world.to_client[index] = event._replace(payload=memoryview(changed))
        if fate == "lost":
            del self.world.to_client[index]
        else:
            self.world.deliver_to_client(index, again=fate == "again")

    @precondition(has_path)
    @rule(what=st.sampled_from(["path fails", "path is lost", "first fails", "last fails", *CODES]))
    def path_is_in_trouble(self, what: str) -> None:
        """Send a hint with a code, as any host can."""
        path = self.world.path
        assert path is not None
        match what:
            case "path fails":
                self.world.path_fails_late()
            case "path is lost":
                self.world.path_lost()
            case "first fails" | "last fails":
                self.world.publication_fails(0 if what == "first fails" else -1)
            case _:
                hint = encode_hint(RefusalHint(Refusal(what, "no")))
                self.world.reject(path.publications[-1], hint)

    @rule(code=st.none() | st.sampled_from(CODES), at=st.sampled_from(["admit", "authenticate"]))
    def server_refuses(self, code: str | None, at: str) -> None:
        self.world.server.refusal = None if code is None else Refusal(code, "no")
        self.world.server.at = at

    @rule(what=st.sampled_from(["class", "attach", "link", "path", "nothing", "the server's memory"]))
    def something_fails(self, what: str) -> None:
        for name in ("class", "attach", "link", "path"):
            setattr(self.world, f"{name}_fails", name == what)
        if what == "the server's memory":
            self.world.server.restart()

    @precondition(lambda self: self.is_in(S.OPENING_LINK))
    @rule(is_sent=st.booleans(), is_delivered=st.booleans())
    def first_frame(self, is_sent: bool, is_delivered: bool) -> None:
        """Deliver the server's first frame, or lose it after the server received the client's."""
        link = self.world.link
        assert link is not None
        if is_sent and self.world.verify_link():
            return
        if is_delivered:
            self.world.server.tickets.confirm(self.world.server.links[link.ids.session_in].ticket)
            self.world.lose_link()
        self.world.fail_link(TransportError("gone"))

    @precondition(has_link)
    @rule(what=st.sampled_from(["lost", "silent", "closed", "kept", "drained"]))
    def link_ends(self, what: str) -> None:
        link = self.world.link
        assert link is not None
        if what == "drained":
            if self.is_in(S.CLOSING):
                self.world.drained()
        elif what in ("lost", "silent"):
            self.world.lose_link()
            self.world.fail_link(TransportError("gone"), silent=what == "silent")
        else:
            if what == "closed":
                self.world.server.tickets.drop(self.world.server.links[link.ids.session_in].ticket)
            self.world.lose_link()
            self.world.server_closes(keep_session=what == "kept")

    @precondition(lambda self: self.world.client.session is not None and not self.is_in(S.CLOSED))
    @rule(tampered=st.booleans())
    def session_fails(self, tampered: bool) -> None:
        session = self.world.client.session
        assert session is not None
        error = TamperedError("mangled") if tampered else lost_session()
        self.world.fail_session(error)

    @precondition(lambda self: not self.is_in(S.CLOSED))
    @rule(chance=st.integers(0, 30))
    def shut_down(self, chance: int) -> None:
        if chance == 30:
            self.world.shut_down()


TestClientAndServer = pytest.mark.slow(ClientAndServer.TestCase)
TestClientAndServer.settings = settings(stateful_step_count=60)
