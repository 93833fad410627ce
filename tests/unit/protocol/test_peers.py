"""Decisions on the key that a server shows, and on the key that a client has proved."""

from __future__ import annotations

import pickle
import random

import pytest

from aeron_spark.errors import IdentityError
from aeron_spark.protocol import access, ids, limits
from aeron_spark.protocol.access import (
    TAG_NOT_ALLOWED,
    UNKNOWN_KEY,
    Grant,
    ServerKeyChanged,
    ServerName,
    ServerTrust,
    check_client,
    verify_server_key,
)
from aeron_spark.protocol.handshake_payloads import CODES
from aeron_spark.protocol.keypair import fingerprint, new_keypair
from aeron_spark.protocol.refusals import Refusal

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


def test_row_45_a_key_without_a_grant_is_refused_only_if_grants_are_required() -> None:
    assert check_client(None, "", required=True) == UNKNOWN_KEY
    assert check_client(None, "", required=False) is None
    assert check_client(Grant(), "any", required=True) is None
    for required in (True, False):
        assert check_client(Grant(tags=("desk-*",)), "desk-7", required=required) is None
        assert check_client(Grant(tags=("desk-*",)), "Desk-7", required=required) == TAG_NOT_ALLOWED


def test_a_grant_allows_everything_that_it_does_not_mention() -> None:
    everything = Grant()
    assert everything.may_use("prices", "manage")
    assert everything.may_call("catalog.find")
    assert everything.may_have_tag("")


def test_a_grant_that_names_nothing_allows_nothing() -> None:
    nothing = Grant((), (), ())
    assert not nothing.may_use("prices", "read")
    assert not nothing.may_call("catalog.find")
    assert not nothing.may_have_tag("")


def test_a_grant_allows_actions_stream_by_stream() -> None:
    grant = Grant((("prices", frozenset({"read"})), ("orders.*", frozenset({"read", "write"}))), ("catalog.*",))
    assert grant.may_use("prices", "read")
    assert not grant.may_use("prices", "write")
    assert not grant.may_use("prices2", "read")
    assert not grant.may_use("PRICES", "read")
    assert grant.may_use("orders.eu", "write")
    assert not grant.may_use("orders.eu", "manage")
    assert grant.may_call("catalog.find")
    assert not grant.may_call("catalogue.find")


def test_every_refusal_has_a_code_of_the_protocol() -> None:
    refusals = {
        value
        for module in (access, ids, limits, access, ids)
        for value in vars(module).values()
        if isinstance(value, Refusal)
    }
    assert len(refusals) == 10
    assert {one.code for one in refusals} <= CODES
    assert all(one.text for one in refusals)
