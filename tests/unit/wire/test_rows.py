"""The array of a repeated value."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from aeron_spark.wire.values import repeated


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, pa.int32()),
        (-(2**31), pa.int32()),
        (2**63 - 1, pa.int64()),
        (-1, pa.int64()),
        ("", pa.string()),
        ("aeron:udp?endpoint=größe:1", pa.string()),
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_repeated_value_equals_the_array_of_pyarrow(value: int | str, kind: pa.DataType, rows: int) -> None:
    array = repeated(value, kind, rows)
    array.validate(full=True)
    assert array.equals(pa.array([value] * rows, kind))


def test_a_repeated_value_does_not_import_pandas() -> None:
    program = (
        "import sys, pyarrow as pa; from aeron_spark.wire.values import repeated;"
        "repeated('x', pa.string(), 3); repeated(1, pa.int64(), 3); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
