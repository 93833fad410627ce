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
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.errors import OptionError, RefusedError, TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.node.state_files import driver_liveness, read_state
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, close_client
from tests.ports import free_ports
from tests.programs import start_python


def wait_until_ended(aeron_dir: Path, seconds: float) -> float:
    """Wait until the node has ended, and return the seconds of the wait."""
    start = time.monotonic()
    while node.status(aeron_dir).state != "absent":
        assert time.monotonic() - start < seconds, node.status(aeron_dir)
        time.sleep(0.02)
    return time.monotonic() - start


def test_a_node_starts_serves_and_stops_when_unused(own_dir: Path) -> None:
    with node.ensure(own_dir, linger=1) as handle:
        assert not handle.foreign
        assert not handle.closed
        assert handle.aeron_dir == str(own_dir)
        found = node.status(own_dir)
        assert found.state == "running"
        assert found.pid == handle.pid
        assert found.aeron_version == "1.51.0"
        assert found.archive_id == handle.archive_id > 0
        assert (found.clients, found.recordings) == (0, 0)
        assert found.heartbeat_age is not None
        assert found.heartbeat_age < 10
        assert found.settings.linger == 1
        time.sleep(2.5)  # longer than the time of its idle stop, which its user prevents
        assert node.status(own_dir).state == "running"
    assert handle.closed
    assert 0.5 < wait_until_ended(own_dir, 30) < 20  # less than the default time of the idle stop
    assert not own_dir.exists()
    assert not psutil.pid_exists(handle.pid) or psutil.Process(handle.pid).status() == psutil.STATUS_ZOMBIE


def test_only_its_user_can_read_the_files_of_a_node(own_dir: Path) -> None:
    with node.ensure(own_dir) as handle:
        for folder in (own_dir, Path(handle.archive_dir), node.local_node_paths(own_dir).folder):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        assert stat.S_IMODE((own_dir / "cnc.dat").stat().st_mode) == 0o600


def test_a_running_node_is_found_in_less_than_five_milliseconds(own_dir: Path) -> None:
    times, cpu_times = [], []
    with node.ensure(own_dir) as first:
        for _ in range(50):
            start, cpu_start = time.perf_counter(), time.thread_time()
            with node.ensure(own_dir) as handle:
                times.append(time.perf_counter() - start)
                cpu_times.append(time.thread_time() - cpu_start)
                assert handle.pid == first.pid
    assert statistics.median(cpu_times) < 0.005
    assert min(times) < 0.005  # the minimum, because other programs of the machine may delay a call


def test_using_a_node_starts_no_jvm_in_the_caller(own_dir: Path) -> None:
    code = """
import sys
from aeron_spark import node
with node.ensure(sys.argv[1]) as handle:
    node.status(sys.argv[1])
node.stop(sys.argv[1])
print("jpype" in sys.modules)
"""
    output, _ = start_python(code, str(own_dir)).communicate(timeout=60)
    assert output == "False\n"


def test_concurrent_processes_share_one_node(own_dir: Path) -> None:
    code = """
import sys
from aeron_spark import node
with node.ensure(sys.argv[1]) as handle:
    print(handle.pid, handle.archive_id, flush=True)
    sys.stdin.read()
"""
    processes = [start_python(code, str(own_dir)) for _ in range(4)]
    try:
        lines = {process.stdout.readline() for process in processes if process.stdout}
    finally:
        output = [process.communicate(timeout=60)[0] for process in processes]
    assert len(lines) == 1, (lines, output)
    assert [process.returncode for process in processes] == [0] * 4


def test_settings_that_differ_from_the_running_nodes_are_named_in_the_error(own_dir: Path) -> None:
    with node.ensure(own_dir, max_replays=20):
        with pytest.raises(OptionError, match=r"max_replays is 20, not 30.*aeron-spark node stop"):
            node.ensure(own_dir, max_replays=30)
        with pytest.raises(OptionError, match=r"mtu is 1408, not 8192; threading is"):
            node.ensure(own_dir, mtu="8k", threading="dedicated" if os.cpu_count() == 2 else "shared_network")
        with pytest.raises(OptionError, match="archive_dir is"):
            node.ensure(own_dir, archive_dir=f"{own_dir}-elsewhere")
        node.ensure(own_dir, max_replays="20").close()
        node.ensure(own_dir).close()


def test_settings_for_a_start_do_not_matter_to_a_running_node(own_dir: Path) -> None:
    with node.ensure(own_dir, at_start={"segment_length": "1MiB", "max_replays": 7}, max_replays=8) as started:
        assert (started.settings.segment_length, started.settings.max_replays) == (1 << 20, 8)
        with node.ensure(own_dir, at_start={"segment_length": "2MiB"}) as joined:
            assert joined.settings == started.settings


def test_a_node_in_use_is_not_stopped_unless_it_is_forced(own_dir: Path) -> None:
    handle = node.ensure(own_dir)
    with pytest.raises(RefusedError, match=r"in use after 0\.3 s: other processes hold it.*--force"):
        node.stop(own_dir, timeout=0.3)
    assert node.status(own_dir).runs
    assert node.stop(own_dir, force=True)
    assert node.status(own_dir).state == "absent"
    handle.close()
    assert not node.stop(own_dir)


def test_an_unused_node_stops_immediately(own_dir: Path) -> None:
    node.ensure(own_dir).close()
    start = time.monotonic()
    assert node.stop(own_dir)
    assert time.monotonic() - start < 20
    assert not own_dir.exists()


def test_an_aeron_client_without_a_handle_prevents_the_stop_of_the_node(own_dir: Path) -> None:
    code = """
import sys
from aeron_spark.aeron.client import AeronClient
client = AeronClient(sys.argv[1])
client.subscription("aeron:ipc", 1001)
print("connected", flush=True)
sys.stdin.read()
client.close()
"""
    handle = node.ensure(own_dir, linger=0.5)
    client = start_python(code, str(own_dir))
    try:
        assert client.stdout.readline() == "connected\n"
        handle.close()
        time.sleep(2.5)
        assert node.status(own_dir).clients == 1
        with pytest.raises(RefusedError, match="1 Aeron clients and 0 recordings are active"):
            node.stop(own_dir, timeout=0.5)
    finally:
        client.communicate(timeout=30)
    assert client.returncode == 0
    wait_until_ended(own_dir, 30)


def test_an_active_recording_prevents_the_idle_stop(own_dir: Path, node_of_256k: NodeHandle) -> None:
    """The publisher is connected to another driver, so only the recording prevents the idle stop."""
    linger = 0.5
    handle = node.ensure(own_dir, linger=linger)
    port, _ = free_ports()
    stream = Stream(handle, f"aeron:udp?endpoint=127.0.0.1:{port}").record()
    publication = BatchPublication(client_of(node_of_256k.aeron_dir), stream.channel, stream.id)
    try:
        wait_for(lambda: stream.archive.recordings(stream.id), TIMEOUT_S, "the recording")
        close_client(own_dir)
        handle.close()
        closed_at = time.monotonic()
        recordings = {}  # number by the time of the state, since only the recording prevents the idle stop

        def is_kept_by_recording() -> bool:
            assert node.status(own_dir).state == "running"
            state = read_state(node.local_node_paths(own_dir).state)
            if state is not None and state.checked > closed_at and not state.clients:
                recordings[state.checked] = state.recordings
            return (
                sum(at > min(recordings) + linger for at in recordings) > 2
            )  # a node that ends writes only two more states

        wait_for(is_kept_by_recording, TIMEOUT_S, "states of the node after the time of its idle stop")
        assert set(recordings.values()) == {1}
        with node.ensure(own_dir):
            stream.archive.stop_recording(stream.channel, stream.id)
            close_client(own_dir)
        wait_until_ended(own_dir, TIMEOUT_S)
    finally:
        publication.close()


def test_an_explicitly_started_node_does_not_stop_when_unused(own_dir: Path) -> None:
    found = node.start(own_dir, linger=0.2)
    assert found.stays
    time.sleep(2)
    assert node.status(own_dir).runs
    assert node.stop(own_dir)
    node.start(own_dir, linger=0.2, stay=False)
    wait_until_ended(own_dir, 30)


def test_an_archive_keeps_its_id(own_dir: Path, tmp_path: Path) -> None:
    with node.ensure(own_dir, archive_dir=tmp_path / "archive") as handle:
        first = handle.archive_id
    node.stop(own_dir)
    with node.ensure(own_dir, archive_dir=tmp_path / "archive") as handle:
        assert handle.archive_id == first
        assert handle.archive_dir == str(tmp_path / "archive")


def test_a_node_can_run_without_an_archive(own_dir: Path) -> None:
    with node.ensure(own_dir, archive=False) as handle:
        assert handle.archive_dir == ""
        assert node.status(own_dir).runs
        assert not node.local_node_paths(own_dir).archive_dir.exists()


def test_a_property_of_aeron_reaches_the_driver(own_dir: Path) -> None:
    with node.ensure(own_dir, properties={"aeron.client.liveness.timeout": "7s"}) as handle:
        assert handle.settings is not None
        found = driver_liveness(own_dir)
        assert found is not None
        liveness_ns = int.from_bytes((own_dir / "cnc.dat").read_bytes()[24:32], "little")
        assert liveness_ns == 7_000_000_000


def test_an_unknown_property_of_aeron_is_refused(own_dir: Path) -> None:
    with pytest.raises(OptionError, match=r"no property aeron\.client\.livenes\.timeout\. Did you mean aeron\.client"):
        node.ensure(own_dir, properties={"aeron.client.livenes.timeout": "7s"})


def test_the_error_of_a_value_that_aeron_refuses_contains_aerons_message(own_dir: Path) -> None:
    with pytest.raises((OptionError, TransportError), match=r"(?i)mtu"):
        node.ensure(own_dir, mtu=65504, properties={"aeron.socket.so_sndbuf": "4096"})


def test_a_forked_process_needs_a_new_handle(own_dir: Path) -> None:
    handle = node.ensure(own_dir)
    pid = os.fork()
    if pid == 0:
        new_handle = node.ensure(own_dir)
        os._exit(0 if handle.closed and not new_handle.closed and new_handle.pid == handle.pid else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not handle.closed
    handle.close()
