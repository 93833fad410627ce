"""Who is let in, and what everybody who is not gives back."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from aeron_spark.client.program import ClientProgram
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import InUseError, OptionError, RefusedError, RemoteError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.access import Filters, Grant
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.retry_cookies import RefusalHint, RetryHint, decode_hint
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.server.server import ServerCore
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import ChannelPair, PublicationRejected
from aeron_spark.transport.memory import MemoryClientTransport
from tests.ending import FOR_EVER, ends
from tests.unit.connection.ends import FREE, LINK, PATIENCE, PLACE, World, link, wait_for
from tests.unit.protocol.handshakes import make_client, one


class Raw:
    """Somebody who sends what packets it likes to the server's door."""

    def __init__(self, world: World, source: str = "203.0.113.5:9") -> None:
        self.dialing = MemoryClientTransport(world.network, PLACE, source=source)
        self.pair: ChannelPair = self.dialing.open_path()
        self.hints: list[str] = []
        self.packets: list[bytes] = []
        self.last = b""  # that HELLO with its cookie
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
        """Say HELLO, with the cookie; the machine afterwards."""
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


def server_of(world: World, **changes: object) -> ServerCore:
    given: dict[str, object] = {"link": LINK, "limits": FREE, **changes}
    return world.server(ServerSettings(**given))  # type: ignore[arg-type]


def client_of(world: World, number: int, **changes: object) -> ClientProgram:
    return world.client(
        ClientSettings(link=LINK, first_pause=0.01, **changes),  # type: ignore[arg-type]
        source=f"192.0.2.{number}:4000",
        connect=False,
    )


def nothing_in_use(server: ServerCore) -> bool:
    held = server.statistics
    return not any(held[name] for name in ("places", "pending", "session_ids", "stream_ids", "handshakes", "sessions"))


@pytest.mark.parametrize("packet", [bytes.fromhex("deadbeef"), b"", b"AS\x01\x01", bytes(1100)])
def test_row_04_what_is_no_packet_is_refused_and_harms_nobody(world: World, packet: bytes) -> None:
    server = server_of(world)
    raw = Raw(world)
    raw.send(packet)
    assert isinstance(raw.hint(), RefusalHint)
    client_of(world, 7).connect(PATIENCE)
    assert server.statistics["refused-message"] + server.statistics.get("refused-version", 0) == 1
    raw.close()


def test_row_05_a_filter_by_tag_as_in_row_28_says_no_and_the_text_reaches_the_caller(world: World) -> None:
    server = server_of(world, filters=Filters(allow=[lambda who: who.tag == "ok"]))
    client_of(world, 1, tag="ok").connect(PATIENCE)
    with pytest.raises(RefusedError, match="Connection was not permitted!"):
        client_of(world, 2, tag="no").connect(PATIENCE)
    wait_for(lambda: server.statistics["places"] == 1)


def test_row_06_a_repeated_hello_is_one_pending_handshake(world: World) -> None:
    server = server_of(world)
    raw = Raw(world)
    raw.hello()
    wait_for(lambda: raw.listen() or raw.packets)  # HELLO_ACK
    raw.send(raw.last)
    client_of(world, 7).connect(PATIENCE)  # when this is through, so is the one before
    assert server.statistics["pending"] == 1
    assert server.statistics["places"] == 1  # the client's
    raw.listen()
    assert set(raw.packets) == {raw.packets[0]}  # the same answer, if any
    raw.close()
    wait_for(lambda: server.statistics["pending"] == 0)


def test_row_08_and_row_09_stuck_handshakes_block_nobody_and_row_33_are_bounded(world: World) -> None:
    limits = Limits(handshakes_per_second=0, pending=8, pending_per_address=5)
    server = server_of(world, limits=limits)
    stuck = [Raw(world, f"203.0.113.5:{port}") for port in range(1, 11)]
    for number, raw in enumerate(stuck):
        raw.hello(number + 1)
    wait_for(lambda: server.statistics["pending"] == 5)
    begun = time.monotonic()
    client_of(world, 7).connect(PATIENCE)
    assert time.monotonic() - begun < 5
    wait_for(lambda: server.statistics.get("refused-pending"))
    for raw in stuck:
        raw.close()
    wait_for(lambda: server.statistics["pending"] == 0)


def test_row_10_a_pending_handshake_expires_and_gives_everything_back(world: World) -> None:
    server = server_of(world, timing=ServerTiming(hello=0.1, opening=0.1, done=0.1, authenticating=0.1))
    raw = Raw(world)
    raw.hello()
    wait_for(lambda: server.statistics.get("refused-timeout"))
    wait_for(lambda: nothing_in_use(server))
    raw.close()


def test_a_client_that_never_opens_its_duologue_gives_everything_back(world: World) -> None:
    server = server_of(world, link=link(times=replace(LINK.times, setup_seconds=0.2)))

    class Shy(MemoryClientTransport):
        def open_link(self, *_: object) -> ChannelPair:
            raise RefusedError("I will not")

    client = world.client(ClientSettings(link=LINK), dial=lambda: Shy(world.network, PLACE), connect=False)
    with pytest.raises(RefusedError):
        client.connect(PATIENCE)
    wait_for(lambda: nothing_in_use(server))


def test_row_13_thirty_at_once_connect_with_ids_of_their_own_and_row_78_leave(world: World) -> None:
    server = server_of(world)
    clients = [client_of(world, number) for number in range(30)]
    work = [threading.Thread(target=client.connect, args=(PATIENCE,)) for client in clients]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(PATIENCE)
    wait_for(lambda: len(server.connections) == 30)
    first, last = server._server_settings.session_ids
    ids = [connection.id for connection in server.connections]
    assert len(set(ids)) == 30
    assert all(first <= number <= last and number for number in ids)
    assert server.statistics["session_ids"] == 60
    for client in clients:
        client.close()
    wait_for(lambda: nothing_in_use(server))
    heard = world.heard[server]
    wait_for(lambda: heard.count("disconnect") == 30)
    assert heard.count("connect") == heard.count("init") == 30


def test_row_14_an_exhausted_pool_is_an_answer_and_leaks_nothing(world: World) -> None:
    server = server_of(world, session_ids=(1000, 1003), id_reuse_delay_seconds=0.0)
    two = [client_of(world, number) for number in (1, 2)]
    for client in two:
        client.connect(PATIENCE)
    with pytest.raises(RefusedError, match="Connection error!"):
        client_of(world, 3).connect(PATIENCE)
    wait_for(lambda: server.statistics["places"] == 2)
    assert server.statistics["session_ids"] == 4
    two[0].close()
    wait_for(lambda: server.statistics["session_ids"] == 2)
    client_of(world, 4).connect(PATIENCE)


def test_row_21_the_clients_port_is_seen(world: World) -> None:
    server = server_of(world)
    world.client(source="192.0.2.7:2400")
    wait_for(lambda: server.connections)
    (there,) = server.connections
    assert (there.remote_address, there.remote_port, there.is_ipc) == ("192.0.2.7", 2400, False)


def test_row_29_a_tag_that_is_too_long_is_refused_here() -> None:
    with pytest.raises(OptionError, match="32"):
        ClientSettings(tag="x" * 33)


def test_row_30_0_connections_are_no_limit(world: World) -> None:
    server_of(world, limits=Limits(connections=0, handshakes_per_second=0))
    for number in range(5):
        client_of(world, number).connect(PATIENCE)


def test_row_31_the_third_of_two_hears_that_the_server_is_full(world: World) -> None:
    server = server_of(world, limits=Limits(connections=2, handshakes_per_second=0))
    two = [client_of(world, number) for number in (1, 2)]
    for client in two:
        client.connect(PATIENCE)
    with pytest.raises(RefusedError, match="Server is full"):
        client_of(world, 3).connect(PATIENCE)
    two[0].close()
    wait_for(lambda: server.statistics["places"] == 1)
    client_of(world, 4).connect(PATIENCE)


def test_row_32_the_limit_of_an_address_stays_what_it_is_after_refusals(world: World) -> None:
    server = server_of(world, limits=Limits(connections_per_address=2, handshakes_per_second=0))
    results = []
    for port in range(10):
        client = world.client(ClientSettings(link=LINK), source=f"192.0.2.7:{4000 + port}", connect=False)
        try:
            client.connect(PATIENCE)
        except RefusedError as error:
            results.append("Too many connections for IP address" not in str(error))
        else:
            results.append(True)
    assert results == [True, True] + [False] * 8
    world.client(source="192.0.2.8:4000")
    wait_for(lambda: server.statistics["places"] == 3)


def test_a_place_is_free_once_a_client_is_told_to_be_gone_and_a_resume_takes_it_again(world: World) -> None:
    server = server_of(world, limits=Limits(connections=1, handshakes_per_second=0))
    first = client_of(world, 1)
    first.connect(PATIENCE)
    first.connection.close(keep_session=True)
    wait_for(lambda: server.statistics["places"] == 0)
    second = client_of(world, 2)
    second.connect(PATIENCE)
    with pytest.raises(RefusedError, match="Server is full"):
        first.connect(PATIENCE)
    second.close()
    first.connect(PATIENCE)
    wait_for(lambda: world.heard[first].count("resume") == 1)
    assert server.statistics["places"] == 1


def test_row_45_only_authorised_keys_come_in_and_call_what_they_may(world: World) -> None:
    keys = keypair_from(b"k" * 32)
    store = MemoryPeerStore(authorized={keys.public: Grant(calls=("door.open",))})
    server = world.server(ServerSettings(link=LINK, limits=FREE, authorized_only=True), store=store)

    class Door:
        def open(self) -> str:
            return "open"

        def shut(self) -> str:
            return "shut"

    server.register("door", Door(), ["open", "shut"])
    with pytest.raises(RefusedError):
        client_of(world, 1).connect(PATIENCE)
    client = world.client(store=MemoryPeerStore(keys))
    assert client.remote("door").open() == "open"
    with pytest.raises(RemoteError, match="may not call"):
        client.remote("door").shut()


def test_row_46_another_key_gets_nothing_of_a_session_whose_ticket_it_stole(world: World) -> None:
    server = server_of(world)
    victim = client_of(world, 1)
    victim.connect(PATIENCE)
    wait_for(lambda: server.connections)
    (there,) = server.connections
    ticket = victim._machine.ticket
    victim.connection.close(keep_session=True)
    wait_for(lambda: not there.connected)
    there.send("for the victim alone")
    thief = client_of(world, 2)
    got: list[object] = []
    thief.on_message(object, got.append)
    thief.connect(PATIENCE)
    thief._machine._steps.ticket = ticket
    thief.reconnect(PATIENCE)
    thief.ping()
    assert not got
    heard: list[object] = []
    victim.on_message(object, heard.append)
    victim.connect(PATIENCE)
    wait_for(lambda: heard == ["for the victim alone"])
    assert not got


def test_row_77_one_dead_client_is_no_matter_of_the_others(world: World) -> None:
    server = server_of(world)
    dead, living = client_of(world, 1), client_of(world, 2)
    dead.connect(PATIENCE)
    living.connect(PATIENCE)
    world.network.lose_driver(dead._dialing.inbox)
    world.network.refusal = "dead"
    wait_for(lambda: world.heard[server].count("disconnect") == 1)
    world.network.refusal = ""
    living.ping()
    assert world.heard[living].names == ["init", "connect"]


def test_a_closing_server_tells_everybody_also_who_knocks_and_who_is_away(world: World) -> None:
    server = server_of(world, link=link(close_seconds=FOR_EVER))
    here, away = client_of(world, 1), client_of(world, 2)
    here.connect(PATIENCE)
    away.connect(PATIENCE)
    away.connection.close(keep_session=True)
    wait_for(lambda: len(server.connections) == 1)
    ends(server.close, "closing a server that waits for nobody")
    wait_for(lambda: world.heard[here].names[-1] == "disconnect")
    wait_for(lambda: world.heard[server].count("disconnect") == 2)
    server.close()
    assert server.closed


def test_a_closing_server_is_not_held_up_by_many_stuck_clients(world: World) -> None:
    server = server_of(world, link=link(close_seconds=1.0))
    clients = [client_of(world, number) for number in range(20)]
    for client in clients:
        client.connect(PATIENCE)
    wait_for(lambda: len(server.connections) == len(clients))
    for publication in [out for out in world.network.publications if out.inbox is server._transport.inbox]:
        publication.held = True
    for connection in server.connections:
        connection.send(1)
    begun = time.monotonic()
    server.close()
    assert time.monotonic() - begun < 0.5 * len(clients)  # it waits a second for all of them, not for each


def refused_by_an_error(client: ClientProgram) -> None:
    """Have the client try until the server has answered that an error of its own came before its decision."""
    client.begin_connecting()
    wait_for(lambda: client.error is not None, "the server's answer")
    assert isinstance(client.error, RefusedError)
    assert client.error.reason == "server-error"
    client.close()


class Broken(Connection):
    def __init__(self, *given: object) -> None:
        raise ValueError("no connection today")


def test_a_connection_class_that_raises_refuses_its_client_and_leaks_nothing(world: World) -> None:
    server = world.server(ServerSettings(link=LINK, limits=FREE), connection_class=Broken)
    refused_by_an_error(client_of(world, 1))
    wait_for(lambda: nothing_in_use(server))
    assert any("no connection today" in str(error) for error in world.heard[server].errors)


def test_a_filter_that_raises_refuses_and_is_told(world: World) -> None:
    def odd(*_: object) -> bool:
        raise ValueError("odd filter")

    server = server_of(world, filters=Filters(allow=[odd]))
    refused_by_an_error(client_of(world, 1))
    wait_for(lambda: nothing_in_use(server))


def test_a_slow_filter_delays_its_own_client_alone(world: World) -> None:
    go = threading.Event()
    server = server_of(world, filters=Filters(allow=[lambda who: who.tag != "slow" or go.wait(10)]))
    slow = client_of(world, 1, tag="slow")
    waiting = threading.Thread(target=slow.connect, args=(PATIENCE,))
    waiting.start()
    wait_for(lambda: server.statistics["pending"] == 1)
    client_of(world, 2).connect(5)
    go.set()
    waiting.join(PATIENCE)
    assert slow.connected


def test_all_places_taken_is_an_error(world: World) -> None:
    server_of(world)
    with pytest.raises(InUseError, match="the address is in use"):
        server_of(world)
