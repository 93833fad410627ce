"""Decisions on the key that a server shows, and on the key that a client has proved."""

from __future__ import annotations

import pickle
import random

import pytest

from aeron_spark.errors import IdentityError
from aeron_spark.protocol import access, grants, ids, limits
from aeron_spark.protocol.access import ServerKeyChanged, ServerName, ServerTrust, verify_server_key
from aeron_spark.protocol.handshake_payloads import CODES
from aeron_spark.protocol.keypair import fingerprint, new_keypair
from aeron_spark.protocol.sources import Refusal

SERVER = ServerName("10.0.0.1", 4000)


@pytest.fixture
def known(rng: random.Random) -> bytes:
    return new_keypair(rng.randbytes).public


@pytest.fixture
def other(known: bytes, rng: random.Random) -> bytes:
    return new_keypair(rng.randbytes).public


@pytest.mark.parametrize("first_use", [True, False])
@pytest.mark.parametrize("validate", [True, False])
def test_row_41_the_known_key_is_accepted_and_not_stored_again(known: bytes, first_use: bool, validate: bool) -> None:
    assert verify_server_key(SERVER, known, known, first_use=first_use, validate=validate) == ServerTrust(False, False)


def test_row_41_a_key_is_remembered_at_first_use_only_if_allowed(known: bytes) -> None:
    assert verify_server_key(SERVER, None, known) == ServerTrust(remember=True)
    assert verify_server_key(SERVER, None, known, validate=False) == ServerTrust(remember=True)
    with pytest.raises(IdentityError, match="is not known") as raised:
        verify_server_key(SERVER, None, known, first_use=False)
    assert not isinstance(raised.value, ServerKeyChanged)
    assert "aeron-spark keys trust 10.0.0.1:4000 aeron-spark:" in raised.value.remedy
    assert verify_server_key(SERVER, None, known, first_use=False, validate=False) == ServerTrust()


@pytest.mark.parametrize("first_use", [True, False])
def test_row_41_a_changed_key_is_refused_with_a_remedy(known: bytes, other: bytes, first_use: bool) -> None:
    with pytest.raises(ServerKeyChanged) as raised:
        verify_server_key(SERVER, known, other, first_use=first_use)
    error = raised.value
    assert isinstance(error, IdentityError)
    assert fingerprint(known) in error.what
    assert fingerprint(other) in error.what
    assert error.remedy.endswith("aeron-spark keys forget 10.0.0.1:4000")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (ServerKeyChanged, str(error))


@pytest.mark.parametrize("first_use", [True, False])
def test_row_42_without_validation_a_changed_key_is_allowed_flagged_and_not_stored(
    known: bytes, other: bytes, first_use: bool
) -> None:
    trust = verify_server_key(SERVER, known, other, first_use=first_use, validate=False)
    assert trust == ServerTrust(remember=False, remote_key_changed=True)


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (ServerName("10.0.0.1", 4000), "10.0.0.1:4000"),
        (ServerName("::1", 4000), "[::1]:4000"),
        (ServerName("ipc:/dev/shm/aeron", 0), "ipc:/dev/shm/aeron"),
    ],
)
def test_the_text_of_a_server_is_what_commands_accept(server: ServerName, text: str) -> None:
    assert str(server) == text


def test_every_refusal_has_a_code_of_the_protocol() -> None:
    refusals = {
        value
        for module in (access, grants, ids, limits)
        for value in vars(module).values()
        if isinstance(value, Refusal)
    }
    assert len(refusals) == 12
    assert {one.code for one in refusals} <= CODES
    assert all(one.text for one in refusals)
