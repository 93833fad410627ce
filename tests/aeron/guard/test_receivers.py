"""Status messages of strangers to a sending endpoint: destinations, hijacks, stalls."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.guard import GuardRules, guarded, register
from aeron_spark.errors import WaitTimeout
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, free_port, offer
from tests.aeron.guard.endpoints import Listening, connected, listening, listening_on, publishing
from tests.aeron.guard.frames import KIB, strangers

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


def here(publication: Any, receiver: int, **wrong: int) -> bytes:
    """A status message that fits the publication's beginning."""
    values = {"term": int(publication.initialTermId()), **wrong}
    return frames.status_message(int(publication.sessionId()), STREAM, receiver, **values)


@pytest.mark.parametrize("rules", [CAP, None], ids=["guarded", "unguarded"])
def test_surplus_destinations_of_a_control_address(driver: Driver, rules: GuardRules | None) -> None:
    port = free_port()
    channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k"
    with (
        publishing(driver, channel if rules is None else guarded(channel, rules), STREAM) as fan_out,
        strangers(20, port) as crowd,
    ):

        def known() -> int:
            """What the driver knows when all have spoken; again and again, as receivers do: some may not be heard."""
            for one in crowd:
                one.send(*(here(fan_out, n) for n in range(10)))
            # one for a session that nobody publishes: Aeron adds its source all the same
            crowd[0].send(frames.status_message(1, STREAM, 999, term=0))
            time.sleep(0.05)
            return destinations(driver, port)

        if rules is None:
            wait_for(lambda: known() == 201, TIMEOUT_S, "201 destinations")
        else:
            wait_for(lambda: known() == 10, TIMEOUT_S, "10 destinations")
            assert [known() for _ in range(5)] == [10] * 5
            drops = {name: driver.drops(f"sending: {name}") for name in ("source", "total", "unwanted")}
            assert all(drops.values()), drops


def test_finding_c16_receivers_join_without_a_session_id_where_the_rules_say_so_and_are_counted(driver: Driver) -> None:
    """As Echo's clients join the channel that all of them hear."""
    port = free_port()
    place = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic"
    rules = replace(CAP, streams=(STREAM,), joining=True)
    with (
        publishing(driver, guarded(f"{place}|term-length=64k|fc=max", rules), STREAM) as fan_out,
        listening_on(driver, place, STREAM) as joined,
        strangers(20, port) as crowd,
    ):
        joined.wait_for_image(int(fan_out.sessionId()))
        offer(fan_out, b"for all")
        assert joined.wait_for_messages(1) == [b"for all"]
        refused = driver.drops("sending: total")

        def join() -> bool:
            for one in crowd:
                one.send(*(frames.status_message(0, 0, n, term=0, flags=frames.SEND_SETUP) for n in range(10)))
            return driver.drops("sending: total") > refused

        wait_for(join, TIMEOUT_S, "the guard to refuse an eleventh receiver")
        assert destinations(driver, port) == CAP.destinations


def test_finding_c16_nobody_joins_without_a_session_id_where_the_rules_do_not_say_so(driver: Driver) -> None:
    port = free_port()
    channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k"
    unwanted = driver.drops("sending: unwanted")
    with (
        publishing(driver, guarded(channel, replace(CAP, streams=(STREAM,))), STREAM),
        strangers(1, port) as (stranger,),
    ):

        def refused() -> bool:
            stranger.send(frames.status_message(0, 0, 1, term=0, flags=frames.SEND_SETUP))
            return driver.drops("sending: unwanted") > unwanted

        wait_for(refused, TIMEOUT_S, "the guard to drop a request for every publication")
        assert destinations(driver, port) == 0


@pytest.mark.parametrize("rules", [GuardRules(), None], ids=["guarded", "unguarded"])
def test_a_stranger_cannot_take_a_response_over(driver: Driver, rules: GuardRules | None) -> None:
    """With Aeron alone one status message moves a response publication to whoever sent it."""
    foreign = driver.drops("sending: foreign")
    with ExitStack() as stack:
        client, response, port = responding(driver, rules, stack)
        (thief,) = stack.enter_context(strangers(1, port, first=30))
        offer(response, b"hello")
        assert client.wait_for_messages(1) == [b"hello"]
        at = {"offset": int(response.position())}
        thief.send(here(response, 2, flags=frames.SEND_SETUP, **at), here(response, 2, **at))
        if rules is not None:
            wait_for(lambda: driver.drops("sending: foreign") >= foreign + 2, TIMEOUT_S, "the drops")
        time.sleep(0.1)
        offer(response, b"secret")
        if rules is not None:
            assert client.wait_for_messages(2) == [b"hello", b"secret"]
        stolen = b"secret" in b"".join(thief.received(0.3))
        assert stolen == (rules is None)


def test_on_a_stream_for_strangers_too_an_owner_is_known_before_its_publication(driver: Driver) -> None:
    """What the guard has read of owners is some milliseconds old, and must not be when a publication is new."""
    # What is known to be somebody else's has the guard look again: the thief asks for one session after the other.
    unowned, asked_for, over = 99, [99], threading.Event()
    port = free_port()
    channel = guarded(
        f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k|init-term-id=0|term-id=0|term-offset=0",
        GuardRules(streams=(STREAM,)),
    )
    with ExitStack() as stack:
        publications = [stack.enter_context(publishing(driver, f"{channel}|session-id={unowned}", STREAM))]
        (thief,) = stack.enter_context(strangers(1, port, first=30))

        def flood() -> None:
            while not over.is_set():
                thief.send(*(frames.status_message(one, STREAM, one, term=0) for one in (unowned, asked_for[-1])))

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for session in range(100, 140):
                asked_for.append(session)
                held = register(
                    driver.client, "published", port=port, session_id=session, stream_id=STREAM, address="127.0.0.3",
                    wait=False,
                )  # fmt: skip
                stack.callback(held.close)
                publications.append(stack.enter_context(publishing(driver, f"{channel}|session-id={session}", STREAM)))
            connected(publications[0])
        finally:
            over.set()
            flooding.join()
        found = [one for one in publications if bool(one.isConnected())]
        assert [int(one.sessionId()) for one in found] == [unowned]


def responding(driver: Driver, rules: GuardRules | None, stack: ExitStack) -> tuple[Listening, Any, int]:
    """Connect over response channels; return the client's subscription, the server's way out, and its port."""
    server = stack.enter_context(listening(driver, STREAM, rules))
    port = free_port()
    back = f"aeron:udp?control=127.0.0.1:{port}|control-mode=response"
    client = stack.enter_context(listening_on(driver, back, STREAM))
    request = stack.enter_context(
        publishing(
            driver,
            f"aeron:udp?endpoint=127.0.0.1:{server.port}|term-length=64k"
            f"|response-correlation-id={client.subscription.registrationId()}",
            STREAM,
        )
    )
    image = server.wait_for_image(int(request.sessionId()))
    way_out = f"{back}|term-length=64k|response-correlation-id={image.correlationId()}"
    response = stack.enter_context(publishing(driver, way_out if rules is None else guarded(way_out, rules), STREAM))
    return client, connected(response), port


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
def test_a_receiver_of_no_account_stalls_nobody(driver: Driver, guard: bool) -> None:
    """A stranger that says it has room for nothing holds up everybody whose flow control waits for the slowest."""
    port = free_port()
    channel = f"aeron:udp?control=127.0.0.1:{port}|control-mode=dynamic|term-length=64k|fc=min"
    channel = guarded(channel, GuardRules(streams=(1,))) if guard else channel
    with publishing(driver, channel, STREAM) as fan_out, strangers(2, port) as (owner, stranger):
        held = register(
            driver.client,
            "published",
            port=port,
            session_id=int(fan_out.sessionId()),
            stream_id=STREAM,
            address="127.0.0.3",
        )
        owner.send(here(fan_out, 1, window=32 * KIB))
        connected(fan_out)
        stranger.send(here(fan_out, 2, window=32 * KIB), here(fan_out, 2, window=0))
        time.sleep(0.1)
        for _ in range(24):
            offer(fan_out, bytes(1000))
        time.sleep(0.2)
        owner.send(here(fan_out, 1, offset=int(fan_out.position()), window=32 * KIB))
        time.sleep(0.2)
        owner.received()
        # in all more than the first window, and less than the owner has room for now
        with nullcontext() if guard else pytest.raises(WaitTimeout):
            for _ in range(16):
                offer(fan_out, bytes(1000), seconds=0.5)
            offer(fan_out, b"goes on")
        assert (b"goes on" in b"".join(owner.received(0.5))) == guard
        assert bool(stranger.received()) != guard
        held.close()
