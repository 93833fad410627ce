"""The verification of the key that a server shows."""

from __future__ import annotations

import pytest

from aeron_spark.errors import IdentityError, ServerKeyChanged
from aeron_spark.protocol.access import ServerKeyVerifier, ServerName

SERVER = ServerName("10.0.0.1", 20121)
ONE, OTHER = b"1" * 32, b"2" * 32


def a_verifier(known: bytes | None = None, **policy: object) -> ServerKeyVerifier:
    verifier = ServerKeyVerifier(SERVER, **policy)  # type: ignore[arg-type]
    verifier.known = known
    return verifier


def test_a_key_is_accepted_and_remembered_at_first_use() -> None:
    verifier = a_verifier()
    assert verifier.key == b""
    verifier.verify(ONE)
    assert (verifier.key, verifier.trust.remember) == (ONE, True)
    with pytest.raises(IdentityError, match="not known"):
        a_verifier(first_use=False).verify(ONE)


def test_another_key_than_the_known_one_is_refused_and_not_stored() -> None:
    verifier = a_verifier(known=ONE)
    with pytest.raises(ServerKeyChanged):
        verifier.verify(OTHER)
    assert verifier.key == b""
    verifier.verify(ONE)
    assert not verifier.trust.remember
    lenient = a_verifier(known=ONE, validate=False)
    lenient.verify(OTHER)
    assert (lenient.key, lenient.trust.remember, lenient.trust.remote_key_changed) == (OTHER, False, True)


def test_only_the_pinned_key_is_accepted() -> None:
    verifier = a_verifier(known=OTHER, pinned=ONE)
    with pytest.raises(ServerKeyChanged):
        verifier.verify(OTHER)
    verifier.verify(ONE)
    assert (verifier.key, verifier.trust.remember) == (ONE, False)
