"""Tests sessions by ticket: which client can resume a session, and when sessions and tickets are deleted."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aeron_spark.errors import UsageError
from aeron_spark.protocol.sources import Refusal
from aeron_spark.protocol.tickets import (
    FULL,
    FULL_FOR_KEY,
    MAX_CONNECTIONS_PER_KEY,
    MAX_OFFERS,
    MAX_SESSIONS,
    Offer,
    TicketStore,
)

ALICE, MALLORY = b"a" * 32, b"m" * 32


def new_store(
    max_sessions: int = MAX_SESSIONS, max_connections_per_key: int = MAX_CONNECTIONS_PER_KEY
) -> TicketStore[str]:
    return TicketStore(
        random.Random(1).randbytes, 120.0, max_sessions=lambda: max_sessions,
        max_connections_per_key=lambda: max_connections_per_key,
    )  # fmt: skip


def open_session(tickets: TicketStore[str], key: bytes = ALICE, session: str = "session", now: float = 0.0) -> bytes:
    opened = tickets.open(key, session, now)
    assert not isinstance(opened, Refusal)
    assert opened[0].session == session
    return opened[0].ticket


def present_ticket(tickets: TicketStore[str], ticket: bytes, now: float = 0.0, key: bytes = ALICE) -> bytes:
    offer = tickets.present(ticket, key, now)
    assert offer is not None
    return offer.ticket


def test_row_46_a_ticket_with_another_key_is_refused_and_changes_nothing() -> None:
    tickets = new_store()
    ticket = open_session(tickets)
    assert tickets.confirm(ticket)
    tickets.detach(ticket, 10.0)
    before = tickets.deadline()
    for now in (11.0, 100.0, 129.0):
        assert tickets.present(ticket, MALLORY, now) is None
        assert tickets.present(ticket, b"", now) is None
    assert tickets.deadline() == before == 130.0
    offer = tickets.present(ticket, ALICE, 129.9)
    assert offer is not None
    assert offer.session == "session"


def test_row_46_another_key_does_not_take_a_session_that_is_connected() -> None:
    tickets = new_store()
    ticket = open_session(tickets)
    tickets.confirm(ticket)
    assert tickets.present(ticket, MALLORY, 1.0) is None
    assert tickets.deadline() is None
    assert len(tickets) == 1


def test_the_old_ticket_is_valid_until_the_first_frame() -> None:
    tickets = new_store()
    old = open_session(tickets)
    tickets.confirm(old)
    tickets.detach(old, 0.0)
    present_ticket(tickets, old, 1.0)  # its response is lost
    new = present_ticket(tickets, old, 2.0)
    assert tickets.confirm(new)
    assert tickets.present(old, ALICE, 3.0) is None
    assert not tickets.confirm(old)
    assert tickets.present(new, ALICE, 3.0) is not None


def test_a_client_without_a_first_frame_can_present_its_new_ticket_or_the_old_one() -> None:
    tickets = new_store()
    old = open_session(tickets)
    tickets.confirm(old)
    tickets.detach(old, 0.0)
    new = present_ticket(tickets, old, 1.0)
    for now in range(2, 2 + 3 * MAX_OFFERS):  # the client has the new ticket, and all further responses are lost
        last = present_ticket(tickets, new, float(now))
    assert tickets.confirm(last)
    assert tickets.present(new, ALICE, 30.0) is None
    assert tickets.present(old, ALICE, 30.0) is None


def test_unconfirmed_tickets_are_limited_and_the_oldest_is_deleted_first() -> None:
    tickets = new_store()
    ticket = open_session(tickets)
    tickets.confirm(ticket)
    offers = [present_ticket(tickets, ticket) for _ in range(MAX_OFFERS + 1)]
    assert [tickets.present(offer, MALLORY, 0.0) for offer in offers] == [None] * (MAX_OFFERS + 1)
    assert not tickets.confirm(offers[0])
    assert tickets.confirm(offers[1])


def test_row_56_a_session_expires_after_the_retention_and_not_before() -> None:
    tickets = new_store()
    ticket = open_session(tickets)
    tickets.confirm(ticket)
    assert tickets.expire(1e9) == []  # connected sessions never expire
    tickets.detach(ticket, 10.0)
    assert tickets.deadline() == 130.0
    assert tickets.expire(129.9) == []
    assert tickets.present(ticket, ALICE, 130.0) is None  # although it is not deleted yet
    assert tickets.expire(130.0) == ["session"]
    assert len(tickets) == 0
    assert not tickets.confirm(ticket)


def test_a_session_does_not_expire_between_an_offer_and_its_first_frame() -> None:
    tickets = new_store()
    ticket = open_session(tickets)
    tickets.confirm(ticket)
    tickets.detach(ticket, 0.0)
    new = present_ticket(tickets, ticket, 119.9)
    assert tickets.expire(125.0) == []
    assert tickets.confirm(new)
    assert tickets.deadline() is None


def test_a_session_without_a_first_frame_expires() -> None:
    tickets = new_store()
    open_session(tickets, now=5.0)
    assert tickets.expire(124.9) == []
    assert tickets.expire(125.0) == ["session"]


def test_the_end_of_an_older_link_does_not_change_the_session() -> None:
    tickets = new_store()
    old = open_session(tickets)
    tickets.confirm(old)
    new = present_ticket(tickets, old)
    tickets.confirm(new)
    tickets.detach(old, 1.0)
    tickets.drop(old)
    assert tickets.deadline() is None
    assert len(tickets) == 1


def test_a_session_whose_link_is_lost_during_a_resume_expires() -> None:
    tickets = new_store()
    old = open_session(tickets)
    tickets.confirm(old)
    present_ticket(tickets, present_ticket(tickets, old))
    tickets.detach(old, 1.0)
    assert tickets.deadline() == 121.0


def test_a_closed_session_is_deleted_with_all_its_tickets() -> None:
    tickets = new_store()
    ticket = open_session(tickets)
    tickets.confirm(ticket)
    offered = present_ticket(tickets, ticket)
    tickets.drop(ticket)
    tickets.drop(ticket)
    assert len(tickets) == 0
    assert (tickets.present(ticket, ALICE, 0.0), tickets.confirm(offered)) == (None, False)


def test_a_session_never_ends_to_make_room_for_another_key() -> None:
    tickets = new_store(max_sessions=2, max_connections_per_key=2)
    open_session(tickets, ALICE)
    open_session(tickets, ALICE)
    assert tickets.open(MALLORY, "m", 1.0) == FULL
    assert len(tickets) == 2
    opened = tickets.open(MALLORY, "m", 120.0)  # the others have expired
    assert not isinstance(opened, Refusal)
    assert opened[1] == ["session", "session"]


def test_a_key_at_its_limit_loses_its_own_oldest_detached_session() -> None:
    tickets = new_store(max_connections_per_key=2)
    connected = open_session(tickets, session="connected")
    tickets.confirm(connected)
    open_session(tickets, session="detached")
    opened = tickets.open(ALICE, "third", 1.0)
    assert not isinstance(opened, Refusal)
    assert opened[1] == ["detached"]
    tickets.confirm(opened[0].ticket)
    assert tickets.open(ALICE, "fourth", 1.0) == FULL_FOR_KEY
    assert len(tickets) == 2


def test_a_new_session_is_found_by_the_presented_ticket_until_the_first_frame() -> None:
    tickets = new_store()
    client_ticket = b"r" * 32
    opened = tickets.open(ALICE, "session", 0.0, client_ticket)
    assert not isinstance(opened, Refusal)
    assert tickets.present(client_ticket, MALLORY, 1.0) is None
    offer = tickets.present(client_ticket, ALICE, 1.0)
    assert offer is not None
    assert offer.session == "session"
    assert tickets.confirm(offer.ticket)
    assert tickets.present(client_ticket, ALICE, 2.0) is None
    assert len(tickets) == 1


def test_a_presented_ticket_does_not_take_the_session_of_another_key() -> None:
    tickets = new_store()
    ticket = open_session(tickets, session="alice")
    opened = tickets.open(MALLORY, "mallory", 0.0, ticket)
    assert not isinstance(opened, Refusal)
    assert tickets.present(ticket, MALLORY, 1.0) is None
    offer = tickets.present(ticket, ALICE, 1.0)
    assert offer is not None
    assert offer.session == "alice"
    tickets.drop(opened[0].ticket)
    assert tickets.present(ticket, ALICE, 1.0) is not None


def test_the_presented_ticket_is_deleted_with_its_session() -> None:
    tickets = new_store()
    opened = tickets.open(ALICE, "session", 0.0, b"r" * 32)
    assert not isinstance(opened, Refusal)
    tickets.drop(opened[0].ticket)
    assert tickets.present(b"r" * 32, ALICE, 0.0) is None
    assert len(tickets._by_ticket) == 0


def test_a_ticket_is_not_in_the_repr_of_its_offer() -> None:
    assert "secret" not in repr(Offer("session", b"secret"))


def test_repeating_entropy_is_refused() -> None:
    constant: TicketStore[str] = TicketStore(bytes, 120.0)
    constant.open(ALICE, "a", 0.0)
    with pytest.raises(UsageError, match="same ticket twice"):
        constant.open(ALICE, "b", 0.0)


class TicketStoreMachine(RuleBasedStateMachine):
    """Random calls: a key gets only its own sessions, and all limits hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store: TicketStore[tuple[bytes, int]] = TicketStore(
            random.Random(1).randbytes, 20.0, max_sessions=lambda: 4, max_connections_per_key=lambda: 3
        )
        self.tickets: list[bytes] = []
        self.count = 0

    @rule(key=st.sampled_from([ALICE, MALLORY]), presented=st.none() | st.integers(0, 30))
    def open(self, key: bytes, presented: int | None) -> None:
        self.count += 1
        client_ticket = None
        if presented is not None:
            known = presented < len(self.tickets)
            client_ticket = self.tickets[presented] if known else bytes([presented]) * 32
        opened = self.store.open(key, (key, self.count), self.now, client_ticket)
        if not isinstance(opened, Refusal):
            self.tickets.append(opened[0].ticket)
        if client_ticket is not None:
            self.tickets.append(client_ticket)

    @rule(index=st.integers(0, 30), key=st.sampled_from([ALICE, MALLORY]))
    def present(self, index: int, key: bytes) -> None:
        if index < len(self.tickets):
            offer = self.store.present(self.tickets[index], key, self.now)
            assert offer is None or offer.session[0] == key
            if offer is not None:
                self.tickets.append(offer.ticket)

    @rule(index=st.integers(0, 30), action=st.sampled_from(["confirm", "detach", "drop"]))
    def end(self, index: int, action: str) -> None:
        if index < len(self.tickets):
            ticket = self.tickets[index]
            match action:
                case "confirm":
                    self.store.confirm(ticket)
                case "detach":
                    self.store.detach(ticket, self.now)
                case "drop":
                    self.store.drop(ticket)

    @rule(seconds=st.floats(0.0, 15.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        self.store.expire(self.now)
        earliest = self.store.deadline()
        assert earliest is None or earliest > self.now

    @invariant()
    def limits_hold(self) -> None:
        assert len(self.store) <= 4
        assert len(self.store._by_ticket) <= 4 * (MAX_OFFERS + 1)
        reachable = {id(entry) for entry in self.store._by_ticket.values()}
        kept = {id(entry) for entries in self.store._by_key.values() for entry in entries}
        assert reachable == kept


TestTickets = pytest.mark.slow(TicketStoreMachine.TestCase)
TestTickets.settings = settings(stateful_step_count=40)
