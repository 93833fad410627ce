"""Status messages of unauthenticated senders to a publication: destinations, hijacks, stalls."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.guard import GuardRules, SessionOwner, guarded, register
from aeron_spark.errors import WaitTimeout
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, offer
from tests.aeron.guard.endpoints import (
    CollectingSubscription,
    await_connected,
    publication_to,
    subscription_on_free_port,
    subscription_to,
)
from tests.aeron.guard.frames import KIB, frame_senders
from tests.ports import free_port

STREAM = 1005
DESTINATIONS = 18  # AeronCounters.MDC_DESTINATIONS_COUNTER_TYPE_ID
CAP = GuardRules(destinations=10, destinations_per_source=3, rate=1000, burst=1000)


def destinations(driver: Driver, port: int) -> int:
    (value,) = [
        counter.value
        for counter in read_counters(str(driver.aeron_dir))
        if counter.type_id == DESTINATIONS and f":{port}" in counter.label
    ]
    return value


def status_of(publication: Any, receiver: int, **changes: int) -> bytes:
    """Return a status message for the publication, by default with its first position."""
    values = {"term": int(publication.initialTermId()), **changes}
    return frames.status_message(int(publication.sessionId()), STREAM, receiver, **values)


@pytest.mark.parametrize("rules", [CAP, None], ids=["guarded", "unguarded"])
def test_a_guard_limits_the_destinations_of_a_control_address(driver: Driver, rules: GuardRules | None) -> None:
    port = free_port()
    channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k"
    with (
        publication_to(driver, channel if rules is None else guarded(channel, rules), STREAM) as fan_out,
        frame_senders(5, port) as senders,
    ):

        def count_destinations() -> int:
            """Send from all receivers, which repeat their messages because UDP loses some; return the destinations."""
            for one in senders:
                one.send(*(status_of(fan_out, n) for n in range(10)))
            # for a session without a publication: Aeron adds the source as a destination, too
            senders[0].send(frames.status_message(1, STREAM, 999, term=0))
            time.sleep(0.05)
            return destinations(driver, port)

        if rules is None:
            wait_for(lambda: count_destinations() == 51, TIMEOUT_S, "51 destinations")
        else:
            wait_for(lambda: count_destinations() == 10, TIMEOUT_S, "10 destinations")
            assert [count_destinations() for _ in range(5)] == [10] * 5
            drops = {name: driver.drops(f"sending: {name}") for name in ("source", "total", "unwanted")}
            assert all(drops.values()), drops


def test_rules_can_allow_a_limited_number_of_receivers_without_a_session_id(driver: Driver) -> None:
    """Echo's clients join their common channel like this."""
    port = free_port()
    control = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic"
    rules = replace(CAP, streams=(STREAM,), joining=True)
    with (
        publication_to(driver, guarded(f"{control}|term-length=64k|fc=max", rules), STREAM) as fan_out,
        subscription_to(driver, control, STREAM) as joined,
        frame_senders(5, port) as senders,
    ):
        joined.wait_for_image(int(fan_out.sessionId()))
        offer(fan_out, b"for all")
        assert joined.wait_for_messages(1) == [b"for all"]
        refused = driver.drops("sending: total")

        def join() -> bool:
            for one in senders:
                one.send(*(frames.status_message(0, 0, n, term=0, flags=frames.SEND_SETUP) for n in range(10)))
            return driver.drops("sending: total") > refused

        wait_for(join, TIMEOUT_S, "the guard to refuse an eleventh receiver")
        assert destinations(driver, port) == CAP.destinations


def test_by_default_no_receiver_joins_without_a_session_id(driver: Driver) -> None:
    port = free_port()
    channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k"
    unwanted = driver.drops("sending: unwanted")
    with (
        publication_to(driver, guarded(channel, replace(CAP, streams=(STREAM,))), STREAM),
        frame_senders(1, port) as (sender,),
    ):

        def refused() -> bool:
            sender.send(frames.status_message(0, 0, 1, term=0, flags=frames.SEND_SETUP))
            return driver.drops("sending: unwanted") > unwanted

        wait_for(refused, TIMEOUT_S, "the guard to drop a request for every publication")
        assert destinations(driver, port) == 0


@pytest.mark.parametrize("rules", [GuardRules(), None], ids=["guarded", "unguarded"])
def test_a_guard_prevents_the_hijack_of_a_response_publication(driver: Driver, rules: GuardRules | None) -> None:
    """Without a guard, one status message moves a response publication to its sender."""
    foreign = driver.drops("sending: foreign")
    with ExitStack() as stack:
        client, response, port = responding(driver, rules, stack)
        (other,) = stack.enter_context(frame_senders(1, port, first=30))
        offer(response, b"hello")
        assert client.wait_for_messages(1) == [b"hello"]
        at = {"offset": int(response.position())}
        other.send(status_of(response, 2, flags=frames.SEND_SETUP, **at), status_of(response, 2, **at))
        if rules is not None:
            wait_for(lambda: driver.drops("sending: foreign") >= foreign + 2, TIMEOUT_S, "the drops")
        time.sleep(0.1)
        offer(response, b"secret")
        if rules is not None:
            assert client.wait_for_messages(2) == [b"hello", b"secret"]
        stolen = b"secret" in b"".join(other.received(0.3))
        assert stolen == (rules is None)


def test_a_guarded_response_publication_follows_its_owner_until_a_receiver_has_an_image(driver: Driver) -> None:
    """Regression: a reader that requested the set-up again, from another port, was refused for five seconds."""
    session = 77
    with ExitStack() as stack:
        _, first, port = responding(driver, GuardRules(), stack)
        stack.callback(register(driver.client, SessionOwner("published", port, session, STREAM, "127.0.0.31")).close)
        channel = f"{first.channel()}|session-id={session}"
        publication = stack.enter_context(publication_to(driver, channel, STREAM))
        # two ports of one address
        (lost,) = stack.enter_context(frame_senders(1, port, first=30))
        (again,) = stack.enter_context(frame_senders(1, port, first=30))
        request = status_of(publication, 1, flags=frames.SEND_SETUP)
        ask_until_set_up(lost, request)
        ask_until_set_up(again, request)
        again.send(status_of(publication, 1))
        await_connected(publication)
        foreign = driver.drops("sending: foreign")

        def refused() -> bool:
            again.send(status_of(publication, 1))  # as a receiver with an image does every 200 ms
            lost.send(request)
            return driver.drops("sending: foreign") > foreign

        wait_for(refused, TIMEOUT_S, "the guard to drop a later request")


def ask_until_set_up(sender: frames.FrameSender, request: bytes) -> None:
    """Send a request for the set-up again and again, as UDP may lose it, until a SETUP arrives."""

    def is_set_up() -> bool:
        sender.send(request)
        return any(int.from_bytes(one[6:8], "little") == frames.SETUP for one in sender.received(0.05))

    wait_for(is_set_up, 4.5, "a SETUP")  # less than the 5 s after which the guard forgets another receiver


def test_the_guard_of_an_open_stream_knows_an_owner_before_its_publication_starts(driver: Driver) -> None:
    """The guard reads the owners every few milliseconds, but must know the owner of a new publication at once."""
    # The guard reads the owners again for a session with an owner, so the other sends for each session in turn.
    unowned, sessions, stopped = 99, [99], threading.Event()
    port = free_port()
    channel = guarded(
        f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k|init-term-id=0|term-id=0|term-offset=0",
        GuardRules(streams=(STREAM,)),
    )
    with ExitStack() as stack:
        publications = [stack.enter_context(publication_to(driver, f"{channel}|session-id={unowned}", STREAM))]
        (other,) = stack.enter_context(frame_senders(1, port, first=30))

        def flood() -> None:
            while not stopped.is_set():
                other.send(*(frames.status_message(one, STREAM, one, term=0) for one in (unowned, sessions[-1])))

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for session in range(100, 140):
                sessions.append(session)
                owner = SessionOwner("published", port, session, STREAM, "127.0.0.3")
                held = register(driver.client, owner, wait=False)
                stack.callback(held.close)
                publications.append(
                    stack.enter_context(publication_to(driver, f"{channel}|session-id={session}", STREAM))
                )
            await_connected(publications[0])
        finally:
            stopped.set()
            flooding.join()
        found = [one for one in publications if bool(one.isConnected())]
        assert [int(one.sessionId()) for one in found] == [unowned]


def responding(driver: Driver, rules: GuardRules | None, stack: ExitStack) -> tuple[CollectingSubscription, Any, int]:
    """Connect over response channels; return the client's subscription, the server's publication, and its port."""
    server = stack.enter_context(subscription_on_free_port(driver, STREAM, rules))
    port = free_port()
    response_channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=response"
    client = stack.enter_context(subscription_to(driver, response_channel, STREAM))
    request = stack.enter_context(
        publication_to(
            driver,
            f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k"
            f"|response-correlation-id={client.subscription.registrationId()}",
            STREAM,
        )
    )
    image = server.wait_for_image(int(request.sessionId()))
    channel = f"{response_channel}|term-length=64k|response-correlation-id={image.correlationId()}"
    response = stack.enter_context(
        publication_to(driver, channel if rules is None else guarded(channel, rules), STREAM)
    )
    return client, await_connected(response), port


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
def test_a_receiver_without_an_owner_does_not_stall_a_guarded_publication(driver: Driver, guard: bool) -> None:
    """Without a guard, a receiver with an empty window stalls a publication that waits for its slowest receiver."""
    port = free_port()
    channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k|fc=min"
    channel = guarded(channel, GuardRules(streams=(1,))) if guard else channel
    with publication_to(driver, channel, STREAM) as fan_out, frame_senders(2, port) as (owner, sender):
        session = int(fan_out.sessionId())
        held = register(driver.client, SessionOwner("published", port, session, STREAM, "127.0.0.3"))
        owner.send(status_of(fan_out, 1, window=32 * KIB))
        await_connected(fan_out)
        sender.send(status_of(fan_out, 2, window=32 * KIB), status_of(fan_out, 2, window=0))
        time.sleep(0.1)
        for _ in range(24):
            offer(fan_out, bytes(1000))
        time.sleep(0.2)
        owner.send(status_of(fan_out, 1, offset=int(fan_out.position()), window=32 * KIB))
        time.sleep(0.2)
        owner.received()
        # in total more than the first window, but less than the owner's present window
        with nullcontext() if guard else pytest.raises(WaitTimeout):
            for _ in range(16):
                offer(fan_out, bytes(1000), seconds=0.5)
            offer(fan_out, b"goes on")
        assert (b"goes on" in b"".join(owner.received(0.5))) == guard
        assert bool(sender.received()) != guard
        held.close()
