"""The receiver decrypts only the next, unaltered frame; both ends replace the key before the same frame."""

from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import TamperedError, TransportError
from aeron_spark.protocol import frame_cipher as cipher_module
from aeron_spark.protocol.frame_cipher import (
    HEADER,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    CipherLimits,
    FrameDecryptor,
    FrameEncryptor,
)
from aeron_spark.protocol.noise import MAX_NONCE, CipherState, derive_next_key

KEY = bytes(range(32))


def test_a_frame_is_a_header_and_the_ciphertext_of_noise() -> None:
    frame = bytes(FrameEncryptor(KEY).encrypt(b"head", [b"one", bytearray(b"two"), memoryview(b"three")]))
    header = bytes.fromhex("01000000000000000000000000000000")
    assert frame[:HEADER_BYTES] == header
    assert CipherState(KEY).decrypt(frame[HEADER_BYTES:], header) == b"headonetwothree"
    assert bytes(FrameDecryptor(KEY).decrypt(frame)) == b"headonetwothree"


def test_frames_count_up_from_zero_in_nonce_and_header() -> None:
    encryptor, decryptor = FrameEncryptor(KEY), FrameDecryptor(KEY)
    for number in range(300):
        frame = encryptor.encrypt(b"%d" % number)
        assert HEADER.unpack_from(frame) == (1, 0, 0, 0, number)
        nonce = bytes(4) + number.to_bytes(8, "big")
        assert AESGCM(KEY).decrypt(nonce, bytes(frame[16:]), bytes(frame[:16])) == b"%d" % number
        assert bytes(decryptor.decrypt(frame)) == b"%d" % number
    assert encryptor.counter == decryptor.counter == 300


def test_encrypt_and_decrypt_return_new_memory() -> None:
    encryptor, decryptor = FrameEncryptor(KEY), FrameDecryptor(KEY)
    part = bytearray(b"first")
    first = encryptor.encrypt(b"", [part])
    part[:] = b"later"
    second = encryptor.encrypt(b"", [part])
    one, two = decryptor.decrypt(first), decryptor.decrypt(second)
    first[:] = bytes(len(first))
    assert (bytes(one), bytes(two)) == (b"first", b"later")


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 1152, 65_536, 1 << 20])
def test_a_payload_of_any_length_can_be_encrypted_and_decrypted(length: int, rng: random.Random) -> None:
    payload = rng.randbytes(length)
    frame = FrameEncryptor(KEY).encrypt(payload)
    assert len(frame) == length + OVERHEAD_BYTES
    assert bytes(FrameDecryptor(KEY).decrypt(frame)) == payload


def test_row_36_a_frame_with_a_flipped_bit_or_another_length_is_rejected_and_the_original_is_accepted() -> None:
    frame, decryptor = bytes(FrameEncryptor(KEY).encrypt(b"a payload of some bytes")), FrameDecryptor(KEY)
    assert bytes(FrameDecryptor(KEY).decrypt(frame)) == b"a payload of some bytes"
    for bit in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TamperedError):
            decryptor.decrypt(changed)
    for length in range(len(frame)):
        with pytest.raises(TamperedError):
            decryptor.decrypt(frame[:length])
    with pytest.raises(TamperedError):
        decryptor.decrypt(frame + b"\0")
    assert decryptor.rejected == len(frame) * 9 + 1
    assert decryptor.counter == 0
    assert bytes(decryptor.decrypt(frame)) == b"a payload of some bytes"


def test_row_40_a_repeated_reordered_or_foreign_frame_is_rejected_and_counted() -> None:
    encryptor, decryptor = FrameEncryptor(KEY), FrameDecryptor(KEY)
    first, second, third = (encryptor.encrypt(b"%d" % number) for number in range(3))
    decryptor.decrypt(first)
    with pytest.raises(TamperedError, match="it was received before"):
        decryptor.decrypt(first)
    with pytest.raises(TamperedError, match="frames before it are missing"):
        decryptor.decrypt(third)
    with pytest.raises(TamperedError, match="its authentication failed"):
        decryptor.decrypt(FrameEncryptor(bytes(32), counter=1).encrypt(b"of another connection"))
    with pytest.raises(TamperedError, match="it has 8 bytes, expected at least 32"):
        decryptor.decrypt(b"deadbeef")
    assert decryptor.rejected == 4
    assert [bytes(decryptor.decrypt(frame)) for frame in (second, third)] == [b"1", b"2"]


@pytest.mark.parametrize("header", [(2, 0, 0, 0, 0), (0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (1, 0, 0, 1, 0)])
def test_a_frame_with_an_unknown_header_is_rejected_although_its_ciphertext_is_valid(header: tuple[int, ...]) -> None:
    packed = HEADER.pack(*header)
    with pytest.raises(TamperedError, match="its header begins with"):
        FrameDecryptor(KEY).decrypt(packed + CipherState(KEY).encrypt(b"x", packed))


def test_a_frame_that_is_sent_back_to_its_sender_is_rejected() -> None:
    sending_key, receiving_key = bytes(32), bytes(range(32))
    with pytest.raises(TamperedError):
        FrameDecryptor(receiving_key).decrypt(FrameEncryptor(sending_key).encrypt(b"hello"))


def test_both_ends_replace_the_key_after_its_maximum_of_frames() -> None:
    limits = CipherLimits(frames=3)
    encryptor, decryptor = FrameEncryptor(KEY, limits), FrameDecryptor(KEY, limits)
    keys = [
        KEY,
        derive_next_key(KEY),
        derive_next_key(derive_next_key(KEY)),
        derive_next_key(derive_next_key(derive_next_key(KEY))),
    ]
    for number in range(10):
        frame = encryptor.encrypt(b"x")
        epoch = number // 3
        assert HEADER.unpack_from(frame) == (1, 0, epoch, 0, number)
        nonce = bytes(4) + number.to_bytes(8, "big")
        assert AESGCM(keys[epoch]).decrypt(nonce, bytes(frame[16:]), bytes(frame[:16])) == b"x"
        assert bytes(decryptor.decrypt(frame)) == b"x"
    assert encryptor.epoch == decryptor.epoch == 3


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 5), st.integers(1, 60))
def test_both_ends_replace_the_key_before_the_same_frame(lengths: list[int], frames: int, total: int) -> None:
    limits = CipherLimits(frames=frames, plaintext_bytes=total)
    encryptor, decryptor = FrameEncryptor(KEY, limits), FrameDecryptor(KEY, limits)
    epoch, under_key = 0, [0, 0]
    for length in lengths:
        # a model of the rule: at most `frames` frames and `total` bytes for each key, but at least one frame
        if under_key[0] == frames or (under_key[0] and under_key[1] + length > total):
            epoch, under_key = epoch + 1, [0, 0]
        under_key = [under_key[0] + 1, under_key[1] + length]
        frame = encryptor.encrypt(bytes(length))
        assert bytes(decryptor.decrypt(frame)) == bytes(length)
        assert encryptor.epoch == decryptor.epoch == epoch


def test_a_forged_frame_does_not_replace_the_key() -> None:
    limits = CipherLimits(plaintext_bytes=100)
    encryptor, decryptor = FrameEncryptor(KEY, limits), FrameDecryptor(KEY, limits)
    decryptor.decrypt(encryptor.encrypt(bytes(60)))
    forged = HEADER.pack(1, 0, 1, 0, 1) + bytes(500)
    with pytest.raises(TamperedError, match="authentication"):
        decryptor.decrypt(forged)
    assert decryptor.epoch == 0
    # the sender still encrypts the next frame with the first key
    assert bytes(decryptor.decrypt(encryptor.encrypt(bytes(40)))) == bytes(40)
    assert decryptor.epoch == 0


def test_an_epoch_that_is_not_due_is_rejected_before_its_key_is_derived() -> None:
    decryptor = FrameDecryptor(KEY, CipherLimits(frames=2))
    frame = FrameEncryptor(derive_next_key(KEY)).encrypt(b"x")
    HEADER.pack_into(frame, 0, 1, 0, 1, 0, 0)
    with pytest.raises(TamperedError, match="key of epoch 1, expected 0"):
        decryptor.decrypt(frame)


def test_the_counter_does_not_wrap() -> None:
    encryptor, decryptor = FrameEncryptor(KEY, counter=MAX_NONCE - 1), FrameDecryptor(KEY, counter=MAX_NONCE - 1)
    decryptor.decrypt(encryptor.encrypt(b"the last frame"))
    with pytest.raises(TransportError, match="the limit of its counter"):
        encryptor.encrypt(b"one more")
    assert encryptor.counter == MAX_NONCE
    beyond = HEADER.pack(1, 0, 0, 0, MAX_NONCE)
    with pytest.raises(TamperedError):
        decryptor.decrypt(beyond + AESGCM(KEY).encrypt(bytes(4) + b"\xff" * 8, b"one more", beyond))


def test_the_default_limits_of_a_key_are_those_of_the_protocol() -> None:
    assert (CipherLimits().frames, CipherLimits().plaintext_bytes) == (2**32, 64 * 2**30)


def test_row_37_no_nonce_is_used_twice_with_one_key(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    used: list[tuple[bytes, bytes]] = []

    class RecordingCipher:
        """The real cipher. Records each key and nonce."""

        def __init__(self, key: bytes) -> None:
            self._key = key
            self._real = AESGCM(key)

        def encrypt_into(self, nonce: bytes, data: object, associated: bytes, into: memoryview) -> int:
            used.append((self._key, nonce))
            return self._real.encrypt_into(nonce, bytes(data), associated, into)  # type: ignore[call-overload]

    monkeypatch.setattr(cipher_module, "AESGCM", RecordingCipher)
    for _ in range(1000):
        encryptor = FrameEncryptor(rng.randbytes(32), CipherLimits(frames=10, plaintext_bytes=40))
        for _ in range(100):
            encryptor.encrypt(b"12345")
    assert len(used) == len(set(used)) == 100_000


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_rejected(frame: bytes) -> None:
    with pytest.raises(TamperedError):
        FrameDecryptor(KEY).decrypt(frame)
