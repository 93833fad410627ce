"""One table has the retry advice of each refusal, and an error keeps its reason through every encoding."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import (
    ERROR_CLASSES,
    REFUSALS,
    AeronSparkError,
    ConnectError,
    DataFormatError,
    DataLossError,
    OptionError,
    RefusedError,
    RemoteError,
    Retry,
    SessionLost,
    WaitTimeout,
    code_of,
    decode_error,
    encode_error,
)
from aeron_spark.node.state_files import read_failure, write_failure
from aeron_spark.protocol.client_handshake import refused
from aeron_spark.protocol.handshake_payloads import Code
from aeron_spark.protocol.rpc_dispatch import ErrorCodes
from aeron_spark.protocol.sources import Refusal
from tests.unit.protocol.rpc_ends import RpcEnd, connected_ends

ADVICE = {
    "rate": Retry.SOON,
    "pending": Retry.SOON,
    "shutdown": Retry.SOON,
    "timeout": Retry.SOON,
    "server-error": Retry.SOON,
    "full": Retry.WHEN_FREED,
    "address-limit": Retry.WHEN_FREED,
    "key-limit": Retry.WHEN_FREED,
    "ids": Retry.WHEN_FREED,
    "key": Retry.NEVER,
    "banned": Retry.NEVER,
    "proof": Retry.NEVER,
    "tag": Retry.NEVER,
    "not-permitted": Retry.NEVER,
    "version": Retry.NEVER,
    "message": Retry.NEVER,
    "schema": Retry.NEVER,
    "session-lost": Retry.NEVER,
}
CODES = sorted(get_args(Code))
# Reasons after the handshake.
OF_CALLS = {
    "busy", "disk-full", "draining", "ended", "kicked", "limit", "listener-failed", "memory", "no-listener",
    "stage-full",
}  # fmt: skip
TEXTS = st.text(max_size=400)


def test_the_table_has_every_code_of_the_protocol_and_no_other() -> None:
    assert sorted(set(REFUSALS) - OF_CALLS) == CODES == sorted(ADVICE)


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_has_the_same_advice_in_all_its_forms(code: str) -> None:
    refusal = Refusal(code, "the server's words")
    error = refused(refusal, "host:1", is_authenticated=True)
    assert (error.reason, error.retry, refusal.advice.retry) == (code, ADVICE[code], ADVICE[code])
    assert error.retriable is (ADVICE[code] is not Retry.NEVER)
    assert error.remedy == refusal.advice.remedy != ""
    for found in (pickle.loads(pickle.dumps(error)), decode_error(encode_error(error)), error.with_what(error.what)):
        assert type(found) is RefusedError
        assert (str(found), found.args) == (str(error), error.args)
        assert (found.reason, found.retry, found.retriable) == (code, error.retry, error.retriable)


def test_a_refusal_with_an_unknown_reason_is_not_retriable() -> None:
    for reason in ("", "fenced"):
        error = RefusedError("no", reason=reason)
        assert (error.retry, error.retriable) == (Retry.NEVER, False)
        assert Refusal(reason, "no").advice.remedy


@pytest.mark.parametrize("name", sorted(ERROR_CLASSES))
def test_an_error_of_each_class_is_the_same_after_each_encoding(name: str, tmp_path: Path) -> None:
    error = ERROR_CLASSES[name]("it failed: \x1f\nof \u2018it\u2019", remedy="Do this.", reason="because")
    write_failure(tmp_path / "failed.json", error)
    copies = (
        decode_error(encode_error(error)),
        decode_error(memoryview(encode_error(error))),
        pickle.loads(pickle.dumps(error)),
        copy.copy(error),
        read_failure(tmp_path / "failed.json"),
        _raised_remotely(error).raised,
    )
    for found in copies:
        assert type(found) is type(error)
        assert (found.what, found.remedy, found.reason) == (error.what, error.remedy, error.reason)
        assert (str(found), found.args, found.retriable) == (str(error), error.args, error.retriable)


def test_pickling_keeps_the_attributes_of_a_subclass() -> None:
    error = RemoteError("x", code="KeyError", raised=ConnectError("y"))
    found = pickle.loads(pickle.dumps(error))
    assert (found.code, str(found.raised), found.retriable) == ("KeyError", "y", True)


def test_an_error_class_of_a_program_is_encoded_as_its_nearest_base_class_of_this_package() -> None:
    class Late(WaitTimeout):
        pass

    assert code_of(Late("x")) == "WaitTimeout"
    assert type(decode_error(encode_error(Late("x")))) is WaitTimeout


def test_an_unknown_code_is_decoded_as_aeron_spark_error() -> None:
    data = encode_error(SessionLost("gone", reason="r")).replace(b"SessionLost", b"NextYears")
    found = decode_error(data)
    assert type(found) is AeronSparkError
    assert (found.what, found.reason) == ("gone", "r")


@given(what=TEXTS, remedy=TEXTS, reason=TEXTS, limit=st.integers(200, 500))
def test_an_encoded_error_is_shortened_to_the_limit_and_can_be_decoded(
    what: str, remedy: str, reason: str, limit: int
) -> None:
    error = DataLossError(what, remedy=remedy, reason=reason)
    data = encode_error(error, max_characters=limit)
    assert len(data.decode()) <= limit
    found = decode_error(data)
    assert isinstance(found, DataLossError)
    fits = len(encode_error(error).decode()) <= limit
    assert not fits or (found.what, found.remedy, found.reason) == (what, remedy, reason)
    assert what.startswith(found.what.removesuffix("..."))


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"[]", b"null", b"{}", b"[" * 100_000),
        *(b'{"code":"OptionError","what":"x","remedy":""}', b'{"code":"OptionError","what":1,"remedy":"","reason":""}'),
        b'{"code":"OptionError","what":"\\ud800","remedy":"","reason":""}',  # it could not be printed or logged
    ],
)
def test_other_bytes_are_not_an_encoded_error(data: bytes) -> None:
    with pytest.raises(DataFormatError):
        decode_error(data)


def test_a_failed_remote_call_has_the_reason_and_the_remedy_of_the_remote_error() -> None:
    error = _raised_remotely(RefusedError("no room", remedy="Wait.", reason="full"))
    assert (error.code, error.reason, error.remedy, error.retriable) == ("RefusedError", "full", "Wait.", True)
    assert error.what == "the call of fail() of 'thing' failed at the peer: no room"


def test_an_error_that_a_program_registers_under_a_name_of_this_package_is_not_decoded() -> None:
    class OptionError_(Exception):
        pass

    codes = ErrorCodes()
    codes.register(OptionError_, "OptionError")
    error = _raised_remotely(OptionError_("plain"), codes)
    assert (error.code, error.raised) == ("OptionError", None)
    assert error.what.endswith(": plain")
    assert isinstance(_raised_remotely(OptionError("x"), codes).raised, OptionError)


def _raised_remotely(error: Exception, codes: ErrorCodes | None = None) -> RemoteError:
    """Return the caller's error of a remote call whose method raises ``error``."""

    class Thing:
        def fail(self) -> None:
            raise error

    client, server = connected_ends(server=RpcEnd(errors=codes))
    server.shared.register("thing", Thing(), ["fail"])
    with pytest.raises(RemoteError) as caught:
        client.remote("thing").fail()
    if caught.value.raised is not None:
        caught.value.raised.call = ""  # the name of the call, which the original does not have
    return caught.value
