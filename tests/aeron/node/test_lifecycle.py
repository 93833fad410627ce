"""Start, use and stop of a node with the real driver and archive."""

from __future__ import annotations

import os
import stat
import statistics
import time
from pathlib import Path

import psutil
import pytest

from aeron_spark import node
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.errors import OptionError, RefusedError, TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.state_files import read_state
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import free_ports
from tests.aeron.node.programs import python
from tests.aeron.streams import TIMEOUT_S, Stream, close_client


def wait_until_gone(aeron_dir: Path, seconds: float) -> float:
    """Wait until the node has ended, and return the seconds of the wait."""
    start = time.monotonic()
    while node.status(aeron_dir).state != "absent":
        assert time.monotonic() - start < seconds, node.status(aeron_dir)
        time.sleep(0.02)
    return time.monotonic() - start


def test_a_node_starts_serves_and_stops_when_unused(own: Path) -> None:
    with node.ensure(own, linger=1) as handle:
        assert not handle.foreign
        assert not handle.closed
        assert handle.aeron_dir == str(own)
        found = node.status(own)
        assert found.state == "running"
        assert found.pid == handle.pid
        assert found.aeron_version == "1.51.0"
        assert found.archive_id == handle.archive_id > 0
        assert (found.clients, found.recordings) == (0, 0)
        assert found.heartbeat_age is not None
        assert found.heartbeat_age < 10
        assert found.settings is not None
        assert found.settings.linger == 1
        time.sleep(2.5)  # longer than the time of its idle stop, which its user prevents
        assert node.status(own).state == "running"
    assert handle.closed
    assert 0.5 < wait_until_gone(own, 30) < 20  # less than the default time of the idle stop
    assert not own.exists()
    assert not psutil.pid_exists(handle.pid) or psutil.Process(handle.pid).status() == psutil.STATUS_ZOMBIE


def test_only_its_user_can_read_the_files_of_a_node(own: Path) -> None:
    with node.ensure(own) as handle:
        for folder in (own, Path(handle.archive_dir), node.local_node_paths(own).folder):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        assert stat.S_IMODE((own / "cnc.dat").stat().st_mode) == 0o600


def test_a_running_node_is_found_in_less_than_five_milliseconds(own: Path) -> None:
    times, work = [], []
    with node.ensure(own) as first:
        for _ in range(50):
            start, start_of_work = time.perf_counter(), time.thread_time()
            with node.ensure(own) as handle:
                times.append(time.perf_counter() - start)
                work.append(time.thread_time() - start_of_work)
                assert handle.pid == first.pid
    assert statistics.median(work) < 0.005
    assert min(times) < 0.005  # the minimum, because other programs of the machine may delay a call


def test_using_a_node_starts_no_jvm_in_the_caller(own: Path) -> None:
    code = """
import sys
from aeron_spark import node
with node.ensure(sys.argv[1]) as handle:
    node.status(sys.argv[1])
node.stop(sys.argv[1])
print("jpype" in sys.modules)
"""
    output, _ = python(code, str(own)).communicate(timeout=60)
    assert output == "False\n"


def test_concurrent_processes_share_one_node(own: Path) -> None:
    code = """
import sys
from aeron_spark import node
with node.ensure(sys.argv[1]) as handle:
    print(handle.pid, handle.archive_id, flush=True)
    sys.stdin.read()
"""
    racers = [python(code, str(own)) for _ in range(4)]
    try:
        lines = {racer.stdout.readline() for racer in racers if racer.stdout}
    finally:
        output = [racer.communicate(timeout=60)[0] for racer in racers]
    assert len(lines) == 1, (lines, output)
    assert [racer.returncode for racer in racers] == [0] * 4


def test_differing_settings_are_an_error_that_names_them(own: Path) -> None:
    with node.ensure(own, max_replays=20):
        with pytest.raises(OptionError, match=r"max_replays is 20, not 30.*aeron-spark node stop"):
            node.ensure(own, max_replays=30)
        with pytest.raises(OptionError, match=r"mtu is 1408, not 8192; threading is"):
            node.ensure(own, mtu="8k", threading="dedicated" if os.cpu_count() == 2 else "shared_network")
        with pytest.raises(OptionError, match="archive_dir is"):
            node.ensure(own, archive_dir=f"{own}-elsewhere")
        node.ensure(own, max_replays="20").close()
        node.ensure(own).close()


def test_a_node_in_use_is_not_stopped_unless_it_is_forced(own: Path) -> None:
    handle = node.ensure(own)
    with pytest.raises(RefusedError, match=r"in use after 0\.3 s: other processes hold it.*--force"):
        node.stop(own, timeout=0.3)
    assert node.status(own).runs
    assert node.stop(own, force=True)
    assert node.status(own).state == "absent"
    handle.close()
    assert not node.stop(own)


def test_an_unused_node_stops_immediately(own: Path) -> None:
    node.ensure(own).close()
    start = time.monotonic()
    assert node.stop(own)
    assert time.monotonic() - start < 20
    assert not own.exists()


def test_an_aeron_client_without_a_handle_keeps_the_node(own: Path) -> None:
    code = """
import sys
from aeron_spark.aeron.client import Client
client = Client(sys.argv[1])
client.subscription("aeron:ipc", 1001)
print("connected", flush=True)
sys.stdin.read()
client.close()
"""
    handle = node.ensure(own, linger=0.5)
    client = python(code, str(own))
    try:
        assert client.stdout
        assert client.stdout.readline() == "connected\n"
        handle.close()
        time.sleep(2.5)
        assert node.status(own).clients == 1
        with pytest.raises(RefusedError, match="1 Aeron clients and 0 recordings are active"):
            node.stop(own, timeout=0.5)
    finally:
        client.communicate(timeout=30)
    assert client.returncode == 0
    wait_until_gone(own, 30)


def test_an_active_recording_keeps_the_node(own: Path, node_of_256k: NodeHandle) -> None:
    """The publisher is connected to another driver, so only the recording keeps the node."""
    linger = 0.5
    handle = node.ensure(own, linger=linger)
    port, _ = free_ports()
    stream = Stream(handle, f"aeron:udp?endpoint=127.0.0.1:{port}").record()
    publication = BatchPublication(client_of(node_of_256k.aeron_dir), stream.channel, stream.id)
    try:
        wait_for(lambda: stream.archive.recordings(stream.id), TIMEOUT_S, "the recording")
        close_client(own)
        handle.close()
        closed_at = time.monotonic()
        recordings = {}  # by the time of the node's state, since only the recording keeps the node

        def is_kept() -> bool:
            assert node.status(own).state == "running"
            state = read_state(node.local_node_paths(own).state)
            if state is not None and state.checked > closed_at and not state.clients:
                recordings[state.checked] = state.recordings
            return sum(at > min(recordings) + linger for at in recordings) > 2  # a node that ends writes two states

        wait_for(is_kept, TIMEOUT_S, "states of the node after the time of its idle stop")
        assert set(recordings.values()) == {1}
        with node.ensure(own):
            stream.archive.stop_recording(stream.channel, stream.id)
            close_client(own)
        wait_until_gone(own, TIMEOUT_S)
    finally:
        publication.close()


def test_an_explicitly_started_node_does_not_stop_when_unused(own: Path) -> None:
    found = node.start(own, linger=0.2)
    assert found.stays
    time.sleep(2)
    assert node.status(own).runs
    assert node.stop(own)
    node.start(own, linger=0.2, stay=False)
    wait_until_gone(own, 30)


def test_an_archive_keeps_its_id(own: Path, tmp_path: Path) -> None:
    with node.ensure(own, archive_dir=tmp_path / "archive") as handle:
        first = handle.archive_id
    node.stop(own)
    with node.ensure(own, archive_dir=tmp_path / "archive") as handle:
        assert handle.archive_id == first
        assert handle.archive_dir == str(tmp_path / "archive")


def test_a_driver_without_an_archive(own: Path) -> None:
    with node.ensure(own, archive=False) as handle:
        assert handle.archive_dir == ""
        assert node.status(own).runs
        assert not node.local_node_paths(own).archive_dir.exists()


def test_a_property_of_aeron_reaches_the_driver(own: Path) -> None:
    with node.ensure(own, properties={"aeron.client.liveness.timeout": "7s"}) as handle:
        assert handle.settings is not None
        found = driver_liveness(own)
        assert found is not None
        liveness_ns = int.from_bytes((own / "cnc.dat").read_bytes()[24:32], "little")
        assert liveness_ns == 7_000_000_000


def test_an_unknown_property_of_aeron_is_refused(own: Path) -> None:
    with pytest.raises(OptionError, match=r"no property aeron\.client\.livenes\.timeout\. Did you mean aeron\.client"):
        node.ensure(own, properties={"aeron.client.livenes.timeout": "7s"})


def test_the_error_of_a_value_that_aeron_refuses_has_aerons_text(own: Path) -> None:
    with pytest.raises((OptionError, TransportError), match=r"(?i)mtu"):
        node.ensure(own, mtu=65504, properties={"aeron.socket.so_sndbuf": "4096"})


def test_a_forked_child_needs_its_own_handle(own: Path) -> None:
    handle = node.ensure(own)
    pid = os.fork()
    if pid == 0:
        own_handle = node.ensure(own)
        os._exit(0 if handle.closed and not own_handle.closed and own_handle.pid == handle.pid else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not handle.closed
    handle.close()
