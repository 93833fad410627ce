"""The keys of a branch: a further duologue of a connection that is authenticated already.

Both sides draw 32 random bytes and tell each other over the connection itself, sealed. From them

    client's key || server's key = HKDF-SHA256(ikm = client's part || server's part, salt = none,
                                               info = "aeron-spark/1 branch" || the four ids, big-endian, 4 bytes each)

so that a branch is as authentic as its connection, needs no handshake of its own, and never shares a key.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from aeron_spark.errors import DataFormatError

PART_BYTES: Final = 32
KEY_BYTES: Final = 32
LABEL: Final = b"aeron-spark/1 branch"
IDS: Final = struct.Struct(">iiii")  # session in, stream in, session out, stream out


class BulkFrameKind(IntEnum):
    """The first byte of a branch's frames, behind the first one, which is an OPEN as in every duologue."""

    DATA = 1
    ALIVE = 2
    CLOSE = 3


def bulk_link_keys(client_part: bytes, server_part: bytes, ids: tuple[int, int, int, int]) -> tuple[bytes, bytes]:
    """Return the keys of the client's frames and of the server's, 32 bytes each.

    Raises DataFormatError for parts that are not 32 bytes long.
    """
    for part in (client_part, server_part):
        if len(part) != PART_BYTES:
            raise DataFormatError(
                f"{len(part)} random bytes came for the keys of a branch, and there must be {PART_BYTES}",
                remedy="Use the same release of aeron-spark at both ends",
            )
    derived = HKDF(SHA256(), 2 * KEY_BYTES, None, LABEL + IDS.pack(*ids)).derive(client_part + server_part)
    return derived[:KEY_BYTES], derived[KEY_BYTES:]
