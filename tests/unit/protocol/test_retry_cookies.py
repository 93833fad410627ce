"""A cookie is valid once, for one address and one HELLO, and for a limited time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.protocol.handshake_packets import COOKIE_BYTES, Cookies
from aeron_spark.protocol.sources import IpAddress

CORE = b"AS\x01\x01" + b"k" * 16 + b" " + b"e" * 32


def cookies(**settings: float) -> Cookies:
    return Cookies(random.Random(1).randbytes, **settings)  # type: ignore[arg-type]


def test_a_cookie_is_accepted_once() -> None:
    store = cookies()
    cookie = store.make(100.0, "10.0.0.1", CORE)
    assert len(cookie) == COOKIE_BYTES
    assert store.accept(101.0, "10.0.0.1", CORE, cookie)
    assert not store.accept(101.0, "10.0.0.1", CORE, cookie)


@pytest.mark.parametrize(
    ("address", "core"),
    [("10.0.0.2", CORE), ("10.0.0.11", CORE), ("::ffff:10.0.0.2", CORE), ("10.0.0.1", CORE + b"x"), ("::1", CORE)],
)
def test_a_cookie_is_valid_for_one_address_and_one_hello(address: str, core: bytes) -> None:
    store = cookies()
    cookie = store.make(100.0, "10.0.0.1", CORE)
    assert not store.accept(100.0, address, core, cookie)
    assert store.accept(100.0, "10.0.0.1", CORE, cookie)


def test_an_altered_or_truncated_cookie_is_refused() -> None:
    store = cookies()
    cookie = store.make(100.0, "10.0.0.1", CORE)
    for bit in range(len(cookie) * 8):
        changed = bytearray(cookie)
        changed[bit // 8] ^= 1 << bit % 8
        assert not store.accept(100.0, "10.0.0.1", CORE, bytes(changed))
    for length in range(len(cookie)):
        assert not store.accept(100.0, "10.0.0.1", CORE, cookie[:length])
    assert store.accept(100.0, "10.0.0.1", CORE, cookie)


@pytest.mark.parametrize(
    ("made", "shown", "is_valid"),
    [(120, 179, True), (120, 239, True), (120, 240, False), (179, 180, True), (179, 239.9, True), (179, 241, False),
     (239, 299, True), (239, 300, False), (120, 10_000, False)],
)  # fmt: skip
def test_a_cookie_is_valid_for_one_to_two_periods(made: float, shown: float, is_valid: bool) -> None:
    store = cookies(period_s=60.0)
    cookie = store.make(made, "10.0.0.1", CORE)
    assert store.accept(shown, "10.0.0.1", CORE, cookie) is is_valid


@given(st.lists(st.floats(0, 200), min_size=1, max_size=20))
def test_no_cookie_is_valid_for_less_than_one_period_or_more_than_two(pauses: list[float]) -> None:
    store = cookies(period_s=60.0)
    now, made = 100.0, []
    for pause in pauses:
        now += pause
        made.append((now, store.make(now, "10.0.0.1", b"%f" % now)))
        store.make(now, "10.0.0.2", CORE)
    for made_at, cookie in made:
        is_valid = store.accept(now, "10.0.0.1", b"%f" % made_at, cookie)
        if now - made_at < 60 - 1e-6:
            assert is_valid or [one for _, one in made].count(cookie) > 1  # two times with the same text
        if now - made_at > 120 + 1e-6:
            assert not is_valid


def test_row_40_a_repeated_hello_is_not_accepted_while_its_cookie_is_valid() -> None:
    store = cookies(period_s=60.0)
    cookie = store.make(150.0, "10.0.0.1", CORE)
    assert store.accept(155.0, "10.0.0.1", CORE, cookie)
    assert not any(store.accept(now, "10.0.0.1", CORE, cookie) for now in range(156, 400))


def test_the_number_of_spent_cookies_is_limited_and_the_oldest_is_deleted_first() -> None:
    store = cookies(max_spent=10)
    spent = [store.make(100.0, "10.0.0.1", b"%d" % number) for number in range(15)]
    for number, cookie in enumerate(spent):
        assert store.accept(100.0, "10.0.0.1", b"%d" % number, cookie)
    assert store.spent_count == 10
    assert not store.accept(100.0, "10.0.0.1", b"14", spent[14])
    assert store.accept(100.0, "10.0.0.1", b"0", spent[0])


def test_spent_cookies_are_deleted_with_their_secret() -> None:
    store = cookies(period_s=60.0)
    for number in range(10):
        assert store.accept(100.0, "10.0.0.1", b"%d" % number, store.make(100.0, "10.0.0.1", b"%d" % number))
    assert store.spent_count == 10
    store.make(170.0, "10.0.0.1", CORE)
    assert store.spent_count == 10
    store.make(230.0, "10.0.0.1", CORE)
    assert store.spent_count == 0


def test_the_number_of_the_secret_wraps() -> None:
    store = cookies(period_s=1.0)
    for number in range(600):
        now = 100.0 + number
        assert store.accept(now, "10.0.0.1", CORE, store.make(now, "10.0.0.1", CORE))


@given(st.ip_addresses(), st.binary(max_size=80), st.binary(max_size=20))
def test_random_bytes_are_not_accepted_as_a_cookie(address: IpAddress, core: bytes, cookie: bytes) -> None:
    assert not cookies().accept(100.0, str(address), core, cookie)


def test_the_guard_makes_the_same_cookies() -> None:
    """``HelloCookiesTest`` in Java has the same values."""
    store = Cookies(lambda size: bytes(range(size)))
    assert store.make(90.0, "10.0.0.1", CORE).hex() == "01dfcd227f18f6b1cb6307152d06c7ff92"
    assert store.make(150.0, "2001:db8::1", CORE).hex() == "02d87bbb5ab85dadca738c21484ead9308"
