"""An offset names its stream, and a checkpoint is not used for another stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.log.api import (
    DirectStream,
    Log,
    RecordingState,
    ServerStream,
    SourceStream,
    canonical_channel,
    direct_stream,
    joined_stream,
    parse_stream,
)
from aeron_spark.log.offsets import Offset, begin
from aeron_spark.log.query import QueryPlanner
from aeron_spark.options import ReadOptions
from aeron_spark.transport.channel import ChannelUri, same_stream
from tests.unit.log.fake_log import FakeLog

ONE = direct_stream("aeron:udp?endpoint=localhost:40123", 1001)
SERVERS = ServerStream("flights", {"a:1": "KeyA", "b:1": "KeyB"})
CHANNELS = st.sampled_from(
    [
        "aeron:ipc",
        "aeron:ipc?alias=flights|term-length=64k",
        "aeron-spy:aeron:udp?endpoint=LOCALHOST:40123",
        "aeron:udp?endpoint=localhost:40123|mtu=1408",
        "aeron:udp?endpoint=localhost:40124",
        "aeron:udp?endpoint=224.0.1.1:40123|interface=10.0.0.7/8",
        "aeron:udp?endpoint=224.0.1.1:40123|interface=10.9.9.9/8",
        "aeron:udp?endpoint=224.0.1.1:40123|interface={eth0}",
        "aeron:udp?control=localhost:40200|control-mode=dynamic",
        "aeron:udp?control=localhost:40200|control-mode=dynamic|endpoint=localhost:0",
        "aeron:udp?control=localhost:40200|control-mode=manual|endpoint=localhost:0",
    ]
)


@given(CHANNELS, CHANNELS)
def test_two_channels_have_the_same_canonical_text_if_and_only_if_they_carry_the_same_streams(
    one: str, other: str
) -> None:
    same = same_stream(ChannelUri.parse(one), ChannelUri.parse(other))
    assert (canonical_channel(one) == canonical_channel(other)) == same
    assert canonical_channel(canonical_channel(one)) == canonical_channel(one)


@pytest.mark.parametrize("stream", [ONE, SERVERS])
def test_an_offset_names_its_stream_in_canonical_text(stream: SourceStream) -> None:
    offset = Offset({}, {}, stream=stream)
    text = json.dumps(offset.to_dict())
    assert Offset.parse(json.loads(text)) == offset
    assert list(offset.to_dict()) == sorted(offset.to_dict())
    backwards = ServerStream("flights", dict(reversed(SERVERS.servers.items())))
    assert json.dumps(backwards.to_dict()) == json.dumps(SERVERS.to_dict()), "equal offsets are equal text"


@pytest.mark.parametrize(
    "value",
    [
        "flights",
        {},
        {"channel": "aeron:ipc"},
        {"channel": "aeron:ipc", "id": "1001"},
        {"channel": "aeron:ipc", "id": True},
        {"channel": "udp", "id": 1},
        {"name": "flights", "servers": {}},
        {"name": "flights", "servers": {"a:1": 5}},
        {"name": 5, "servers": {"a:1": "key"}},
        {"channel": "aeron:ipc", "id": 1, "name": "flights"},
    ],
)
def test_the_error_for_a_damaged_stream_says_so(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_stream(value)
    with pytest.raises(DataFormatError, match="damaged: 'stream' is"):
        Offset.parse({"v": 1, "done": "", "recordings": {}, "fingerprints": {}, "stream": value})


@pytest.mark.parametrize(
    ("known", "read", "named"),
    [
        (ONE, direct_stream("aeron:udp?endpoint=localhost:40124", 1001), ("127.0.0.1:40123", "127.0.0.1:40124")),
        (ONE, direct_stream("aeron:udp?endpoint=localhost:40123", 1002), ("stream 1001 of", "stream 1002 of")),
        (ONE, SERVERS, ("stream 1001 of", "stream 'flights' of a:1")),
        (SERVERS, ONE, ("stream 'flights' of a:1", "stream 1001 of")),
        (SERVERS, ServerStream("trains", SERVERS.servers), ("'flights'", "'trains'")),
        (SERVERS, ServerStream("flights", {"c:1": "KeyC"}), ("a:1 (key KeyA)", "c:1 (key KeyC)")),
        (SERVERS, ServerStream("flights", {"a:1": "KeyX"}), ("a:1 (key KeyA)", "a:1 has another key now")),
    ],
)
def test_another_stream_is_refused_with_an_error_that_names_both(
    known: SourceStream, read: SourceStream, named: tuple[str, str]
) -> None:
    with pytest.raises(OptionError) as refused:
        Offset({}, {}, stream=known).of_stream(read)
    for text in ("the checkpoint is of", *named, "Use a new checkpointLocation"):
        assert text in str(refused.value)


def test_a_different_channel_text_for_the_same_stream_does_not_change_the_offset() -> None:
    offset = Offset({}, {}, stream=DirectStream("aeron:udp?endpoint=LOCALHOST:40123", 1001))
    assert offset.of_stream(direct_stream("aeron:udp?mtu=1408|endpoint=localhost:40123", 1001)) is offset


def test_servers_may_be_added_to_a_stream_and_a_removed_server_is_remembered() -> None:
    more = ServerStream("flights", {**SERVERS.servers, "c:1": "KeyC"})
    assert joined_stream(SERVERS, more) == more
    assert joined_stream(more, SERVERS) is more
    with pytest.raises(OptionError, match="c:1 has another key now"):
        joined_stream(more, replace(more, servers={"a:1": "KeyA", "c:1": "KeyX"}))


def test_an_offset_continues_under_the_new_name_of_its_stream() -> None:
    renamed = ServerStream("departures", SERVERS.servers, frozenset({"flights"}))
    joined = joined_stream(SERVERS, renamed)
    assert joined.to_dict() == renamed.to_dict()
    assert "flights" not in str(joined.to_dict())
    assert joined_stream(joined, renamed) is joined
    for other in (
        ServerStream("departures", SERVERS.servers), ServerStream("departures", SERVERS.servers, frozenset({"other"})),
        ServerStream("departures", {"z:1": "KeyZ"}, frozenset({"flights"})),
    ):  # fmt: skip
        with pytest.raises(OptionError, match="the checkpoint is of"):
            joined_stream(SERVERS, other)


@dataclass
class NamedLog(FakeLog):
    """A log of ``name`` that notes each call that lists its recordings or requests recording."""

    name: SourceStream = field(default_factory=lambda: ONE)
    archives: tuple[str, ...] = ("embedded",)
    uses: list[str] = field(default_factory=list)

    @property
    def stream(self) -> SourceStream:
        return self.name

    def states(self) -> list[RecordingState]:
        self.uses.append("states")
        return super().states()

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        self.uses.append("prepare")


def planner_of(log: NamedLog, **options: str) -> QueryPlanner:
    given = {"channel": "aeron:ipc", "streamId": "1001", "startingOffsets": "earliest", **options}
    return QueryPlanner(ReadOptions.parse(given, streaming=True), lambda *_: cast("Log", log), framed=False)


def without_stream(offset: Offset) -> Offset:
    """Return the offset as an older version wrote it, without a stream."""
    return Offset.parse(json.loads(json.dumps(replace(offset, stream=None).to_dict())))


MESSAGES: Mapping[str, list[tuple[int, int]]] = {"embedded/0": [(64, 1)], "embedded/1": [(64, 1)]}


def test_a_checkpoint_of_another_stream_fails_before_recordings_are_listed_or_requested() -> None:
    checkpoint = Offset.first({}, [], direct_stream("aeron:ipc", 7))
    log = NamedLog(MESSAGES)
    for limited in (True, False):
        with pytest.raises(OptionError, match=r"is of stream 7 of aeron:ipc, but the query reads stream 1001 of"):
            planner_of(log).latest(checkpoint, limited=limited)
    own = Offset.first({}, [], ONE)
    for start, end in ((own, checkpoint), (checkpoint, own)):
        with pytest.raises(OptionError, match="is of stream 7 of aeron:ipc"):
            planner_of(log).between(start, end)
    assert log.uses == []


def test_available_now_requests_no_recording_before_it_has_the_checkpoint() -> None:
    log = NamedLog(MESSAGES)
    planner = planner_of(log)
    planner.prepare_available_now()
    with pytest.raises(OptionError, match="the checkpoint is of"):
        planner.latest(Offset.first({}, [], direct_stream("aeron:ipc", 7)), limited=False)
    assert "prepare" not in log.uses


def test_a_checkpoint_without_a_stream_is_upgraded_once_by_one_batch_without_rows() -> None:
    log = NamedLog(MESSAGES)
    planner = planner_of(log)
    first = planner.latest(planner.initial(), limited=True)
    old = without_stream(first)
    assert old.stream is None
    assert old.origin is not None
    upgraded = planner.latest(old, limited=True)
    assert upgraded == first, "origin, positions and all else stay"
    assert planner.between(old, upgraded) == []
    assert planner.latest(upgraded, limited=True) is upgraded
    assert planner_of(log).latest(upgraded, limited=True) is upgraded, "nor after a restart"


def test_the_upgrade_of_an_empty_first_batch_keeps_the_origin_of_the_query() -> None:
    log = NamedLog({"embedded/0": []})
    planner = planner_of(log)
    old = without_stream(planner.initial())
    upgraded = planner.latest(old, limited=True)
    assert upgraded == replace(old, stream=ONE)
    assert upgraded.initial
    log.messages = {"embedded/0": [(64, 1)]}
    end = planner.latest(upgraded, limited=True)
    assert (end.origin, end.stream) == ({"embedded/0": 0}, ONE)
    assert begin(upgraded, end).positions() == {"embedded/0": 0}


def test_the_upgrade_keeps_new_recordings_and_reads_them_once() -> None:
    log = NamedLog({"embedded/0": [(64, 1)]})
    planner = planner_of(log)
    start = planner.latest(planner.initial(), limited=True)
    log.messages = MESSAGES
    joined = planner.latest(start, limited=True)
    assert joined.joined == {"embedded/1": 0}
    old = without_stream(joined)
    upgraded = planner.latest(old, limited=True)
    assert upgraded.joined == old.joined
    assert planner.between(old, upgraded) == []
    assert [(one.key, one.start, one.end) for one in planner.between(start, upgraded)] == [("embedded/1", 0, 64)]


def test_a_due_batch_also_upgrades_the_checkpoint() -> None:
    log = NamedLog({"embedded/0": [(64, 1)]})
    planner = planner_of(log)
    old = without_stream(planner.latest(planner.initial(), limited=True))
    log.messages = {"embedded/0": [(64, 1), (64, 1)]}
    end = planner.latest(old, limited=True)
    assert (end.position("embedded/0"), end.stream) == (128, ONE)


def test_a_batch_of_a_checkpoint_without_a_stream_is_planned_again_unchanged() -> None:
    log = NamedLog({"embedded/0": [(64, 1)]})
    planner = planner_of(log)
    end = without_stream(planner.latest(planner.initial(), limited=True))
    later = planner.initial()
    assert [(one.start, one.end) for one in planner.between(later, end)] == [(0, 64)]


def test_a_checkpoint_of_recordings_of_another_archive_is_refused() -> None:
    """Regression: if the old recordings had ended, two streams of a channel were mixed, or rows were read twice."""
    first = NamedLog(MESSAGES)
    first.stopped = frozenset(MESSAGES)
    planner = planner_of(first)
    done = planner.latest(planner.initial(), limited=True)
    assert done.archives() == {"embedded"}
    other = NamedLog({"host:8010/0": [(64, 1)]})
    other.archives = ("host:8010", "host:8011")
    for plan in (lambda: planner_of(other).latest(done, limited=True), lambda: planner_of(other).between(done, done)):
        with pytest.raises(OptionError, match="recordings of archive embedded, but the query reads archive") as caught:
            plan()
        assert "host:8010 and host:8011" in caught.value.what
        assert "new checkpointLocation" in caught.value.remedy
    assert other.boundary_calls == []
    other.archives = ("embedded", "host:8010")  # with an added archive, the query reads its recordings, too
    assert planner_of(other).latest(done, limited=True).recordings == {"host:8010/0": 64}
