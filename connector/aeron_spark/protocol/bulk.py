"""Derives the keys of a bulk link: a further link of an authenticated connection.

Client and server each send 32 random bytes, encrypted, over the connection. Both derive

    client's key || server's key = HKDF-SHA256(ikm = client's bytes || server's bytes, salt = none,
                                               info = "aeron-spark/1 branch" || the four ids, big-endian, 4 bytes each)

Thus a bulk link is as authentic as its connection, needs no separate handshake, and never shares a key.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from aeron_spark.errors import DataFormatError

RANDOM_BYTES: Final = 32
KEY_BYTES: Final = 32
LABEL: Final = b"aeron-spark/1 branch"
IDS: Final = struct.Struct(">iiii")  # session in, stream in, session out, stream out


class BulkFrameKind(IntEnum):
    """The first byte of a bulk link's frames, except the first frame, which is an OPEN as on every link."""

    DATA = 1
    ALIVE = 2
    CLOSE = 3


def bulk_link_keys(client_random: bytes, server_random: bytes, ids: tuple[int, int, int, int]) -> tuple[bytes, bytes]:
    """Return the key of the client's frames and the key of the server's frames, 32 bytes each.

    Raises DataFormatError unless both random values have 32 bytes.
    """
    for random_bytes in (client_random, server_random):
        if len(random_bytes) != RANDOM_BYTES:
            raise DataFormatError(
                f"{len(random_bytes)} random bytes for the keys of a bulk link, expected {RANDOM_BYTES}",
                remedy="Use the same release of aeron-spark at both ends.",
            )
    derived = HKDF(SHA256(), 2 * KEY_BYTES, None, LABEL + IDS.pack(*ids)).derive(client_random + server_random)
    return derived[:KEY_BYTES], derived[KEY_BYTES:]
