"""Random histories of a server and its clients: each resource has one owner, and none is left at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aeron_spark.endpoint.access import Decision
from aeron_spark.endpoint.endpoint_listeners import Ending
from aeron_spark.errors import TransportError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.grants import UNKNOWN_KEY, Grant
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.transport.api import ImageAvailable, LinkIds, MessageArrived, SenderUnavailable
from tests.invariants import check_invariants
from tests.option_groups import options_of
from tests.unit.server.simulated_server import TOKEN, FakeConnection, SimulatedClient, SimulatedServer, lost_driver

OPTIONS: Final = options_of(
    ServerOptions,
    {
        "max_connections": 3, "max_connections_per_address": 2, "max_pending": 3, "max_pending_per_address": 2,
        "handshake_burst": 1000, "expiry": 4.0, "setup_timeout": 8.0, "linger": 1.0, "session_timeout": 60.0,
        "reply_channel": "mdc", "mdc_ports": (20_200, 20_204), "session_id_range": (1000, 1011), "id_reuse_delay": 1.0,
        "max_sessions": 4, "max_connections_per_key": 2, "close_timeout": 2.0,
    },
)  # fmt: skip
"""Limits that a few clients can reach."""

CLIENTS: Final = (  # (key, source): some share a key, some an address, and the last has no grant
    (1, "10.0.0.1:4000"),
    (1, "10.0.0.1:4003"),
    (2, "10.0.0.1:4001"),
    (3, "10.0.0.1:4002"),
    (4, "aeron:ipc"),
    (5, "[fe80::1%eth0]:4000"),
)
UNAUTHORISED_KEY: Final = keypair_from(bytes([5]) * 32).public
EXPECTED: Final = {
    *("reject", "open path", "send", "close path", "decide", "make", "open link", "add link", "close link", "attach"),
    *("detach", "end", "connect", "resume", "disconnect", "report", "driver back"),
    *("accepted", "refused", "retry", "lost", "SessionLost", "TransportError"),
    *("refused-full", "refused-ids", "refused-key", "refused-shutdown", "refused-timeout", "refused-server-error"),
    *(Ending.CLOSED_BY_CLIENT.name, Ending.CLOSED_BY_SERVER.name, "not resumed", "never connected"),
}
"""The test of long histories is useful only if all of these happen."""
ANY: Final = st.integers(0, 1000)
WHICH: Final = st.integers(0, len(CLIENTS) - 1)


class ServerAndClients(RuleBasedStateMachine):
    """The rules are steps of the network, the transport, the deciders, a client, or the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.server = SimulatedServer(OPTIONS)
        self.clients = [
            SimulatedClient(self.server, keypair_from(bytes([key]) * 32), source, seed)
            for seed, (key, source) in enumerate(CLIENTS)
        ]

    def teardown(self) -> None:
        """Let all deadlines pass, check the resources, then close the server."""
        for client in self.clients:
            client.leave()
            client.deliver_all()
        self.server.let_time_pass()
        statistics = self.server.statistics()
        assert statistics["pending"] == statistics["handshakes"] == 0
        assert statistics["admitted"] == statistics["sessions"] == len(self.attached())
        assert statistics["session_ids"] == 2 * (len(self.server.links) + len(self.server.bulk))
        self.server.end()

    def attached(self) -> list[FakeConnection]:
        return [connection for connection in self.server.connections if connection.attached is not None]

    # Clients and network

    @rule(which=WHICH, forget=st.integers(0, 9))
    def start(self, which: int, forget: int) -> None:
        client = self.clients[which]
        client.ticket = client.ticket if forget else None
        client.start()

    @rule(which=WHICH, times=st.integers(1, 4))
    def carry(self, which: int, times: int) -> None:
        for _ in range(times):
            if self.clients[which].waiting:
                self.clients[which].deliver()

    @rule(which=WHICH)
    def carry_late(self, which: int) -> None:
        """Make an image available late, so that its first packets are lost."""
        waiting = self.clients[which].waiting
        if waiting and isinstance(waiting[0], ImageAvailable):
            first = waiting.pop(0)
            assert isinstance(first, ImageAvailable)
            waiting[:] = [one for one in waiting if not isinstance(one, MessageArrived)]
            self.server.feed(first._replace(late=True))

    @rule(which=WHICH)
    def lose(self, which: int) -> None:
        waiting = self.clients[which].waiting
        if waiting and isinstance(waiting[0], MessageArrived):
            waiting.pop(0)

    @rule(which=WHICH)
    def swap(self, which: int) -> None:
        """Exchange two messages of a client."""
        waiting = self.clients[which].waiting
        if len(waiting) > 1 and all(isinstance(one, MessageArrived) for one in waiting[:2]):
            waiting[:2] = waiting[1::-1]

    @rule(which=WHICH, index=ANY, image=st.booleans())
    def repeat(self, which: int, index: int, image: bool) -> None:
        """Repeat a packet, from its own image, or from the present one as an attacker would."""
        client = self.clients[which]
        if client.sent:
            packet = client.sent[index % len(client.sent)]
            self.server.feed(packet._replace(image=client.image) if image else packet)

    @rule(which=WHICH)
    def send_nonsense(self, which: int) -> None:
        waiting = self.clients[which].waiting
        if waiting and isinstance(waiting[0], ImageAvailable):
            waiting.insert(1, MessageArrived(TOKEN, waiting[0].image, memoryview(b"not a packet")))

    @rule(which=WHICH)
    def receive_all(self, which: int) -> None:
        self.clients[which].receive_all()

    @rule(index=ANY)
    def lose_a_response(self, index: int) -> None:
        for box in (self.server.packets, self.server.hints):
            if box:
                box.pop(index % len(box))
                return

    @rule(which=WHICH, fail=st.integers(0, 4))
    def send_first_frame(self, which: int, fail: int) -> None:
        if self.clients[which].link() is not None:
            self.server.attach_fails = not fail
            self.clients[which].send_first_frame()
            self.server.attach_fails = False
            self.clients[which].ack = None

    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        self.clients[which].leave()

    @rule(which=WHICH)
    def connect_at_once(self, which: int) -> None:
        """Finish an attempt, or do a whole new one, without a fault."""
        client = self.clients[which]
        if not client.image:
            client.start()
        for _ in range(6):
            client.deliver_all()
            while self.server.candidates:
                self.decide(0)
            self.server.open_publications()
            client.receive_all()
        client.send_first_frame()
        client.ack = None

    # The transport and the deciders

    @rule(index=ANY, fail=st.integers(0, 4))
    def decide(self, index: int, fail: int = 1) -> None:
        if self.server.candidates:
            at = index % len(self.server.candidates)
            decision: Decision = Grant()
            if self.server.candidates[at][0].key == UNAUTHORISED_KEY:
                decision = UNKNOWN_KEY
            if not fail:
                self.server.make_error = ValueError("no connection today")
            self.server.decide(decision, at)
            self.server.make_error = None

    @rule(index=ANY, fail=st.integers(0, 4), held=st.booleans())
    def open_a_publication(self, index: int, fail: int, held: bool) -> None:
        waiting = [one for one in self.server.publications if not one.closed and (one.is_held or not one.ready)]
        if waiting:
            chosen = waiting[index % len(waiting)]
            chosen.is_held = held
            if fail:
                chosen.ready = chosen.connected = True
            else:
                chosen.fail()
            self.server.work()

    @rule(is_lost=st.booleans())
    def fail_to_open(self, is_lost: bool) -> None:
        """Let the next path or link fail to open."""
        self.server.open_error = SenderUnavailable("it has left") if is_lost else TransportError("it failed")

    @rule(index=ANY)
    def drain(self, index: int) -> None:
        if self.server.connections:
            self.server.connections[index % len(self.server.connections)].is_idle = True
            self.server.work()

    @rule(index=ANY, how=st.sampled_from(["expired", "cut", "unverified"]))
    def lose_a_link(self, index: int, how: str) -> None:
        if self.server.links:
            links = list(self.server.links.items())
            link, connection = links[index % len(links)]
            if how == "unverified":
                error = TransportError("it is cut")
                self.server.call(lambda: self.server.endpoint.link_failed(link, error, self.server.now))
            else:
                self.server.lose_link(connection, expired=how == "expired")

    @rule(index=ANY, how=st.sampled_from(["close", "keep", "fail"]))
    def end_at_the_peer(self, index: int, how: str) -> None:
        found = self.attached()
        if found:
            server, connection = self.server, found[index % len(found)]
            if how == "fail":
                error = TransportError("it cannot go on")
                server.call(
                    lambda: server.endpoint.session_failed(connection, error, server.now)  # type: ignore[arg-type]
                )
            else:
                server.peer_closes(connection, keep_session=how == "keep")

    @rule(index=ANY, keep=st.booleans())
    def close_here(self, index: int, keep: bool) -> None:
        if self.server.connections:
            connection = self.server.connections[index % len(self.server.connections)]
            self.server.close_connection(connection, keep_session=keep)

    @rule()
    def take_bulk_ids(self) -> None:
        ids = self.server.endpoint.pools.take(self.server.now)
        if isinstance(ids, LinkIds):
            self.server.bulk.append(ids)

    @precondition(lambda self: self.server.bulk)
    @rule()
    def release_bulk_ids(self) -> None:
        self.server.endpoint.pools.release(self.server.bulk.pop(), self.server.now)

    @rule(chance=st.integers(0, 9))
    def lose_the_driver(self, chance: int) -> None:
        """Lose the media driver with all messages in transit; decisions arrive later."""
        if not chance:
            self.server.feed(lost_driver())
            assert not self.server.paths()
            for client in self.clients:
                client.image = 0
                client.waiting.clear()
                client.sent.clear()
            self.server.work()

    @rule(chance=st.integers(0, 19))
    def shut_down(self, chance: int) -> None:
        if not chance:
            self.server.call(lambda: self.server.endpoint.shut_down(self.server.now))
            assert not [one for one in self.server.connections if one.notices and one.attached is None]

    # Time

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.server.run_until(self.server.now + seconds)

    @rule()
    def pass_time_until_the_next_deadline(self) -> None:
        deadline = self.server.endpoint.deadline()
        if deadline is not None:
            self.server.run_until(max(self.server.now, deadline))
            after = self.server.endpoint.deadline()
            assert after is None or after > self.server.now

    @invariant()
    def everything_has_one_owner(self) -> None:
        check_invariants(self.server.endpoint, self.server.bulk)

    @invariant()
    def limits_are_kept(self) -> None:
        statistics = self.server.statistics()
        assert statistics["admitted"] <= OPTIONS.max_connections
        assert statistics["pending"] <= OPTIONS.max_pending
        assert statistics["sessions"] <= OPTIONS.max_sessions


TestServerAndClients = pytest.mark.slow(ServerAndClients.TestCase)
TestServerAndClients.settings = settings(stateful_step_count=60)


def walk(chance: random.Random, steps: int) -> Counter[str]:
    """Do one long history, because hypothesis prefers short ones. Return counts of what happened."""
    world = ServerAndClients()

    def which() -> int:
        return chance.randrange(len(CLIENTS))

    def index() -> int:
        return chance.randrange(1000)

    rules: list[tuple[int, Callable[[], None]]] = [
        (12, lambda: world.start(which(), forget=chance.randrange(10))),
        (80, lambda: world.carry(which(), times=chance.randrange(1, 5))),
        (2, lambda: world.carry_late(which())),
        (2, lambda: world.lose(which())),
        (2, lambda: world.swap(which())),
        (3, lambda: world.send_nonsense(which())),
        (4, lambda: world.repeat(which(), index(), image=chance.random() < 0.5)),
        (80, lambda: world.receive_all(which())),
        (2, lambda: world.lose_a_response(index())),
        (12, lambda: world.send_first_frame(which(), fail=chance.randrange(20))),
        (4, lambda: world.leave(which())),
        (24, lambda: world.connect_at_once(which())),
        (30, lambda: world.decide(index(), fail=chance.randrange(8))),
        (60, lambda: world.open_a_publication(index(), chance.randrange(20), held=chance.random() < 0.2)),
        (2, lambda: world.fail_to_open(chance.random() < 0.5)),
        (6, lambda: world.drain(index())),
        (16, lambda: world.lose_a_link(index(), chance.choice(["expired", "cut", "unverified"]))),
        (6, lambda: world.end_at_the_peer(index(), chance.choice(["close", "keep", "keep", "fail"]))),
        (6, lambda: world.close_here(index(), keep=chance.random() < 0.5)),
        (2, world.take_bulk_ids),
        (2, lambda: world.server.bulk and world.release_bulk_ids()),
        (1, lambda: world.lose_the_driver(chance.randrange(2))),
        (1, lambda: world.shut_down(chance.randrange(12))),
        (8, lambda: world.pass_time(chance.choice([0.1, 0.1, 1.0, 3.0]))),
        (2, world.pass_time_until_the_next_deadline),
    ]
    for _, rule_ in chance.choices(rules, weights=[weight for weight, _ in rules], k=steps):
        rule_()
        world.everything_has_one_owner()
        world.limits_are_kept()
    world.teardown()
    refused = {name: count for name, count in world.server.statistics().items() if name.startswith("refused-")}
    return world.server.seen + Counter(refused)


@pytest.mark.slow
def test_long_histories_leave_nothing_behind(rng: random.Random) -> None:
    seen: Counter[str] = Counter()
    for _ in range(40):
        seen += walk(rng, 600)
    assert [name for name in sorted(EXPECTED) if not seen[name]] == []
