"""Filter rules, alone and together."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aeron_spark.errors import OptionError, Retry
from aeron_spark.protocol.access import NOT_PERMITTED, Candidate, Filters, Rule
from aeron_spark.protocol.sources import Network, canonical_address

KEY = bytes(range(32))


def who(host: str | None = "127.0.0.1", tag: str = "") -> Candidate:
    return Candidate(None if host is None else canonical_address(host), tag, KEY)


def net(text: str) -> Network:
    return Network.parse(text)


@pytest.mark.parametrize(
    ("allow", "accepted"),
    [
        ([], True),
        (["0.0.0.0/0", "::/0"], True),
        (["1.1.1.1/32", "127.0.0.0/8"], True),
        (["1.1.1.1/32"], False),
        (["::/0"], False),
        (["::1"], False),
    ],
)
def test_row_26_without_allow_rules_all_clients_are_accepted_else_those_that_one_matches(
    allow: list[str], accepted: bool
) -> None:
    refusal = Filters([net(text) for text in allow]).refusal(who())
    assert refusal == (None if accepted else NOT_PERMITTED)
    assert (NOT_PERMITTED.code, NOT_PERMITTED.text) == ("not-permitted", "Connection was not permitted!")


def test_row_26_a_deny_rule_overrides_allow_rules() -> None:
    filters = Filters([net("127.0.0.0/8"), lambda candidate: True], [net("127.0.0.9")])
    assert filters.refusal(who("127.0.0.8")) is None
    assert filters.refusal(who("127.0.0.9")) == NOT_PERMITTED
    assert Filters(deny=[net("127.0.0.9")]).refusal(who("10.0.0.1")) is None


@pytest.mark.parametrize(
    ("text", "most"), [("0.0.0.0", 32), ("::", 128), ("::ffff:0:0", 128)], ids=["ipv4", "ipv6", "mapped"]
)
def test_row_27_prefix_lengths_are_limited(text: str, most: int) -> None:
    first = 96 if "ffff" in text else 0
    for prefix in range(first, most + 1):
        assert net(f"{text}/{prefix}").cidr.prefixlen == prefix - first
    for wrong in ("-1", str(most + 1), "", "a", "1 ", "+1", "\u0661", "1000", "255.0.0.0"):
        with pytest.raises(OptionError, match="has the prefix length"):
            net(f"{text}/{wrong}")


@given(st.ip_addresses(), st.ip_addresses(), st.data())
def test_row_27_a_rule_matches_the_leading_bits_of_its_own_family(
    rule: ipaddress.IPv4Address | ipaddress.IPv6Address,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    data: st.DataObject,
) -> None:
    assume(canonical_address(str(rule)) == rule)
    assume(canonical_address(str(address)) == address)
    prefix = data.draw(st.integers(0, rule.max_prefixlen))
    shift = rule.max_prefixlen - prefix
    base = type(rule)(int(rule) >> shift << shift)
    assume(not (base.version == 6 and prefix >= 96 and base.ipv4_mapped))
    network = net(f"{base}/{prefix}")
    assert network.matches(rule)
    same = rule.version == address.version and int(rule) >> shift == int(address) >> shift
    assert network.matches(address) == same
    assert net(str(network)) == network


def test_row_27_rules_of_one_family_never_match_the_other() -> None:
    assert not net("0.0.0.0/0").matches(ip_address("::1"))
    assert not net("::/0").matches(ip_address("127.0.0.1"))


def test_a_rule_for_mapped_ipv4_matches_ipv4() -> None:
    assert net("::ffff:10.0.0.0/104") == net("10.0.0.0/8")
    assert Filters([net("::ffff:127.0.0.1")]).refusal(who("::ffff:127.0.0.1")) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "does not begin with an IP address"),
        ("localhost", "does not begin with an IP address"),
        ("/8", "does not begin with an IP address"),
        ("10.0.0.0:80", "does not begin with an IP address"),
        ("fe80::%eth0/64", "has a zone"),
        ("10.0.0.7/8", "Write 10.0.0.0/8 for the network, or 10.0.0.7/32 for the host"),
        ("2001:db8::1/64", "Write 2001:db8::/64 for the network, or 2001:db8::1/128 for the host"),
    ],
)
def test_text_that_is_not_a_network_is_refused_with_a_remedy(text: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        net(text)


def test_row_28_a_filter_function_gets_address_tag_and_key() -> None:
    seen = []

    def ours(candidate: Candidate) -> bool:
        seen.append(candidate)
        return candidate.tag == "ok"

    filters = Filters([ours])
    assert filters.refusal(who("10.0.0.1", "ok")) is None
    assert filters.refusal(who("10.0.0.1", "no")) == NOT_PERMITTED
    assert seen == [Candidate(ip_address("10.0.0.1"), tag, KEY) for tag in ("ok", "no")]
    assert Filters(deny=[ours]).refusal(who(tag="ok")) == NOT_PERMITTED
    assert Filters(deny=[ours]).refusal(who(tag="no")) is None


def broken(candidate: Candidate) -> bool:
    raise KeyError("our own mistake")


async def awaited(candidate: Candidate) -> bool:
    return False


@pytest.mark.parametrize("place", ["allow", "deny"])
def test_an_asynchronous_filter_is_refused_at_once(place: str) -> None:
    rules: dict[str, Any] = {place: [awaited]}
    with pytest.raises(OptionError, match="'awaited' is asynchronous"):
        Filters(**rules)


@pytest.mark.parametrize("place", ["allow", "deny"])
def test_a_filter_that_raises_refuses_the_client_and_is_reported(place: str) -> None:
    rules: dict[str, Any] = {place: [broken]}
    refusal = Filters(**rules).refusal(who())
    assert refusal is not None
    assert (refusal.code, refusal.advice.retry) == ("server-error", Retry.SOON)
    assert isinstance(refusal.cause, KeyError)
    assert "mistake" not in refusal.text


@pytest.mark.parametrize("rule", [lambda candidate: None, lambda candidate: 1, lambda candidate: "no"])
@pytest.mark.parametrize("place", ["allow", "deny"])
def test_a_filter_must_return_true_or_false(rule: Callable[[Candidate], Any], place: str) -> None:
    rules: dict[str, Any] = {place: [rule]}
    refusal = Filters(**rules).refusal(who())
    assert refusal is not None
    assert refusal.code == "server-error"
    assert "returned a" in str(refusal.cause)


@pytest.mark.parametrize(
    ("allow", "deny", "accepted"),
    [
        ([net("1.1.1.1/32")], [], True),
        ([], [net("0.0.0.0/0"), net("::/0")], True),
        ([net("1.1.1.1/32"), lambda candidate: False], [], False),
        ([net("1.1.1.1/32"), lambda candidate: True], [], True),
        ([], [lambda candidate: candidate.address is None], False),
    ],
)
def test_row_25_networks_do_not_apply_to_shared_memory(allow: list[Rule], deny: list[Rule], accepted: bool) -> None:
    assert Filters(allow, deny).refusal(who(None)) == (None if accepted else NOT_PERMITTED)
