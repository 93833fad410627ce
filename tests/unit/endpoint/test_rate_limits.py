"""Tests of rates: a key that used more than its buckets held waits until they are filled again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.endpoint.usage import RateLimits, Rates, Used


def charged(
    limits: RateLimits[str], rates: Rates, now: float, *, received: int = 0, sent: int = 0, messages: int = 0
) -> None:
    limits.charge("key", rates, Used(received, sent, messages), now)


def test_a_key_has_the_tokens_of_one_second_at_once_and_then_its_rate() -> None:
    limits, rates = RateLimits[str](), Rates(bytes_in=100)
    charged(limits, rates, 0, received=100)
    assert limits.may_receive("key")
    charged(limits, rates, 0, received=50)
    assert not limits.may_receive("key")
    charged(limits, rates, 0.49)
    assert not limits.may_receive("key")
    charged(limits, rates, 0.5)
    assert limits.may_receive("key")
    charged(limits, rates, 1_000, received=101)  # a bucket holds no more than one second
    assert not limits.may_receive("key")


def test_each_rate_has_its_own_bucket() -> None:
    limits, rates = RateLimits[str](), Rates(bytes_in=100, bytes_out=100, messages_in=2)
    charged(limits, rates, 0, sent=101)
    assert (limits.may_receive("key"), limits.may_send("key")) == (True, False)
    charged(limits, rates, 0, messages=3)
    assert (limits.may_receive("key"), limits.may_send("key")) == (False, False)
    charged(limits, rates, 0.5)
    assert (limits.may_receive("key"), limits.may_send("key")) == (True, True)


def test_a_changed_rate_begins_with_a_full_bucket_and_no_rate_has_none() -> None:
    limits = RateLimits[str]()
    charged(limits, Rates(bytes_in=100), 0, received=1_000)
    assert not limits.may_receive("key")
    charged(limits, Rates(bytes_in=200), 0, received=200)
    assert limits.may_receive("key")
    charged(limits, Rates(), 0, received=10**9, sent=10**9)
    assert limits.may_receive("key")
    assert limits.may_send("key")


def test_the_buckets_of_a_key_without_connections_are_kept_until_they_are_full() -> None:
    limits, rates = RateLimits[str](), Rates(bytes_in=100)
    charged(limits, rates, 0, received=300)
    limits.keep(set(), 0.5)  # the client has closed its connection, and connects again
    charged(limits, rates, 1)
    assert not limits.may_receive("key")
    limits.keep(set(), 2.9)
    assert len(limits) == 1
    limits.keep(set(), 3)
    assert len(limits) == 0


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 3)), max_size=30))
def test_what_passes_is_at_most_the_rate_beside_one_burst_and_one_excess(steps: list[tuple[int, float]]) -> None:
    limits, rates, now, passed, largest = RateLimits[str](), Rates(bytes_in=100), 0.0, 0, 0
    charged(limits, rates, now)
    for count, pause in steps:
        now += pause
        charged(limits, rates, now)
        if limits.may_receive("key"):
            passed, largest = passed + count, max(largest, count)
            charged(limits, rates, now, received=count)
        assert passed <= 100 * (now + 1) + largest + 1e-6
