"""Links on a media driver whose file system is small: it must not fill up, because that ends the driver's process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.counters import read_driver
from aeron_spark.aeron.guard import read_drops
from aeron_spark.endpoint.access import MEASURE_INTERVAL_S
from aeron_spark.errors import RefusedError, RemoteError, Retry, WaitTimeout
from aeron_spark.node.paths import driver_space, reserve_of
from aeron_spark.process import has_ended
from aeron_spark.transport.api import LINK_TERM_BYTES, ChannelSettings
from aeron_spark.waiting import wait_for
from tests.aeron.attacks.measured_server import MeasuredServer, separate_nodes
from tests.aeron.secure.endpoints import TIMEOUT_S, World, echoes, logs, node_of
from tests.aeron.secure.test_bulk_links import MIB, open_bulk_link, transfer

LOG_BYTES: Final = 3 * LINK_TERM_BYTES  # of each direction of a link
MOUNTED: Final = "160m"  # 46 of them for the driver's own files, and an eighth is the reserve
TOO_LONG: Final = "receiving: term-length"
MOST_LINKS: Final = 20  # more than fit
PARTITIONS: Final = 12  # whose logs, 48 MiB each, do not fit


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of this size in memory, and return the media driver's directory in it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder / "aeron"
    finally:
        # The JVM of this process unmaps files of the closed Aeron client only later.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AeronClient]:
    """A media driver on a small file system."""
    with mounted(tmp_path_factory.mktemp("small"), MOUNTED) as aeron_dir, node_of(
        aeron_dir, archive=False, term_length="1m", ipc_term_length="1m",
        properties={"aeron.image.liveness.timeout": "1s"},  # the driver frees logs sooner
    ) as client:  # fmt: skip
        yield client


@pytest.fixture
def small_world(small: AeronClient, dialling: AeronClient) -> Iterator[World]:
    """A server on the small file system, with clients on another one."""
    wait_for(lambda: logs(small) == 0, TIMEOUT_S, "the driver to free earlier logs")
    with World(small, dialling) as made:
        yield made


def test_links_are_refused_before_their_logs_fill_the_file_system(small_world: World) -> None:
    world, address = small_world, small_world.free_address()
    driver = read_driver(world.serving.aeron_dir).pid
    server = world.server(address)
    greedy = world.connected(address)
    links, refusal = [], None
    while refusal is None and len(links) < MOST_LINKS:
        try:
            links.append(open_bulk_link(server, greedy))
        except RemoteError as error:
            refusal = error.raised
    for mine, theirs in links:
        transfer(theirs, mine, LOG_BYTES)  # writes each page of a log, as a link does that is used for some time
    space = driver_space(Path(world.serving.aeron_dir))
    assert not has_ended(driver)
    assert isinstance(refusal, RefusedError)
    assert (refusal.reason, refusal.retry) == ("key-limit", Retry.WHEN_FREED)
    assert links
    assert space.free >= reserve_of(space)
    other = world.connected(address)  # another key has room
    assert other.bulk_link(TIMEOUT_S).is_open
    for client in (greedy, other):
        assert echoes(client, "still here")


def test_connections_are_refused_before_their_logs_fill_the_file_system(small_world: World) -> None:
    world, address = small_world, small_world.free_address()
    server = world.server(address)
    clients, refusal = [], None
    while refusal is None and len(clients) < MOST_LINKS:
        try:
            clients.append(world.connected(address))
        except RefusedError as error:
            refusal = error
    assert (refusal.reason, refusal.retry) == ("full", Retry.WHEN_FREED)
    assert server.statistics["refused-full"] == 1
    assert driver_space(Path(world.serving.aeron_dir)).free >= LOG_BYTES
    assert all(echoes(client, "still here") for client in clients)


def test_partitions_that_are_written_leave_room_for_links(
    run_name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Regression: a key that wrote to many partitions took all room, and the server refused all further links."""
    with (
        mounted(tmp_path_factory.mktemp("mounted"), "800m") as aeron_dir,
        separate_nodes(run_name, 1, archive=False) as (clients_node,),
        ExitStack() as ended,
    ):
        ended.callback(node.stop, aeron_dir, force=True, timeout=20)
        serving = ended.enter_context(
            node.ensure(aeron_dir, archive_dir=tmp_path / "archive", term_length="1m", ipc_term_length="1m")
        )
        server = MeasuredServer(serving, clients_node, tmp_path)
        ended.callback(server.close)
        with server.connect() as client:
            client.create_stream("wide", partitions=PARTITIONS)
            with client.writer("wide") as writer:
                for partition in range(PARTITIONS):
                    writer.write([b"row"], partition=partition)
                writer.commit()
            measured_at = time.monotonic() + MEASURE_INTERVAL_S  # after this time, with the logs of the partitions
            while time.monotonic() <= measured_at:
                time.sleep(MEASURE_INTERVAL_S / 4)
                with server.connect() as other:
                    assert other.bulk_link(TIMEOUT_S).is_open


def test_a_hostile_client_gets_no_log_of_longer_terms_than_its_server_allows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = world.free_address()
    world.server(address)
    client = world.connected(address, term_length=64 * MIB)  # an honest client takes shorter terms
    assert echoes(client, "short terms")
    assert client.bulk_link(TIMEOUT_S).is_open
    client.close()
    drops = read_drops(world.serving.aeron_dir)[TOO_LONG]
    monkeypatch.setattr(ChannelSettings, "for_link", lambda self, _: self)
    hostile = world.client(address, term_length=64 * MIB)
    with pytest.raises(WaitTimeout):
        hostile.connect(0.5)
    wait_for(lambda: read_drops(world.serving.aeron_dir)[TOO_LONG] > drops, TIMEOUT_S, "the hostile SETUP")
    longest = max(path.stat().st_size for path in Path(world.serving.aeron_dir).glob("images/*"))
    assert longest < 2 * LOG_BYTES
