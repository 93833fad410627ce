"""Tests of the journal on a full or failing disk, and with killed processes: each record is complete or absent."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.errors import TransportError, UsageError
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.journal import FILE_HEAD, Journal, JournaledLedger, encode_entry
from aeron_spark.streams.journal_records import RunStarted
from tests.programs import Program, python_environ
from tests.unit.backup.fake_store import FakeStore

PAYLOADS = [b"first", b"", bytes(40), b"the last one"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def opened(path: Path) -> list[bytes]:
    made, payloads = Journal.open(path)
    made.close()
    return payloads


def failing(call: Callable[..., int], number: int, after: int, times: int = 1) -> Callable[..., int]:
    """Return ``call`` that fails ``times`` times with the error ``number``, from call ``after`` on, counted from 0."""
    count = iter(range(10**6))

    def made(*given: object) -> int:
        if after <= next(count) < after + times:
            raise OSError(number, os.strerror(number))
        return call(*given)

    return made


def test_a_full_disk_leaves_no_incomplete_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Journal.create(path, [b"before"])
    pwrite = os.pwrite
    calls = iter([lambda fd, data, at: pwrite(fd, data[:5], at), failing(pwrite, errno.ENOSPC, 0)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *given: next(calls)(*given))
        with pytest.raises(TransportError, match="No space left") as raised:
            made.append(b"does not fit")
    assert "Free some space" in raised.value.remedy
    assert (made.broken, path.read_bytes()) == ("", FILE_HEAD + encode_entry(b"before"))
    made.append(b"now it does")
    made.close()
    assert opened(path) == [b"before", b"now it does"]


def test_an_fsync_without_space_removes_the_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Journal.create(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.ENOSPC, 0))
        with pytest.raises(TransportError):
            made.append(b"x")
    assert (made.broken, opened(path)) == ("", [])
    made.close()


@pytest.mark.parametrize("times", [1, 2])
def test_a_failed_fsync_breaks_the_journal_until_it_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    made = Journal.create(path, [b"before"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.EIO, 0, times))
        with pytest.raises(TransportError, match="Input/output error"):
            made.append(b"x")
    assert "Input/output error" in made.broken
    for again in (lambda: made.append(b"y"), lambda: made.rewrite([])):
        with pytest.raises(UsageError, match="its bytes on the disk are unknown"):
            again()
    made.close()
    assert opened(path) == [b"before"]


def test_an_interrupt_before_the_fsync_removes_the_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Journal.create(path)

    calls = iter(range(9))

    def interrupt(_: int) -> None:
        if not next(calls):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.append(b"x")
    assert opened(path) == []
    made.append(b"y")
    made.close()
    assert opened(path) == [b"y"]


@pytest.mark.parametrize("after", [0, 1])
def test_a_failed_rewrite_leaves_the_old_records_or_a_broken_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    made = Journal.create(path, PAYLOADS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.ENOSPC, after))
        with pytest.raises(TransportError):
            made.rewrite([b"snapshot"])
    assert not path.with_name("journal.new").exists()
    # After a failed fsync of the rename, no further record is safe in either file.
    assert bool(made.broken) == (after == 1)
    if not after:
        made.append(b"goes on")
    made.close()
    assert opened(path) == ([*PAYLOADS, b"goes on"] if not after else [b"snapshot"])


def test_a_full_device_that_cannot_be_truncated_breaks_the_journal(path: Path) -> None:
    """On /dev/full the write fails, and so does removing its bytes."""
    made = Journal(path, os.open("/dev/full", os.O_RDWR), len(FILE_HEAD))
    with pytest.raises(TransportError, match="No space left"):
        made.append(b"x")
    assert "and then" in made.broken
    made.close()


CHILD = """
import resource, sys
from pathlib import Path
from aeron_spark.errors import TransportError
from aeron_spark.streams.journal import Journal
made, found = Journal.open(Path(sys.argv[1]))
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
number = len(found)
try:
    while True:
        made.append(b"record %06d" % number + b"." * (number % 50))
        number += 1
        print(number, flush=True)
except TransportError as error:
    assert error.remedy.startswith("Free some space"), error
    assert not made.broken, made.broken
    print("full", flush=True)
"""


def child(*given: object) -> list[str]:
    return [sys.executable, "-c", CHILD, *map(str, given)]


def environment() -> dict[str, str]:
    return python_environ()


@pytest.mark.parametrize("limit", range(4096, 4096 + 40, 7))
def test_a_file_at_its_size_limit_ends_with_a_complete_record(path: Path, limit: int) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    Journal.create(path).close()
    done = subprocess.run(child(path, limit), env=environment(), capture_output=True, text=True, timeout=60, check=True)
    *numbers, last = done.stdout.split()
    assert last == "full"
    made, payloads = Journal.open(path)
    assert (len(payloads), made.torn_bytes) == (int(numbers[-1]), 0)
    made.append(b"room again")
    made.close()


@pytest.mark.slow
def test_a_full_file_system_leaves_complete_records(tmp_path: Path) -> None:
    """On a file system of 64 KiB, if this machine permits mounting one."""
    script = (
        'mount -t tmpfs -o size=64k none "$1" && "$2" -c "from pathlib import Path; import sys\n'
        "from aeron_spark.streams.journal import Journal\n"
        'Journal.create(Path(sys.argv[1])).close()" "$1/journal" && "$2" -c "$3" "$1/journal" | tail -2'
        ' && cp "$1/journal" "$4"'
    )
    kept = tmp_path / "kept"
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", script, "sh", tmp_path / "disk", sys.executable, CHILD, kept],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr) and os.environ.get("CI") != "true":
        pytest.skip(f"this machine permits no mount: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    number, last = done.stdout.split()
    assert last == "full"
    made, payloads = Journal.open(kept)
    assert (len(payloads), made.torn_bytes) == (int(number), 0)
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_journal_killed_at_any_moment_has_every_acknowledged_record(path: Path, seed: int) -> None:
    Journal.create(path).close()
    acknowledged = 0
    for _ in range(2):
        with Program(child(path), env=environment(), stdout=subprocess.PIPE, text=True) as process:
            for _ in range(20 + 13 * seed):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split()[:-1])])
        payloads = opened(path)
        assert len(payloads) >= acknowledged
        assert payloads == [b"record %06d" % number + b"." * (number % 50) for number in range(len(payloads))]


def test_a_program_replaces_its_run_on_a_full_disk_and_the_record_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeStore(tmp_path)
    stream = store.create("a")
    stream.commit({0: [b"first"]})
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(os.pwrite, errno.ENOSPC, 0, times=10))
        for run in ("second", "third"):
            stream.journal.write_run(RunStarted("w", run, 1))
            assert stream.ledger.writers["w"].run == run
        with pytest.raises(TransportError, match="No space left"):
            stream.journal.write(RunStarted("other", "run", 1))
    stream.journal.write(RunStarted("other", "run", 1))
    stream.journal.close()
    mark = ArchiveMark(str(store.archive_dir), stream.definition)
    again = JournaledLedger(store.streams_dir / "a", 1, store.opening(), mark)
    assert (again.ledger.writers["w"].run, again.ledger.writers["other"].run) == ("third", "run")
    again.close()


def test_a_run_is_not_replaced_on_a_failing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStore(tmp_path).create("a")
    stream.commit({0: [b"first"]})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.EIO, 0))
        with pytest.raises(TransportError):
            stream.journal.write_run(RunStarted("w", "second", 1))
    assert stream.ledger.writers["w"].run == "run"
    stream.journal.close()
