"""The golden vectors of docs/wire-format.md, created by an encoder that is independent of aeron_spark.wire.

``python -m tests.unit.wire.golden`` rewrites tests/golden/wire/vectors.json and those of the document. Use it only
to add vectors: the existing ones define version 1.
"""

from __future__ import annotations

import binascii
import json
import re
from typing import Any

from tests.programs import ROOT

VECTORS = ROOT / "tests" / "golden" / "wire" / "vectors.json"
DOCUMENT = ROOT / "docs" / "wire-format.md"
BEGIN, END = "<!-- vectors: begin -->\n", "<!-- vectors: end -->\n"

_DEFAULTS: dict[str, Any] = {
    "content": 1, "flags": 3, "rows": 1, "group_position": -1, "offset": 0, "published": 0, "batch": -1, "row": 0,
    "partition": -1, "writer": "",
}  # fmt: skip
_CHUNKS = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"

CASES: tuple[dict[str, Any], ...] = (
    {"name": "empty value", "total": 0, "payload": ""},
    {"name": "one byte", "total": 1, "payload": "41", "published": 1_700_000_000_123_456_789},
    {
        "name": "writer, batch, partition and row", "total": 5, "payload": b"hello".hex(), "writer": "query-7f3a2c",
        "published": 1_700_000_000_000_000_000, "batch": 7, "row": 41, "partition": 2,
    },
    {"name": "writer of exactly 8 bytes", "total": 3, "payload": "ff00ff", "writer": "8 bytes!"},
    {"name": "writer in UTF-8", "total": 2, "payload": "0000", "writer": "Wörter→流"},
    {"name": "first of three chunks", "flags": 1, "total": 32, "payload": _CHUNKS[:24], "writer": "w", "batch": 3},
    {
        "name": "second of three chunks", "flags": 0, "total": 32, "payload": _CHUNKS[24:48], "writer": "w", "batch": 3,
        "offset": 12, "group_position": 4096,
    },
    {
        "name": "last of three chunks", "flags": 2, "total": 32, "payload": _CHUNKS[48:], "writer": "w", "batch": 3,
        "offset": 24, "group_position": 4096,
    },
    {
        "name": "extreme numbers", "content": 2, "flags": 0, "rows": 2**32 - 1, "total": 2**64 - 1, "payload": "aa",
        "offset": 2**63, "group_position": 2**63 - 1, "published": -(2**63), "batch": 2**63 - 1, "row": 2**63 - 1,
        "partition": 2**31 - 1,
    },
)  # fmt: skip


def encode(case: dict[str, Any]) -> bytes:
    """Encode a message as the document specifies: field by field, with another implementation of the checksum."""
    case = {**_DEFAULTS, **case}
    writer = case["writer"].encode()

    def encode_number(value: int, width: int) -> bytes:
        return value.to_bytes(width, "little", signed=value < 0)

    head = b"AsF1" + bytes([1, case["content"], case["flags"], len(writer)])
    tail = b"".join(
        encode_number(case[name], width)
        for name, width in (
            ("rows", 4), ("group_position", 8), ("total", 8), ("offset", 8), ("published", 8), ("batch", 8),
            ("row", 8), ("partition", 4),
        )
    ) + bytes(4)  # fmt: skip
    tail += writer + bytes(-len(writer) % 8) + bytes.fromhex(case["payload"])
    return head + encode_number(binascii.crc32(head + tail), 4) + tail


def vectors() -> list[dict[str, Any]]:
    """Return each case with all its fields and its message in hexadecimal."""
    return [{**_DEFAULTS, **case, "message": encode(case).hex()} for case in CASES]


def table(found: list[dict[str, Any]]) -> str:
    """Return the document's list of vectors."""
    lines = []
    for vector in found:
        fields = [f"{name} {vector[name]}" for name in ("total", *_DEFAULTS) if vector[name] != _DEFAULTS.get(name)]
        lines += [f"**{vector['name']}**: {', '.join(fields)}", "", "```text"]
        lines += [" ".join(re.findall("..", line)) for line in re.findall(".{1,64}", vector["message"])]
        lines += ["```", ""]
    return "\n".join(lines)


SHOWN = ("one byte", "writer, batch, partition and row")  # on the page; the file has all


def document(text: str, found: list[dict[str, Any]]) -> str:
    """Return ``text`` with a new list of vectors."""
    before, _, remainder = text.partition(BEGIN)
    _, _, after = remainder.partition(END)
    return f"{before}{BEGIN}\n{table([vector for vector in found if vector['name'] in SHOWN])}\n{END}{after}"


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n")
    DOCUMENT.write_text(document(DOCUMENT.read_text(), vectors()))
