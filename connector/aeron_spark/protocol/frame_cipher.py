"""Encrypts and decrypts the frames of a link and of a bulk link.

All numbers are big-endian.

    offset width name      meaning
    0      1     kind      1 (encrypted)
    1      1     flags     0
    2      2     epoch     how often the key was replaced, modulo 65536
    4      4     reserved  0
    8      8     counter   0, 1, 2, ... in each direction, never the same twice under one key; the nonce
    16           ciphertext
    -16    16    tag       AES-256-GCM; the 16 bytes of the header are its associated data

One key encrypts at most 2^32 frames and 64 GiB of plaintext. Before the frame that would exceed a limit, both ends
replace the key by Noise's REKEY. Both ends count the same frames, so no message announces the change; the epoch in the
header exposes a difference between them. The receiver accepts only the next frame, unaltered. Any other frame raises
TamperedError, is counted, and changes no state.

Client and server each send 32 random bytes, encrypted, over the connection. Both derive

    client's key || server's key = HKDF-SHA256(ikm = client's bytes || server's bytes, salt = none,
                                               info = "aeron-spark/1 branch" || the four ids, big-endian, 4 bytes each)

Thus a bulk link is as authentic as its connection, needs no separate handshake, and never shares a key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from aeron_spark.errors import DataFormatError, TamperedError, TransportError
from aeron_spark.protocol.noise import MAX_NONCE, TAG_BYTES, derive_next_key

Buffer = bytes | bytearray | memoryview

ENCRYPTED: Final = 1
HEADER: Final = struct.Struct(
    ">"
    "B"  # kind
    "B"  # flags
    "H"  # epoch
    "I"  # reserved
    "Q"  # counter
)
HEADER_BYTES: Final = HEADER.size
OVERHEAD_BYTES: Final = HEADER_BYTES + TAG_BYTES

PARTS_PER_JOIN: Final = 128  # parts of a frame that one call of bytes.join joins

_NONCE_PREFIX: Final = bytes(4)  # before the 8 bytes of the counter


@dataclass(frozen=True, slots=True)
class CipherLimits:
    """How much one key may encrypt before it is replaced. Both ends must use equal limits."""

    frames: int = 2**32
    """NIST SP 800-38D allows 2^32 calls of GCM with one key with random nonces. Our nonces are counters."""
    plaintext_bytes: int = 64 << 30
    """Keeps an attacker's chance to tell ciphertext from random bytes below 2^-64 (compare RFC 8446, section 5.5)."""


class _Direction:
    """The key of one direction, and the number of frames and bytes that it has encrypted. Equal at both ends."""

    __slots__ = ("cipher", "counter", "epoch", "frames", "key", "limits", "plaintext_bytes")

    def __init__(self, key: bytes, limits: CipherLimits, counter: int) -> None:
        self.limits = limits
        self.counter = counter
        self.epoch = 0
        self._set_key(key)

    def _set_key(self, key: bytes) -> None:
        self.key = key
        self.cipher = AESGCM(key)
        self.frames = 0
        self.plaintext_bytes = 0

    def is_exhausted(self, length: int) -> bool:
        """Whether the key must be replaced before a frame with ``length`` bytes of plaintext."""
        return self.frames >= self.limits.frames or (
            self.frames > 0 and self.plaintext_bytes + length > self.limits.plaintext_bytes
        )

    def rekey(self) -> None:
        self._set_key(derive_next_key(self.key))
        self.epoch += 1

    def count(self, length: int) -> None:
        self.counter += 1
        self.frames += 1
        self.plaintext_bytes += length


class FrameEncryptor:
    """Encrypts the frames of one direction, numbered in the order of the calls. For one thread.

    The caller must offer each frame until Aeron accepts it, before the next one: the receiver rejects a gap.
    """

    def __init__(self, key: bytes, limits: CipherLimits | None = None, *, counter: int = 0) -> None:
        """Use a key of ``HandshakeState.split``. ``counter`` is the number of the first frame."""
        self._direction = _Direction(key, limits or CipherLimits(), counter)
        self._joined = bytearray()

    @property
    def counter(self) -> int:
        """The number of the next frame."""
        return self._direction.counter

    @property
    def epoch(self) -> int:
        """How often the key was replaced."""
        return self._direction.epoch

    def encrypt(self, head: Buffer, parts: Sequence[Buffer] = ()) -> memoryview:
        """Return the next frame, in new memory. Its plaintext is ``head`` followed by ``parts``.

        The parts are copied; the caller may change them afterwards. Raises TransportError, and changes no state, if all
        counters are used.
        """
        state = self._direction
        if state.counter >= MAX_NONCE:
            raise TransportError(
                f"the link has sent {MAX_NONCE} frames, which is the limit of its counter",
                remedy="Connect again. A new link has new keys and a counter that starts at 0.",
            )
        plaintext = self._join(head, parts) if parts else memoryview(head)
        length = plaintext.nbytes
        if state.is_exhausted(length):
            state.rekey()
        frame = memoryview(bytearray(OVERHEAD_BYTES + length))
        HEADER.pack_into(frame, 0, ENCRYPTED, 0, state.epoch & 0xFFFF, 0, state.counter)
        header = bytes(frame[:HEADER_BYTES])
        state.cipher.encrypt_into(_NONCE_PREFIX + header[8:], plaintext, header, frame[HEADER_BYTES:])
        state.count(length)
        return frame

    def _join(self, head: Buffer, parts: Sequence[Buffer]) -> memoryview:
        # one buffer for all frames: allocating one of this size would cost more than encrypting it
        buffers: list[Buffer] = [head, *parts]
        if len(buffers) > PARTS_PER_JOIN:  # copying many small parts one by one in Python is ten times slower
            buffers = [b"".join(buffers[i : i + PARTS_PER_JOIN]) for i in range(0, len(buffers), PARTS_PER_JOIN)]
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        length = sum(view.nbytes for view in views)
        if len(self._joined) < length:
            self._joined = bytearray(length)
        joined = memoryview(self._joined)
        end = 0
        for view in views:
            begin, end = end, end + view.nbytes
            joined[begin:end] = view
        return joined[:length]


class FrameDecryptor:
    """Decrypts the frames of one direction, in the order in which they were encrypted. For one thread."""

    def __init__(self, key: bytes, limits: CipherLimits | None = None, *, counter: int = 0) -> None:
        """Use a key of ``HandshakeState.split``. ``counter`` is the number of the first frame."""
        self._direction = _Direction(key, limits or CipherLimits(), counter)
        self.rejected = 0
        """Number of frames that were not decrypted."""

    @property
    def counter(self) -> int:
        """The number of the next frame that is accepted."""
        return self._direction.counter

    @property
    def epoch(self) -> int:
        """How often the key was replaced."""
        return self._direction.epoch

    def decrypt(self, frame: Buffer) -> memoryview:
        """Return the plaintext of the next frame, in new memory.

        Raises TamperedError for bytes that are not a frame, and for a frame that is altered, repeated, out of order or
        of another link. ``rejected`` counts them; the next frame is still accepted.
        """
        state = self._direction
        view = memoryview(frame).cast("B")
        length = view.nbytes - OVERHEAD_BYTES
        if length < 0:
            raise self._reject(f"it has {view.nbytes} bytes, expected at least {OVERHEAD_BYTES}")
        header = bytes(view[:HEADER_BYTES])
        kind, flags, epoch, reserved, counter = HEADER.unpack(header)
        if kind != ENCRYPTED or flags or reserved:
            raise self._reject(f"its header begins with {header[:8].hex()}")
        if counter != state.counter or counter >= MAX_NONCE:
            cause = "it was received before" if counter < state.counter else "frames before it are missing"
            raise self._reject(f"its counter is {counter}, expected {state.counter}: {cause}")
        exhausted = state.is_exhausted(length)
        expected_epoch = (state.epoch + exhausted) & 0xFFFF
        if epoch != expected_epoch:
            raise self._reject(f"it is encrypted with the key of epoch {epoch}, expected {expected_epoch}")
        # a forged frame must not replace the key: the new key is stored only after it has decrypted a frame
        cipher = AESGCM(derive_next_key(state.key)) if exhausted else state.cipher
        plaintext = bytearray(length)
        try:
            cipher.decrypt_into(_NONCE_PREFIX + header[8:], view[HEADER_BYTES:], header, plaintext)
        except InvalidTag:
            raise self._reject("its authentication failed") from None
        if exhausted:
            state.rekey()
        state.count(length)
        return memoryview(plaintext)

    def _reject(self, reason: str) -> TamperedError:
        self.rejected += 1
        return TamperedError(
            f"a frame of an encrypted link was rejected: {reason}",
            remedy="Messages were altered, repeated or forged in transit. The client reconnects by itself; check the"
            " network if this repeats.",
        )


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
