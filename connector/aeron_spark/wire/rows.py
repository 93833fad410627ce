"""Messages as Arrow arrays: what crosses from a recording to its readers, with no object per message."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages in the order of their positions: ``values`` binary, ``positions`` and ``reserved`` int64, none null."""

    values: pa.Array[Any]
    positions: pa.Array[Any]
    reserved: pa.Array[Any]

    def __len__(self) -> int:
        return len(self.values)


def repeated(value: int | str, kind: pa.DataType, rows: int) -> pa.Array[Any]:
    """Return an array of ``rows`` times the same ``value``, of an integer type or string.

    ``pa.scalar`` would import pandas where that is installed, which costs a fresh worker a fifth of a second.
    """
    one: pa.Array[Any]
    if isinstance(value, str):
        data = value.encode()
        offsets = bytes(4) + len(data).to_bytes(4, sys.byteorder)
        one = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    else:
        data = value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
        one = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])
    many: pa.Array[Any] = pa.repeat(one[0], rows)  # type: ignore[call-overload]  # the stubs know no scalar of any type
    return many
