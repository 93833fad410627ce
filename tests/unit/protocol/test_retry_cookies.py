"""A cookie is good for one address, one HELLO, one time, and not for long."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.protocol.retry_cookies import COOKIE_BYTES, Cookies

CORE = b"AS\x01\x01" + b"k" * 16 + b" " + b"e" * 32


def cookies(**settings: float) -> Cookies:
    return Cookies(random.Random(1).randbytes, 100.0, **settings)  # type: ignore[arg-type]


def test_a_cookie_is_accepted_once() -> None:
    jar = cookies()
    cookie = jar.make(100.0, "10.0.0.1", CORE)
    assert len(cookie) == COOKIE_BYTES
    assert jar.accept(101.0, "10.0.0.1", CORE, cookie)
    assert not jar.accept(101.0, "10.0.0.1", CORE, cookie)


@pytest.mark.parametrize(
    ("address", "core"),
    [("10.0.0.2", CORE), ("10.0.0.11", CORE), ("10.0.0.", b"1" + CORE), ("10.0.0.1", CORE + b"x"), ("::1", CORE)],
)
def test_a_cookie_is_valid_for_one_address_and_one_hello(address: str, core: bytes) -> None:
    jar = cookies()
    cookie = jar.make(100.0, "10.0.0.1", CORE)
    assert not jar.accept(100.0, address, core, cookie)
    assert jar.accept(100.0, "10.0.0.1", CORE, cookie)


def test_an_altered_or_truncated_cookie_is_refused() -> None:
    jar = cookies()
    cookie = jar.make(100.0, "10.0.0.1", CORE)
    for bit in range(len(cookie) * 8):
        changed = bytearray(cookie)
        changed[bit // 8] ^= 1 << bit % 8
        assert not jar.accept(100.0, "10.0.0.1", CORE, bytes(changed))
    for length in range(len(cookie)):
        assert not jar.accept(100.0, "10.0.0.1", CORE, cookie[:length])
    assert jar.accept(100.0, "10.0.0.1", CORE, cookie)


@pytest.mark.parametrize(
    ("minted", "shown", "good"),
    [(100, 159, True), (100, 219, True), (100, 220, False), (159, 160, True), (159, 219.9, True), (159, 221, False),
     (219, 279, True), (219, 280, False), (100, 10_000, False)],
)  # fmt: skip
def test_a_cookie_is_valid_for_one_to_two_periods(minted: float, shown: float, good: bool) -> None:
    jar = cookies(period_s=60.0)
    cookie = jar.make(minted, "10.0.0.1", CORE)
    assert jar.accept(shown, "10.0.0.1", CORE, cookie) is good


@given(st.lists(st.floats(0, 200), min_size=1, max_size=20))
def test_no_cookie_is_valid_for_less_than_one_period_or_more_than_two(pauses: list[float]) -> None:
    jar = cookies(period_s=60.0)
    now, minted = 100.0, []
    for pause in pauses:
        now += pause
        minted.append((now, jar.make(now, "10.0.0.1", b"%f" % now)))
        jar.make(now, "10.0.0.2", CORE)
    for born, cookie in minted:
        good = jar.accept(now, "10.0.0.1", b"%f" % born, cookie)
        if now - born < 60 - 1e-6:
            assert good or minted.count((born, cookie)) > 1
        if now - born > 120 + 1e-6:
            assert not good


def test_row_40_a_repeated_hello_is_not_accepted_while_its_cookie_is_valid() -> None:
    jar = cookies(period_s=60.0)
    cookie = jar.make(150.0, "10.0.0.1", CORE)
    assert jar.accept(155.0, "10.0.0.1", CORE, cookie)
    assert not any(jar.accept(now, "10.0.0.1", CORE, cookie) for now in range(156, 400))


def test_the_number_of_spent_cookies_is_limited_and_the_oldest_is_deleted_first() -> None:
    jar = cookies(max_spent=10)
    spent = [jar.make(100.0, "10.0.0.1", b"%d" % number) for number in range(15)]
    for number, cookie in enumerate(spent):
        assert jar.accept(100.0, "10.0.0.1", b"%d" % number, cookie)
    assert jar.spent_count == 10
    assert not jar.accept(100.0, "10.0.0.1", b"14", spent[14])
    assert jar.accept(100.0, "10.0.0.1", b"0", spent[0])


def test_spent_cookies_are_deleted_with_their_secret() -> None:
    jar = cookies(period_s=60.0)
    for number in range(10):
        assert jar.accept(100.0, "10.0.0.1", b"%d" % number, jar.make(100.0, "10.0.0.1", b"%d" % number))
    assert jar.spent_count == 10
    jar.make(170.0, "10.0.0.1", CORE)
    assert jar.spent_count == 10
    jar.make(230.0, "10.0.0.1", CORE)
    assert jar.spent_count == 0


def test_the_number_of_the_secret_wraps() -> None:
    jar = cookies(period_s=1.0)
    for number in range(600):
        now = 100.0 + number
        assert jar.accept(now, "10.0.0.1", CORE, jar.make(now, "10.0.0.1", CORE))


@given(st.text(max_size=50), st.binary(max_size=80), st.binary(max_size=20))
def test_random_bytes_are_not_accepted_as_a_cookie(address: str, core: bytes, cookie: bytes) -> None:
    assert not cookies().accept(100.0, address, core, cookie)
