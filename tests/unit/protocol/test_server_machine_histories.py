"""Random histories of a server and its clients: each resource has one owner, and none is left at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aeron_spark.errors import SessionLost, TransportError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol import server_effects as effects
from aeron_spark.protocol import server_events as events
from aeron_spark.protocol.grants import UNKNOWN_KEY, Grant
from aeron_spark.protocol.ids import PooledIds
from aeron_spark.protocol.keypair import keypair_from
from tests.invariants import check_invariants
from tests.option_groups import options_of
from tests.unit.protocol.simulated_server import SimulatedClient, SimulatedServer, broken

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
REFUSED: Final = ("full", "ids", "key", "shutdown", "timeout")
ANY: Final = st.integers(0, 1000)
WHICH: Final = st.integers(0, len(CLIENTS) - 1)


class ServerAndClients(RuleBasedStateMachine):
    """The rules are steps of the network, the runner, a client, or the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.server = SimulatedServer(OPTIONS)
        self.clients = [
            SimulatedClient(self.server, keypair_from(bytes([key]) * 32), source, seed)
            for seed, (key, source) in enumerate(CLIENTS)
        ]
        self.bulk: list[PooledIds] = []

    def teardown(self) -> None:
        """Let all deadlines pass, check the resources, then close the server."""
        for ids in self.bulk:
            self.server.machine.resources.release_bulk_ids(ids, self.server.now)
        for client in self.clients:
            client.leave()
            while client.waiting:
                client.deliver()
        self.server.let_time_pass()
        statistics = self.server.machine.statistics()
        assert statistics["pending"] == statistics["handshakes"] == 0
        assert statistics["admitted"] == statistics["sessions"] == len(self.attached())
        assert statistics["session_ids"] == 2 * len(self.server.links)
        self.server.close()

    def attached(self) -> list[tuple[int, int]]:
        """Return the sessions that have a link, with the link."""
        sessions = self.server.sessions.items()
        return [(number, session.attached) for number, session in sessions if session.attached is not None]

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
        if waiting and isinstance(waiting[0], events.ImageAvailable):
            first = waiting.pop(0)
            assert isinstance(first, events.ImageAvailable)
            late = events.ImageAvailable(first.image, first.source, first.data_port, first.control_port, late=True)
            waiting[:] = [one for one in waiting if not isinstance(one, events.Packet)]
            self.server.feed(late)

    @rule(which=WHICH)
    def lose(self, which: int) -> None:
        waiting = self.clients[which].waiting
        if waiting and isinstance(waiting[0], events.Packet):
            waiting.pop(0)

    @rule(which=WHICH)
    def swap(self, which: int) -> None:
        """Exchange two messages of a client."""
        waiting = self.clients[which].waiting
        if len(waiting) > 1 and all(isinstance(one, events.Packet) for one in waiting[:2]):
            waiting[:2] = waiting[1::-1]

    @rule(which=WHICH, index=ANY, image=st.booleans())
    def repeat(self, which: int, index: int, image: bool) -> None:
        """Repeat a packet, from its own image, or from the present one as an attacker would."""
        client = self.clients[which]
        if client.sent:
            packet = client.sent[index % len(client.sent)]
            self.server.feed(events.Packet(client.image, packet.data) if image else packet)

    @rule(which=WHICH)
    def send_nonsense(self, which: int) -> None:
        waiting = self.clients[which].waiting
        if waiting and isinstance(waiting[0], events.ImageAvailable):
            waiting.insert(1, events.Packet(waiting[0].image, b"not a packet"))

    @rule(which=WHICH)
    def receive_all(self, which: int) -> None:
        self.clients[which].receive_all()

    @rule(index=ANY)
    def lose_a_response(self, index: int) -> None:
        for box in (self.server.packets, self.server.hints):
            if box:
                box.pop(index % len(box))
                return

    @rule(which=WHICH)
    def send_first_frame(self, which: int) -> None:
        if self.clients[which].link() is not None:
            self.clients[which].send_first_frame()
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
            while client.waiting:
                client.deliver()
            for index in [n for n, answer in enumerate(self.server.results) if isinstance(answer, events.Decided)]:
                self.server.results[index] = self.decision(self.server.results[index])
            self.server.feed_results()
            client.receive_all()
        client.send_first_frame()
        client.ack = None

    # The runner

    @rule(index=ANY, fail=st.integers(0, 4))
    def feed_result(self, index: int, fail: int) -> None:
        results = self.server.results
        if results:
            at = 0 if isinstance(results[0], events.LinkAttached) else index % len(results)
            results[at] = self.decision(results[at])
            if not fail:
                results[at] = self.failed(results[at])
            self.server.feed_result(at)

    def decision(self, answer: events.ServerEvent) -> events.ServerEvent:
        if not isinstance(answer, events.Decided):
            return answer
        is_unauthorised = any(
            one.keys.public == UNAUTHORISED_KEY for one in self.clients if one.image == self.image_of(answer.path)
        )
        return events.Decided(answer.path, UNKNOWN_KEY if is_unauthorised else Grant())

    def image_of(self, path: int) -> int | None:
        return self.server.paths.get(path)

    def failed(self, answer: events.ServerEvent) -> events.ServerEvent:
        for session, link in self.attached():
            if answer == events.LinkAttached(link):
                return events.SessionFailed(session, SessionLost("the two ends differ"))
        return broken(answer)

    @rule(index=ANY, expired=st.booleans())
    def lose_a_link(self, index: int, expired: bool) -> None:
        if self.server.links:
            number = sorted(self.server.links)[index % len(self.server.links)]
            lost = events.LinkExpired(number) if expired else events.LinkFailed(number, TransportError("it is cut"))
            self.server.feed(lost)

    @rule(index=ANY, how=st.sampled_from(["close", "keep", "fail"]))
    def end_at_the_peer(self, index: int, how: str) -> None:
        found = self.attached()
        if found:
            session, _ = found[index % len(found)]
            if how == "fail":
                self.server.feed(events.SessionFailed(session, TransportError("it cannot go on")))
            else:
                self.server.feed(events.PeerClosed(session, keep_session=how == "keep"))

    @rule(index=ANY, keep=st.booleans())
    def close_here(self, index: int, keep: bool) -> None:
        server = self.server
        if server.sessions:
            session = sorted(server.sessions)[index % len(server.sessions)]
            server.execute(server.machine.close_connection(session, keep_session=keep, now=server.now))

    @rule()
    def take_bulk_ids(self) -> None:
        ids = self.server.machine.resources.take_bulk_ids(self.server.now)
        if isinstance(ids, PooledIds):
            self.bulk.append(ids)

    @precondition(lambda self: self.bulk)
    @rule()
    def release_bulk_ids(self) -> None:
        self.server.machine.resources.release_bulk_ids(self.bulk.pop(), self.server.now)

    @rule(chance=st.integers(0, 9))
    def lose_the_driver(self, chance: int) -> None:
        """Lose the media driver with all messages in transit; results that wait in the loop arrive later."""
        if not chance:
            self.server.feed(events.DriverLost("it was killed"))
            assert not self.server.paths
            for client in self.clients:
                client.image = 0
                client.waiting.clear()
                client.sent.clear()

    @rule(chance=st.integers(0, 19))
    def shut_down(self, chance: int) -> None:
        if not chance:
            self.server.execute(self.server.machine.shut_down(self.server.now))
            assert not [one for one in self.server.sessions.values() if one.notices and one.attached is None]

    # Time

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.server.tick(self.server.now + seconds)

    @rule()
    def pass_time_until_the_next_deadline(self) -> None:
        deadline = self.server.machine.deadline()
        if deadline is not None:
            self.server.tick(max(self.server.now, deadline))
            after = self.server.machine.deadline()
            assert after is None or after > self.server.now

    @invariant()
    def everything_has_one_owner(self) -> None:
        check_invariants(self.server.machine)

    @invariant()
    def limits_are_kept(self) -> None:
        statistics = self.server.machine.statistics()
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
        (12, lambda: world.send_first_frame(which())),
        (4, lambda: world.leave(which())),
        (8, lambda: world.connect_at_once(which())),
        (80, lambda: world.feed_result(index(), fail=chance.randrange(20))),
        (8, lambda: world.lose_a_link(index(), expired=chance.random() < 0.5)),
        (6, lambda: world.end_at_the_peer(index(), chance.choice(["close", "keep", "keep", "fail"]))),
        (6, lambda: world.close_here(index(), keep=chance.random() < 0.5)),
        (2, world.take_bulk_ids),
        (2, lambda: world.bulk and world.release_bulk_ids()),
        (1, lambda: world.lose_the_driver(chance.randrange(2))),
        (1, lambda: world.shut_down(chance.randrange(60))),
        (10, lambda: world.pass_time(chance.choice([0.1, 0.1, 1.0, 3.0]))),
        (2, world.pass_time_until_the_next_deadline),
    ]
    for _, rule_ in chance.choices(rules, weights=[weight for weight, _ in rules], k=steps):
        rule_()
        world.everything_has_one_owner()
        world.limits_are_kept()
    world.teardown()
    statistics = world.server.machine.statistics()
    refused = {name: count for name, count in statistics.items() if name.startswith("refused-")}
    return world.server.seen + Counter(refused)


@pytest.mark.slow
def test_long_histories_leave_nothing_behind(rng: random.Random) -> None:
    seen: Counter[str] = Counter()
    for _ in range(30):
        seen += walk(rng, 600)
    # the test is useful only if all of these happened
    expected = {kind.__name__ for kind in get_args(effects.ServerEffect)}
    expected |= {one.name for one in effects.Ending} | {"SessionLost", "TransportError"}
    expected |= {*get_args(effects.Notice), *(f"refused-{code}" for code in REFUSED)}
    assert {name: seen[name] for name in expected if not seen[name]} == {}
