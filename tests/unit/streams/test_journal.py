"""Tests of the journal file: every appended record survives; an incomplete end is removed; damage is an error."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark import files
from aeron_spark.errors import DataFormatError, DataLossError, TransportError, UsageError
from aeron_spark.streams import journal
from aeron_spark.streams.journal import FILE_HEAD, RECORD_END, Journal, encode_entry, read_entries
from tests.programs import python_environ

# A file with the records b"abc" and b"", byte for byte.
LITERAL = bytes.fromhex(
    "4173464a 01000000 03000000 f270f133 c2412435 616263 a55aa55a 00000000 1cdf4421 00000000 a55aa55a"
)
PAYLOADS = [b"first", b"", bytes(40), b"\xff" * 7, b"\xa5\x5a\xa5\x5a", b"the last one\0\0\0\0\0"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def whole() -> bytes:
    return FILE_HEAD + b"".join(map(encode_entry, PAYLOADS))


def ends() -> list[int]:
    """Return the offset of the end of the head, and of each record of ``whole()``."""
    found = [len(FILE_HEAD)]
    for payload in PAYLOADS:
        found.append(found[-1] + len(encode_entry(payload)))
    return found


def opened(path: Path) -> list[bytes]:
    made, payloads = Journal.open(path)
    made.close()
    return payloads


def test_the_bytes_of_a_journal_are_as_documented(path: Path) -> None:
    made = Journal.create(path)
    made.append(b"abc")
    made.append(b"")
    assert (path.read_bytes(), made.size) == (LITERAL, len(LITERAL))
    made.close()
    assert opened(path) == [b"abc", b""]
    assert path.stat().st_mode & 0o777 == 0o600


def test_appended_records_are_read_by_the_next_opening(path: Path) -> None:
    made = Journal.create(path, PAYLOADS[:2])
    for payload in PAYLOADS[2:4]:
        made.append(payload)
    made.close()
    again, payloads = Journal.open(path)
    assert (payloads, again.torn_bytes, again.broken) == (PAYLOADS[:4], 0, "")
    for payload in PAYLOADS[4:]:
        again.append(payload)
    again.close()
    assert opened(path) == PAYLOADS


def test_each_record_is_one_write_and_one_fsync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Journal.create(path)
    calls: list[str] = []
    pwrite, fsync = os.pwrite, os.fsync
    monkeypatch.setattr(os, "pwrite", lambda *given: (calls.append("write"), pwrite(*given))[1])
    monkeypatch.setattr(os, "fsync", lambda *given: (calls.append("sync"), fsync(*given))[1])
    made.append(b"one")
    assert calls == ["write", "sync"]
    calls.clear()
    made.rewrite([b"one"])
    assert calls == ["write", "sync", "sync"]  # the file, then its name
    made.close()


@pytest.mark.slow
def test_the_system_call_of_fsync_precedes_the_return_of_append(path: Path, tmp_path: Path) -> None:
    """With the real system calls, if the machine has strace."""
    strace = "/usr/bin/strace"
    if not os.access(strace, os.X_OK):
        pytest.skip("no strace on this machine")
    log = tmp_path / "calls"
    program = (
        "from pathlib import Path; from aeron_spark.streams.journal import Journal\n"
        f"made = Journal.create(Path({str(path)!r})); made.append(b'x' * 99); print('done', flush=True)"
    )
    done = subprocess.run(
        [strace, "-f", "-e", "trace=pwrite64,fsync,write", "-o", log, sys.executable, "-c", program],
        env=python_environ(),
        capture_output=True,
        timeout=120,
    )
    if done.returncode and b"ptrace" in done.stderr.lower():
        pytest.skip("this machine does not permit strace")
    lines = [line for line in log.read_text().splitlines() if "pwrite64" in line or "fsync" in line or "done" in line]
    names = [line.split("(")[0].split()[-1] for line in lines]
    assert names[-3:] == ["pwrite64", "fsync", "write"]


def test_a_journal_truncated_at_any_length_has_its_complete_records(path: Path) -> None:
    data = whole()
    assert read_entries(data, path) == (PAYLOADS, len(data))
    for length in range(len(data)):
        path.write_bytes(data[:length])
        if length < len(FILE_HEAD):
            with pytest.raises(DataFormatError, match="is not a journal"):
                Journal.open(path)
            assert path.read_bytes() == data[:length]
            continue
        kept = [end for end in ends() if end <= length]
        made, payloads = Journal.open(path)
        assert payloads == PAYLOADS[: len(kept) - 1]
        assert (made.size, made.torn_bytes) == (kept[-1], length - kept[-1])
        made.append(b"after")
        made.close()
        assert opened(path) == [*payloads, b"after"]


def test_zeros_after_the_last_record_are_removed(path: Path) -> None:
    data = whole()
    for length in range(len(FILE_HEAD), len(data) + 1):
        kept = [end for end in ends() if end <= length]
        for zeros in (1, 3, 4, 5, 12, 100, 4096):
            path.write_bytes(data[:length] + bytes(zeros))
            assert opened(path) == PAYLOADS[: len(kept) - 1]
            assert path.stat().st_size == kept[-1]


def test_every_flipped_bit_is_detected_and_the_file_stays_unchanged(path: Path) -> None:
    data = whole()
    assert read_entries(data, path)[0] == PAYLOADS
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DataLossError, DataFormatError)) as raised:
            read_entries(bytes(changed), path)
        assert str(path) in raised.value.what
        if bit >= 8 * len(FILE_HEAD):
            begin = max(end for end in ends() if end <= bit // 8)
            assert isinstance(raised.value, DataLossError)
            assert f"the record at byte {begin} of" in raised.value.what
    changed = bytearray(data)
    changed[ends()[1]] ^= 4
    path.write_bytes(changed)
    with pytest.raises(DataLossError, match="damaged"):
        Journal.open(path)
    assert path.read_bytes() == bytes(changed)


def test_damage_before_an_incomplete_record_is_detected(path: Path) -> None:
    """A changed length in the middle must not make the following records count as one incomplete record."""
    data = whole()
    for bit in range(8 * len(FILE_HEAD), 8 * ends()[-2]):
        for tail in (data[:-3], data[:-3] + bytes(50)):
            changed = bytearray(tail)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DataLossError):
                read_entries(bytes(changed), path)


@given(st.lists(st.binary(max_size=60), max_size=8), st.data())
def test_any_journal_truncated_anywhere_has_its_complete_records(payloads: list[bytes], data: st.DataObject) -> None:
    written = FILE_HEAD + b"".join(map(encode_entry, payloads))
    cut = data.draw(st.integers(len(FILE_HEAD), len(written)))
    found, end = read_entries(written[:cut] + bytes(data.draw(st.integers(0, 40))), Path("x"))
    assert found == payloads[: len(found)]
    assert end <= cut
    rest = written[end:cut]
    assert len(found) == len(payloads) or len(rest) < len(encode_entry(payloads[len(found)]))


def test_a_missing_journal_is_a_data_loss(path: Path) -> None:
    with pytest.raises(DataLossError, match="is missing"):
        Journal.open(path)
    made = Journal.create(path)
    made.close()
    with pytest.raises(UsageError, match="exists"):
        Journal.create(path)
    with pytest.raises(UsageError, match="is closed"):
        made.append(b"x")
    made.close()


def test_a_journal_of_another_version_is_refused(path: Path) -> None:
    path.write_bytes(FILE_HEAD[:4] + b"\x02\0\0\0" + encode_entry(b"x"))
    with pytest.raises(DataFormatError, match="not a journal of version 1"):
        Journal.open(path)


def test_a_rewrite_replaces_all_records_atomically(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Journal.create(path, PAYLOADS)
    made.rewrite([b"snapshot"])
    made.append(b"after")
    assert opened(path) == [b"snapshot", b"after"]
    # After a kill before the rename, the draft exists and the old journal counts.
    path.with_name("journal.new").write_bytes(FILE_HEAD + encode_entry(b"half")[:5])
    assert opened(path) == [b"snapshot", b"after"]
    assert not path.with_name("journal.new").exists()
    made.append(b"still")
    made.close()
    assert opened(path) == [b"snapshot", b"after", b"still"]


def test_a_rewrite_is_worth_it_after_the_file_has_doubled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MIN_REWRITE_BYTES", 100)
    made = Journal.create(path, [b"x" * 200])
    grown = 0
    while not made.is_worth_rewriting:
        made.append(b"y" * 30)
        grown += 1
    assert grown == 5
    made.rewrite([b"z"])
    assert not made.is_worth_rewriting
    made.close()


def test_a_record_that_is_too_long_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_PAYLOAD_BYTES", 10)
    made = Journal.create(path)
    with pytest.raises(UsageError, match="11 bytes is too long"):
        made.append(bytes(11))
    made.append(bytes(10))
    made.close()


def test_a_folder_that_cannot_be_written_is_an_error(path: Path) -> None:
    with pytest.raises(TransportError, match="cannot be written"):
        Journal.create(path / "missing" / "journal")
    path.mkdir()
    with pytest.raises(TransportError, match="cannot be read"):
        Journal.open(path)
    assert RECORD_END[-1]
    assert files.write_failed(path, OSError(errno.EMFILE, "Too many open files")).remedy.startswith("Raise")
