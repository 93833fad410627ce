"""Packets, keys and nonces on the network, and the effect of altered and repeated frames."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from aeron_spark.aeron.counters import PUBLISHER_LIMIT, SUBSCRIBER_POSITION, read_counters
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.client.client import Client
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.endpoint import Endpoint
from aeron_spark.errors import TamperedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.frame_cipher import HEADER, CipherLimits
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.transport.api import ChannelSettings
from aeron_spark.transport.endpoint_channels import ClientPorts
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, RecordedEvents, World, echoes
from tests.aeron.secure.raw import raw
from tests.aeron.secure.tap import KEY_HASH, SentMessage, Tap
from tests.ending import LONG_TIMEOUT_S, call_in_time
from tests.ports import free_ports

# RFC 7748, section 6.1
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


def test_row_01_a_client_is_connected_after_four_packets(world: World) -> None:
    address, tap = world.free_address(), Tap()
    server = world.server(address, tap=tap)
    client = world.connected(address, tap=tap)
    # the response to the first HELLO is a RETRY, which is not a packet
    assert tap.packets() == [
        handshake_packets.HELLO,
        handshake_packets.HELLO,
        handshake_packets.HELLO_ACK,
        handshake_packets.DONE,
        handshake_packets.DONE_ACK,
    ]
    [server_connection] = server.connections
    assert server_connection.id == client.connection.id
    assert echoes(client, "connected")


def test_row_03_connect_keys_are_not_zero_and_differ_between_attempts(world: World) -> None:
    address, tap = world.free_address(), Tap()
    world.server(address)
    client = world.connected(address, tap=tap)
    for _ in range(5):
        client.reconnect(TIMEOUT_S)
    for _ in range(10):
        world.connected(address, tap=tap).close()
    hellos = [handshake_packets.decode(one.data) for one in tap.sent if one.packet == handshake_packets.HELLO]
    keys = [one.connect_key for one in hellos if isinstance(one, handshake_packets.HelloPacket)]
    assert len(keys) == 2 * 16  # each attempt sends HELLO twice, without and with a cookie
    assert len(set(keys)) == 16
    assert all(any(key) for key in keys)


def _foreign(message: SentMessage) -> bytes:
    """Return the packet with another connect key and a wrong body, which must not be read."""
    changed = bytearray(message.data)
    changed[KEY_HASH.start] ^= 1
    changed[-1] ^= 1
    return bytes(changed)


def test_row_03_packets_with_another_connect_key_are_ignored_by_both_ends(world: World) -> None:
    address, tap = world.free_address(), Tap()
    kinds = handshake_packets.HELLO_ACK, handshake_packets.DONE, handshake_packets.DONE_ACK

    def add_foreign_packet(message: SentMessage) -> Iterable[bytes]:
        return [_foreign(message), message.data] if message.packet in kinds else [message.data]

    tap.change = add_foreign_packet
    server = world.server(address, tap=tap)
    client = world.client(address, tap=tap)
    recorded = RecordedEvents(server), RecordedEvents(client)
    client.connect(TIMEOUT_S)
    assert [tap.packets().count(packet) for packet in kinds] == [2, 2, 2]  # in one attempt
    assert echoes(client, "not disturbed")
    assert [one.errors for one in recorded] == [[], []]


def channels(aeron_dir: str, counter: int) -> list[str]:
    """Return the channels of a driver's publications, or of its subscriptions with an image."""
    labels = [one.label for one in read_counters(aeron_dir) if one.type_id == counter]
    return [found[0] for label in labels if (found := re.search(r"aeron:\S+", label))]


def parameters(channel: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in channel.partition("?")[2].split("|") if "=" in one)


def flipped(data: bytes) -> bytes:
    """Return the data with one flipped bit."""
    return data[:-5] + bytes([data[-5] ^ 4]) + data[-4:]


MESSAGE = bytes(400)
MIDDLE = slice(150, 300)  # of a frame: in its message, whatever the headers


def send_messages(end: Client | Connection, count: int) -> None:
    """Send the same message ``count`` times, each in a separate frame."""
    for _ in range(count):
        end.send(MESSAGE, acknowledge=True)


@pytest.mark.parametrize("reply_channel", ["response", "mdc"])
def test_row_16_each_publication_on_a_control_port_has_its_control_mode(world: World, reply_channel: str) -> None:
    # two ports: the second is for another attempt, while the port of the first is not reused yet
    address, mdc_ports, tap = world.free_address(), free_ports(), Tap()
    more: dict[str, Any] = {"reply_channel": reply_channel, "mdc_ports": mdc_ports} if reply_channel == "mdc" else {}
    world.server(address, tap=tap, **more)
    client = world.connected(address)
    with raw(world.dialling, address) as pending:  # it has a separate publication
        pending.send(pending.hello_with_cookie())
        pending.answer()
        assert echoes(client, reply_channel)
        found = [parameters(one) for one in channels(world.serving.aeron_dir, PUBLISHER_LIMIT)]
    kinds = {f"127.0.0.1:{port}": "links" for port in mdc_ports}
    kinds[f"127.0.0.1:{address.control_port}"] = "handshakes"
    mine = [one for one in found if one.get("control") in kinds]
    modes = {(kinds[one["control"]], one.get("control-mode")) for one in mine}
    assert modes == {("handshakes", "response"), *([("links", "dynamic")] if reply_channel == "mdc" else [])}
    # The client's link, and the pending handshake; the client's own handshake may be closed.
    sessions = {one["session-id"] for one in mine}
    assert str(tap.sent[-1].session_id) in sessions
    assert len(sessions) >= 2


@pytest.mark.parametrize("reliable", [True, False])
def test_row_17_the_channels_of_an_ipv6_client_have_its_ports_and_settings(world: World, reliable: bool) -> None:
    address, (send_port, receive_port) = world.free_address("::1"), free_ports("::1")
    ports, channel_settings = ClientPorts(send_port, receive_port, "::1"), ChannelSettings(reliable=reliable)
    world.server(address)
    client = world.connected(
        address,
        dial=lambda: AeronClientTransport(world.dialling, address, ports=ports, channel_settings=channel_settings),
        channel=channel_settings,
    )
    assert echoes(client, "over IPv6")
    aeron_dir = world.dialling.aeron_dir
    found = [parameters(uri) for uri in channels(aeron_dir, PUBLISHER_LIMIT)]
    sending = [one for one in found if one.get("endpoint") == f"[::1]:{address.data_port}"]
    found = [parameters(uri) for uri in channels(aeron_dir, SUBSCRIBER_POSITION)]
    receiving = [one for one in found if one.get("control") == f"[::1]:{address.control_port}"]
    # of the link, and of the handshake if the driver still has it
    assert str(client.connection.id) in {one["session-id"] for one in sending}
    assert "dynamic" in {one["control-mode"] for one in receiving}
    assert {one.get("interface") for one in sending} == {f"[::1]:{send_port}"}
    assert {one.get("endpoint") for one in receiving} == {f"[::1]:{receive_port}"}
    assert {one.get("control-mode") for one in receiving} <= {"dynamic", "response"}
    assert {one.get("reliable") for one in (*sending, *receiving)} == {None if reliable else "false"}


def test_row_35_public_keys_over_the_network_equal_those_of_rfc_7748(world: World) -> None:
    address = world.free_address()
    server = world.server(address, store=MemoryPeerStore(keypair_from(bytes.fromhex(BOB))))
    client = world.connected(address, store=MemoryPeerStore(keypair_from(bytes.fromhex(ALICE))))
    [server_connection] = server.connections
    assert server_connection.key.hex() == ALICE_PUBLIC
    assert client.server_key.hex() == client.connection.key.hex() == BOB_PUBLIC
    assert len(server_connection.key) == len(client.server_key) == 32


@pytest.mark.parametrize("packet", [handshake_packets.HELLO_ACK, handshake_packets.DONE_ACK])
def test_row_36_one_changed_bit_of_a_packet_is_an_authentication_error_at_once(world: World, packet: int) -> None:
    address, tap = world.free_address(), Tap()
    world.server(address, tap=tap)
    tap.change = lambda message: [flipped(message.data) if message.packet == packet else message.data]
    client = world.client(address)
    with pytest.raises(TamperedError):
        call_in_time(lambda: client.connect(LONG_TIMEOUT_S), "the connect")
    assert packet in tap.packets()


def test_row_37_no_nonce_is_used_twice_with_one_key(world: World) -> None:
    """The counters increase, and equal messages are encrypted differently."""
    address, tap, limits = world.free_address(), Tap(), CipherLimits(frames=50)
    server = world.server(address, tap=tap, key_limits=limits)
    client = world.connected(address, tap=tap, key_limits=limits)
    client.on_message(bytes, lambda message: None)
    for _ in range(3):
        [server_connection] = server.connections
        senders = [
            threading.Thread(target=send_messages, args=(end, 100)) for end in (client, client, server_connection)
        ]
        for one in senders:
            one.start()
        for one in senders:
            one.join(TIMEOUT_S)
        assert echoes(client, "all messages were sent")
        client.reconnect(TIMEOUT_S)
    for to_server in (True, False):
        by_session: dict[int, list[SentMessage]] = {}
        for message in tap.frames(to_server=to_server):
            by_session.setdefault(message.session_id, []).append(message)
        links = [frames for frames in by_session.values() if not frames[0].packet]
        assert len(links) == 4
        # DONE_ACK, in another publication, has the server's first counter
        first = 0 if to_server else 1
        for frames in links:
            assert [one.counter for one in frames] == list(range(first, first + len(frames)))
            middles = [one.data[MIDDLE] for one in frames if len(one.data) > len(MESSAGE)]
            assert len(set(middles)) == len(middles)
        assert max(map(len, links)) > 200  # some keys of 50 frames
    acks = [message.counter for message in tap.sent if message.packet == handshake_packets.DONE_ACK]
    assert acks == [0] * 4


def test_row_38_each_connection_of_the_same_peers_has_other_keys(world: World) -> None:
    """OPEN has the same content, counter and header each time; only the key differs."""
    address, tap = world.free_address(), Tap()
    world.server(address, tap=tap)
    store = MemoryPeerStore()
    for _ in range(10):
        world.connected(address, tap=tap, store=store).close()
    for to_server in (True, False):
        opens = [one for one in tap.frames(to_server=to_server) if one.counter == (0 if to_server else 1)]
        opens = [one for one in opens if not one.packet]
        assert len(opens) == 10
        assert len({len(one.data) for one in opens}) == len({one.data[: HEADER.size] for one in opens}) == 1
        assert len({one.data for one in opens}) == 10


class Swap:
    """Swaps a frame with the next one."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def __call__(self, data: bytes) -> list[bytes]:
        self.frames.append(data)
        return self.frames[::-1] if len(self.frames) == 2 else []


CHANGES: dict[str, Callable[[bytes], Callable[[bytes], list[bytes]]]] = {
    "sent twice": lambda old: lambda data: [data, data],
    "swapped with the next": lambda old: Swap(),
    "an earlier one": lambda old: lambda data: [old, data],
    "changed": lambda old: lambda data: [flipped(data)],
    "truncated": lambda old: lambda data: [data[:-3]],
}


@pytest.mark.parametrize(
    ("how", "to_server"),
    [*((how, False) for how in CHANGES), ("swapped with the next", True), ("an earlier one", True)],
)
def test_row_40_an_altered_or_reordered_frame_is_not_delivered_and_the_session_resumes(
    world: World, to_server: bool, how: str
) -> None:
    address, tap = world.free_address(), Tap()
    server = world.server(address, tap=tap, echo=False)
    client = world.connected(address, tap=tap)
    [server_connection] = server.connections
    sender: Connection = client.connection if to_server else server_connection
    receiver: Endpoint = server if to_server else client
    received: list[object] = []
    server.on_message(int, lambda _, message: received.append(message))
    client.on_message(int, received.append)
    recorded = RecordedEvents(receiver)
    for number in range(10):
        sender.send(number, acknowledge=True)
    old = [one.data for one in tap.frames(to_server=to_server) if not one.packet][-5]
    tap.change = Once(CHANGES[how](old), to_server)
    for number in range(10, 20):
        sender.send(number)
    wait_for(lambda: any(isinstance(error, TamperedError) for error in recorded.errors), TIMEOUT_S, "the error")
    sender.send(20, acknowledge=True)
    assert received == list(range(21))
    assert receiver.tampered >= 1
    assert recorded.count("disconnect") == 0
    wait_for(lambda: recorded.count("resume") == 1, TIMEOUT_S, "the resume")


class Once:
    """Changes one encrypted frame of a direction, and the next ones until the change returns frames."""

    def __init__(self, how: Callable[[bytes], list[bytes]], to_server: bool) -> None:
        self.how: Callable[[bytes], list[bytes]] | None = how
        self.to_server = to_server

    def __call__(self, message: SentMessage) -> list[bytes]:
        if self.how is None or message.to_server != self.to_server or message.packet or message.counter is None:
            return [message.data]
        changed = self.how(message.data)
        if changed:
            self.how = None
        return changed
