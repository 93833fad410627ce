"""The frames of a duologue: sealed one way by ``FrameEncryptor``, opened at the other end by ``FrameDecryptor``.

All numbers are big-endian.

    offset width name      meaning
    0      1     kind      1 sealed
    1      1     flags     0
    2      2     epoch     how often the key was changed, modulo 65536
    4      4     reserved  0
    8      8     counter   0, 1, 2, ... in each direction, never the same twice under one key; the nonce
    16           ciphertext
    -16    16    tag       AES-256-GCM; the 16 bytes of the header are its associated data

The key changes by Noise's REKEY before the frame that would be the 2^32 + 1st under it, or would take the plaintext
under it beyond 64 GiB. Both sides count alike, so that nothing need be said; the epoch only makes a difference loud.
A frame is opened if it is the next one and unchanged. Anything else raises, is counted, and changes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from aeron_spark.errors import TamperedError, TransportError
from aeron_spark.protocol.noise import MAX_NONCE, TAG_BYTES, rekeyed

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

TOGETHER: Final = 128  # parts of a frame that are put together in one step

_NONCE_PREFIX: Final = bytes(4)  # the nonce is these and the header's last 8 bytes


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """How much one key may seal before it is changed. Both sides must have the same."""

    frames: int = 2**32
    """NIST SP 800-38D allows 2^32 calls of GCM with one key where nonces are not counted; ours are."""
    plaintext_bytes: int = 64 << 30
    """Keeps the chance of telling the ciphertext from noise below 2^-64 (section 5.1.1 of RFC 8446 for its like)."""


class _Direction:
    """The key of one direction and what it has sealed, counted alike at both ends."""

    __slots__ = ("cipher", "counter", "epoch", "frames", "key", "limits", "plaintext_bytes")

    def __init__(self, key: bytes, limits: KeyLimits, counter: int) -> None:
        self.limits = limits
        self.counter = counter
        self.epoch = 0
        self._use(key)

    def _use(self, key: bytes) -> None:
        self.key = key
        self.cipher = AESGCM(key)
        self.frames = 0
        self.plaintext_bytes = 0

    def is_spent(self, length: int) -> bool:
        """Whether the key must be changed before a frame with ``length`` bytes of plaintext."""
        return self.frames >= self.limits.frames or (
            self.frames > 0 and self.plaintext_bytes + length > self.limits.plaintext_bytes
        )

    def next_key(self) -> None:
        self._use(rekeyed(self.key))
        self.epoch += 1

    def count(self, length: int) -> None:
        self.counter += 1
        self.frames += 1
        self.plaintext_bytes += length


class FrameEncryptor:
    """What this side sends, sealed in the order of the calls. For one thread.

    A sealed frame must be offered until it is taken, and before the next: the other side opens them without a gap.
    """

    def __init__(self, key: bytes, limits: KeyLimits | None = None, *, counter: int = 0) -> None:
        """Seal with a key of ``HandshakeState.split``, from the frame ``counter`` on."""
        self._direction = _Direction(key, limits or KeyLimits(), counter)
        self._joined = bytearray()

    @property
    def counter(self) -> int:
        """The number of the next frame."""
        return self._direction.counter

    @property
    def epoch(self) -> int:
        """How often the key was changed."""
        return self._direction.epoch

    def seal(self, head: Buffer, parts: Sequence[Buffer] = ()) -> memoryview:
        """Give the next frame, with ``head`` and ``parts`` one after another as its plaintext, in memory of its own.

        The parts are copied once, to lie together, and are free afterwards. Raises TransportError when there is no
        counter left, and then nothing has changed.
        """
        state = self._direction
        if state.counter >= MAX_NONCE:
            raise TransportError(
                "a connection has sent as many frames as its counter can count",
                remedy="Connect again: that makes new keys, and a counter that begins at 0",
            )
        plaintext = self._join(head, parts) if parts else memoryview(head)
        length = plaintext.nbytes
        if state.is_spent(length):
            state.next_key()
        frame = memoryview(bytearray(OVERHEAD_BYTES + length))
        HEADER.pack_into(frame, 0, ENCRYPTED, 0, state.epoch & 0xFFFF, 0, state.counter)
        header = bytes(frame[:HEADER_BYTES])
        state.cipher.encrypt_into(_NONCE_PREFIX + header[8:], plaintext, header, frame[HEADER_BYTES:])
        state.count(length)
        return frame

    def _join(self, head: Buffer, parts: Sequence[Buffer]) -> memoryview:
        # one buffer, used again and again: a new one of this size would cost more than sealing it
        pieces: list[Buffer] = [head, *parts]
        if len(pieces) > TOGETHER:  # and a step of Python for each of many small ones would cost ten times that
            pieces = [b"".join(pieces[at : at + TOGETHER]) for at in range(0, len(pieces), TOGETHER)]
        views = [memoryview(piece).cast("B") for piece in pieces]
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
    """What the other side sends, opened in the order it was sealed. For one thread."""

    def __init__(self, key: bytes, limits: KeyLimits | None = None, *, counter: int = 0) -> None:
        """Open with a key of ``HandshakeState.split``, from the frame ``counter`` on."""
        self._direction = _Direction(key, limits or KeyLimits(), counter)
        self.refused = 0
        """How many frames were not opened."""

    @property
    def counter(self) -> int:
        """The number of the frame that may come next."""
        return self._direction.counter

    @property
    def epoch(self) -> int:
        """How often the key was changed."""
        return self._direction.epoch

    def open(self, frame: Buffer) -> memoryview:
        """Give the plaintext of the next frame, in memory of its own.

        Raises TamperedError for a frame that is changed, repeated, out of order, of another connection or none at all;
        it is then counted in ``refused``, and the frame that should have come may still come.
        """
        state = self._direction
        view = memoryview(frame).cast("B")
        length = view.nbytes - OVERHEAD_BYTES
        if length < 0:
            raise self._refuse(f"{view.nbytes} bytes are fewer than a frame has")
        header = bytes(view[:HEADER_BYTES])
        kind, flags, epoch, reserved, counter = HEADER.unpack(header)
        if kind != ENCRYPTED or flags or reserved:
            raise self._refuse(f"its header begins with {header[:8].hex()}")
        if counter != state.counter or counter >= MAX_NONCE:
            what = "it was sent again" if counter < state.counter else "frames before it are missing"
            raise self._refuse(f"its counter is {counter}, not {state.counter}: {what}")
        spent = state.is_spent(length)
        if epoch != (state.epoch + spent) & 0xFFFF:
            raise self._refuse(f"it is sealed with the key of epoch {epoch}, not {(state.epoch + spent) & 0xFFFF}")
        # a forged frame must not change the key: the next one is tried, and kept once it has opened something
        cipher = AESGCM(rekeyed(state.key)) if spent else state.cipher
        plaintext = bytearray(length)
        try:
            cipher.decrypt_into(_NONCE_PREFIX + header[8:], view[HEADER_BYTES:], header, plaintext)
        except InvalidTag:
            raise self._refuse("it failed its authentication") from None
        if spent:
            state.next_key()
        state.count(length)
        return memoryview(plaintext)

    def _refuse(self, why: str) -> TamperedError:
        self.refused += 1
        return TamperedError(
            f"a frame of an encrypted connection was not accepted: {why}",
            remedy="Somebody on the way changes, repeats or invents messages; the connection is made anew if need be",
        )
