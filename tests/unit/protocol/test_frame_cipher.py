"""A frame is opened if it is the next one and unchanged; the key changes at the same frame on both sides."""

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
    FrameDecryptor,
    FrameEncryptor,
    KeyLimits,
)
from aeron_spark.protocol.noise import MAX_NONCE, CipherState, rekeyed

KEY = bytes(range(32))


def test_a_frame_is_a_header_and_what_noise_would_seal() -> None:
    frame = bytes(FrameEncryptor(KEY).seal(b"head", [b"one", bytearray(b"two"), memoryview(b"three")]))
    header = bytes.fromhex("01000000000000000000000000000000")
    assert frame[:HEADER_BYTES] == header
    assert CipherState(KEY).decrypt(frame[HEADER_BYTES:], header) == b"headonetwothree"
    assert bytes(FrameDecryptor(KEY).open(frame)) == b"headonetwothree"


def test_frames_count_up_from_zero_in_nonce_and_header() -> None:
    sealing, opening = FrameEncryptor(KEY), FrameDecryptor(KEY)
    for number in range(300):
        frame = sealing.seal(b"%d" % number)
        assert HEADER.unpack_from(frame) == (1, 0, 0, 0, number)
        nonce = bytes(4) + number.to_bytes(8, "big")
        assert AESGCM(KEY).decrypt(nonce, bytes(frame[16:]), bytes(frame[:16])) == b"%d" % number
        assert bytes(opening.open(frame)) == b"%d" % number
    assert sealing.counter == opening.counter == 300


def test_sealed_and_opened_memory_is_its_own() -> None:
    sealing, opening = FrameEncryptor(KEY), FrameDecryptor(KEY)
    part = bytearray(b"first")
    first = sealing.seal(b"", [part])
    part[:] = b"later"
    second = sealing.seal(b"", [part])
    one, two = opening.open(first), opening.open(second)
    first[:] = bytes(len(first))
    assert (bytes(one), bytes(two)) == (b"first", b"later")


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 1152, 65_536, 1 << 20])
def test_every_length_goes_through(length: int, rng: random.Random) -> None:
    payload = rng.randbytes(length)
    frame = FrameEncryptor(KEY).seal(payload)
    assert len(frame) == length + OVERHEAD_BYTES
    assert bytes(FrameDecryptor(KEY).open(frame)) == payload


def test_row_36_every_flipped_bit_and_every_cut_is_refused_and_the_frame_itself_still_opens() -> None:
    frame, opening = bytes(FrameEncryptor(KEY).seal(b"a payload of some bytes")), FrameDecryptor(KEY)
    assert bytes(FrameDecryptor(KEY).open(frame)) == b"a payload of some bytes"
    for bit in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TamperedError):
            opening.open(changed)
    for length in range(len(frame)):
        with pytest.raises(TamperedError):
            opening.open(frame[:length])
    with pytest.raises(TamperedError):
        opening.open(frame + b"\0")
    assert opening.refused == len(frame) * 9 + 1
    assert opening.counter == 0
    assert bytes(opening.open(frame)) == b"a payload of some bytes"


def test_row_40_a_repeated_reordered_or_foreign_frame_is_refused_and_counted() -> None:
    sealing, opening = FrameEncryptor(KEY), FrameDecryptor(KEY)
    first, second, third = (sealing.seal(b"%d" % number) for number in range(3))
    opening.open(first)
    with pytest.raises(TamperedError, match="sent again"):
        opening.open(first)
    with pytest.raises(TamperedError, match="frames before it are missing"):
        opening.open(third)
    with pytest.raises(TamperedError, match="failed its authentication"):
        opening.open(FrameEncryptor(bytes(32), counter=1).seal(b"of another connection"))
    with pytest.raises(TamperedError, match="fewer than a frame has"):
        opening.open(b"deadbeef")
    assert opening.refused == 4
    assert [bytes(opening.open(frame)) for frame in (second, third)] == [b"1", b"2"]


@pytest.mark.parametrize("header", [(2, 0, 0, 0, 0), (0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (1, 0, 0, 1, 0)])
def test_a_header_of_another_kind_is_refused_even_when_it_was_sealed(header: tuple[int, ...]) -> None:
    packed = HEADER.pack(*header)
    with pytest.raises(TamperedError, match="its header begins with"):
        FrameDecryptor(KEY).open(packed + CipherState(KEY).encrypt(b"x", packed))


def test_a_frame_sent_back_to_its_sender_is_refused() -> None:
    there, back = bytes(32), bytes(range(32))
    with pytest.raises(TamperedError):
        FrameDecryptor(back).open(FrameEncryptor(there).seal(b"hello"))


def test_the_key_changes_after_its_frames_on_both_sides() -> None:
    limits = KeyLimits(frames=3)
    sealing, opening = FrameEncryptor(KEY, limits), FrameDecryptor(KEY, limits)
    keys = [KEY, rekeyed(KEY), rekeyed(rekeyed(KEY)), rekeyed(rekeyed(rekeyed(KEY)))]
    for number in range(10):
        frame = sealing.seal(b"x")
        epoch = number // 3
        assert HEADER.unpack_from(frame) == (1, 0, epoch, 0, number)
        nonce = bytes(4) + number.to_bytes(8, "big")
        assert AESGCM(keys[epoch]).decrypt(nonce, bytes(frame[16:]), bytes(frame[:16])) == b"x"
        assert bytes(opening.open(frame)) == b"x"
    assert sealing.epoch == opening.epoch == 3


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 5), st.integers(1, 60))
def test_both_sides_change_the_key_at_the_same_frame(lengths: list[int], frames: int, total: int) -> None:
    limits = KeyLimits(frames=frames, plaintext_bytes=total)
    sealing, opening = FrameEncryptor(KEY, limits), FrameDecryptor(KEY, limits)
    epoch, under_key = 0, [0, 0]
    for length in lengths:
        # the rule by itself: at most so many frames, at most so many bytes, but always one frame
        if under_key[0] == frames or (under_key[0] and under_key[1] + length > total):
            epoch, under_key = epoch + 1, [0, 0]
        under_key = [under_key[0] + 1, under_key[1] + length]
        frame = sealing.seal(bytes(length))
        assert bytes(opening.open(frame)) == bytes(length)
        assert sealing.epoch == opening.epoch == epoch


def test_a_forged_frame_does_not_change_the_key() -> None:
    limits = KeyLimits(plaintext_bytes=100)
    sealing, opening = FrameEncryptor(KEY, limits), FrameDecryptor(KEY, limits)
    opening.open(sealing.seal(bytes(60)))
    forged = HEADER.pack(1, 0, 1, 0, 1) + bytes(500)
    with pytest.raises(TamperedError, match="authentication"):
        opening.open(forged)
    assert opening.epoch == 0
    # the real one still fits under the first key
    assert bytes(opening.open(sealing.seal(bytes(40)))) == bytes(40)
    assert opening.epoch == 0


def test_an_epoch_that_is_not_due_is_refused_before_its_key_is_made() -> None:
    opening = FrameDecryptor(KEY, KeyLimits(frames=2))
    frame = FrameEncryptor(rekeyed(KEY)).seal(b"x")
    HEADER.pack_into(frame, 0, 1, 0, 1, 0, 0)
    with pytest.raises(TamperedError, match="key of epoch 1, not 0"):
        opening.open(frame)


def test_the_counter_does_not_wrap() -> None:
    sealing, opening = FrameEncryptor(KEY, counter=MAX_NONCE - 1), FrameDecryptor(KEY, counter=MAX_NONCE - 1)
    opening.open(sealing.seal(b"the last frame"))
    with pytest.raises(TransportError, match="as its counter can count"):
        sealing.seal(b"one more")
    assert sealing.counter == MAX_NONCE
    beyond = HEADER.pack(1, 0, 0, 0, MAX_NONCE)
    with pytest.raises(TamperedError):
        opening.open(beyond + AESGCM(KEY).encrypt(bytes(4) + b"\xff" * 8, b"one more", beyond))


def test_the_limits_of_a_key_are_those_that_the_protocol_says() -> None:
    assert (KeyLimits().frames, KeyLimits().plaintext_bytes) == (2**32, 64 * 2**30)


def test_row_37_no_nonce_comes_twice_under_one_key(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    used: list[tuple[bytes, bytes]] = []

    class Watched:
        """The real cipher, with an eye on its nonces."""

        def __init__(self, key: bytes) -> None:
            self._key = key
            self._real = AESGCM(key)

        def encrypt_into(self, nonce: bytes, data: object, associated: bytes, into: memoryview) -> int:
            used.append((self._key, nonce))
            return self._real.encrypt_into(nonce, bytes(data), associated, into)  # type: ignore[call-overload]

    monkeypatch.setattr(cipher_module, "AESGCM", Watched)
    for _ in range(1000):
        sealing = FrameEncryptor(rng.randbytes(32), KeyLimits(frames=10, plaintext_bytes=40))
        for _ in range(100):
            sealing.seal(b"12345")
    assert len(used) == len(set(used)) == 100_000


@given(st.binary(max_size=200))
def test_whatever_arrives_is_refused(frame: bytes) -> None:
    with pytest.raises(TamperedError):
        FrameDecryptor(KEY).open(frame)
