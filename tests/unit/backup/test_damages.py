"""``verify`` finds seeded damages of definitions, journals, catalog and segments, and nothing in a healthy store."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.backup.manifest import DAMAGE, WARNING, StoreFinding
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.streams.definition import finish_rename, read_definition, write_definition
from tests.unit.backup.fake_store import SEGMENT_BYTES, FakeStore

NAMES: Final = {"plain": "raw", "framed": "framed", "large": "framed"}
DAMAGES: Final = 200


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FakeStore:
    """A closed store of three streams with several partitions and segments."""
    store = FakeStore(tmp_path_factory.mktemp("healthy"))
    for name, content in NAMES.items():
        store.create(name, 2, content)
    for number in range(24):
        store.streams["plain"].commit({0: [bytes([number]) * 3_000] * 4, 1: [b"v" * number] * 8})
        store.streams["framed"].commit({number % 2: [b"x" * 1_000 for _ in range(20)]})
        store.streams["large"].commit({0: [bytes([number]) * 7_000] * 2})
    store.close()
    store.open(NAMES)
    store.streams["framed"].commit({0: [b"after a restart"], 1: [b"y"]})
    store.close()
    return store


def findings(store: FakeStore, *, is_quick: bool = False) -> list[StoreFinding]:
    return list(verify_store(store.streams_dir, store.archive_dir, Checked(), is_quick=is_quick))


def test_a_healthy_store_has_no_findings_and_all_its_bytes_are_read(healthy: FakeStore) -> None:
    checked = Checked()
    assert list(verify_store(healthy.streams_dir, healthy.archive_dir, checked)) == []
    assert (checked.streams, checked.partitions) == (3, 6)
    assert checked.bytes > 700_000


@pytest.fixture
def renamed(tmp_path: Path) -> FakeStore:
    """A closed store, whose stream "old" has got the definition of "new" in its former folder."""
    store = FakeStore(tmp_path)
    store.create("old").commit({0: [b"x"]})
    store.create("other")
    store.close()
    folder = store.streams_dir / "old"
    write_definition(folder, read_definition(folder).renamed("new"))
    return store


def test_a_rename_that_a_crash_interrupted_is_not_damage(renamed: FakeStore) -> None:
    (found,) = findings(renamed)
    assert (found.level, found.what) == (WARNING, "its rename to 'new' is not finished")
    (renamed.streams_dir / "new").mkdir()  # then a start cannot finish it
    assert DAMAGE in [one.level for one in findings(renamed) if one.stream == "old"]


def test_the_mark_of_a_renamed_stream_that_is_being_deleted_is_not_damage(renamed: FakeStore) -> None:
    finish_rename(renamed.streams_dir / "old")
    assert findings(renamed) == []
    (renamed.streams_dir / "new").rename(renamed.streams_dir / ".deleted-0123abcd-new")
    assert findings(renamed) == []
    shutil.rmtree(renamed.streams_dir / ".deleted-0123abcd-new")
    assert [one.stream for one in findings(renamed)] == ["old"]


class Vandal:
    """Damages a copy of a store in one way; ``what`` describes it for a failure."""

    def __init__(self, store: FakeStore, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = store
        self.what = ""
        segments = sorted(store.archive_dir.glob("*.rec"))
        definitions = sorted(store.streams_dir.glob("*/definition.json"))
        journals = sorted(store.streams_dir.glob("*/journal"))
        self.ways: dict[str, Callable[[], None]] = {
            "bit of a definition": lambda: self.flip(self.pick(definitions)),
            "bit of a journal": lambda: self.flip(self.pick(journals)),
            "bit of the catalog": self.flip_in_catalog,
            "bit of a header": lambda: self.flip_in_segment(header=True),
            "bit of a message": lambda: self.flip_in_segment(header=False),
            "cut of a definition": lambda: self.cut(self.pick(definitions)),
            "cut of a journal": lambda: self.cut(self.pick(journals)),
            "cut of the catalog": self.cut_catalog,
            "cut of a segment": self.cut_segment,
            "zeros in a segment": self.zero_segment,
            "swapped definitions": lambda: self.swap(definitions),
            "swapped journals": lambda: self.swap(journals),
            "swapped segments": lambda: self.swap(segments),
            "missing definition": lambda: self.pick(definitions).unlink(),
            "missing journal": lambda: self.pick(journals).unlink(),
            "missing segment": lambda: self.pick(segments).unlink(),
            "missing stream": lambda: shutil.rmtree(self.pick(journals).parent),
            "missing mark": lambda: self.pick(sorted(store.archive_dir.glob("*/*.json"))).unlink(),
        }

    def pick(self, paths: list[Path]) -> Path:
        path = self.random.choice(paths)
        self.what += f" {path.parent.name}/{path.name}"
        return path

    def flip(self, path: Path, at: int | None = None) -> None:
        data = bytearray(path.read_bytes())
        offset = self.random.randrange(len(data)) if at is None else at
        bit = self.random.randrange(8)
        data[offset] ^= 1 << bit
        self.what += f" byte {offset} bit {bit}"
        path.write_bytes(data)

    def flip_in_catalog(self) -> None:
        path = self.store.archive_dir / "archive.catalog"
        entry = self.random.choice(list(self.store.catalog.entries.values()))
        used = [*range(12), *range(32, len(entry.data))]  # the rest of an entry's header has no meaning
        self.flip(path, path.read_bytes().index(entry.data) + self.random.choice(used))

    def flip_in_segment(self, *, header: bool) -> None:
        """Flip a bit of a committed frame: of its header without the session and the reserved value, or of a chunk."""
        stream = self.random.choice(["framed", "large"] if not header else list(NAMES))
        frames = self.frames(stream)
        path, at, length = self.random.choice(frames)
        if header:
            # The five lowest bits of a raw frame's length change neither the next frame nor a checksum.
            offset = self.random.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23])
        else:
            offset = self.random.randrange(32, length)
        self.what += f" {stream} {path.name} frame at {at}"
        self.flip(path, at + offset)

    def frames(self, stream: str) -> list[tuple[Path, int, int]]:
        """Return file, offset and length of each committed data frame of a stream."""
        found = []
        for path, end in self.segments(stream):
            data = path.read_bytes()
            at = 0
            while at < end:
                length = int.from_bytes(data[at : at + 4], "little")
                if data[at + 6]:
                    found.append((path, at, length))
                at += -(-length // 32) * 32
        return found

    def segments(self, stream: str) -> list[tuple[Path, int]]:
        """Return the segments with committed bytes of a stream, each with the end of these bytes."""
        prefix = f"alias=aeron-spark:{stream}:"
        found = []
        for number, entry in self.store.catalog.entries.items():
            for base in range(0, entry.recording.stop_position or 0, SEGMENT_BYTES):
                if prefix in entry.recording.original_channel:
                    path = self.store.archive_dir / f"{number}-{base}.rec"
                    found.append((path, min(SEGMENT_BYTES, (entry.recording.stop_position or 0) - base)))
        return found

    def cut(self, path: Path) -> None:
        os.truncate(path, self.random.randrange(path.stat().st_size))

    def cut_catalog(self) -> None:
        path = self.store.archive_dir / "archive.catalog"
        last = max(self.store.catalog.entries.values(), key=lambda entry: entry.recording.id)
        os.truncate(path, self.random.randrange(path.read_bytes().index(last.data) + len(last.data)))

    def cut_segment(self) -> None:
        path, end = self.random.choice(self.segments(self.random.choice(list(NAMES))))
        self.what += f" {path.name}"
        os.truncate(path, self.random.randrange(end))

    def zero_segment(self) -> None:
        path, end = self.random.choice(self.segments("framed"))
        at = self.random.randrange(0, end - 4096) if end > 4096 else 0
        self.what += f" {path.name} at {at}"
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes(min(4096, end)))

    def swap(self, paths: list[Path]) -> None:
        one, other = self.random.sample(paths, 2)
        self.what += f" {one} {other}"
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)


@pytest.mark.slow
def test_each_of_200_damages_is_found(healthy: FakeStore, tmp_path: Path) -> None:
    missed = []
    for seed in range(DAMAGES):
        copy = FakeStore(tmp_path / "copy")
        shutil.copytree(healthy.folder, copy.folder)
        vandal = Vandal(copy, seed)
        way = list(vandal.ways)[seed % len(vandal.ways)]
        vandal.ways[way]()
        found = [one for one in findings(copy) if one.level == DAMAGE]
        if not found:
            missed.append(f"{seed}: {way}:{vandal.what}")
        shutil.rmtree(copy.folder)
    assert not missed, "\n".join(missed)
