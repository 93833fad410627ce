"""On unsuitable machines and directories a command fails with a clear error and exit code, and loses no data."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import jpype
import pytest

from aeron_spark import node
from aeron_spark.aeron.jvm import jclass
from tests.cli.conftest import BytesResult, pipe, run, run_program
from tests.nodes import remove_node
from tests.waiting import poll_until

MIB = 1 << 20

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away or mount a file system")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A function that mounts a file system of some MiB in memory."""
    with ExitStack() as mounted:

        def mount(mib: int) -> Path:
            place = tmp_path / f"small-{mib}"
            place.mkdir()
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode and os.environ.get("CI") != "true":
                pytest.skip(f"root may not mount here: {done.stderr.strip()}")
            assert done.returncode == 0, done.stderr
            mounted.callback(unmount, place)
            return place

        yield mount


def unmount(place: Path) -> None:
    """Unmount a file system. A process that has just ended may use it for a moment, and so may this process's JVM.

    The JVM unmaps a file when it collects garbage. A command in a separate process would have ended already.
    """

    def is_unmounted() -> bool:
        if jpype.isJVMStarted():
            jclass("java.lang.System").gc()
        return subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode == 0

    poll_until(is_unmounted, 60.0, f"all users of {place} to end", state=lambda: str(users(place)))


def users(place: Path) -> list[str]:
    """Return the processes that have mapped a file below ``place``, with the file."""
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found += [f"{maps.parent.name} {line}" for line in maps.read_text().splitlines() if str(place) in line]
    return found


def to(aeron_dir: Path, stream_id: int = 1001, *more: str) -> list[str]:
    return ["--channel", "aeron:ipc", "--stream-id", str(stream_id), "--aeron-dir", str(aeron_dir), *more]


def send(given: bytes, aeron_dir: Path, stream_id: int = 1001, *more: str) -> BytesResult:
    return pipe(given, "send", *to(aeron_dir, stream_id, "--record", "--ack", "archive", *more))


def received(aeron_dir: Path, stream_id: int = 1001) -> list[bytes]:
    done = pipe(b"", "receive", *to(aeron_dir, stream_id))
    assert done.code == 0, done.err
    return done.out.splitlines()


# JPype also searches the folders in which Linux distributions install Java, and a test cannot empty them.
NO_JAVA = """
import jpype._jvmfinder as finder
def nowhere(self):
    raise finder.JVMNotFoundException("none")
finder.JVMFinder.get_jvm_path = nowhere
"""


def test_without_java_each_command_that_needs_it_fails_with_a_clear_error(own_dir: Path, tmp_path: Path) -> None:
    empty, site = tmp_path / "empty", tmp_path / "site"
    empty.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_JAVA)
    connector = Path(__file__).resolve().parents[2] / "connector"
    environ = {
        "JAVA_HOME": str(empty),
        "PATH": str(empty),
        "PYTHONPATH": os.pathsep.join([str(site), str(connector)]),
        "AERON_SPARK_AERON_DIR": str(own_dir),
    }
    sentence = "Aeron needs Java 17 or newer, and no Java was found. Install one"
    for arguments in (["receive", *to(own_dir)], ["streams", "list"], ["node", "start"]):
        done = run_program(*arguments, **environ)
        assert (done.code, done.out) == (1, ""), arguments
        assert done.err.startswith(f"aeron-spark: {sentence}"), arguments
        assert done.err.count("\n") == 1, arguments
    assert run_program("doctor", **environ).code == 1
    assert node.status(own_dir).state == "absent"


def test_the_error_for_a_missing_archive_names_its_channel(own_dir: Path) -> None:
    with node.ensure(own_dir), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        assert send(b"kept\n", own_dir).code == 0
        silent.bind(("127.0.0.1", 0))
        archive = f"aeron:udp?endpoint=localhost:{silent.getsockname()[1]}"
        more = ["--archive", archive, "--option", "connectTimeout=1s"]
        for done in (pipe(b"", "receive", *to(own_dir, 1001, *more)), send(b"x\n", own_dir, 1001, *more)):
            assert (done.code, done.out) == (1, b"")
            assert f"no archive answered at {archive} stream 10 within 1 s. Start the archive" in done.err
        assert received(own_dir) == [b"kept"]


def test_a_control_stream_id_of_the_archive_is_refused_and_the_archive_still_works(own_dir: Path) -> None:
    with node.ensure(own_dir):
        assert send(b"kept\n", own_dir).code == 0
        for stream_id in (10, 20):
            done = send(b"x\n", own_dir, stream_id)
            assert done.code == 2
            assert f"stream {stream_id} of aeron:ipc is a control stream of an Aeron Archive" in done.err
        assert received(own_dir) == [b"kept"]


def test_a_file_or_a_directory_with_other_files_is_refused_and_stays_unchanged(own_dir: Path, tmp_path: Path) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    for place, message in ((file, f"{file} is not a directory"), (full, "such as thesis.tex")):
        done = run("node", "start", "--aeron-dir", str(place))
        assert (done.code, done.out) == (1, "")
        assert message in done.err
    assert file.read_text() == "mine"
    assert [path.name for path in full.iterdir()] == ["thesis.tex"]


@needs_root
def test_a_directory_that_cannot_be_written_is_refused(own_dir: Path, small: Callable[[int], Path]) -> None:
    # permissions do not limit root, so the test uses a read-only file system
    place = small(300)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    done = run("node", "start", "--aeron-dir", str(place / "aeron"))
    assert (done.code, done.out) == (1, "")
    assert f"{place / 'aeron'} cannot be written: {place} does not allow it. Name another directory" in done.err
    with node.ensure(own_dir):
        refused = run("node", "start", "--aeron-dir", f"{own_dir}-2", "--archive-dir", str(place / "archive"))
        assert refused.code == 1
        assert f"{place / 'archive'} cannot be created (Read-only file system)" in refused.err
        assert send(b"kept\n", own_dir).code == 0
        assert received(own_dir) == [b"kept"]
    remove_node(f"{own_dir}-2")


@needs_root
def test_too_small_shared_memory_is_an_error_before_the_driver_maps_files(small: Callable[[int], Path]) -> None:
    place = small(48) / "aeron"
    done = run("node", "start", "--aeron-dir", str(place))
    assert (done.code, done.out) == (1, "")
    assert f"the media driver's directory {place} has 48 MiB free, and 240 MiB are needed. Enlarge it" in done.err
    assert not place.exists()


@needs_root
def test_when_shared_memory_is_full_new_streams_are_refused_and_existing_ones_stay(
    small: Callable[[int], Path],
) -> None:
    place = small(80) / "aeron"
    settings = {"term_length": "1m", "ipc_term_length": "1m"}
    try:
        with node.ensure(place, **settings):
            assert send(b"kept\n", place).code == 0
            filler = place.parent / "filler"
            with filler.open("wb") as file:
                free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
                file.write(bytes(free - MIB))
            done = send(b"x\n", place, 1002)
            assert (done.code, done.out) == (1, b""), done.err
            assert "nsufficient usable storage" in done.err
            filler.unlink()
            assert send(b"again\n", place, 1002).code == 0
            assert (received(place), received(place, 1002)) == ([b"kept"], [b"again"])
    finally:
        remove_node(place)


@needs_root
def test_when_the_disk_is_full_the_writer_fails_and_the_acknowledged_rows_stay(
    own_dir: Path, small: Callable[[int], Path]
) -> None:
    archive_dir = small(24) / "archive"
    settings = {"segment_length": "1m", "term_length": "256k", "ipc_term_length": "256k"}
    with node.ensure(own_dir, archive_dir=archive_dir, **settings) as handle:
        acknowledged: list[bytes] = []
        while True:  # 3 MB with an acknowledgement each time, until the disk is full
            lines = [b"%09d" % (len(acknowledged) + index) + b"x" * 1_000 for index in range(3_000)]
            done = send(b"\n".join(lines), own_dir)
            if done.code:
                break
            acknowledged += lines
            assert len(acknowledged) < 40_000, "24 MiB are never full"
        assert done.code == 1
        assert "o space left on device" in done.err or "low storage" in done.err, done.err
        assert "its disk may be full" in done.err or "Free space on the archive's disk" in done.err
        found = received(own_dir)
        assert found[: len(acknowledged)] == acknowledged
        # the archive still runs: it records again when the disk has space, and its recordings are unchanged
        ids = [one["recording"] for one in purge_streams(own_dir)]
        assert ids
        assert send(b"after\n", own_dir).code == 0
        assert received(own_dir)[-1] == b"after"
        assert node.status(own_dir).pid == handle.pid
    node.stop(own_dir, force=True, timeout=30)


def purge_streams(aeron_dir: Path) -> list[dict[str, object]]:
    done = pipe(b"", "streams", "purge", *to(aeron_dir, 1001, "--keep", "1m", "--yes", "--json"))
    assert done.code == 0, done.err
    return done.lines
