"""A grant covers another one if it allows everything that the other one allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.protocol.grants import EVERYTHING, Grant, KeyLimits, StreamAction, StreamGrant, covers
from aeron_spark.protocol.sources import Network


def streams(pattern: str, *actions: StreamAction) -> Grant:
    return Grant(streams=(StreamGrant((pattern,), frozenset(actions)),))


FULL = Grant(
    streams=(StreamGrant(("a.*", "b"), frozenset({"read", "write"})),),
    writers=("w-*",),
    calls=("o.m",),
    messages=frozenset({"send", "receive"}),
    sends_files=True,
)


@pytest.mark.parametrize(
    "narrower",
    [
        replace(FULL, streams=()),
        replace(FULL, streams=(StreamGrant(("a.*", "b"), frozenset({"read"})),)),
        replace(FULL, streams=(StreamGrant(("a.*",), frozenset({"read", "write"})),)),
        replace(FULL, streams=(StreamGrant(("a.?", "b"), frozenset({"read", "write"})),)),
        replace(FULL, writers=()),
        replace(FULL, writers=None),
        replace(FULL, calls=()),
        replace(FULL, messages=frozenset({"send"})),
        replace(FULL, sends_files=False),
        replace(FULL, expires=2e9),
        replace(FULL, tags=(("desk",),)),
        replace(FULL, networks=((Network.parse("10.0.0.0/8"),),)),
    ],
)
def test_a_grant_that_lost_a_part_or_gained_a_condition_does_not_cover_the_older_one(narrower: Grant) -> None:
    assert not covers(narrower, FULL)
    assert covers(FULL, FULL)
    assert covers(EVERYTHING, narrower)
    assert not covers(narrower, EVERYTHING)


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [
        (streams("*", "read"), streams("prices.*", "read")),
        (streams("p*", "read", "write"), streams("prices.*", "read")),
        (Grant(tags=(("a", "b"),)), Grant(tags=(("a",), ("c",)))),
        (Grant(expires=3e9), Grant(expires=2e9)),
        (Grant(writers=("w-*",)), Grant(writers=("w-1",))),
        (Grant(), Grant(writers=())),
    ],
)
def test_wider_patterns_and_conditions_cover_narrower_ones_only(wider: Grant, narrower: Grant) -> None:
    assert covers(wider, narrower)
    assert not covers(narrower, wider)


def test_limits_do_not_count() -> None:
    assert covers(replace(FULL, limits=KeyLimits(connections=1)), FULL)


PATTERNS = st.text("ab*?[]!", min_size=1, max_size=4)


@given(PATTERNS, PATTERNS, st.text("ab*[]!?", max_size=4))
def test_a_covered_pattern_matches_no_name_that_the_covering_one_does_not(wide: str, narrow: str, name: str) -> None:
    if covers(streams(wide, "read"), streams(narrow, "read")) and streams(narrow, "read").may_use(name, "read"):
        assert streams(wide, "read").may_use(name, "read")
