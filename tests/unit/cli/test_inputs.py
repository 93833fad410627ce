"""``read_input`` names a wrong input in its error and closes it."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.cli import inputs
from aeron_spark.cli.inputs import PlainReader, line_blocks, read_input
from aeron_spark.cli.rows import send_files
from aeron_spark.cli.signals import StopRequest
from aeron_spark.errors import TOO_LONG, DataFormatError, RefusedError
from tests.hostile_arrow import stream_of, texts


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "json"])
def test_an_error_names_standard_input_and_closes_it(form: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"" if form == "csv" else b"x\n")
    before = os.dup(0)
    file = os.open(wrong, os.O_RDONLY)
    os.dup2(file, 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            with pytest.raises(DataFormatError, match=r"^standard input is not"):
                list(read_input("-", form, None, lambda: False))
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(file)


def test_a_long_line_is_joined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 16)
    line, joins = b"x" * 1600 + b"\n", list[str]()
    (tmp_path / "long").write_bytes(b"a\nb\n" + line + b"c\nd")

    def count(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in ("join", "rpartition"):
            joins.append(called.__name__)

    with line_blocks(str(tmp_path / "long"), lambda: False) as blocks:
        sys.setprofile(count)
        try:
            found = list(blocks)
        finally:
            sys.setprofile(None)
    assert b"".join(found) == b"a\nb\n" + line + b"c\nd"
    assert all(block.endswith(b"\n") for block in found[:-1])
    assert len(joins) <= 3, "the first lines, the long line and the end"


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n", b"\n\n", b"a\nb", b"ab\n\ncdefgh\nij\n", b"abcdefgh" * 3])
def test_blocks_have_whole_lines(text: bytes, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BLOCK_BYTES", block)
    (tmp_path / "lines").write_bytes(text)
    with line_blocks(str(tmp_path / "lines"), lambda: False) as blocks:
        found = list(blocks)
    assert b"".join(found) == text
    assert all(one.endswith(b"\n") for one in found[:-1])
    assert all(found)


class Target:
    """Refuses a value of more than 10 bytes as a stream does: at the write, or for a server at the end of the file."""

    def __init__(self, *, late: bool) -> None:
        self.late = late
        self.longest = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.longest = max(self.longest, *(len(value) for value in rows.column("value").to_pylist()))
        if not self.late:
            self.check()

    def check(self) -> None:
        if self.longest > 10:
            raise RefusedError("a value is too long", remedy="Shorten it.", reason=TOO_LONG)

    def end_file(self) -> None:
        self.check()

    def finish(self) -> None:
        self.check()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("form", "content", "place"),
    [
        ("text", b"a\n\nb\n" + b"x" * 11 + b"\nc\n", "line 4"),
        ("json", b'{"value": "a"}\n\n{"value": "xxxxxxxxxxx"}\n', "line 3"),
        ("csv", b"value\na\nxxxxxxxxxxx\n", "row 2"),
    ],
)
@pytest.mark.parametrize("block", [4, 1 << 20])
def test_the_error_of_a_value_that_is_too_long_names_its_line(
    form: str, content: bytes, place: str, late: bool, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "BLOCK_BYTES", block)
    path = tmp_path / "given"
    path.write_bytes(content)
    (tmp_path / "other").write_bytes(b"value\nyyyyyyyyyy\n")
    files = [str(tmp_path / "other"), str(path)] if form == "csv" else [str(path)]
    with pytest.raises(RefusedError, match=f"^{place} of {path}: a value is too long. Shorten it."):
        send_files(files, form, PlainReader("raw"), Target(late=late), StopRequest(0.0))


def test_a_file_with_invalid_values_is_refused_before_they_are_read(tmp_path: Path) -> None:
    batch = pa.record_batch({"text": texts(0, 4, 0x7FFFFFF0, 12, 16)})
    (tmp_path / "stream.arrow").write_bytes(stream_of(batch))
    with pa.ipc.new_file(str(tmp_path / "file.arrow"), batch.schema) as file:
        file.write_batch(batch)
    for name in ("stream.arrow", "file.arrow"):
        with pytest.raises(DataFormatError, match=f"{name} is not a arrow file: .*offset"):
            list(read_input(str(tmp_path / name), "arrow", None, lambda: False))
