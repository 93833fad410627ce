"""Both Spark sources plan alike: an offset of one is continued by the other, and has the same text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jvm_answers import Answers, java_answers
from tests.jvm_planner import planner_answer
from tests.spark.histories import History

PRINTS: Final = ("0a0b0c0d", "ffffffff", "00000000")
GOOD: Final = {"done": "", "fingerprints": {"a/1": PRINTS[0]}, "recordings": {"a/1": 64}, "v": 1}

archives = st.sampled_from(("embedded", "aeron:udp?endpoint=a:8010", "é", "a/b", "\U0001f600", "￿"))
keys = st.builds("{}/{}".format, archives, st.integers(0, 5) | st.sampled_from((127, 128, 2**63 - 1)))
numbers = st.integers(0, 20).map(lambda frames: frames * 32) | st.integers(0, 2**58 - 1).map(lambda frames: frames * 32)
near = st.integers(0, 6).map(lambda frames: frames * 32)
positions = near | near | numbers | st.integers(0, 200)
prints = st.sampled_from(PRINTS)
channels = st.sampled_from(
    ("aeron:ipc", "aeron:ipc?term-length=64k", "aeron:udp?endpoint=LOCALHOST:40123|mtu=1408", "udp")
)
streams = st.fixed_dictionaries({"channel": channels, "id": st.integers(7, 8)}) | st.just(
    {"name": "flights", "servers": {"b:1": "key 1", "a:2": "key 2"}}
)


def offset_text(parts: dict[str, Any], known: list[tuple[str, int, str, bool, int, int]]) -> str:
    """Return an offset with these recordings; of each the number says in which other parts it is."""
    value: dict[str, Any] = {"recordings": {}, "fingerprints": {}, "v": 1, **parts}
    for key, position, fingerprint, _, _, where in known:
        value["recordings"][key] = position
        value["fingerprints"][key] = fingerprint
        for bit, name in enumerate(("joined", "begins", "origin")):
            if where >> bit & 1:
                value.setdefault(name, {})[key] = position // 2
    return json.dumps(value)


recordings = st.lists(
    st.tuples(keys, positions, prints, st.booleans(), st.integers(0, 3), st.integers(0, 7)),
    max_size=4,
    unique_by=lambda one: one[0],
)
# packed by the wire format of offsets: of archive "a" and "embedded" some recordings, and texts that are damaged
packed = st.sampled_from(
    ("", "", "CGVtYmVkZGVkAQOAAQAKCwwN", "AWEBAQEACgsMDQ==", "AWEBAQEACgsMDR==", "AWEB", "?", "gQg=",
     "AQABAQEACgsMDQ==",
     "AWH/////////////fwEBAAAAAA==", "AWEBAf//////////fwEAAAAA", "Af8BAQEACgsMDQ==", "AWEAAWEBAQEACgsMDQ==", "é")
)  # fmt: skip


def some_parts(packed_texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Return some other parts of an offset."""
    return st.fixed_dictionaries(
        {"done": packed_texts},
        optional={
            "initial": st.booleans(),
            "turn": keys,
            "stream": streams,
            "payload": st.sampled_from(("raw", "framed", "arrow")),
            "marks": st.sampled_from(("", "CGVtYmVkZGVkAQABAAAABQ==")),
            "epochs": st.just({}),
        },
    )


offsets = st.builds(offset_text, some_parts(st.sampled_from(("", "CGVtYmVkZGVkAQOAAQAKCwwN"))), recordings)
texts = st.builds(offset_text, some_parts(packed), recordings)
wrong_values = st.sampled_from(
    (None, True, 0, -1, 7, 2**63, 1.5, -0.0, 1e16, 1e-5, 123456789.125, 5e-324, "", "text",
     "\x7f\"\\é\U0001f600", [], [1, {"a": None}], {},
     {"a/1": 32}, {"a/01": 32}, {"a/9223372036854775808": 1}, {"/1": 1}, {"\ud800/1": 1}, {"a/1": "0a0b0c0d"},
     {"a/1": True}, "x" * 100, {"channel": "aeron:ipc", "id": 7}, {"channel": "x", "id": 7},
     {"channel": "aeron:ipc", "id": 2**31}, {"name": "s", "servers": {}})
)  # fmt: skip
# not "epochs": Java has none, and refuses them except in the offset of a stream of servers
names = st.sampled_from(
    ("begins", "done", "fingerprints", "initial", "joined", "marks", "origin", "payload", "recordings", "stream",
     "turn", "v", "more", "é" * 90)
)  # fmt: skip
damaged = st.builds(lambda name, value: json.dumps({**GOOD, name: value}), names, wrong_values) | wrong_values.map(
    json.dumps
)
states = st.lists(
    st.fixed_dictionaries(
        {
            "key": keys, "fingerprint": prints, "start": near, "end": positions, "active": st.booleans(),
            "termLength": st.just(65536), "mtu": st.just(1408),
        }
    ),
    max_size=4,
    unique_by=lambda state: state["key"],
)  # fmt: skip


@st.composite
def advances(draw: st.DrawFn) -> dict[str, Any]:
    """Return a batch of an offset: of its recordings some remain, some are others now, and some are new."""
    known = draw(recordings)
    parts = draw(
        st.fixed_dictionaries({"done": st.just("CGVtYmVkZGVkAQOAAQAKCwwN")}, optional={"initial": st.booleans()})
    )
    present = draw(states)
    for key, position, fingerprint, active, tail, _ in known:
        if all(state["key"] != key for state in present) and draw(st.booleans()):
            end = min(position + 32 * tail, 2**63 - 32)  # positions have 63 bits
            present.append(
                {"key": key, "fingerprint": fingerprint, "start": 0, "end": end, "active": active, "termLength": 65536,
                 "mtu": 1408}
            )  # fmt: skip
    ends = {
        one["key"]: one["start"] + 32 * draw(st.integers(0, 3)) if draw(st.booleans()) else one["end"]
        for one in present
    }
    some = st.lists(st.sampled_from(sorted(ends)), unique=True, max_size=3) if ends else st.just([])
    moved = draw(some)
    begins = dict.fromkeys({*moved, *draw(some)}, 32)
    end = {"positions": ends, "states": present, "begins": begins, "finished": draw(some), "moved": moved}
    return {"do": "advance", "start": offset_text(parts, known), "turn": draw(st.none() | keys), **end}


@st.composite
def marks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a recording of two terms, a position, and its bytes at two times."""
    state = {
        "key": "a/1",
        "fingerprint": PRINTS[0],
        "active": True,
        "termLength": 256,
        "mtu": draw(st.sampled_from((64, 1408))),
    }
    start = draw(st.sampled_from((0, 32, 256)))
    log = bytes(range(256)) * 2
    at = draw(st.integers(0, 511))
    later = log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]
    length = draw(st.sampled_from((512, 300)))
    position = draw(st.integers(0, 17)) * 32 + draw(st.sampled_from((0, 0, 0, 1)))
    state |= {"start": start, "end": draw(st.sampled_from((512, 256)))}
    return {"do": "mark", "states": [state], "position": position, "log": log[:length].hex(), "later": later.hex()}


@st.composite
def ends(draw: st.DrawFn) -> dict[str, Any]:
    """Return recordings with messages of several lengths, some incomplete at the end, and the limits of a batch."""
    present = draw(states)
    positions, messages = {}, {}
    for state in present:
        lengths = draw(st.lists(st.sampled_from((32, 64, 64, 320)), max_size=6))
        positions[state["key"]] = state["start"]
        messages[state["key"]] = [state["start"] + sum(lengths[: at + 1]) for at in range(len(lengths))]
        state["end"] = state["start"] + max(0, sum(lengths) - draw(st.sampled_from((0, 0, 32))))
    wanted = [state["key"] for state in present if draw(st.integers(0, 4))]
    limits = {"maxBytes": draw(st.none() | st.integers(0, 900)), "maxRows": draw(st.none() | st.integers(0, 12))}
    case = {"do": "end", "positions": positions, "states": present, "wanted": wanted, "messages": messages, **limits}
    return {**case, "turn": draw(st.none() | keys)}


def cases(name: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"do": st.just(name), **parts})


planned = st.one_of(
    cases("parse", start=texts),
    cases("parse", start=damaged),
    cases("begin", start=offsets, end=offsets),
    cases("finish", start=offsets, finished=st.dictionaries(keys, prints, max_size=3)),
    cases("ofStream", start=offsets, channel=channels.filter(lambda one: one != "udp"), streamId=st.integers(7, 8)),
    cases("first", states=states, channel=st.just("aeron:ipc"), streamId=st.just(7)).map(
        lambda case: {**case, "positions": {one["key"]: one["start"] for one in case["states"]}}
    ),
    advances(),
    advances(),
    marks(),
    ends(),
    ends(),
)


@pytest.fixture(scope="module")
def java() -> Iterator[Answers]:
    with java_answers("plan/PlannerAnswers.java") as answers:
        yield answers


@given(case=planned)
@settings(max_examples=1_400, deadline=None)
def test_both_sources_plan_alike(java: Answers, case: dict[str, Any]) -> None:
    assert java.answer(**case) == planner_answer(case)


def play(java: Answers, seed: int) -> int:
    """Play a history, and compare each answer; return the number of messages that the query has read."""
    history = History(seed)
    history.play(6)
    history.check()
    for case, answers in zip(history.cases, history.answers, strict=True):
        assert java.answer(**case)["answers"] == answers, seed
    return history.read.total()


def test_both_sources_plan_the_batches_of_a_changing_archive_alike(java: Answers) -> None:
    """As all answers are equal, a query may change its source after each step of a history."""
    assert sum(play(java, seed) for seed in range(80)) > 1_000


@pytest.mark.full("3,000 histories take a minute")
def test_both_sources_plan_many_histories_alike(java: Answers, rng: random.Random) -> None:
    assert sum(play(java, rng.randrange(1 << 32)) for _ in range(3_000)) > 50_000
