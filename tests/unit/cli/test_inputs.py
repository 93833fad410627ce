"""``read_input`` names a wrong input in its error and closes it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from aeron_spark.cli.inputs import read_input
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
