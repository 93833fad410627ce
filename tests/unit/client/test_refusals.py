"""Refusals of clients: final, temporary, or forged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from aeron_spark.errors import RefusedError
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.handshake_packets import RefusalHint, encode_hint
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.protocol.sources import Network, Refusal
from aeron_spark.transport.api import PublicationRejected
from tests.ending import LONG_TIMEOUT_S
from tests.memory_transport import MemoryPublication
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, client_options, result_of, server_options, wait_for


def test_a_refusal_is_final_for_a_connect(world: World) -> None:
    world.server(server_options(deny=(Network.parse("0.0.0.0/0"),)))
    client = world.client(connect=False)
    started = world.clock()
    with pytest.raises(RefusedError, match="Connection was not permitted!"):
        client.connect(10)
    assert world.clock() - started < 5


def limited(world: World, **limits: Any) -> MessageServer:
    """Start a server with limits of handshakes."""
    return world.server(server_options(**limits))


HELLO, HELLO_ACK = 1, 2  # types of packets
HINT_S: Final = 0.05


def quick(**changes: Any) -> ClientOptions:
    """Return the options of a client that soon ends an attempt after a hint, and tries again."""
    return client_options(
        **{"timing": ClientTiming(hint_s=HINT_S), "first_pause": 0.02, "longest_pause": 0.1, **changes}
    )


QUICK: Final = quick()


def test_a_temporary_refusal_is_raised_at_the_deadline_with_its_reason(world: World) -> None:
    server = limited(world, handshakes_per_second=0.001, handshake_burst=1)
    world.client(QUICK)
    late = world.client(QUICK, connect=False)
    started = world.clock()
    with pytest.raises(RefusedError, match=r"not authenticated: Too many handshakes.*\(rate\)") as caught:
        late.connect(0.6)
    assert "(option handshakesPerSecond of the server)" in str(caught.value)
    assert "0.001" not in str(caught.value)  # the value is for clients that have proved their key
    assert world.clock() - started > 0.4
    assert (caught.value.reason, caught.value.retriable) == ("rate", True)
    assert server.statistics["refused-rate"] >= 3  # the client tried again
    assert server.statistics["admitted"] == 1


def test_a_temporary_refusal_is_raised_even_if_no_other_attempt_finished(world: World) -> None:
    limited(world, handshakes_per_second=0.001, handshake_burst=1)
    world.client(QUICK)
    patient = world.client(client_options(), connect=False)  # refused during its first attempt
    with pytest.raises(RefusedError, match=r"not authenticated: .*\(rate\)"):
        patient.connect(0.3)
    pausing = quick(first_pause=2 * LONG_TIMEOUT_S, longest_pause=2 * LONG_TIMEOUT_S)
    waiting = world.client(pausing, connect=False)
    with pytest.raises(RefusedError, match=r"not authenticated: .*\(rate\)"):
        waiting.connect(LONG_TIMEOUT_S)  # another attempt would come too late


@pytest.mark.parametrize("method", ["connect", "begin_connecting"])
def test_an_authenticated_temporary_refusal_does_not_end_the_attempts(world: World, method: str) -> None:
    candidates: list[object] = []

    def fails_twice(candidate: object) -> bool:
        candidates.append(candidate)
        if len(candidates) <= 2:
            raise OSError("a temporary fault")
        return True

    server = world.server(server_options(allow=(fails_twice,)))
    client = world.client(QUICK, connect=False)
    if method == "connect":
        client.connect(TIMEOUT_S)
    else:
        result_of(client.begin_connecting())
    assert client.connected
    assert server.statistics["refused-server-error"] == 2


def test_an_authenticated_temporary_refusal_is_raised_at_the_deadline_with_its_reason(world: World) -> None:
    def fails(candidate: object) -> bool:
        raise OSError("a permanent fault")

    world.server(server_options(allow=(fails,)))
    pausing = quick(first_pause=2 * LONG_TIMEOUT_S, longest_pause=2 * LONG_TIMEOUT_S)
    client = world.client(pausing, connect=False)
    with pytest.raises(RefusedError, match=r"refused the connection: .*\(server-error\)") as caught:
        client.connect(LONG_TIMEOUT_S)  # another attempt would come too late
    assert caught.value.retriable


@pytest.mark.threads
def test_many_clients_connect_as_fast_as_the_rate_limit_allows(world: World) -> None:
    server = limited(world, handshakes_per_second=20, handshake_burst=4)
    clients = [world.client(QUICK, connect=False) for _ in range(16)]
    started = world.clock()
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.connect(20), clients))
    assert world.clock() - started > 12 / 20 - 0.1
    assert server.statistics["refused-rate"]
    wait_for(lambda: len(server.connections) == len(clients))
    assert server.statistics["session_ids"] == 2 * len(clients)


@pytest.mark.threads
def test_clients_beyond_the_limit_of_pending_handshakes_connect_one_after_the_other(world: World) -> None:
    server = world.server(server_options(max_pending=1, max_pending_per_address=1))
    clients = [world.client(QUICK, connect=False) for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.connect(20), clients))
    wait_for(lambda: len(server.connections) == len(clients))


def test_a_handshake_that_an_outage_interrupts_is_started_again(world: World) -> None:
    server = world.server()
    outages: list[str] = []

    def lose(publication: MemoryPublication, message: bytes) -> tuple[bytes]:
        if message[:2] == b"AS" and message[3] == HELLO_ACK and not outages:
            outages.append("DONE arrives with another image, which the server does not know")
            world.network.cut()
            world.network.heal()
        return (message,)

    world.network.change = lose
    assert world.client(QUICK).connected
    assert outages
    wait_for(lambda: len(server.connections) == 1)
    assert server.statistics["refused-timeout"] == 1


def test_a_hello_that_the_servers_new_image_missed_is_sent_again(world: World) -> None:
    never = 10 * TIMEOUT_S
    times = ServerTiming(hello_s=never, path_s=never, done_s=never)
    server = world.server(server_options(timing=times))
    lost: list[bytes] = []

    def lose(publication: MemoryPublication, message: bytes) -> tuple[bytes, ...]:
        if message[:2] == b"AS" and message[3] == HELLO and not lost:
            lost.append(message)
            world.network.cut()
            world.network.heal()
            return ()
        return (message,)

    world.network.change = lose
    patient = ClientTiming(hello_ack_s=never, done_ack_s=never, hint_s=HINT_S)
    assert world.client(quick(timing=patient)).connected
    assert lost
    assert server.statistics["refused-timeout"] == 1


def test_a_forged_hint_does_not_delay_a_client(world: World) -> None:
    """The hint comes after each HELLO, before the server's reply."""
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
    client = world.client(client_options())
    assert len(forged) == 2  # without the cookie and with it: one attempt
    assert client.connected
    wait_for(lambda: server.connections)


def test_a_temporary_refusal_does_not_end_the_session_of_a_connect_that_waits(world: World) -> None:
    server = limited(world, handshakes_per_second=0.001, handshake_burst=1)
    client = world.client(quick(expiry=20.0))
    world.network.cut()
    wait_for(lambda: not client.connected)
    world.network.heal()
    with pytest.raises(RefusedError, match=r"not authenticated: .*\(rate\)"):
        client.connect(0.3)
    assert not client.connection.closed
    before = server.statistics["refused-rate"]
    wait_for(lambda: server.statistics["refused-rate"] > before, "the client to try again")
