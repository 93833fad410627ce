"""``read_input`` names a wrong input in its error and closes it."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.cli import inputs
from aeron_spark.cli.inputs import line_blocks, read_input
from aeron_spark.errors import DataFormatError


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
