"""With media drivers: a flood on the channel of all clients, and the guard of a server's channels."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.guard import has_guard, read_drops
from aeron_spark.echo import conversation, texts
from aeron_spark.echo.conversation import REPORT_BURST, converse, run_steps
from aeron_spark.echo.echo2 import Client2, Server2, Server2Settings
from aeron_spark.transport.addresses import HostPort
from tests.aeron.echo.manual_peers import (
    Events,
    ManualClient,
    open_sender,
    own_driver,
    receive,
    send,
    serving,
    wait_until,
)
from tests.aeron.guard.frames import SEND_SETUP, frame_senders, status_message

FLOOD_SOURCE = "127.0.0.9"
FOREIGN = "127.0.0.7"
FLOOD_PUBLICATIONS = 8  # of the flood, each with another Aeron session id


@pytest.fixture(scope="module")
def guarded_aeron(run_name: str) -> Iterator[AeronClient]:
    """An Aeron client of a media driver with the guard, for the server."""
    with own_driver(run_name, has_guard=True) as client:
        yield client


@contextlib.contextmanager
def flooding(client: AeronClient, listen: HostPort) -> Iterator[list[int]]:
    """Flood the channel of all clients with messages that are not HELLO. Yield a list whose only item counts them."""
    publications = [open_sender(client, listen, source=FLOOD_SOURCE) for _ in range(FLOOD_PUBLICATIONS)]
    wait_until(lambda: all(publication.connected for publication in publications), "the flood's publications")
    stopped, sent = threading.Event(), [0]

    def flood() -> None:
        while not stopped.is_set():
            accepted = sum(publication.offer(b"flood") is None for publication in publications)
            sent[0] += accepted
            if not accepted:
                stopped.wait(0.001)

    thread = threading.Thread(target=flood, name="flood")
    thread.start()
    try:
        yield sent
    finally:
        stopped.set()
        thread.join(60)
        for publication in publications:
            publication.close()


def test_a_new_client_gets_echoes_during_a_flood_that_causes_few_reports(
    guarded_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    events = Events()
    server = Server2(guarded_aeron, Server2Settings(listen, listen.port + 1, listen.port + 10), events)
    with serving(server), flooding(client_aeron, listen) as sent:
        wait_until(lambda: sent[0] > 1_000, "the flood to begin")
        client = Client2(client_aeron, listen, listen.port + 1)
        try:
            assert run_steps(converse(client, [b"one", b"two"], 0.0, Events()), lambda: False) == 2
        finally:
            client.close()
        assert has_guard(guarded_aeron.aeron_dir)
        reported = [event for event in events.of(conversation.EchoRefused) if event.source.startswith(FLOOD_SOURCE)]
        assert REPORT_BURST <= len(reported) <= REPORT_BURST + 6  # one more per 10 s, if this test takes a minute


def test_the_guard_admits_only_the_client_to_its_duologue(
    guarded_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort, run_name: str
) -> None:
    events = Events()
    server = Server2(guarded_aeron, Server2Settings(listen, listen.port + 1, listen.port + 10), events)
    with own_driver(run_name) as elsewhere, serving(server):
        manual = ManualClient(client_aeron, listen, listen.port + 1)
        intruder = ManualClient(elsewhere, listen, listen.port + 1)
        try:
            duologue = manual.request_duologue()
            dropped = sum(read_drops(guarded_aeron.aeron_dir).values())
            _, foreign = intruder.try_to_join(duologue, source=FOREIGN)
            wait_until(
                lambda: sum(read_drops(guarded_aeron.aeron_dir).values()) > dropped,
                "the guard to drop packets of the other host",
            )
            subscription, publication = manual.join(duologue)
            send(publication, b"ECHO mine")
            assert receive(subscription) == [b"ECHO mine"]
            assert not foreign.connected
            # the guard dropped the packets, so the server did not receive them
            assert not events.of(conversation.EchoRefused)
        finally:
            manual.close()
            intruder.close()


def test_the_guard_limits_the_receivers_of_the_channel_of_all_clients(
    guarded_aeron: AeronClient, client_aeron: AeronClient, listen: HostPort
) -> None:
    server = Server2(guarded_aeron, Server2Settings(listen, listen.port + 1, listen.port + 10), Events())
    control = HostPort(listen.host, listen.port + 1)
    refused = read_drops(guarded_aeron.aeron_dir).get("sending: source", 0)
    with serving(server), many_receivers(control, texts.RULES.destinations_per_source + 1) as join:

        def dropped() -> bool:
            join()
            return read_drops(guarded_aeron.aeron_dir)["sending: source"] > refused

        wait_until(dropped, "the guard to refuse more receivers of one address than its rules allow")
        client = Client2(client_aeron, listen, control.port)
        try:
            assert run_steps(converse(client, [b"one"], 0.0, Events()), lambda: False) == 1
        finally:
            client.close()


@contextlib.contextmanager
def many_receivers(control: HostPort, receivers: int) -> Iterator[Callable[[], None]]:
    """Yield a function that requests ``control`` to send to many receivers of one address."""
    with frame_senders(1, control.port, first=60) as (sender,):
        requests = [status_message(0, 0, number, term=0, flags=SEND_SETUP) for number in range(receivers)]
        yield lambda: sender.send(*requests)
