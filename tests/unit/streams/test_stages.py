"""Tests of stages: complete or removed, limited in size, found after a restart, removed on a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, TransportError, UsageError
from aeron_spark.streams import stages as content_checks
from aeron_spark.streams import stages as stages_module
from aeron_spark.streams.stage_files import StageItems, StageSpace
from aeron_spark.streams.stages import FILE_BYTES, Stage, Stages, by_partition
from aeron_spark.wire.chunks import Content, Header
from aeron_spark.wire.staged_items import StagedGroup, StagedValues, encode_group_item, encode_values_item
from aeron_spark.wire.stream_requests import StagedPart
from tests.hostile_arrow import HOSTILE, stream_of
from tests.programs import python_environ
from tests.stream_requests import stage_request

VALUES = [b"one", b"", b"three"]


def items_of(*values: bytes) -> bytes:
    return b"".join(part.to_pybytes() for part in encode_values_item(pa.array(values, pa.binary())))


DATA = items_of(*VALUES) + b"".join(
    part.to_pybytes() for part in encode_group_item(Header(Content.BYTES, 0), b"p" * 50)
)
REF_OF_DATA = (4, len(DATA), zlib.crc32(DATA))


@pytest.fixture
def space() -> StageSpace:
    return StageSpace(lambda: 1 << 20)


@pytest.fixture
def stages(tmp_path: Path, space: StageSpace) -> Stages:
    return Stages(tmp_path / "stages", space, now=0.0)


def opened(
    stages: Stages, transaction: int = 0, partition: int = 0, task: int = 0, *, schema: bytes | None = None,
    **given: Any,
) -> Stage:  # fmt: skip
    request = stage_request("writer", "run", transaction, partition, task, "raw", schema)
    return stages.open(request, partition, **{"now": 0.0, **given})


def staged(stages: Stages, *given: Any) -> Stage:
    stage = opened(stages, *given)
    stage.append(DATA, 0.0)
    stage.finish()
    return stage


def files(stages: Stages) -> list[str]:
    return sorted(path.name for path in stages.folder.iterdir())


def read(stage: Stage) -> list[Any]:
    with stage.items() as items:
        return [
            item.values.to_pylist() if isinstance(item, StagedValues) else (item.rows, item.payload.to_pybytes())
            for item in items
        ]


def test_staged_items_are_read_unchanged(stages: Stages) -> None:
    stage = opened(stages, schema=b"schema")
    assert files(stages) == [f"{stage.id}.part"]
    for at in range(0, len(DATA), 7):  # parts that end within items
        stage.append(memoryview(DATA)[at : at + 7], 0.0)
    ref = stage.finish()
    assert ref == StagedPart(stage.id, *REF_OF_DATA)
    assert stage.finish() == ref
    assert files(stages) == [f"{stage.id}.stage"]
    assert read(stage) == [VALUES, (1, b"p" * 50)]
    assert (stage.description.schema, stage.description.content) == (b"schema", "raw")
    assert stages.take(ref, 5.0) is stage
    assert stage.path.stat().st_mode & 0o777 == 0o600


def test_an_empty_stage_is_finished(stages: Stages) -> None:
    stage = opened(stages)
    assert stage.finish() == StagedPart(stage.id, 0, 0, 0)
    assert read(stage) == []


def test_views_outlive_the_map_and_the_file(stages: Stages) -> None:
    stage = staged(stages)
    items = stage.items()
    _, group = items
    assert isinstance(group, StagedGroup)
    items.release_memory()
    items.close()
    items.release_memory()
    stage.discard()
    del items
    assert group.payload.to_pybytes() == b"p" * 50


def test_ids_are_random_and_long(stages: Stages) -> None:
    ids = {opened(stages).id for _ in range(20)}
    assert len(ids) == 20
    assert all(len(one) == 32 for one in ids)


def test_an_unfinished_stage_cannot_be_read_or_committed(stages: Stages) -> None:
    stage = opened(stages)
    stage.append(DATA, 0.0)
    for early in (stage.items, lambda: stage.ref, lambda: stages.take(StagedPart(stage.id, *REF_OF_DATA), 0.0)):
        with pytest.raises(UsageError, match="is not finished"):
            early()
    stage.finish()
    with pytest.raises(UsageError, match="accepts no more rows"):
        stage.append(b"x", 0.0)


def test_a_discarded_stage_is_removed(stages: Stages, space: StageSpace) -> None:
    for stage in (opened(stages), staged(stages)):
        stage.discard()
        stage.discard()
        with pytest.raises(UsageError):
            stage.append(b"x", 0.0)
        with pytest.raises(RefusedError, match=r"unknown stage '[0-9a-f]+': it expired"):
            stages.get(stage.id)
    gone = opened(stages)
    gone.discard()
    with pytest.raises(UsageError, match="was removed"):
        gone.finish()
    assert (files(stages), space.reserved, len(stages)) == ([], 0, 0)


@pytest.mark.parametrize("change", [{"rows": 9}, {"bytes": 1}, {"crc": 0}])
def test_a_commit_with_another_count_or_checksum_is_refused(stages: Stages, change: dict[str, int]) -> None:
    ref = staged(stages).ref
    stages.take(ref, 0.0)
    with pytest.raises(DataFormatError, match="the commit names"):
        stages.take(replace(ref, **change), 0.0)


def test_incomplete_items_are_refused_when_the_stage_is_finished(stages: Stages, space: StageSpace) -> None:
    for length in range(1, len(DATA)):
        if length == len(items_of(*VALUES)):
            continue
        stage = opened(stages)
        stage.append(DATA[:length], 0.0)
        with pytest.raises(DataFormatError, match="begins at byte"):
            stage.finish()
    assert (files(stages), space.reserved) == ([], 0)


def test_a_value_that_is_too_long_for_a_message_is_refused_before_the_commit(tmp_path: Path) -> None:
    stages = Stages(tmp_path / "s", StageSpace(lambda: 0), now=0.0, max_value_bytes=5)
    staged(stages)
    stage = opened(stages)
    stage.append(items_of(b"123456"), 0.0)
    with pytest.raises(DataFormatError, match=r"a value of 6 bytes is too long .* limit 5 bytes"):
        stage.finish()


def test_the_space_for_stages_is_limited(tmp_path: Path) -> None:
    space = StageSpace(lambda: 2 * FILE_BYTES + 1000)
    one, two = Stages(tmp_path / "a", space, now=0.0), Stages(tmp_path / "b", space, now=0.0)
    first, second = opened(one), opened(two)
    second.append(bytes(400), 0.0)
    with pytest.raises(RefusedError, match="space for rows that are not committed is full") as raised:
        opened(one)
    assert "raise the server's stage limit" in raised.value.remedy
    with pytest.raises(RefusedError):
        first.append(bytes(400), 0.0)
    assert files(one) == []
    second.append(bytes(400), 0.0)
    second.discard()
    assert space.reserved == 0


def test_abandoned_stages_expire_and_release_their_space(stages: Stages, space: StageSpace) -> None:
    abandoned, growing, whole = opened(stages), opened(stages), staged(stages)
    growing.append(DATA, 3000.0)
    stages.take(whole.ref, 3000.0)
    assert stages.expire(3600.0) == [abandoned.id]
    assert stages.expire(6599.0) == []
    assert sorted(stages.expire(6600.0)) == sorted([growing.id, whole.id])
    assert (files(stages), space.reserved) == ([], 0)


def test_stages_are_found_by_writer_and_transaction(stages: Stages) -> None:
    first, second = opened(stages, 0), opened(stages, 1)
    other = stages.open(stage_request("other", "run", 0, 0, 0, "raw"), 0, now=0.0)
    assert stages.of("writer") == [first, second]
    assert stages.of("writer", 1) == [second]
    assert stages.of("other") == [other]


def test_the_stages_of_a_commit_are_ordered_by_partition_and_task(stages: Stages) -> None:
    made = [staged(stages, 0, partition, task) for partition, task in ((1, 2), (0, 10), (1, 0), (0, 9), (1, 2))]
    found = by_partition(made)
    assert list(found) == [0, 1]
    assert found == {0: [made[3], made[1]], 1: [made[2], made[0], made[4]]}


def test_finished_stages_are_found_after_a_restart(tmp_path: Path, space: StageSpace) -> None:
    folder = tmp_path / "stages"
    before = Stages(folder, space, now=0.0)
    whole, half = staged(before, 4, 2, 3), opened(before)
    half.append(DATA, 0.0)
    ref, taken = whole.ref, space.reserved
    (folder / "not.a.stage").write_bytes(b"x")
    before.close()
    assert space.reserved == 0
    after = Stages(folder, space, now=50.0)
    assert files(after) == [f"{whole.id}.stage"]
    found = after.take(ref, 60.0)
    assert (found.description, found.ref, read(found)) == (whole.description, ref, read(found))
    assert 0 < space.reserved < taken
    with pytest.raises(DataFormatError, match="the commit names"):
        after.take(replace(ref, crc=ref.crc ^ 1), 60.0)
    assert after.expire(3659.0) == []
    assert after.expire(3660.0) == [whole.id]
    assert space.reserved == 0


def test_a_file_with_the_name_of_another_stage_is_removed(stages: Stages) -> None:
    stage = staged(stages)
    stage.path.rename(stage.path.with_stem("0" * 32))
    stages.close()
    assert len(Stages(stages.folder, StageSpace(lambda: 0), now=0.0)) == 0
    assert files(stages) == []


def test_a_stage_that_changed_on_the_disk_is_refused_after_a_restart(stages: Stages, tmp_path: Path) -> None:
    stage = staged(stages)
    data, ref, path = stage.path.read_bytes(), stage.ref, stage.path
    stages.close()
    for bit in range(0, 8 * len(data), 3):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        again = Stages(stages.folder, StageSpace(lambda: 0), now=0.0)
        zeros = stage.begin - 1 - len(bytes(data[: stage.begin]).rstrip(b"\0"))
        if stage.begin - 1 - zeros <= bit // 8 < stage.begin:
            continue  # padding before the items
        with pytest.raises((RefusedError, DataFormatError)):
            again.take(ref, 0.0)
    path.write_bytes(data)
    assert read(Stages(stages.folder, StageSpace(lambda: 0), now=0.0).take(ref, 0.0)) == [VALUES, (1, b"p" * 50)]


def test_a_stage_that_was_truncated_on_the_disk_is_never_committed(stages: Stages) -> None:
    stage = staged(stages)
    data, ref, path = stage.path.read_bytes(), stage.ref, stage.path
    stages.close()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises((RefusedError, DataFormatError)):
            Stages(stages.folder, StageSpace(lambda: 0), now=0.0).take(ref, 0.0)


def test_a_full_disk_fails_the_stage_and_removes_it(
    stages: Stages, space: StageSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = opened(stages)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(TransportError, match="No space left") as raised:
            stage.append(DATA, 0.0)
        with pytest.raises(TransportError, match="No space left"):
            opened(stages)
    assert raised.value.remedy.startswith("Free some space")
    stage = opened(stages)
    stage.append(DATA, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(TransportError):
            stage.finish()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(TransportError):
            opened(stages)
    assert (files(stages), space.reserved, len(stages)) == ([], 0, 0)


CHILD = """
import resource, sys
from pathlib import Path
from aeron_spark.errors import TransportError
from aeron_spark.streams.stage_files import StageSpace
from aeron_spark.streams.stages import Stages
from aeron_spark.wire.stream_requests import OpenStage, Transaction
request = OpenStage("s", Transaction("w", "r", 0), 0, 0, "raw", b"", 0, 0)
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
space = StageSpace(lambda: 0)
stages = Stages(folder, space, now=0.0)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
kept = stages.open(request, 0, now=0.0)
kept.finish()
stage = stages.open(request, 0, now=0.0)
count = 0
try:
    while True:
        stage.append(b"x" * 1000, 0.0)
        count += 1
except TransportError as error:
    assert error.remedy.startswith("Free some space"), error
assert [path.name for path in folder.iterdir()] == [kept.path.name]
assert len(stages) == 1 and space.reserved < 5000, space.reserved
again = stages.open(request, 0, now=0.0)
again.append(b"x" * 1000, 0.0)
print(count)
"""


def run(command: list[Any]) -> subprocess.CompletedProcess[str]:
    environment = python_environ()
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_stage_at_the_size_limit_of_files_is_removed(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", CHILD, tmp_path / "stages", "20000"])
    assert (done.returncode, done.stdout) == (0, "19\n"), done.stderr


def test_a_full_file_system_fails_the_stage(tmp_path: Path) -> None:
    """On a file system of 64 KiB, if this machine permits mounting one."""
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1/stages" 0'
    done = run(["unshare", "-rm", "sh", "-ec", script, "sh", tmp_path / "disk", sys.executable, CHILD])
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr) and os.environ.get("CI") != "true":
        pytest.skip(f"this machine permits no mount: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert 40 < int(done.stdout) < 66


def test_fsync_is_called_only_with_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda *given: (calls.append("sync"), fsync(*given))[1])
    monkeypatch.setattr(Path, "rename", lambda *given: (calls.append("rename"), rename(*given))[1])
    staged(Stages(tmp_path / "synced", StageSpace(lambda: 0), now=0.0, sync=True))
    assert calls == ["sync", "rename", "sync"]
    staged(Stages(tmp_path / "not", StageSpace(lambda: 0), now=0.0))
    assert calls == ["sync", "rename", "sync", "rename"]


def test_a_stage_may_expire_during_a_write(tmp_path: Path) -> None:
    """No byte is written to a closed file, and all space is released, in any order of the two threads."""
    space = StageSpace(lambda: 0)
    stages = Stages(tmp_path / "stages", space, now=0.0)

    def write(stage: Stage) -> None:
        with suppress(AeronSparkError):
            for _ in range(50):
                stage.append(DATA, 0.0)

    for _ in range(20):
        stage = opened(stages)
        writing = threading.Thread(target=write, args=(stage,))
        writing.start()
        stages.expire(1e9)
        writing.join()
        stage.discard()
    assert (files(stages), space.reserved) == ([], 0)


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TransportError, match="cannot be written"):
        Stages(tmp_path / "file", StageSpace(lambda: 0), now=0.0)
    stages = Stages(tmp_path / "stages", StageSpace(lambda: 0), now=0.0)
    stage = staged(stages)
    stage.path.unlink()
    with pytest.raises(TransportError, match="cannot be read"):
        stage.items()


TEXT = pa.schema([("text", pa.string())])


def arrow_items(payload: bytes, rows: int = 4) -> bytes:
    return b"".join(
        part.to_pybytes() for part in encode_group_item(Header(Content.ARROW, 0, rows=rows, writer="w"), payload)
    )


def arrow_stage(stages: Stages) -> Stage:
    return stages.open(stage_request("writer", "run", 7, 0, 3, "arrow", TEXT.serialize().to_pybytes()), 0, now=0.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arrow_rows_are_refused_when_the_stage_is_finished(
    stages: Stages, space: StageSpace, name: str
) -> None:
    good, (hostile, why) = stream_of(pa.record_batch({"text": ["a", "b"]})), HOSTILE[name]
    stage = arrow_stage(stages)
    stage.append(arrow_items(good, 2) + arrow_items(hostile), 0.0)
    with pytest.raises(DataFormatError, match=f"rows 2 to 5 of task 3 of transaction 7 of writer 'writer' .*{why}"):
        stage.finish()
    assert files(stages) == []
    assert space.reserved == 0


def test_a_finished_stage_of_an_earlier_release_is_checked_before_its_commit(
    stages: Stages, tmp_path: Path, space: StageSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier_release:
        earlier_release.setattr(stages_module, "check_content", lambda *given: None)
        stage = arrow_stage(stages)
        stage.append(arrow_items(HOSTILE["offset"][0]), 0.0)
        ref = stage.finish()
    stages.close()
    restarted = Stages(tmp_path / "stages", space, now=0.0)
    with pytest.raises(DataFormatError, match="rows 0 to 3 of task 3 of transaction 7 of writer 'writer' are refused"):
        restarted.take(ref, 0.0)


def test_rows_of_another_content_than_the_stage_announces_are_refused(stages: Stages) -> None:
    stage = arrow_stage(stages)
    stage.append(items_of(b"value"), 0.0)
    with pytest.raises(DataFormatError, match="they are values, and the stage is arrow"):
        stage.finish()
    raw = opened(stages)
    raw.append(arrow_items(stream_of(pa.record_batch({"text": ["a"]})), 1), 0.0)
    with pytest.raises(DataFormatError, match="they are arrow, and the stage is raw"):
        raw.finish()


def test_the_memory_of_checked_rows_is_released(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    released = []
    monkeypatch.setattr(StageItems, "release_memory", lambda items: released.append(items))
    monkeypatch.setattr(content_checks, "RELEASE_BYTES", 1000)
    stage = arrow_stage(stages)
    stage.append(arrow_items(stream_of(pa.record_batch({"text": ["a" * 400]})), 1) * 4, 0.0)
    assert stage.finish().rows == 4
    assert len(released) == 2


def test_a_growing_stage_is_checked_item_by_item(
    stages: Stages, space: StageSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages_module, "CHECK_BYTES", 1000)
    checked: list[int] = []
    check_item = content_checks._check_item
    monkeypatch.setattr(content_checks, "_check_item", lambda item, *more: (check_item(item, *more), checked.append(1)))
    good = arrow_items(stream_of(pa.record_batch({"text": ["a" * 700]})), 1)
    stage = arrow_stage(stages)
    stage.append(good + good[:-8], 0.0)
    assert len(checked) == 1
    stage.append(good[-8:], 0.0)
    assert len(checked) == 1
    stage.append(good, 0.0)
    assert len(checked) == 3
    with pytest.raises(DataFormatError, match="rows 3 to 6 of task 3"):
        stage.append(arrow_items(HOSTILE["offset"][0]) + good, 0.0)
    assert files(stages) == []
    assert space.reserved == 0
    whole = arrow_stage(stages)
    whole.append(good * 2, 0.0)
    whole.append(good[:100], 0.0)
    whole.append(good[100:], 0.0)
    assert whole.finish().rows == 3
    assert len(checked) == 6
