"""Key pairs against RFC 7748, and public keys as text."""

from __future__ import annotations

import base64
import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.keypair import fingerprint, keypair_from, new_keypair, parse_public, public_text

# Alice's keys of RFC 7748, section 6.1, then Bob's
PRIVATE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOBS_PRIVATE = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOBS_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
TEXT = "aeron-spark:hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo"
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
]
P = 2**255 - 19
SECOND_SPELLINGS = [(P + 9).to_bytes(32, "little"), bytes([9, *[0] * 30, 0x80]), b"\xff" * 32]


def test_row_35_a_key_pair_is_that_of_rfc_7748() -> None:
    assert keypair_from(PRIVATE).public == PUBLIC
    assert keypair_from(BOBS_PRIVATE).public == BOBS_PUBLIC
    assert new_keypair(lambda count: PRIVATE[:count]) == keypair_from(PRIVATE)


def test_a_public_key_has_one_text() -> None:
    assert public_text(PUBLIC) == TEXT
    assert parse_public(TEXT) == PUBLIC


def test_a_fingerprint_has_the_format_of_ssh() -> None:
    assert fingerprint(PUBLIC) == "SHA256:" + base64.b64encode(hashlib.sha256(PUBLIC).digest()).decode().rstrip("=")
    assert len(fingerprint(PUBLIC)) == 50


def test_the_repr_of_a_pair_has_no_private_key() -> None:
    pair = keypair_from(PRIVATE)
    for text in (repr(pair), str(pair), f"{pair}", repr([pair])):
        assert text.strip("[]") == f"KeyPair({fingerprint(PUBLIC)})"


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_private_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(DataFormatError, match=f"a private key of {length} bytes, expected 32"):
        keypair_from(bytes(length))


@given(st.randoms(use_true_random=False))
def test_every_public_key_survives_its_text(rng: random.Random) -> None:
    public = new_keypair(rng.randbytes).public
    assert len(public) == 32
    assert parse_public(public_text(public)) == public


@pytest.mark.parametrize(
    "text",
    ["", "aeron-spark:", TEXT[:-1], TEXT + "=", TEXT + "A", " " + TEXT, TEXT.upper(), TEXT.replace("_", "/"),
     TEXT.replace("aeron-spark:", "aeron_spark:"), TEXT[:-1] + "p", TEXT[:20] + "\n" + TEXT[21:],
     TEXT[:20] + "é" + TEXT[21:]],
)  # fmt: skip
def test_text_that_is_not_a_public_key_is_refused(text: str) -> None:
    assert parse_public(TEXT) == PUBLIC
    with pytest.raises(DataFormatError, match="is not a public key"):
        parse_public(text)


@pytest.mark.parametrize(
    "public", [*LOW_ORDER, *SECOND_SPELLINGS], ids=lambda public: public.hex()[:8] + public.hex()[-4:]
)
def test_a_public_key_that_no_private_key_has_is_refused(public: bytes) -> None:
    with pytest.raises(DataFormatError, match="belongs to no private key"):
        parse_public(public_text(public))
