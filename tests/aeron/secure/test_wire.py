"""What really crosses the channels: packets, keys, nonces; and what becomes of frames that are changed or repeated."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from aeron_spark.aeron.counters import PUBLISHER_LIMIT, SUBSCRIBER_POSITION, read_counters
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.client.client import Client
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint import Endpoint
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import TamperedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.frame_cipher import HEADER, KeyLimits
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.transport.api import ChannelSettings
from aeron_spark.transport.endpoint_channels import ClientPorts
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import free_ports
from tests.aeron.secure.ends import PATIENCE, Heard, World, echoes
from tests.aeron.secure.raw import raw
from tests.aeron.secure.tapped import KEY_HASH, Said, Tap
from tests.ending import FOR_EVER, ends

# RFC 7748, section 6.1
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


def test_row_01_four_packets_cross_and_then_it_is_connected(world: World) -> None:
    place, tap = world.place(), Tap()
    server = world.server(place, tap=tap)
    client = world.connected(place, tap=tap)
    # the first HELLO was answered by a RETRY, which is no packet
    assert tap.packets() == [
        handshake_packets.HELLO,
        handshake_packets.HELLO,
        handshake_packets.HELLO_ACK,
        handshake_packets.DONE,
        handshake_packets.DONE_ACK,
    ]
    [there] = server.connections
    assert there.id == client.connection.id
    assert echoes(client, "connected")


def test_row_03_connect_keys_are_never_zero_and_no_attempt_has_that_of_another(world: World) -> None:
    place, tap = world.place(), Tap()
    world.server(place)
    client = world.connected(place, tap=tap)
    for _ in range(5):
        client.reconnect(PATIENCE)
    for _ in range(10):
        world.connected(place, tap=tap).close()
    hellos = [handshake_packets.decode(one.data) for one in tap.said if one.packet == handshake_packets.HELLO]
    keys = [one.connect_key for one in hellos if isinstance(one, handshake_packets.HelloPacket)]
    assert len(keys) == 2 * 16  # each attempt says it twice, without a cookie and with one
    assert len(set(keys)) == 16
    assert all(any(key) for key in keys)


def _foreign(said: Said) -> bytes:
    """A packet with another connect key: its body is not what it should be, and nobody is to look at it."""
    changed = bytearray(said.data)
    changed[KEY_HASH.start] ^= 1
    changed[-1] ^= 1
    return bytes(changed)


def test_row_03_what_is_for_another_connect_key_is_ignored_by_both_sides(world: World) -> None:
    place, tap = world.place(), Tap()
    meant = handshake_packets.HELLO_ACK, handshake_packets.DONE, handshake_packets.DONE_ACK

    def first_a_foreign_one(said: Said) -> Iterable[bytes]:
        return [_foreign(said), said.data] if said.packet in meant else [said.data]

    tap.change = first_a_foreign_one
    server = world.server(place, tap=tap)
    client = world.client(place, tap=tap)
    heard = Heard(server), Heard(client)
    client.connect(PATIENCE)
    assert [tap.packets().count(packet) for packet in meant] == [2, 2, 2]  # in one attempt
    assert echoes(client, "not disturbed")
    assert [one.errors for one in heard] == [[], []]


def channels(aeron_dir: str, counter: int) -> list[str]:
    """The channels of the publications, or of the subscriptions with an image, that a driver says it has."""
    labels = [one.label for one in read_counters(aeron_dir) if one.type_id == counter]
    return [found[0] for label in labels if (found := re.search(r"aeron:\S+", label))]


def parameters(channel: str) -> dict[str, str]:
    """What a channel says, by name."""
    return dict(one.split("=", 1) for one in channel.partition("?")[2].split("|") if "=" in one)


def flipped(data: bytes) -> bytes:
    """One bit of it is another."""
    return data[:-5] + bytes([data[-5] ^ 4]) + data[-4:]


SAME = bytes(400)  # a message; whatever else is in its frame, the bytes from 150 to 300 stand in the midst of it
MIDST = slice(150, 300)


def talk(end: Client | Connection, count: int) -> None:
    """Say the same many times, each in a frame of its own."""
    for _ in range(count):
        end.send(SAME, acknowledge=True)


@pytest.mark.parametrize("duologue", ["response", "mdc"])
def test_row_16_every_publication_on_a_control_port_says_its_mode(world: World, duologue: str) -> None:
    # two ports: a client that is too slow for its first attempt finds another one, while that of the first rests
    place, mdc_ports, tap = world.place(), free_ports(), Tap()
    more: dict[str, Any] = {"reply_channel": duologue, "mdc_ports": (mdc_ports[0], 2)} if duologue == "mdc" else {}
    world.server(place, tap=tap, **more)
    client = world.connected(place)
    with raw(world.dialling, place) as pending:  # who has a publication of its own, too
        pending.send(pending.hello_with_cookie())
        pending.answer()
        assert echoes(client, duologue)
        found = [parameters(one) for one in channels(world.serving.aeron_dir, PUBLISHER_LIMIT)]
    ways = {f"127.0.0.1:{port}": "duologues" for port in mdc_ports}
    ways[f"127.0.0.1:{place.control_port}"] = "handshakes"
    mine = [one for one in found if one.get("control") in ways]
    modes = {(ways[one["control"]], one.get("control-mode")) for one in mine}
    assert modes == {("handshakes", "response"), *([("duologues", "dynamic")] if duologue == "mdc" else [])}
    # The client's own way, and that of the one whose handshake is pending; the client's handshake may have gone.
    sessions = {one["session-id"] for one in mine}
    assert str(tap.said[-1].session_id) in sessions
    assert len(sessions) >= 2


@pytest.mark.parametrize("reliable", [True, False])
def test_row_17_a_client_over_ipv6_with_ports_of_its_own_says_all_of_it(world: World, reliable: bool) -> None:
    place, (send_port, receive_port) = world.place("::1"), free_ports("::1")
    ports, channel_settings = ClientPorts(send_port, receive_port, "::1"), ChannelSettings(reliable=reliable)
    world.server(place)
    client = world.connected(
        place,
        dial=lambda: AeronClientTransport(world.dialling, place, ports=ports, channel_settings=channel_settings),
        link=LinkSettings(channel_settings=channel_settings),
    )
    assert echoes(client, "over IPv6")
    aeron_dir = world.dialling.aeron_dir
    found = [parameters(uri) for uri in channels(aeron_dir, PUBLISHER_LIMIT)]
    sending = [one for one in found if one.get("endpoint") == f"[::1]:{place.data_port}"]
    found = [parameters(uri) for uri in channels(aeron_dir, SUBSCRIBER_POSITION)]
    receiving = [one for one in found if one.get("control") == f"[::1]:{place.control_port}"]
    # the duologue's, and the handshake's where the driver keeps it still
    assert str(client.connection.id) in {one["session-id"] for one in sending}
    assert "dynamic" in {one["control-mode"] for one in receiving}
    assert {one.get("interface") for one in sending} == {f"[::1]:{send_port}"}
    assert {one.get("endpoint") for one in receiving} == {f"[::1]:{receive_port}"}
    assert {one.get("control-mode") for one in receiving} <= {"dynamic", "response"}
    assert {one.get("reliable") for one in (*sending, *receiving)} == {None if reliable else "false"}


def test_row_35_who_is_who_over_the_wire_is_what_rfc_7748_says(world: World) -> None:
    place = world.place()
    server = world.server(place, store=MemoryPeerStore(keypair_from(bytes.fromhex(BOB))))
    client = world.connected(place, store=MemoryPeerStore(keypair_from(bytes.fromhex(ALICE))))
    [there] = server.connections
    assert there.key.hex() == ALICE_PUBLIC
    assert client.server_key.hex() == client.connection.key.hex() == BOB_PUBLIC
    assert len(there.key) == len(client.server_key) == 32


@pytest.mark.parametrize("packet", [handshake_packets.HELLO_ACK, handshake_packets.DONE_ACK])
def test_row_36_one_changed_bit_of_an_answer_is_told_at_once_and_is_no_time_out(world: World, packet: int) -> None:
    place, tap = world.place(), Tap()
    world.server(place, tap=tap)
    tap.change = lambda said: [flipped(said.data) if said.packet == packet else said.data]
    client = world.client(place)
    with pytest.raises(TamperedError):
        ends(lambda: client.connect(FOR_EVER), "the connect that meets a changed bit")
    assert packet in tap.packets()


def test_row_37_no_nonce_comes_twice_under_one_key(world: World) -> None:
    """Counters say so, and what was the same is different under each."""
    place, tap, link = world.place(), Tap(), LinkSettings(keys=KeyLimits(frames=50))
    server = world.server(place, tap=tap, link=link)
    client = world.connected(place, tap=tap, link=link)
    for _ in range(3):
        [there] = server.connections
        busy = [threading.Thread(target=talk, args=(end, 100)) for end in (client, client, there)]
        for one in busy:
            one.start()
        for one in busy:
            one.join(PATIENCE)
        assert echoes(client, "all was said")
        client.reconnect(PATIENCE)
    for to_server in (True, False):
        ways: dict[int, list[Said]] = {}
        for said in tap.frames(to_server=to_server):
            ways.setdefault(said.session_id, []).append(said)
        duologues = [frames for frames in ways.values() if not frames[0].packet]
        assert len(duologues) == 4
        # DONE_ACK, on a way of its own, has the first one of the server's
        first = 0 if to_server else 1
        for frames in duologues:
            assert [one.counter for one in frames] == list(range(first, first + len(frames)))
            same = [one.data[MIDST] for one in frames if len(one.data) > len(SAME)]
            assert len(set(same)) == len(same)
        assert max(map(len, duologues)) > 200  # some keys of 50 frames
    acks = [said.counter for said in tap.said if said.packet == handshake_packets.DONE_ACK]
    assert acks == [0] * 4


def test_row_38_the_same_peers_say_the_same_under_other_keys_each_time(world: World) -> None:
    """OPEN is the same each time, under the same counter, and with the same header: only the key is another."""
    place, tap = world.place(), Tap()
    world.server(place, tap=tap)
    store = MemoryPeerStore()
    for _ in range(10):
        world.connected(place, tap=tap, store=store).close()
    for to_server in (True, False):
        opens = [one for one in tap.frames(to_server=to_server) if one.counter == (0 if to_server else 1)]
        opens = [one for one in opens if not one.packet]
        assert len(opens) == 10
        assert len({len(one.data) for one in opens}) == len({one.data[: HEADER.size] for one in opens}) == 1
        assert len({one.data for one in opens}) == 10


class Swapped:
    """A frame that comes after the one behind it."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def __call__(self, data: bytes) -> list[bytes]:
        self.kept.append(data)
        return self.kept[::-1] if len(self.kept) == 2 else []


HOW: dict[str, Callable[[bytes], Callable[[bytes], list[bytes]]]] = {
    "sent twice": lambda old: lambda data: [data, data],
    "swapped with the next": lambda old: Swapped(),
    "an earlier one": lambda old: lambda data: [old, data],
    "changed": lambda old: lambda data: [flipped(data)],
    "cut": lambda old: lambda data: [data[:-3]],
}


@pytest.mark.parametrize(
    ("how", "to_server"),
    [*((how, False) for how in HOW), ("swapped with the next", True), ("an earlier one", True)],
)
def test_row_40_a_frame_that_is_not_the_next_one_is_not_delivered_and_costs_a_resume(
    world: World, to_server: bool, how: str
) -> None:
    place, tap = world.place(), Tap()
    server = world.server(place, tap=tap, echo=False)
    client = world.connected(place, tap=tap)
    [there] = server.connections
    sender: Connection = client.connection if to_server else there
    receiver: Endpoint = server if to_server else client
    got: list[object] = []
    server.on_message(int, lambda _, message: got.append(message))
    client.on_message(int, got.append)
    heard = Heard(receiver)
    for number in range(10):
        sender.send(number, acknowledge=True)
    old = [one.data for one in tap.frames(to_server=to_server) if not one.packet][-5]
    tap.change = Once(HOW[how](old), to_server)
    for number in range(10, 20):
        sender.send(number)
    wait_for(lambda: any(isinstance(error, TamperedError) for error in heard.errors), PATIENCE, "the error")
    sender.send(20, acknowledge=True)
    assert got == list(range(21))
    assert receiver.tampered >= 1
    assert heard.count("disconnect") == 0
    wait_for(lambda: heard.count("resume") == 1, PATIENCE, "the resume")


class Once:
    """Does it to one sealed frame of a direction, and to the next ones until it has said something."""

    def __init__(self, how: Callable[[bytes], list[bytes]], to_server: bool) -> None:
        self.how: Callable[[bytes], list[bytes]] | None = how
        self.to_server = to_server

    def __call__(self, said: Said) -> list[bytes]:
        if self.how is None or said.to_server != self.to_server or said.packet or said.counter is None:
            return [said.data]
        instead = self.how(said.data)
        if instead:
            self.how = None
        return instead
