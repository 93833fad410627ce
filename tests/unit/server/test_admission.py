"""The server admits or refuses clients; a refused or lost client leaves no resources in use."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import InUseError, OptionError, RefusedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions, ServerOptions
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.handshake_packets import RefusalHint, RetryHint, decode_hint
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.transport.api import ChannelPair, PublicationRejected
from tests.ending import LONG_TIMEOUT_S, call_in_time
from tests.memory_transport import MemoryClientTransport
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import ADDRESS, TIMEOUT_S, World, client_options, server_options, wait_for
from tests.unit.protocol.handshakes import make_client, one


class Raw:
    """An unauthenticated sender of arbitrary packets to the server's handshake path."""

    def __init__(self, world: World, source: str = "203.0.113.5:9") -> None:
        self.dialing = MemoryClientTransport(world.network, ADDRESS, source=source)
        self.pair: ChannelPair = self.dialing.open_path()
        self.hints: list[str] = []
        self.packets: list[bytes] = []
        self.last = b""  # the HELLO with its cookie
        wait_for(lambda: self.pair.publication.connected)

    def send(self, packet: bytes) -> None:
        wait_for(lambda: self.pair.publication.offer(packet) is None)

    def listen(self, seconds: float = 0.05) -> None:
        for event in self.dialing.inbox.poll(seconds):
            if isinstance(event, PublicationRejected):
                self.hints.append(event.reason)
            elif hasattr(event, "payload"):
                self.packets.append(bytes(event.payload))

    def hint(self) -> RetryHint | RefusalHint:
        wait_for(lambda: self.listen() or self.hints)
        return decode_hint(self.hints.pop())

    def hello(self, seed: int = 1) -> object:
        """Send HELLO, first without and then with the cookie; return the client's handshake machine."""
        machine = make_client(seed)
        self.send(one(machine.start(time.monotonic()), sending()).packet)
        wait_for(lambda: self.listen() or self.hints)
        actions = machine.hint(self.hints.pop(), time.monotonic())
        self.pair = self.dialing.reopen_path(self.pair)
        wait_for(lambda: self.pair.publication.connected)
        for action in actions:
            if isinstance(action, sending()):
                self.last = action.packet
                self.send(action.packet)
        return machine

    def close(self) -> None:
        self.dialing.close()


def sending() -> type:
    from aeron_spark.protocol.client_handshake import Send

    return Send


def server_of(world: World, **changes: Any) -> MessageServer:
    return world.server(server_options(**changes))


def client_of(world: World, number: int, **changes: Any) -> Client:
    return world.client(client_options(first_pause=0.01, **changes), source=f"192.0.2.{number}:4000", connect=False)


def is_unused(server: MessageServer) -> bool:
    counts = server.statistics
    return not any(
        counts[name] for name in ("admitted", "pending", "session_ids", "stream_ids", "handshakes", "sessions")
    )


@pytest.mark.parametrize("packet", [bytes.fromhex("deadbeef"), b"", b"AS\x01\x01", bytes(1100)])
def test_row_04_bytes_that_are_not_a_packet_are_refused_and_the_server_continues(world: World, packet: bytes) -> None:
    server = server_of(world)
    raw = Raw(world)
    raw.send(packet)
    assert isinstance(raw.hint(), RefusalHint)
    client_of(world, 7).connect(TIMEOUT_S)
    assert server.statistics["refused-message"] + server.statistics.get("refused-version", 0) == 1
    raw.close()


def test_row_05_and_row_28_a_client_refused_by_a_tag_filter_gets_the_servers_text(world: World) -> None:
    server = server_of(world, allow=(lambda who: who.tag == "ok",))
    client_of(world, 1, tag="ok").connect(TIMEOUT_S)
    with pytest.raises(RefusedError, match="Connection was not permitted!"):
        client_of(world, 2, tag="no").connect(TIMEOUT_S)
    wait_for(lambda: server.statistics["admitted"] == 1)


def test_row_06_a_repeated_hello_is_one_pending_handshake(world: World) -> None:
    server = server_of(world)
    raw = Raw(world)
    raw.hello()
    wait_for(lambda: raw.listen() or raw.packets)  # HELLO_ACK
    raw.send(raw.last)
    client_of(world, 7).connect(TIMEOUT_S)  # the server has then handled the repeated HELLO
    assert server.statistics["pending"] == 1
    assert server.statistics["admitted"] == 1  # the client's
    raw.listen()
    assert set(raw.packets) == {raw.packets[0]}  # the response, if any, is the same
    raw.close()
    wait_for(lambda: server.statistics["pending"] == 0)


def test_row_08_and_row_09_stuck_handshakes_delay_no_other_client_and_row_33_are_limited(world: World) -> None:
    server = server_of(world, max_pending=16, max_pending_per_address=5)
    stuck = [Raw(world, f"203.0.113.5:{port}") for port in range(1, 11)]
    for number, raw in enumerate(stuck):
        raw.hello(number + 1)
    wait_for(lambda: server.statistics["pending"] == 5)
    begun = time.monotonic()
    client_of(world, 7).connect(TIMEOUT_S)
    assert time.monotonic() - begun < 5
    wait_for(lambda: server.statistics.get("refused-pending"))
    for raw in stuck:
        raw.close()
    wait_for(lambda: server.statistics["pending"] == 0)


def test_row_10_an_expired_handshake_releases_its_resources(world: World) -> None:
    server = server_of(world, timing=ServerTiming(hello_s=0.1, path_s=0.1, done_s=0.1, authenticating_s=0.1))
    raw = Raw(world)
    raw.hello()
    wait_for(lambda: server.statistics.get("refused-timeout"))
    wait_for(lambda: is_unused(server))
    raw.close()


def test_a_client_that_never_opens_its_link_leaves_no_resources_in_use(world: World) -> None:
    server = server_of(world, setup_timeout=0.2)

    class WithoutLink(MemoryClientTransport):
        def open_link(self, *_: object) -> ChannelPair:
            raise RefusedError("this client opens no link")

    client = world.client(client_options(), dial=lambda: WithoutLink(world.network, ADDRESS), connect=False)
    with pytest.raises(RefusedError):
        client.connect(TIMEOUT_S)
    wait_for(lambda: is_unused(server))


@pytest.mark.threads
def test_row_13_thirty_simultaneous_clients_get_different_ids_and_row_78_release_them(world: World) -> None:
    server = server_of(world)
    clients = [client_of(world, number) for number in range(30)]
    work = [threading.Thread(target=client.connect, args=(TIMEOUT_S,)) for client in clients]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(TIMEOUT_S)
    wait_for(lambda: len(server.connections) == 30)
    first, last = ServerOptions().session_id_range
    ids = [connection.id for connection in server.connections]
    assert len(set(ids)) == 30
    assert all(first <= number <= last and number for number in ids)
    assert server.statistics["session_ids"] == 60
    for client in clients:
        client.close()
    wait_for(lambda: is_unused(server))
    heard = world.recorded[server]
    wait_for(lambda: heard.count("disconnect") == 30)
    assert heard.count("connect") == heard.count("init") == 30


def test_row_14_without_free_ids_a_client_is_refused_and_no_id_is_lost(world: World) -> None:
    server = server_of(world, session_id_range=(1000, 1003), id_reuse_delay=0.0)
    two = [client_of(world, number) for number in (1, 2)]
    for client in two:
        client.connect(TIMEOUT_S)
    with pytest.raises(RefusedError, match="Connection error!"):
        client_of(world, 3).connect(TIMEOUT_S)
    wait_for(lambda: server.statistics["admitted"] == 2)
    assert server.statistics["session_ids"] == 4
    two[0].close()
    wait_for(lambda: server.statistics["session_ids"] == 2)
    client_of(world, 4).connect(TIMEOUT_S)


def test_row_21_the_server_sees_the_clients_address_and_port(world: World) -> None:
    server = server_of(world)
    world.client(source="192.0.2.7:2400")
    wait_for(lambda: server.connections)
    (connection,) = server.connections
    assert (connection.remote_address, connection.remote_port, connection.is_ipc) == ("192.0.2.7", 2400, False)


def test_row_29_a_tag_of_33_characters_is_refused_by_the_client() -> None:
    with pytest.raises(OptionError, match="32"):
        ClientOptions(tag="x" * 33)


def test_row_30_a_limit_of_0_connections_means_no_limit(world: World) -> None:
    server_of(world, max_connections=0)
    for number in range(5):
        client_of(world, number).connect(TIMEOUT_S)


def test_row_31_a_client_above_the_limit_gets_the_error_server_is_full(world: World) -> None:
    server = server_of(world, max_connections=2)
    two = [client_of(world, number) for number in (1, 2)]
    for client in two:
        client.connect(TIMEOUT_S)
    with pytest.raises(RefusedError, match=r"Server is full: 2 is the limit \(option maxConnections of the server\)"):
        client_of(world, 3).connect(TIMEOUT_S)
    two[0].close()
    wait_for(lambda: server.statistics["admitted"] == 1)
    client_of(world, 4).connect(TIMEOUT_S)


def test_row_32_refusals_do_not_change_the_limit_of_an_address(world: World) -> None:
    server = server_of(world, max_connections_per_address=2)
    results = []
    for port in range(10):
        client = world.client(client_options(), source=f"192.0.2.7:{4000 + port}", connect=False)
        try:
            client.connect(TIMEOUT_S)
        except RefusedError as error:
            results.append("Too many connections for IP address" not in str(error))
        else:
            results.append(True)
    assert results == [True, True] + [False] * 8
    world.client(source="192.0.2.8:4000")
    wait_for(lambda: server.statistics["admitted"] == 3)


def test_a_closed_client_frees_its_connection_slot_and_a_resume_takes_one_again(world: World) -> None:
    server = server_of(world, max_connections=1)
    first = client_of(world, 1)
    first.connect(TIMEOUT_S)
    first.connection.close(keep_session=True)
    wait_for(lambda: server.statistics["admitted"] == 0)
    second = client_of(world, 2)
    second.connect(TIMEOUT_S)
    with pytest.raises(RefusedError, match="Server is full"):
        first.connect(TIMEOUT_S)
    second.close()
    first.connect(TIMEOUT_S)
    wait_for(lambda: world.recorded[first].count("resume") == 1)
    assert server.statistics["admitted"] == 1


def test_row_45_only_authorised_keys_connect_and_call_only_granted_methods(world: World) -> None:
    keys = keypair_from(b"k" * 32)
    store = MemoryPeerStore(authorized={keys.public: Grant(calls=("door.open",))})
    server = world.server(server_options(allow_any_key=False), store=store)

    class Door:
        def open(self) -> str:
            return "open"

        def shut(self) -> str:
            return "shut"

    server.register("door", Door(), ["open", "shut"])
    with pytest.raises(RefusedError):
        client_of(world, 1).connect(TIMEOUT_S)
    client = world.client(store=MemoryPeerStore(keys))
    assert client.remote("door").open() == "open"
    with pytest.raises(RefusedError, match="not permitted to call"):
        client.remote("door").shut()


def test_row_46_a_client_with_a_stolen_ticket_and_another_key_receives_no_messages(world: World) -> None:
    server = server_of(world)
    victim = client_of(world, 1)
    victim.connect(TIMEOUT_S)
    wait_for(lambda: server.connections)
    (connection,) = server.connections
    ticket = victim._endpoint.ticket
    victim.connection.close(keep_session=True)
    wait_for(lambda: not connection.connected)
    connection.send("for the victim")
    thief = client_of(world, 2)
    stolen: list[object] = []
    thief.on_message(object, stolen.append)
    thief.connect(TIMEOUT_S)
    thief._endpoint.ticket = ticket
    thief.reconnect(TIMEOUT_S)
    thief.ping()
    assert not stolen
    received: list[object] = []
    victim.on_message(object, received.append)
    victim.connect(TIMEOUT_S)
    wait_for(lambda: received == ["for the victim"])
    assert not stolen


def test_row_77_the_loss_of_one_client_does_not_affect_another(world: World) -> None:
    server = server_of(world)
    dead, living = client_of(world, 1), client_of(world, 2)
    dead.connect(TIMEOUT_S)
    living.connect(TIMEOUT_S)
    world.network.lose_driver(dead._endpoint.transport.inbox)
    world.network.refusal = "dead"
    wait_for(lambda: world.recorded[server].count("disconnect") == 1)
    world.network.refusal = ""
    living.ping()
    wait_for(lambda: world.recorded[living].names == ["init", "connect"])


@pytest.mark.threads
def test_a_closing_server_disconnects_all_clients_and_ends_all_sessions(world: World) -> None:
    server = server_of(world, close_timeout=LONG_TIMEOUT_S)
    present, absent = client_of(world, 1), client_of(world, 2)
    present.connect(TIMEOUT_S)
    absent.connect(TIMEOUT_S)
    absent.connection.close(keep_session=True)
    wait_for(lambda: len(server.connections) == 1)
    call_in_time(server.close, "closing a server without waiting for an absent client")
    wait_for(lambda: world.recorded[present].names[-1] == "disconnect")
    wait_for(lambda: world.recorded[server].count("disconnect") == 2)
    server.close()
    assert server.closed


@pytest.mark.threads
@pytest.mark.slow
def test_a_closing_server_waits_a_limited_time_for_many_stuck_clients(world: World) -> None:
    server = server_of(world, close_timeout=1.0)
    clients = [client_of(world, number) for number in range(20)]
    for client in clients:
        client.connect(TIMEOUT_S)
    wait_for(lambda: len(server.connections) == len(clients))
    for publication in [out for out in world.network.publications if out.inbox is server.endpoint.transport.inbox]:
        publication.held = True
    for connection in server.connections:
        connection.send(1)
    start = time.monotonic()
    server.close()
    assert time.monotonic() - start < 0.5 * len(clients)  # it waits one second in all, not one for each client


def expect_server_error(client: Client) -> None:
    """Connect until the server refuses because its decision raised an error."""
    client.begin_connecting()
    wait_for(lambda: client.error is not None, "the server's refusal")
    assert isinstance(client.error, RefusedError)
    assert client.error.reason == "server-error"
    client.close()


class Broken(Connection):
    def __init__(self, *arguments: object) -> None:
        raise ValueError("cannot make this connection")


def test_an_exception_of_the_connection_class_refuses_the_client_and_leaves_no_resources(world: World) -> None:
    server = world.server(server_options(), connection_class=Broken)
    expect_server_error(client_of(world, 1))
    wait_for(lambda: is_unused(server))
    errors = world.recorded[server].errors
    wait_for(lambda: any("cannot make this connection" in str(error) for error in errors), f"the error in {errors}")


def test_an_exception_of_a_filter_refuses_the_client(world: World) -> None:
    def raising(*_: object) -> bool:
        raise ValueError("the filter failed")

    server = server_of(world, allow=(raising,))
    expect_server_error(client_of(world, 1))
    wait_for(lambda: is_unused(server))


@pytest.mark.threads
def test_a_slow_filter_delays_only_its_own_client(world: World) -> None:
    resume = threading.Event()
    server = server_of(world, allow=(lambda who: who.tag != "slow" or resume.wait(10),))
    slow = client_of(world, 1, tag="slow")
    waiting = threading.Thread(target=slow.connect, args=(TIMEOUT_S,))
    waiting.start()
    wait_for(lambda: server.statistics["pending"] == 1)
    client_of(world, 2).connect(5)
    resume.set()
    waiting.join(TIMEOUT_S)
    assert slow.connected


def test_a_second_server_on_the_same_address_is_refused(world: World) -> None:
    server_of(world)
    with pytest.raises(InUseError, match="the address is in use"):
        server_of(world)
