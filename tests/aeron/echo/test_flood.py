"""Finding C16, with real media drivers: a flood on the channel of all clients, and the guard on Echo's channels."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.aeron import guard
from aeron_spark.aeron.client import Client
from aeron_spark.aeron.guard import has_guard, read_drops
from aeron_spark.aeron.jvm import jclass
from aeron_spark.echo import channels, reports
from aeron_spark.echo.conversation import conversation, drive
from aeron_spark.echo.echo2 import Client2, Server2, Server2Settings
from aeron_spark.echo.reports import AT_ONCE
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.wires import Hand, Seen, come, own_driver, say, sender, serving, until
from tests.aeron.guard.frames import SEND_SETUP, status_message, strangers
from tests.leaks import SHARED_MEMORY

FLOODER = "127.0.0.9"
FOREIGN = "127.0.0.7"
SESSIONS = 8  # of the flood


@pytest.fixture(scope="module")
def guarded(run_name: str) -> Iterator[Client]:
    """A server's media driver that has the guard."""
    aeron_dir = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    context = jclass("io.aeron.driver.MediaDriver$Context")()
    context.aeronDirectoryName(str(aeron_dir)).dirDeleteOnShutdown(True)
    context.threadingMode(jclass("io.aeron.driver.ThreadingMode").SHARED)
    context.sharedIdleStrategy(jclass("org.agrona.concurrent.SleepingMillisIdleStrategy")(1))
    for method, supplier in guard.suppliers().items():
        getattr(context, method)(supplier)
    driver = jclass("io.aeron.driver.MediaDriver").launch(context)
    try:
        client = Client(str(aeron_dir))
        try:
            yield client
        finally:
            client.close()
    finally:
        driver.close()
        shutil.rmtree(aeron_dir, ignore_errors=True)


@contextlib.contextmanager
def flooding(client: Client, listen: HostPort) -> Iterator[list[int]]:
    """Send what is no HELLO to all-clients, as fast as it is taken; how many were taken."""
    all_talking = [sender(client, listen, source=FLOODER) for _ in range(SESSIONS)]
    until(lambda: all(talking.connected for talking in all_talking), "the flood's publications")
    over, taken = threading.Event(), [0]

    def flood() -> None:
        while not over.is_set():
            more = sum(talking.offer(b"flood") is None for talking in all_talking)
            taken[0] += more
            if not more:
                over.wait(0.001)

    thread = threading.Thread(target=flood, name="flood")
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join(60)
        for talking in all_talking:
            talking.close()


def test_finding_c16_a_newcomer_is_echoed_beside_a_flood_which_the_server_reports_a_few_times(
    guarded: Client, there: Client, listen: HostPort
) -> None:
    seen = Seen()
    server = Server2(guarded, Server2Settings(listen, listen.port + 1, listen.port + 10), seen)
    with serving(server), flooding(there, listen) as taken:
        until(lambda: taken[0] > 1_000, "the flood to rise")
        client = Client2(there, listen, listen.port + 1)
        try:
            assert drive(conversation(client, [b"one", b"two"], 0.0, Seen()), lambda: False) == 2
        finally:
            client.close()
        assert has_guard(guarded.aeron_dir)
        reported = [event for event in seen.of(reports.Refusal) if event.source.startswith(FLOODER)]
        assert AT_ONCE <= len(reported) <= AT_ONCE + 6  # one in 10 s, should this take a minute


def test_finding_c16_the_guard_leaves_a_duologue_to_its_client(
    guarded: Client, there: Client, listen: HostPort, run_name: str
) -> None:
    seen = Seen()
    server = Server2(guarded, Server2Settings(listen, listen.port + 1, listen.port + 10), seen)
    with own_driver(run_name) as elsewhere, serving(server):
        hand = Hand(there, listen, listen.port + 1)
        thief = Hand(elsewhere, listen, listen.port + 1)
        try:
            place = hand.place()
            dropped = sum(read_drops(guarded.aeron_dir).values())
            _, stolen = thief.try_to_join(place, source=FOREIGN)
            until(lambda: sum(read_drops(guarded.aeron_dir).values()) > dropped, "the guard to drop what is foreign")
            listening, talking = hand.join(place)
            say(talking, b"ECHO mine")
            assert come(listening) == [b"ECHO mine"]
            assert not stolen.connected
            assert not seen.of(reports.Refusal)  # it never came as far as the server
        finally:
            hand.close()
            thief.close()


def test_finding_c16_the_guard_limits_who_joins_what_all_clients_hear(
    guarded: Client, there: Client, listen: HostPort
) -> None:
    server = Server2(guarded, Server2Settings(listen, listen.port + 1, listen.port + 10), Seen())
    control = HostPort(listen.host, listen.port + 1)
    refused = read_drops(guarded.aeron_dir).get("sending: source", 0)
    with serving(server), crowd(control, channels.RULES.destinations_per_source + 1) as join:

        def dropped() -> bool:
            join()
            return read_drops(guarded.aeron_dir)["sending: source"] > refused

        until(dropped, "the guard to refuse more receivers of one address than its rules allow")
        client = Client2(there, listen, control.port)
        try:
            assert drive(conversation(client, [b"one"], 0.0, Seen()), lambda: False) == 1
        finally:
            client.close()


@contextlib.contextmanager
def crowd(control: HostPort, receivers: int) -> Iterator[Callable[[], None]]:
    """Yield what asks, as so many receivers of one address, for all that is published at ``control``."""
    with strangers(1, control.port, first=60) as (stranger,):
        asking = [status_message(0, 0, number, term=0, flags=SEND_SETUP) for number in range(receivers)]
        yield lambda: stranger.send(*asking)
