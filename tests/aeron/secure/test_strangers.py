"""What a server does with packets and clients that do not do as they should, over real drivers."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.access import Filters, Network
from aeron_spark.protocol.client_handshake import Abandoned
from aeron_spark.protocol.handshake_payloads import ClientDone
from aeron_spark.protocol.ids import FIRST_SESSION_ID
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.server_handshake import ServerTiming
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.ends import FREE, PATIENCE, World, echoes, logs, memory_of, nothing_held
from tests.aeron.secure.raw import raw

QUICK = ServerTiming(hello_s=1.0, admitting_s=1.0, path_s=1.0, done_s=1.0, authenticating_s=1.0)
PATIENT = ServerTiming(hello_s=30.0, admitting_s=30.0, path_s=30.0, done_s=30.0, authenticating_s=30.0)
RETRY, FAILED = "aeron-spark/1 RETRY ", "aeron-spark/1 FAILED "
FREED = 30.0  # seconds for a driver to give back the log of a session that was rejected or left


def stays_useful(world: World, place: ServerAddress) -> None:
    """The server serves whoever behaves, at once: the next client is served as fast as one that comes later."""
    seconds = []
    for _ in range(2):
        begun = time.monotonic()
        client = world.connected(place)
        assert echoes(client, "hi")
        client.close()
        seconds.append(time.monotonic() - begun)
    assert seconds[0] < 5 + 10 * seconds[1]  # a busy machine makes both slow


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(bytes.fromhex("deadbeef"), id="no packet of ours"),
        pytest.param(b"", id="nothing"),
        pytest.param(
            handshake_packets.PREFIX.pack(
                handshake_packets.MAGIC, handshake_packets.VERSION, handshake_packets.HELLO
            ).ljust(1100, b"\0"),
            id="no key",
        ),
        pytest.param(os.urandom(1152), id="chance"),
    ],
)
def test_row_04_what_is_no_hello_is_refused_and_the_server_goes_on(world: World, packet: bytes) -> None:
    place = world.place()
    server = world.server(place)
    with raw(world.dialling, place) as stranger:
        stranger.send(packet)
        assert stranger.hint().startswith(FAILED + "message")
        assert server.statistics["pending"] == 0
        assert server.statistics["session_ids"] == 0
    stays_useful(world, place)
    assert nothing_held(server)["refused-message"] == 1


def test_row_06_a_hello_that_comes_twice_makes_one_pending_handshake(world: World) -> None:
    place = world.place()
    server = world.server(place)
    with raw(world.dialling, place) as stranger:
        hello = stranger.hello_with_cookie()
        stranger.send(hello)
        stranger.send(hello)
        done = stranger.done()
        assert server.statistics["pending"] == 1
        stranger.send(done)  # it comes behind the second HELLO
        assert isinstance(
            handshake_packets.decode(stranger.answer()), handshake_packets.DoneAckPacket
        )  # and no second HELLO_ACK
        assert stranger.packets == []
        assert server.statistics["session_ids"] == 2


def test_row_07_done_without_hello_is_refused(world: World) -> None:
    place = world.place()
    server = world.server(place)
    with raw(world.dialling, place) as known, raw(world.dialling, place) as stranger:
        known.send(known.hello_with_cookie())
        stranger.send(known.done())
        assert stranger.hint().startswith(FAILED)
        assert server.statistics["connections"] == 0
        assert server.statistics["pending"] == 1
    stays_useful(world, place)


def test_row_08_a_client_that_never_opens_its_duologue_holds_up_nobody_else(world: World) -> None:
    place = world.place()
    server = world.server(place, link=LinkSettings(times=Times(setup_seconds=2.0)))
    with raw(world.dialling, place) as stranger:
        stranger.send(stranger.hello_with_cookie())
        stranger.send(stranger.done())
        stranger.answer()  # DONE_ACK: the ids are its, and nothing follows
        assert server.statistics["session_ids"] == 2
        stays_useful(world, place)
        nothing_held(server)  # after the set-up time, with the client still there


def test_row_09_clients_that_cannot_be_answered_hold_up_nobody_else(world: World) -> None:
    """Their way in is closed as soon as the server has begun to answer."""
    place = world.place()
    server = world.server(place, timing=QUICK)
    for _ in range(5):
        with raw(world.dialling, place) as stranger:
            hello = stranger.hello_with_cookie()
            stranger.dialing.inbox.close_subscription(stranger.pair.token)
            stranger.send(hello)
            wait_for(lambda: server.statistics["handshakes"] > 0, PATIENCE, "the handshake to begin")
            stays_useful(world, place)
    nothing_held(server)


def test_row_10_a_handshake_that_is_not_finished_gives_back_all_it_held(world: World) -> None:
    place = world.place()
    before = logs(world.serving)
    server = world.server(place, timing=QUICK)
    with raw(world.dialling, place) as stranger:
        stranger.send(stranger.hello_with_cookie())
        stranger.answer()
        assert server.statistics["pending"] == 1
    statistics = nothing_held(server, 10)
    assert (statistics["pending"], statistics["session_ids"], statistics["stream_ids"]) == (0, 0, 0)
    wait_for(lambda: server.statistics["handshakes"] == 0, PATIENCE, "the handshake to be forgotten")
    wait_for(lambda: logs(world.serving) <= before, FREED, "the driver to free the logs")


def test_row_14_a_server_without_ids_says_so_and_loses_none(world: World) -> None:
    place = world.place()
    server = world.server(place, session_ids=(FIRST_SESSION_ID, FIRST_SESSION_ID + 3), id_reuse_delay_seconds=0.0)
    two = [world.connected(place) for _ in range(2)]
    with pytest.raises(RefusedError, match="Connection error"):
        world.client(place).connect(PATIENCE)
    assert server.statistics["session_ids"] == 4
    for client in two:
        client.close()
    nothing_held(server)
    assert echoes(world.connected(place), "there are ids again")


def test_row_25_networks_and_limits_by_address_say_nothing_of_shared_memory(world: World) -> None:
    near, far = world.place("ipc"), world.place()
    limits = replace(FREE, connections_per_address=1)
    world.server(near, far, limits=limits, filters=Filters(allow=(Network.parse("1.1.1.1/32"),)))
    assert all(echoes(world.connected(near), count) for count in range(2))
    with pytest.raises(RefusedError, match="not permitted"):
        world.client(far).connect(PATIENCE)


def test_row_29_a_tag_of_33_characters_is_answered(world: World) -> None:
    place = world.place()
    server = world.server(place)
    with raw(world.dialling, place) as stranger:
        with pytest.raises(OptionError, match="longer than 32"):
            world.client(place, tag="x" * 33)
        too_long = handshake_packets.encode_client_done(ClientDone(tag="x" * 33))
        stranger.machine._done = too_long  # type: ignore[misc]  # a client that does not look
        stranger.send(stranger.hello_with_cookie())
        stranger.send(stranger.done())
        [abandoned] = stranger.machine.packet(stranger.answer(), time.monotonic())
        assert isinstance(abandoned, Abandoned)
        assert isinstance(abandoned.error, RefusedError)
        assert "(tag)" in str(abandoned.error)
    assert nothing_held(server)["refused-tag"] == 1
    stays_useful(world, place)


def test_row_31_the_client_beyond_the_limit_is_told(world: World) -> None:
    place = world.place()
    server = world.server(place, limits=replace(FREE, connections=2))
    two = [world.connected(place) for _ in range(2)]
    with pytest.raises(RefusedError, match="Server is full"):
        world.client(place).connect(PATIENCE)
    two[0].close()
    wait_for(lambda: server.statistics["places"] == 1, PATIENCE, "a place")
    assert echoes(world.connected(place), "there is a place again")


def test_row_32_a_limit_by_address_stays_what_it_is(world: World) -> None:
    everywhere = world.place("::")
    place, elsewhere = (replace(everywhere, host=host) for host in ("127.0.0.1", "::1"))
    server = world.server(everywhere, limits=replace(FREE, connections_per_address=2))
    two = [world.connected(place) for _ in range(2)]
    for _ in range(5):
        with pytest.raises(RefusedError, match="Too many connections"):
            world.client(place).connect(PATIENCE)
    assert server.statistics["places"] == 2
    assert echoes(world.connected(elsewhere), "from another address")
    two[0].close()
    wait_for(lambda: server.statistics["places"] == 2, PATIENCE, "a place")  # of three
    assert echoes(world.connected(place), "there is a place again")


def test_row_33_handshakes_under_way_are_limited(world: World) -> None:
    place = world.place()
    server = world.server(place, limits=replace(FREE, pending=3), timing=PATIENT)
    held, hints = [], []
    try:
        for _ in range(6):
            context = raw(world.dialling, place)
            stranger = context.__enter__()
            held.append(context)
            stranger.send(stranger.hello_with_cookie())
            if len(held) <= 3:
                stranger.answer()
            else:
                hints.append(stranger.hint())
            assert server.statistics["pending"] <= 3
    finally:
        for context in held:
            context.__exit__(None, None, None)
    assert len(hints) == 3
    assert all(hint.startswith(FAILED + "pending") for hint in hints)
    nothing_held(server)
    stays_useful(world, place)


def test_a_rate_beyond_the_limit_is_refused_with_its_reason(world: World) -> None:
    place = world.place()
    server = world.server(place, limits=Limits(handshakes_per_second=0.1, handshake_burst=2))
    for _ in range(2):
        world.connected(place).close()
    with raw(world.dialling, place) as stranger:
        stranger.send(stranger.hello_with_cookie())
        assert stranger.hint().startswith(FAILED + "rate")
    assert server.statistics["refused-rate"] == 1


def test_row_40_a_hello_that_is_sent_again_by_others_allocates_nothing(world: World) -> None:
    """It is recorded as the server took it, and comes once more: from another address, and from its own."""
    everywhere = world.place("::")
    place, elsewhere = (replace(everywhere, host=host) for host in ("127.0.0.1", "::1"))
    server = world.server(everywhere)
    with raw(world.dialling, place) as honest:
        hello = honest.hello_with_cookie()
        honest.send(hello)
        honest.answer()
        for way in (elsewhere, place):
            with raw(world.dialling, way) as thief:
                thief.send(hello)
                hint = thief.hint()
                assert hint.startswith((RETRY, FAILED))
                thief.poll()
                assert thief.packets == []
                assert server.statistics["pending"] == 1
                assert server.statistics["session_ids"] == 0


def test_row_80_memory_for_those_who_proved_nothing_is_bounded_and_comes_back(world: World) -> None:
    place = world.place()
    world.server(place)
    stays_useful(world, place)
    wait_for(lambda: logs(world.serving) == 0, FREED, "the driver to be as it was")
    before = memory_of(world.serving)
    most = 0
    for _ in range(20):
        with raw(world.dialling, place) as stranger:
            stranger.send(stranger.hello())
            assert stranger.hint().startswith(RETRY)
        most = max(most, memory_of(world.serving) - before)
    print(f"20 HELLOs took {most / 1024:.0f} KiB of shared memory at most")
    assert most < 20 * 64 * 1024
    wait_for(lambda: memory_of(world.serving) <= before, FREED, "the memory to come back")
