"""Messages between a server and a client: order, acknowledgement, sizes, back-pressure, listeners."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark import ReceivedFile
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import OptionError, RefusedError, UsageError, WaitTimeout
from tests.ending import call_in_time
from tests.internals import core_of
from tests.unit.endpoint.endpoints import World, client_options, flood, server_options, wait_for


def test_row_39_no_payload_on_the_network_shows_the_plaintext(world: World) -> None:
    seen: list[bytes] = []

    def record(_: object, message: bytes) -> tuple[bytes]:
        seen.append(message)
        return (message,)

    world.network.change = record
    server, client = world.pair()
    server.register("vault", Vault(), ["echo"])
    server.on_message(object, lambda c, m: c.send(m))
    received: list[object] = []
    client.on_message(object, received.append)
    client.send("SECRETMARK")
    client.send({"long": b"SECRETMARK" * 20_000})
    assert client.remote("vault").echo("SECRETMARK") == "SECRETMARK"
    wait_for(lambda: len(received) == 2)
    assert seen
    assert not [message for message in seen if b"SECRETMARK" in message]


class Vault:
    def echo(self, value: object) -> object:
        return value


def test_row_47_a_hundred_pings_get_their_responses(world: World) -> None:
    _, client = world.pair()
    seconds = [client.ping() for _ in range(100)]
    assert all(0 <= one < 5 for one in seconds)
    assert core_of(client.connection).usage["pings"] == 0


def test_row_48_a_ping_without_a_response_ends_at_its_timeout_and_does_not_delay_close(world: World) -> None:
    server, client = world.pair()
    world.network.cut()
    wait_for(lambda: not client.connected)
    world.network.heal()
    wait_for(lambda: client.connected)
    (publication,) = [one for one in world.network.publications if one.inbox is server.endpoint.transport.inbox]
    publication.held = True
    started = world.clock()
    with pytest.raises(WaitTimeout, match="ping"):
        client.ping(0.1)
    assert core_of(client.connection).usage["pings"] == 0
    client.close()
    assert world.clock() - started < 5


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 1_375, 1_376, 1_377, 65_536, 98_000, 100_000, 32 << 20])
def test_row_61_messages_of_every_size_arrive_unchanged(world: World, size: int) -> None:
    server, client = world.pair()
    received: list[bytes] = []
    server.on_message(bytes, lambda c, m: received.append(m))
    message = (bytes(range(256)) * (size // 256 + 1))[:size]
    client.send(message, acknowledge=True)
    assert [len(one) for one in received] == [size]
    assert received == [message]


def test_row_49_each_acknowledged_send_returns_after_its_delivery(world: World) -> None:
    server, client = world.pair()
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    for number in range(100):
        client.send(number, acknowledge=True)
        assert received[-1] == number
    assert core_of(client.connection).usage["acknowledgements"] == 0


@pytest.mark.slow
def test_row_59_a_hundred_thousand_messages_arrive_in_order(world: World) -> None:
    server, client = world.pair()
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    client.send_many(range(100_000))
    wait_for(lambda: len(received) == 100_000)
    assert received == list(range(100_000))


@pytest.mark.threads
def test_row_60_a_slow_listener_loses_nothing_and_send_raises_wait_timeout(world: World) -> None:
    server, client = world.pair(buffer_bytes=200_000, queue_bytes=50_000)
    released, received = threading.Event(), list[object]()

    def slow(_: Connection, message: object) -> None:
        released.wait(10)
        received.append(message)

    server.on_message(bytes, slow)
    sent = 0
    refused: list[WaitTimeout] = []
    while not refused and sent < 5_000:
        try:
            client.send(b"%08d" % sent + bytes(1000), timeout=0.05)
            sent += 1
        except WaitTimeout as error:
            refused.append(error)
    assert "did not accept a message before the timeout" in str(refused)
    assert 100 < sent < 5_000
    released.set()
    for _ in range(200):
        client.send(b"%08d" % sent + bytes(1000))
        sent += 1
    wait_for(lambda: len(received) >= sent)
    assert [message[:8] for message in received] == [b"%08d" % n for n in range(sent)]  # type: ignore[index]


def test_timeout_0_tries_once(world: World) -> None:
    _, client = world.pair(buffer_bytes=100_000, send_timeout=120.0)
    for one in list(world.network.publications):
        one.held = True
    with pytest.raises(WaitTimeout):
        call_in_time(lambda: flood(client, 10_000, 0), "sending without waiting")
    for one in list(world.network.publications):
        one.held = False


def test_a_flooded_echo_does_not_block_itself(world: World) -> None:
    """The echo waits for room while its image is paused; the acknowledgements wait behind that image's messages."""
    # 8 MB go through buffers of 150 kB: a send waits for many turns of both event loops, and a busy machine is slow
    server, client = world.pair(buffer_bytes=150_000, queue_bytes=40_000, send_timeout=120.0)
    server.on_message(bytes, lambda c, m: c.send(m * 40))
    received: list[object] = []
    client.on_message(bytes, received.append)
    for _ in range(20):
        client.send_many([b"x" * 100] * 100)
    wait_for(lambda: len(received) == 2000 or world.recorded[server].errors, "the echoes", 120.0)
    assert not world.recorded[server].errors


@pytest.mark.threads
def test_a_listener_that_calls_the_peer_gets_its_response_while_many_messages_wait(world: World) -> None:
    server, client = world.pair(buffer_bytes=300_000, queue_bytes=20_000)
    results: list[object] = []
    started = threading.Event()

    class Doubler:
        def twice(self, number: int) -> int:
            return 2 * number

    def call_back(connection: Connection, message: bytes) -> None:
        started.wait(10)
        if message == b"call":
            results.append(connection.remote(23).with_timeout(10).twice(21))

    client.offer(Doubler(), ["twice"], 23)
    server.on_message(bytes, call_back)
    client.send(b"call")
    for _ in range(100):
        client.send(bytes(1000))
    started.set()
    wait_for(lambda: results)
    assert results == [42]


def test_row_73_exceptions_of_listeners_are_reported_to_error_listeners_only(world: World) -> None:
    server, client = world.pair()
    called: list[str] = []

    def broken(_: Connection, __: object) -> None:
        raise ValueError("mine")

    server.on_message(int, broken)
    server.on_message(object, lambda c, m: called.append("super"))
    (connection,) = server.connections
    connection.on_message(int, lambda m: called.append("own"))
    for number in range(7):
        client.send(number)
    wait_for(lambda: len(called) == 14)
    assert called == ["super", "own"] * 7
    errors = world.recorded[server].errors
    assert [str(error) for error in errors] == ["mine"] * 7
    assert client.connected


def test_a_listener_that_raises_system_exit_does_not_stop_later_deliveries(world: World) -> None:
    server, client = world.pair()
    received: list[object] = []

    def exit_thread(_: Connection, message: object) -> None:
        received.append(message)
        raise SystemExit

    server.on_message(int, exit_thread)
    client.send(1)
    client.send(2)
    wait_for(lambda: received == [1, 2])


@pytest.mark.threads
def test_listeners_never_run_on_the_event_loop(world: World) -> None:
    server, client = world.pair()
    threads: list[str] = []
    server.on_error(lambda c, e: threads.append(threading.current_thread().name))
    world.network.change = lambda publication, message: (message[:-1] + bytes([message[-1] ^ 1]),)
    core_of(client.connection).sender.push_unsequenced(66, bytes(8))
    wait_for(lambda: threads)
    world.network.change = None
    assert not [name for name in threads if "listener" not in name]
    assert not [name for name in world.recorded[server].threads if "listener" not in name]


@pytest.mark.threads
def test_a_blocked_listener_delays_only_its_own_connection(world: World) -> None:
    server, client = world.pair(queue_bytes=20_000, buffer_bytes=200_000)
    other = world.client(source="192.0.2.8:4000")
    go = threading.Event()
    received: list[object] = []

    def listen(connection: Connection, message: object) -> None:
        if message == "other":
            received.append(message)
        else:
            go.wait(20)

    server.on_message(object, listen)
    with pytest.raises(WaitTimeout):
        flood(client, 1000, 0.02)
    started = world.clock()
    for _ in range(10):
        other.send("other", acknowledge=True)
    assert world.clock() - started < 5
    assert len(received) == 10
    go.set()


@pytest.mark.parametrize("message", ["hello", "h" * (4 << 20)], ids=["in a record", "as a transfer"])
def test_a_message_without_a_listener_is_refused_and_reported(world: World, message: str) -> None:
    server, client = world.pair()
    with pytest.raises(RefusedError, match="a message of class str has no listener at the peer") as refused:
        client.send(message, acknowledge=True)
    assert (refused.value.reason, refused.value.retriable) == ("no-listener", False)
    (error,) = world.recorded[server].errors
    assert isinstance(error, UsageError)
    assert "a message of class str has no listener" in str(error)


@pytest.mark.parametrize("message", ["hello", "h" * (4 << 20)], ids=["in a record", "as a transfer"])
def test_an_acknowledged_send_raises_the_error_of_a_listener(world: World, message: str) -> None:
    server, client = world.pair()
    received: list[object] = []

    def broken(_: Connection, __: object) -> None:
        raise ValueError("the disk is full")

    server.on_message(str, broken)
    server.on_message(str, lambda c, m: received.append(m))
    with pytest.raises(RefusedError, match="a listener of the peer raised ValueError: the disk is full") as refused:
        client.send(message, acknowledge=True)
    assert refused.value.reason == "listener-failed"
    assert received == [message]
    client.on_message(str, lambda m: broken(client.connection, m))
    with pytest.raises(RefusedError, match="the disk is full"):
        server.connections[0].send(message, acknowledge=True)
    server.on_message(int, lambda c, m: received.append(m))
    client.send(1, acknowledge=True)
    assert received == [message, 1]
    assert core_of(client.connection).usage["acknowledgements"] == 0


def test_a_file_whose_listener_raised_stays_and_its_sender_gets_the_error(world: World, tmp_path: Path) -> None:
    server, client = world.pair()
    files: list[ReceivedFile] = []

    def broken(_: Connection, file: ReceivedFile) -> None:
        files.append(file)
        raise OSError("no space")

    server.on_message(ReceivedFile, broken)
    (tmp_path / "sent.csv").write_bytes(b"1,2")
    client.send_file(tmp_path / "sent.csv")
    wait_for(lambda: world.recorded[client].errors)
    (refusal,) = world.recorded[client].errors
    assert "a listener of the peer raised OSError: no space" in str(refusal)
    assert files[0].path.read_bytes() == b"1,2"
    assert f"the received file sent.csv stays at {files[0].path}" in str(world.recorded[server].errors)
    files[0].path.unlink()


@pytest.mark.parametrize(
    "size", [0, 1, 1375, 1376, 1377, 65_536, 98_293, 98_294, 98_295, 98_302, 98_304, 98_305, 3 << 20]
)
def test_every_size_around_a_limit_arrives(world: World, size: int) -> None:
    server, client = world.pair()
    received: list[bytes] = []
    server.on_message(bytes, lambda c, m: received.append(m))
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    client.send(message)
    client.send(message, acknowledge=True)
    client.send_many([message, b"x"])
    wait_for(lambda: len(received) == 4)
    assert received == [message, message, message, b"x"]


def test_both_ends_respect_the_smaller_max_message(world: World) -> None:
    session = replace(client_options().session_limits, max_record_bytes=8 * 1024)
    server = world.server()
    client = world.client(client_options(max_message=16 * 1024, session_limits=session, first_pause=0.01))
    wait_for(lambda: server.connections)
    received: list[bytes] = []
    client.on_message(bytes, received.append)
    server.on_message(bytes, lambda c, m: c.send(m))
    sizes = [1000, 8 * 1024, 20_000, 64 * 1024, 200_000]
    for size in sizes:
        client.send(bytes(size), acknowledge=True)
    wait_for(lambda: len(received) == len(sizes))
    assert [len(one) for one in received] == sizes
    (connection,) = server.connections
    assert connection.max_message < 16 * 1024
    assert server.statistics["tampered"] == 0


def test_an_acknowledged_send_raises_the_refusal_of_its_transfer(world: World) -> None:
    from aeron_spark.errors import RefusedError

    server = world.server(server_options(transfer_memory=1000, transfer_disk_total=1000))
    client = world.client(client_options(first_pause=0.01))
    server.on_message(bytes, lambda c, m: None)
    with pytest.raises(RefusedError, match="refused the transfer"):
        client.send(bytes(200_000), acknowledge=True)
    client.send(b"small", acknowledge=True)
    wait_for(lambda: server.statistics["streams"] == 0)


def test_a_value_that_cannot_be_sent_is_named_and_nothing_is_sent(world: World) -> None:
    server, client = world.pair()
    with pytest.raises(OptionError, match="object"):
        client.send(object())
    client.ping()
    assert not world.recorded[server].errors


@pytest.mark.threads
def test_row_64_transfers_are_released_when_their_connection_ends(world: World, tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    server, client = world.pair(transfer_memory=100_000, spill_dir=str(folder), send_timeout=0.5)
    sent = threading.Thread(target=lambda: _send_quietly(client, bytes(8_000_000)))
    cut = threading.Event()

    def stop(publication: object, message: bytes) -> tuple[bytes, ...]:
        if len(message) > 60_000:
            cut.set()
        return (message,)

    world.network.change = stop
    sent.start()
    cut.wait(10)
    wait_for(lambda: server.statistics["streams"] or not sent.is_alive())
    (connection,) = server.connections
    connection.close()
    sent.join(20)
    wait_for(lambda: not server.statistics.get("streams") and not list(folder.iterdir()))


def _send_quietly(client: object, message: bytes) -> None:
    import contextlib

    from aeron_spark.errors import AeronSparkError

    with contextlib.suppress(AeronSparkError):
        client.send(message)  # type: ignore[attr-defined]
