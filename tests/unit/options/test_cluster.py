"""The options of a cluster's log: they replace channel and stream id, and set the framing of its messages."""

from __future__ import annotations

import pickle

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import DirectRoute, ReadOptions, WriteOptions
from aeron_spark.options.stream_options import CLUSTER_EVENTS
from aeron_spark.sbe.settings import Framing

LOG = {"cluster": "log"}
SBE = {**LOG, "payload": "sbe"}
SCHEMA = {"sbeSchema": "<messageSchema/>"}


def parse(streaming: bool = True, **options: str) -> ReadOptions:
    return ReadOptions.parse(options, streaming=streaming)


def test_the_log_is_a_stream_of_its_own() -> None:
    options = pickle.loads(pickle.dumps(parse(**LOG, aeronDir="/dev/shm/member")))
    assert isinstance(options.route, DirectRoute)
    assert (options.route.stream_id, options.route.label, options.cluster_log) == (100, "the cluster's log", True)
    assert not options.route.cluster_uncommitted
    assert not parse(channel="aeron:ipc", streamId="1").cluster_log


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({**LOG, "channel": "aeron:ipc"}, "option 'cluster' selects the log of a cluster, and 'channel' another"),
        ({**LOG, "streamId": "100"}, "option 'cluster' selects the log of a cluster, and 'streamId' another"),
        ({"cluster": "snapshot"}, "option 'cluster' must be"),
        ({**LOG, "archive": "aeron:udp?endpoint=a:1,aeron:udp?endpoint=b:1"}, "names 2 archives, and each has the"),
        ({**LOG, "record": "auto"}, "option 'record' has no effect on the log of a cluster"),
        ({**LOG, "server": "feeds.example:20121"}, "option 'cluster' is only for the direct route"),
        ({"channel": "aeron:ipc", "streamId": "1", "clusterUncommitted": "true"}, "'cluster' is missing"),
        ({"channel": "aeron:ipc", "streamId": "1", "clusterEvents": "true"}, "option 'clusterEvents' needs cluster"),
        ({**LOG, "clusterEvents": "true"}, "option 'clusterEvents' needs payload=sbe"),
        ({**SBE, **SCHEMA, "clusterEvents": "true"}, "and 'sbeSchema' is for messages of its clients"),
        ({**SBE, "clusterEvents": "true", "sbeFraming": "one"}, "and 'sbeFraming' is for messages of its clients"),
        (SBE, "'sbeSchema' is missing"),
    ],
)
def test_contradictions_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text) as raised:
        parse(**options)
    assert raised.value.remedy


def test_a_batch_ignores_the_option_record() -> None:
    assert parse(streaming=False, **LOG, record="never").ignored == ("record",)


def test_a_writer_does_not_write_to_the_log() -> None:
    with pytest.raises(OptionError, match="option 'cluster' is only for reading"):
        WriteOptions.parse(LOG, streaming=False)


def test_messages_of_clients_are_behind_the_session_header_unless_another_framing_is_given() -> None:
    assert parse(**SBE, **SCHEMA).reader_settings(metadata=False).framing is Framing.CLUSTER
    assert parse(**SBE, **SCHEMA, sbeFraming="one").reader_settings(metadata=False).framing is Framing.ONE
    elsewhere = parse(channel="aeron:ipc", streamId="1", payload="sbe", **SCHEMA)
    assert elsewhere.reader_settings(metadata=False).framing is Framing.ONE


def test_events_are_messages_of_the_clusters_own_schema() -> None:
    settings = parse(**SBE, clusterEvents="true").reader_settings(metadata=True)
    assert (settings.messages, settings.others, settings.framing) == (CLUSTER_EVENTS, "skip", Framing.ONE)
    assert settings.metadata
    chosen = parse(**SBE, clusterEvents="true", sbeMessage="TimerEvent", sbeOthers="fail")
    settings = chosen.reader_settings(metadata=False)
    assert (settings.messages, settings.others) == (("TimerEvent",), "fail")
