"""The texts of Echo 1.0 and 2.0, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.echo import texts
from aeron_spark.echo.texts import EchoAddress, Refused, Unreadable

keys = st.integers(0, 2**32 - 1)
sessions = st.integers(-(2**31), 2**31 - 1)
ports = st.integers(1, 65535)
addresses = st.builds(EchoAddress, ports, ports, st.integers(texts.FIRST_SESSION, texts.LAST_SESSION))


def test_the_stream_id_is_that_of_the_reference() -> None:
    assert texts.STREAM_ID == 541388802


def test_the_encoded_messages() -> None:
    assert texts.encode_hello_1(8000) == b"HELLO 8000"
    assert texts.encode_hello_2(0xDEADBEEF) == b"HELLO DEADBEEF"
    assert texts.encode_hello_2(10) == b"HELLO A"
    assert texts.encode_connect(-5, 0xFF, EchoAddress(9010, 9011, 0x0F)) == b"-5 CONNECT 9010 9011 F0"
    assert texts.encode_refusal(7, texts.SERVER_FULL) == b"7 ERROR server full"
    assert texts.encode_refusal(7, texts.ADDRESS_FULL) == b"7 ERROR too many connections for IP address"
    assert texts.encode_echo(b"x") == b"ECHO x"
    assert texts.encode_error(texts.BAD_MESSAGE) == b"ERROR bad message"


@pytest.mark.parametrize("good", [b"HELLO 0", b"HELLO 12345678", b"HELLO DEADBEEF", b"HELLO 0000000A"])
def test_a_hello_has_up_to_eight_upper_case_digits(good: bytes) -> None:
    assert texts.decode_hello_2(good) == int(good[6:], 16)


@pytest.mark.parametrize(
    "bad", [b"", b"HELLO", b"HELLO ", b"HELLO a", b"HELLO 1 ", b"HELLO 1\n", b" HELLO 1", b"HELLO 123456789", b"\xff"]
)
def test_other_bytes_are_not_a_hello(bad: bytes) -> None:
    assert texts.decode_hello_2(bad) is None


@pytest.mark.parametrize(
    "bad", [b"", b"HELLO", b"HELLO A", b"HELLO -1", b"HELLO 1\n", b"HELLO 12345678901", "HELLO ٣".encode()]
)
def test_a_port_is_a_decimal_number(bad: bytes) -> None:
    assert texts.decode_hello_1(bad) is None


@given(keys, sessions, addresses)
def test_messages_are_decoded_as_they_were_encoded(key: int, session_id: int, address: EchoAddress) -> None:
    assert texts.decode_hello_2(texts.encode_hello_2(key)) == key
    assert texts.decode_response(texts.encode_connect(session_id, key, address), session_id, key) == address


@given(sessions, sessions, keys, addresses)
def test_a_response_to_another_session_is_ignored(own: int, other: int, key: int, address: EchoAddress) -> None:
    expected = address if own == other else None
    assert texts.decode_response(texts.encode_connect(other, key, address), own, key) == expected


@given(st.text(max_size=50), sessions)
def test_a_refusal_keeps_its_text(text: str, session_id: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert texts.decode_response(texts.encode_refusal(session_id, text), session_id, 0) == Refused(text)
    assert texts.decode_reply(texts.encode_error(text)) == Refused(text)


@given(st.binary(max_size=200))
def test_an_echo_can_have_any_bytes(payload: bytes) -> None:
    assert texts.decode_echo(texts.encode_echo(payload)) == payload
    assert texts.decode_reply(texts.encode_echo(payload)) == payload


@given(st.binary(max_size=100), sessions, keys)
def test_decoders_accept_any_bytes(message: bytes, session_id: int, key: int) -> None:
    assert texts.decode_hello_1(message) is None or message.startswith(b"HELLO ")
    assert texts.decode_hello_2(message) is None or message.startswith(b"HELLO ")
    assert texts.decode_response(message, session_id, key) is None or message.startswith(b"%d " % session_id)
    assert isinstance(texts.decode_reply(message), bytes | Refused | Unreadable)


@pytest.mark.parametrize(
    "text",
    [
        b"CONNECT 0 1 A",
        b"CONNECT 1 65536 A",
        b"CONNECT 1 2 0",
        b"CONNECT 1 2 80000000",
        b"CONNECT 1 2 a",
        b"CONNECT 1 2",
    ],
)
def test_an_invalid_duologue_address_is_unreadable(text: bytes) -> None:
    assert texts.decode_response(b"5 " + text, 5, 0) == Unreadable(b"5 " + text)


def test_an_unreadable_message_is_shown_shortened() -> None:
    assert str(Unreadable(b"a\xff")) == "'a\\\\xff'"
    assert len(str(Unreadable(b"x" * 1_000))) == 85
