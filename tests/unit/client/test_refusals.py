"""Clients that are refused: for good, for a while, or by somebody else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from aeron_spark.client.settings import ClientSettings
from aeron_spark.errors import RefusedError
from aeron_spark.protocol.access import Filters, Network
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.retry_cookies import RefusalHint, encode_hint
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import PublicationRejected
from aeron_spark.transport.memory import MemoryPublication
from tests.ending import FOR_EVER, ends
from tests.unit.connection.ends import FREE, LINK, PATIENCE, World, link, wait_for


def test_a_refusal_is_final_for_a_connect(world: World) -> None:
    world.server(ServerSettings(link=LINK, limits=FREE, filters=Filters(deny=[Network.parse("0.0.0.0/0")])))
    client = world.client(connect=False)
    begun = time.monotonic()
    with pytest.raises(RefusedError, match="Connection was not permitted!"):
        client.connect(10)
    assert time.monotonic() - begun < 5


def limited(world: World, **limits: float) -> TransportServer:
    """A server that lets in few handshakes of an address at once."""
    return world.server(ServerSettings(link=LINK, limits=Limits(pending_per_address=0, **limits)))  # type: ignore[arg-type]


HELLO, HELLO_ACK = 1, 2  # types of packets
QUICK = ClientSettings(link=LINK, timing=ClientTiming(hint_s=0.05), first_pause=0.02, longest_pause=0.1)


def test_a_refusal_for_a_while_is_told_at_the_deadline_with_its_reason(world: World) -> None:
    server = limited(world, handshakes_per_second=0.001, handshake_burst=1)
    world.client(QUICK)
    late = world.client(QUICK, connect=False)
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=r"not authenticated: Too many handshakes.*\(rate\)") as told:
        late.connect(0.6)
    assert time.monotonic() - begun > 0.4
    assert (told.value.reason, told.value.retriable) == ("rate", True)
    assert server.statistics["refused-rate"] >= 3  # it went on trying
    assert server.statistics["places"] == 1


def test_a_refusal_for_a_while_is_told_though_no_other_attempt_came_to_its_end(world: World) -> None:
    limited(world, handshakes_per_second=0.001, handshake_burst=1)
    world.client(QUICK)
    patient = world.client(ClientSettings(link=LINK), connect=False)  # hears of it in the midst of its first attempt
    with pytest.raises(RefusedError, match=r"not authenticated: .*\(rate\)"):
        patient.connect(0.3)
    pausing = replace(QUICK, first_pause=2 * FOR_EVER, longest_pause=2 * FOR_EVER)
    waiting = world.client(pausing, connect=False)
    with pytest.raises(RefusedError, match=r"not authenticated: .*\(rate\)"):
        ends(lambda: waiting.connect(FOR_EVER), "connecting")  # another attempt would come too late


@pytest.mark.parametrize("way", ["connect", "begin_connecting"])
def test_finding_c9_a_proved_refusal_for_a_while_does_not_end_connecting(world: World, way: str) -> None:
    asked: list[object] = []

    def fails_twice(candidate: object) -> bool:
        asked.append(candidate)
        if len(asked) <= 2:
            raise OSError("a passing fault")
        return True

    server = world.server(ServerSettings(link=LINK, limits=FREE, filters=Filters(allow=[fails_twice])))
    client = world.client(QUICK, connect=False)
    if way == "connect":
        client.connect(PATIENCE)
    else:
        client.begin_connecting().result(PATIENCE)
    assert client.connected
    assert server.statistics["refused-server-error"] == 2


def test_finding_c9_a_proved_refusal_that_does_not_pass_in_time_is_raised_with_its_reason(world: World) -> None:
    def fails(candidate: object) -> bool:
        raise OSError("a fault that stays")

    world.server(ServerSettings(link=LINK, limits=FREE, filters=Filters(allow=[fails])))
    pausing = replace(QUICK, first_pause=2 * FOR_EVER, longest_pause=2 * FOR_EVER)
    client = world.client(pausing, connect=False)
    with pytest.raises(RefusedError, match=r"refused the connection: .*\(server-error\)") as told:
        ends(lambda: client.connect(FOR_EVER), "connecting")  # another attempt would come too late
    assert told.value.retriable


def test_a_crowd_gets_in_as_the_rate_allows(world: World) -> None:
    server = limited(world, handshakes_per_second=20, handshake_burst=4)
    clients = [world.client(QUICK, connect=False) for _ in range(16)]
    begun = time.monotonic()
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.connect(20), clients))
    assert time.monotonic() - begun > 12 / 20 - 0.1
    assert server.statistics["refused-rate"]
    wait_for(lambda: len(server.connections) == len(clients))
    assert server.statistics["session_ids"] == 2 * len(clients)


def test_too_many_at_the_same_time_come_one_after_the_other(world: World) -> None:
    server = world.server(
        ServerSettings(link=LINK, limits=Limits(handshakes_per_second=0, pending=1, pending_per_address=1))
    )
    clients = [world.client(QUICK, connect=False) for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.connect(20), clients))
    wait_for(lambda: len(server.connections) == len(clients))


def test_a_handshake_whose_beginning_an_outage_took_from_the_server_is_begun_anew(world: World) -> None:
    server = world.server()
    outages: list[str] = []

    def lose(publication: MemoryPublication, message: bytes) -> tuple[bytes]:
        if message[:2] == b"AS" and message[3] == HELLO_ACK and not outages:
            outages.append("DONE comes as another image, of which the server knows nothing")
            world.network.cut()
            world.network.heal()
        return (message,)

    world.network.change = lose
    assert world.client(QUICK).connected
    assert outages
    wait_for(lambda: len(server.connections) == 1)
    assert server.statistics["refused-timeout"] == 1


def test_a_hello_that_the_servers_new_image_missed_is_not_waited_for(world: World) -> None:
    never = 10 * PATIENCE
    times = ServerTiming(hello_s=never, path_s=never, done_s=never)
    server = world.server(ServerSettings(link=LINK, limits=FREE, timing=times))
    lost: list[bytes] = []

    def lose(publication: MemoryPublication, message: bytes) -> tuple[bytes, ...]:
        if message[:2] == b"AS" and message[3] == HELLO and not lost:
            lost.append(message)
            world.network.cut()
            world.network.heal()
            return ()
        return (message,)

    world.network.change = lose
    patient = ClientTiming(hello_ack_s=never, done_ack_s=never, hint_s=QUICK.timing.hint_s)
    assert world.client(replace(QUICK, timing=patient)).connected
    assert lost
    assert server.statistics["refused-timeout"] == 1


def test_a_hint_that_somebody_forges_delays_nobody(world: World) -> None:
    """It comes after each HELLO, before the server's answer."""
    server = world.server()
    forged: list[int] = []

    def forge(publication: MemoryPublication, message: bytes) -> tuple[bytes]:
        if message[:2] == b"AS" and message[3] == HELLO:
            way = next(one for one in world.network.subscriptions if one.token == publication.token)
            for code in ("rate", "version"):
                hint = encode_hint(RefusalHint(Refusal(code, "forged")))
                world.network._send(way, PublicationRejected(publication.token, publication.session_id, hint))
            forged.append(publication.session_id)
        return (message,)

    world.network.change = forge
    client = world.client(ClientSettings(link=LINK))
    assert len(forged) == 2  # without the cookie and with it: one attempt
    assert client.connected
    wait_for(lambda: server.connections)


def test_a_refusal_for_a_while_does_not_end_a_session_that_somebody_waits_for(world: World) -> None:
    server = limited(world, handshakes_per_second=0.001, handshake_burst=1)
    client = world.client(replace(QUICK, link=link(times=replace(LINK.times, expiry_seconds=20.0))))
    world.network.cut()
    wait_for(lambda: not client.connected)
    world.network.heal()
    with pytest.raises(RefusedError, match=r"not authenticated: .*\(rate\)"):
        client.connect(0.3)
    assert not client.connection.closed
    before = server.statistics["refused-rate"]
    wait_for(lambda: server.statistics["refused-rate"] > before, "the client to go on trying")
